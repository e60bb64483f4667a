"""Places: what can be assigned to, and what assigning and removing give."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.language.operations import ExpressionError
from holdfast.language.places import APPEND, Place, Variable, assign, parse_place, read, remove
from holdfast.language.problems import Unreadable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", Place("a")), (" a ", Place("a")), ("a.b", Place("a", ("b",))), ("a-b.c-d", Place("a-b", ("c-d",))),
        ("a['b c']", Place("a", ("b c",))), ('a["b"].c', Place("a", ("b", "c"))),
        (r"a['it\'s']", Place("a", ("it's",))),
        ("a[0]", Place("a", (0,))), ("a[ 12 ].b", Place("a", (12, "b"))), ("a[]", Place("a", (APPEND,))),
        ("a[-1]", Place("a", (APPEND,))), ("a[][0]", Place("a", (APPEND, 0))),
        ("a[k]", Place("a", (Variable("k", 2, 3),))),
        ("a[my-key].x", Place("a", (Variable("my-key", 2, 8), "x"))), ("über.ß", Place("über", ("ß",))),
    ],
)  # fmt: skip
def test_places(text: str, expected: Place) -> None:
    assert parse_place(text) == expected
    assert parse_place(str(expected)).path == parse_place(str(parse_place(text))).path


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("", "a name is missing", ""), ("1a", "a name is missing", "1"), ("a.", "a key is missing after `.`", "."),
        ("a.1", "a key is missing after `.`", ".1"), ("a b", "unexpected ` `", " "), ("a[", "a key is missing", "["),
        ("a[0", "`[` is never closed", "["), ("a['b]", "the quote is never closed", "'"),
        ("a[-2]", "an index cannot", "-2"),
        ("a[k + 1]", "`]` expected, found `+`", "+"), ("a[1.5]", "a key is missing in `[…]`", "[1"),
        ("a]", "unexpected `]`", "]"), ("a" + ".b" * 40, "a place has at most 32 parts", "b"),
    ],
)  # fmt: skip
def test_what_is_no_place(text: str, message: str, place: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse_place(text)
    assert caught.value.message.startswith(message)
    assert text[caught.value.start : caught.value.end] == place


@pytest.mark.parametrize(
    ("root", "place", "value", "expected"),
    [
        (None, "a", 1, 1), (5, "a", 1, 1), (None, "a.b", 1, {"b": 1}), (None, "a.b.c", 1, {"b": {"c": 1}}),
        ({"b": {"d": 2}}, "a.b.c", 1, {"b": {"d": 2, "c": 1}}), (None, "a[]", 1, [1]), ([1], "a[-1]", 2, [1, 2]),
        (None, "a[0]", 1, [1]), ([1, 2], "a[1]", 9, [1, 9]), ([1], "a[3]", 9, [1, None, None, 9]),
        (None, "a[].b", 1, [{"b": 1}]), ({"b": [1]}, "a.b[]", 2, {"b": [1, 2]}), ({"0": 1}, "a[0]", 2, {"0": 2}),
        ({"b": None}, "a.b.c", 1, {"b": {"c": 1}}), ([[1]], "a[0][]", 2, [[1, 2]]),
    ],
)  # fmt: skip
def test_assigning(root: Any, place: str, value: Any, expected: Any) -> None:
    before = copy.deepcopy(root)
    assert assign(root, parse_place(place).path, value) == expected
    assert root == before


@pytest.mark.parametrize(
    ("root", "place", "message"),
    [
        (5, "a.b", "an integer has no keys"), ([1], "a.b", "a list has no keys"),
        ("x", "a[0]", "a string has no items"),
        ({"b": 1}, "a[]", "a map has no items"), ([], "a[5000]", "there is no item 5000"),
        ({"b": "x"}, "a.b.c", "a string has no keys"),
    ],
)  # fmt: skip
def test_what_cannot_be_assigned(root: Any, place: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        assign(root, parse_place(place).path, 1)


@pytest.mark.parametrize(
    ("root", "place", "expected"),
    [
        ({"b": 1, "c": 2}, "a.b", {"c": 2}), ([1, 2, 3], "a[1]", [1, 3]), ([1, 2], "a[-1]", [1]), ([1], "a[5]", [1]),
        ({"b": [1, 2]}, "a.b[0]", {"b": [2]}), ({"b": 1}, "a.x", {"b": 1}), ({"b": 1}, "a.b.c", {"b": 1}),
        (5, "a[0]", 5), (None, "a.b", None), ([], "a[]", []), ({"0": 1}, "a[0]", {}), ({"b": 1}, "a", None),
    ],
)  # fmt: skip
def test_removing(root: Any, place: str, expected: Any) -> None:
    before = copy.deepcopy(root)
    assert remove(root, parse_place(place).path) == expected
    assert root == before


def test_a_variable_is_a_key_or_an_index() -> None:
    place = parse_place("a[k].b[i][j]")
    assert [variable.name for variable in place.variables] == ["k", "i", "j"]
    assert place.settled({"k": "x", "i": 2, "j": -1}.__getitem__) == ("x", "b", 2, APPEND)
    for wrong in (None, True, 1.5, [1]):
        with pytest.raises(ExpressionError, match="`k`"):
            parse_place("a[k]").settled({"k": wrong}.__getitem__)
    with pytest.raises(ExpressionError, match="cannot be negative"):
        assign([1, 2], parse_place("a[k]").settled({"k": -2}.__getitem__), 0)


DATA = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
PATHS = st.lists(st.sampled_from(["a", "b", 0, 1, 2, APPEND]), max_size=4)


@given(DATA, PATHS, DATA)
def test_what_was_assigned_is_there_and_nothing_else_changed(root: Any, path: list[Any], value: Any) -> None:
    before = copy.deepcopy(root)
    try:
        made = assign(root, path, value)
    except ExpressionError:
        assert root == before
        return
    assert root == before
    if APPEND not in path and not any(isinstance(part, int) for part in path):
        assert read(made, path, "nothing") == value
    for other in ("a", "b", "c", 0, 1, 2):
        if path and other != path[0] and str(other) != str(path[0]):
            assert read(root, [other], None) == read(made, [other], None) or path[0] is APPEND


@given(DATA, PATHS)
def test_removing_changes_nothing_that_is_given(root: Any, path: list[Any]) -> None:
    before = copy.deepcopy(root)
    made = remove(root, path)
    assert root == before
    if path and APPEND not in path and all(isinstance(part, str) for part in path):
        assert read(made, path, "nothing") == "nothing"


@given(st.text("ab.[]0-1' ", max_size=15))
def test_any_text_is_a_place_or_refused(text: str) -> None:
    try:
        made = parse_place(text)
    except Unreadable:
        return
    assert str(parse_place(str(made))) == str(made)
