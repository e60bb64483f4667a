"""The filters of `transform`: golden pairs, what is refused and where, and that they end."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.language.operations import ExpressionError
from holdfast.language.transforms import FILTERS, list_of_words, parse_transforms

from .scopes import MapScope, excerpt_of, marked, read

VALUES: dict[str, Any] = {"x": 5, "s": "a-b", "l": [1, 2], "m": {"k": 1}, "re": "[0-9]+", "n": None, "bad": "(",
                          "sep": ", "}  # fmt: skip


def through(pipeline: str, value: Any) -> Any:
    excerpt, names, report = excerpt_of(pipeline, set(VALUES))
    made = parse_transforms(excerpt, names)
    assert [problem.message for problem in report.found] == []
    scope = MapScope(VALUES)
    for one in made:
        value = one(scope, value)
    return value


GOLDEN: list[tuple[str, Any, Any]] = [
    ("trim", "  a b ", "a b"), ("trim", [1, None, "", "a", 0], [1, "a", 0]), ("trim", {"a": None, "b": 0}, {"b": 0}),
    ("replace a b", "banana", "bbnana"), ("replace all a b", "banana", "bbnbnb"),
    ("replace literal . -", "a.b.c", "a-b.c"),
    ("replace all literal . -", "a.b.c", "a-b-c"), ("replace regex '[0-9]+' X", "a12b3", "aXb3"),
    ("replace all regex '([0-9])' '<$1>'", "a1b2", "a<1>b<2>"), ("replace all regex ${re} ${x}", "a12b3", "a5b5"),
    ("replace glob a*c X", "1abcbc2", "1X2"), ("replace all glob a*c X", "1abcbc2", "1Xbc2"),
    ("replace glob '?_' $1", "ab_", "a$1"),
    ("replace 'a b' 'c  d'", "a b", "c  d"), ("replace a ''", "abc", "bc"), ("replace a '${x} y'", "abc", "5 ybc"),
    ("merge", [{"a": 1}, {"b": 2, "a": 3}], {"a": 3, "b": 2}), ("merge map", [{"a": 1}], {"a": 1}),
    ("merge", [[1], [2, 1]], [1, 2, 1]),
    ("merge set", [[1], [2, 1]], [1, 2]), ("merge list", [1, [2]], [1, 2]), ("merge map", [], {}), ("merge", [], []),
    ("merge deep", [{"a": {"b": 1}}, {"a": {"c": [1]}}, {"a": {"c": [2]}}], {"a": {"b": 1, "c": [1, 2]}}),
    ("merge map lax", [None, {"a": 1}, 5], {"a": 1}), ("merge lax", [None, [1]], [1]),
    ("prepend x-", "a", "x-a"), ("append 5", [1], [1, 5]), ("append '5'", [1], [1, "5"]),
    ("append ${l}", [0], [0, 1, 2]),
    ("prepend ${m}", [1], [{"k": 1}, 1]), ("append ${x}", "a", "a5"), ("append 1.50", "a", "a1.5"),
    ("prepend 1", 2, "12"),
    ("join", ["a", 1, True], "a1true"), ("join ,", [1, 2], "1,2"), ("join ', '", [1, 2], "1, 2"),
    ("join ${sep}", [1, 2], "1, 2"),
    ("split ,", "a,b,c", ["a", "b", "c"]), ("split limit 2 ,", "a,b,c", ["a", "b,c"]), ("split '|'", "a|b", ["a", "b"]),
    ("split keep_delimiters ,", "a,b", ["a", ",", "b"]), ("split regex '[,;] *'", "a, b;c", ["a", "b", "c"]),
    ("split keep_delimiters limit 2 regex [,;]", "a,b;c", ["a", ",", "b;c"]),
    ("split literal limit", "alimitb", ["a", "b"]),
    ("split ' '", "a b", ["a", "b"]),
    ("slice 1", "abcd", "bcd"), ("slice 1 -1", "abcd", "bc"), ("slice -2", [1, 2, 3], [2, 3]),
    ("slice 0 ${x}", "abcdefg", "abcde"),
    ("remove a", {"a": 1, "b": 2}, {"b": 2}), ("remove 0", [1, 2], [2]), ("remove -1", [1, 2], [1]),
    ("remove 9", [1, 2], [1, 2]),
    ("remove z", {"a": 1}, {"a": 1}), ("remove 1", {"1": 0}, {}),
    ("type integer", "5", 5), ("type string", 5, "5"), ("type int", "5", 5), ("type boolean", "yes", True),
    ("json", '{"a": 1}', {"a": 1}), ("json", {"a": 1}, {"a": 1}), ("json parse", "[1]", [1]), ("json parse", 5, 5),
    ("json string", "a", "a"), ("json string", {"a": 1}, '{"a":1}'), ("json encode", "a", '"a"'),
    ("yaml", "a: 1", {"a": 1}),
    ("yaml", "log\n---\na: [1]", {"a": [1]}), ("yaml encode", {"a": [1]}, "a:\n  - 1\n"),
    ("yaml string", "a: 1", "a: 1"),
    ("bash", "it's", "'it'\"'\"'s'"), ("bash", {"a": 1}, "'{\"a\":1}'"), ("bash encode", "a", "'\"a\"'"),
    ("bash yaml", {"a": 1}, "'a: 1\n'"),
    ("first", [1, 2], 1), ("last", "abc", "c"), ("min", [3, 1, 2], 1), ("max", ["a", "c", "b"], "c"),
    ("min", ["1h", "90s"], "90s"),
    ("sum", [1, 2.5, 0.5], 4), ("sum", ["1m", "30s"], "1m30s"), ("sum", [], 0), ("average", [1, 2], 1.5),
    ("average", [1, 3], 2),
    ("average", ["1m", "2m"], "1m30s"), ("size", {"a": 1}, 1), ("size", "abc", 3),
    ("to_string", {"a": 1}, '{"a":1}'), ("to_string", None, "null"), ("to_string", True, "true"),
    ("to_upper_case", "a", "A"),
    ("to-lower-case", "A", "a"), ("get", 5, 5), ("get .a[0]", {"a": [7]}, 7), ("get a.b", {"a": {"b": 8}}, 8),
    ("get [1]", [1, 2], 2),
    ("get ${s}", {"a-b": 9}, 9), ("get ${x}", [0, 1, 2, 3, 4, 6], 6), ("set v", 5, 5), ("return", 5, 5), ("wait", 5, 5),
    ("trim | split , | last | to_upper_case", " a,b ", "B"), ("split '|'|size", "a|b", 2),
    ("append ' | '", "a", "a | "),
    ("append '${x} | y'", "a", "a5 | y"), ("TRIM", " a", "a"), ("append ${x > 3 || false}", [0], [0, True]),
]  # fmt: skip


@pytest.mark.parametrize(("pipeline", "value", "expected"), GOLDEN)
def test_golden_pairs(pipeline: str, value: Any, expected: Any) -> None:
    got = through(pipeline, value)
    assert got == expected
    assert type(got) is type(expected)


def test_every_filter_has_a_golden_pair() -> None:
    shown = {pipeline.split()[0].replace("-", "_") for pipeline, _, _ in GOLDEN}
    assert set(FILTERS) - shown == set()


@pytest.mark.parametrize(
    ("pipeline", "value", "message"),
    [
        ("trim", 5, "`trim`: a string, list or map is needed, not an integer"), ("first", [], "there is nothing in it"),
        ("sum", [1, "x"], "`sum`: a number is needed, not a string"), ("json", "{", "the text is not JSON"),
        ("yaml", "a: b: c", "the text is not YAML"), ("type integer", "x", "is not an integer"),
        ("get .z", {"a": 1}, "nothing at that place"),
        ("get .z", "text", "nothing at that place"), ("join", "abc", "a list is needed"),
        ("append x", {"a": 1}, "a string or list"),
        ("replace regex ${bad} x", "a", "cannot be read"), ("slice ${s}", "a", "is not an integer"),
        ("merge map", [1], "a map is needed"),
        ("remove x", [1], "by its number"), ("to_upper_case", None, "a string is needed, not null"),
        ("split ${n} | size", "a,b", None), ("replace all a '" + "x" * 3000 + "'", "a" * 1000, "too large"),
        ("min", [1, "a"], "cannot be compared"),
    ],
)  # fmt: skip
def test_what_fails_while_it_runs(pipeline: str, value: Any, message: str | None) -> None:
    if message is None:
        assert through(pipeline, value) == 1
        return
    with pytest.raises(ExpressionError, match=message):
        through(pipeline, value)


@pytest.mark.parametrize(
    ("pipeline", "message", "under", "help"),
    [
        ("trm", "there is no filter `trm`", "trm", "did you mean `trim`?"),
        ("trim x", "`trim` takes no arguments", "x", "only `trim`"),
        ("a | | b", "a filter is missing", "a | | b", "one `|`"), ("", "a filter is missing", "", ""),
        ("trim |", "a filter is missing", "", ""),
        ("resolve_expression", "there is no filter `resolve_expression`", "resolve_expression",
         "expressions are read when"),
        ("replace a", "`replace` needs a replacement", "replace", "PATTERN"),
        ("replace a b c", "unexpected `c`", "c", "quote"),
        ("replace regex glob a b", "exclude each other", "replace", ""),
        ("replace all all a b", "`all` is given twice", "all", ""),
        ("replace regex '(a' b", "`(` is never closed", "(", ""),
        ("replace regex a(?=b) c", "look-ahead is not supported", "(?=", ""),
        ("replace regex a '$1'", "there is no group 1", "$1", ""),
        ("slice", "`slice` needs where to begin", "slice", "START"),
        ("slice a", "`a` is not an integer", "a", ""),
        ("type intger", "there is no type `intger`", "intger", "integer"),
        ("json pars", "unexpected `pars`", "pars", "parse"), ("json parse string", "exclude each other", "json", ""),
        ("append", "`append` needs what to add", "append", ""), ("append a b", "unexpected `b`", "b", "quote"),
        ("get a..b", "the path cannot be read", ".", ""), ("set 1x", "a name is missing", "1", ""),
        ("set", "`set` needs a variable", "set", ""),
        ("append ${nope}", "`nope` is defined nowhere", "nope", ""), ("append ${x", "`${` is never closed", "${", ""),
        ("return | trim", "nothing can follow `return`", "", ""), ("merge list map", "exclude each other", "merge", ""),
        ("merge set deep", "`deep` means nothing", "merge", ""), ("split limit x ,", "`x` is not an integer", "x", ""),
        ("split", "`split` needs a delimiter", "split", ""),
        (" | ".join(["trim"] * 60), "more than 50 filters", "", ""),
    ],
)  # fmt: skip
def test_what_is_refused_says_where(pipeline: str, message: str, under: str, help: str) -> None:
    excerpt, names, report = excerpt_of(pipeline, set(VALUES))
    parse_transforms(excerpt, names)
    found = [problem for problem in report.errors if message in problem.message]
    assert len(found) == 1, report.found
    assert not under or marked(found[0]) == under
    assert help in found[0].help


def test_the_list_form_says_where_too() -> None:
    node, names, report = read("- trim\n- split ,\n- fist\n", VALUES)
    made = parse_transforms(node, names)
    assert [one.name for one in made] == ["trim", "split"]
    assert [(problem.line, marked(problem), problem.help) for problem in report.found] == [
        (3, "fist", "did you mean `first`?")
    ]
    for wrong in ("5", "{a: 1}", "[]", "- 5", "- [trim]"):
        node, names, report = read(wrong, VALUES)
        parse_transforms(node, names)
        assert [problem.code for problem in report.found] == ["HF0108"]


def test_what_a_step_has_to_do_itself_is_marked() -> None:
    excerpt, names, report = excerpt_of("wait | merge map wait | set a.b[0] | return", set(VALUES))
    made = parse_transforms(excerpt, names)
    assert report.found == []
    assert [(one.name, one.is_wait, str(one.place or ""), one.is_return) for one in made] == [
        ("wait", True, "", False), ("merge", True, "", False), ("set", False, "a.b[0]", False),
        ("return", False, "", True),
    ]  # fmt: skip


def test_words_make_a_list_to_merge() -> None:
    excerpt, names, report = excerpt_of("${m} ${nope ?? l} 3 'a b'", set(VALUES))
    assert list_of_words(excerpt, names).get(MapScope(VALUES)) == [{"k": 1}, [1, 2], 3, "a b"]
    assert report.errors == []


def test_filters_cost() -> None:
    excerpt, names, _ = excerpt_of("replace all regex '(a|b)+c' x", set())
    (only,) = parse_transforms(excerpt, names)
    scope = MapScope({})
    with pytest.raises(ExpressionError) as caught:
        only(scope, "ab" * 50_000)
    assert caught.value.code == "HF0161"


@given(st.text("abt rim|split'\"${}x, 1", max_size=30), st.sampled_from(["a,b", [1, "b"], {"a": 1}, 5, None]))
def test_any_text_is_a_pipeline_or_refused(pipeline: str, value: Any) -> None:
    excerpt, names, report = excerpt_of(pipeline, set(VALUES))
    made = parse_transforms(excerpt, names)
    if report.errors:
        return
    scope = MapScope(VALUES)
    for one in made:
        try:
            value = one(scope, value)
        except ExpressionError:
            return


_words = st.text("ab.*+?[](){}|^$\\_- é\n", max_size=6)


@given(_words, _words, _words, st.booleans())
def test_literal_replacing_takes_every_text_as_it_is(text: str, old: str, new: str, is_all: bool) -> None:
    excerpt, names, report = excerpt_of(f"replace {'all ' if is_all else ''}${{old}} ${{new}}", {"old", "new"})
    (only,) = parse_transforms(excerpt, names)
    assert report.errors == []
    scope = MapScope({"old": old, "new": new})
    if not old:
        with pytest.raises(ExpressionError, match="a text to look for"):
            only(scope, text)
        return
    assert only(scope, text) == text.replace(old, new, -1 if is_all else 1)


@given(_words, _words)
def test_a_glob_without_stars_is_literal(text: str, old: str) -> None:
    plain = old.replace("*", "").replace("?", "")
    excerpt, names, _ = excerpt_of("replace all glob ${old} '<$0>'", {"old"})
    (only,) = parse_transforms(excerpt, names)
    if plain:
        assert only(MapScope({"old": plain}), text) == text.replace(plain, "<$0>")


@given(st.recursive(st.text(max_size=5) | st.integers(-9, 9), lambda inner: st.lists(inner, max_size=2), max_leaves=4))
def test_bash_makes_one_word(value: Any) -> None:
    if "\0" in str(value):
        return
    assert len(shlex.split(through("bash", value))) == 1


def test_a_glob_that_is_too_long_is_an_error_of_the_expression() -> None:
    excerpt, names, _ = excerpt_of("replace glob ${long} x", {"long"})
    (only,) = parse_transforms(excerpt, names)
    with pytest.raises(ExpressionError, match="the glob cannot be used"):
        only(MapScope({"long": "a." * 4000}), "a")
