"""Selectors: what they mean, what an index answers of them, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import BadSelector
from holdfast.core.inventory import EntityRow, has_terms, term_value, terms_of
from holdfast.core.program import Wanted
from holdfast.language.problems import render
from holdfast.language.selectors import compile_selector, is_selector, selector_problems

R1 = EntityRow(
    "r1", "device", "Router 1", {"site": "ams1", "rack-row": "7", "os": "label"},
    parent="pod-1", groups=("core", "edge"),
    facts={"os": "fact", "mtu": 9000, "up": True, "version": "17.3", "chassis": {"slots": 4}, "tags": ["a", "b"]},
)  # fmt: skip
BARE = EntityRow("x")


def found(wanted: Wanted, row: EntityRow) -> bool:
    """As a store and a decision do it together."""
    return has_terms(row, wanted.terms) and (wanted.test is None or wanted.test(row))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ('type == "device"', [("type", "device")]),
        ('type == "device" && site == "ams1"', [("type", "device"), ("any.site", "ams1")]),
        ('"ams1" == site', [("any.site", "ams1")]),
        ('rack-row == "7"', [("any.rack-row", "7")]),
        ('labels.site == "ams1" && facts.mtu == 9000', [("label.site", "ams1"), ("fact.mtu", "=9000")]),
        ("labels['rack-row'] == '7'", [("label.rack-row", "7")]),
        ("mtu == 9000.0 && up == true", [("any.mtu", "=9000"), ("any.up", "=true")]),
        ('group == "core"', [("group", "core")]),
        ('"core" in groups && parent == "pod-1"', [("group", "core"), ("parent", "pod-1")]),
        ("id == 'r1'", [("id", "r1")]),
        ("facts.os == 'fact' && os == 'label'", [("fact.os", "fact"), ("any.os", "label")]),
        ("true", []),
    ],
)
def test_conjunctive_equalities_are_terms_and_need_no_test(text: str, terms: list[tuple[str, str]]) -> None:
    wanted = compile_selector(text)
    assert (wanted.kind, list(wanted.terms), wanted.test, wanted.text) == ("select", terms, None, text)
    assert found(wanted, R1)
    assert found(wanted, BARE) is (not terms)


@pytest.mark.parametrize(
    "text",
    [
        'type == "device" && facts.version >= "17"',
        "facts.chassis.slots > 2",
        "mtu >= 1500 || site == 'nowhere'",
        "!(type == 'interface')",
        "site in ['ams1', 'fra1']",
        "group in ['edge', 'other']",
        "group != 'other'",
        "starts_with(id, 'r') && matches(name, 'Router [0-9]')",
        "'a' in tags",
        "id != 'r2'",
        "missing != 'x'",
        "size(groups) == 2",
        "absent ?? true",
        "!stale",
    ],
)
def test_what_the_index_cannot_say_is_asked_of_each(text: str) -> None:
    wanted = compile_selector(text)
    assert wanted.test is not None
    assert found(wanted, R1)


@pytest.mark.parametrize(
    "text",
    [
        "missing == 'x'",
        "missing > 3",
        "facts.nothing.below == 1",
        "os == 'fact'",
        "mtu == '9000'",
        "mtu > 'text'",
        "!(mtu > 'text')",
        "site.below == 1",
        "labels.mtu == '9000'",
        "group == 'none'",
        "name == ''",
        "false",
    ],
)
def test_what_an_entity_does_not_have_selects_nothing(text: str) -> None:
    """Also behind a `!`: what cannot be judged is not worked upon."""
    assert not found(compile_selector(text), R1)


def test_only_what_is_left_is_asked() -> None:
    wanted = compile_selector("type == 'device' && (mtu > 1 || up)")
    assert wanted.terms == (("type", "device"),)
    assert wanted.test is not None
    assert wanted.test(EntityRow("x", "other", facts={"up": True}))


def test_values_of_an_input_are_values_and_never_text_of_the_selector() -> None:
    given = {"site": "ams1' || true || '", "types": ["device", "server"]}
    wanted = compile_selector("site == ${input.site} && type in input.types", given)
    assert wanted.terms == (("any.site", "ams1' || true || '"),)
    assert not found(wanted, R1)
    assert found(compile_selector("type in input.types", given), R1)
    with pytest.raises(BadSelector, match=r"`input\.nothing` is absent"):
        compile_selector("site == input.nothing", given)


@pytest.mark.parametrize(
    ("text", "code", "column", "width", "hint"),
    [
        ('type = "device"', "HF0751", 6, 1, "`==`"),
        ("type == 'device", "HF0751", 9, 1, ""),
        ("type == 'a' and site == 'b'", "HF0751", 13, 3, "&&"),
        ("id =~ 'r.*'", "HF0751", 4, 1, "matches"),
        ("site == ${input.site}", "HF0751", 9, 2, "without `${…}`"),
        ("", "HF0751", 1, 1, "type =="),
        ("begins_with(id, 'r')", "HF0122", 1, 11, "ends_with"),
        ("starts_with(id)", "HF0122", 1, 15, "starts_with("),
        ("matches(id, '(')", "HF0120", 13, 3, ""),
        ("workflow.id == 'x'", "HF0121", 1, 8, "labels.workflow"),
        ("steps.a.output == 1", "HF0121", 1, 7, ""),
        ("lower(group) == 'x'", "HF0751", 7, 5, "in groups"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(text: str, code: str, column: int, width: int, hint: str) -> None:
    with pytest.raises(BadSelector) as refused:
        compile_selector(text)
    (problem,) = refused.value.problems
    assert (problem.code, problem.line, problem.column, problem.width) == (code, 1, column, width)
    assert hint in problem.help
    if text:
        assert "^" * width in render(problem)


def test_every_problem_is_told_and_lines_are_counted() -> None:
    with pytest.raises(BadSelector) as refused:
        compile_selector("nope(id)\n&& nada(id)")
    assert [(each.line, each.column) for each in refused.value.problems] == [(1, 1), (2, 4)]


def test_a_document_asks_without_the_values() -> None:
    assert selector_problems("site == input.site", frozenset({"site"})) == []
    ((code, message, start, end, help),) = selector_problems("site == input.sit", frozenset({"site"}))
    assert (code, start, end) == ("HF0121", 8, 17)
    assert "no input" in message
    assert "site" in help


def test_a_costly_one_is_refused_and_not_silently_empty() -> None:
    wanted = compile_selector("matches(text, '(a|b|ab)*c')")
    assert wanted.test is not None
    with pytest.raises(BadSelector, match="costs too much at entity big"):
        wanted.test(EntityRow("big", facts={"text": "ab" * 500_000}))


def test_words_at_a_surface() -> None:
    assert not is_selector("r1.example.net")
    assert not is_selector("ge-0/0/1")
    assert is_selector("type=='device'")
    assert is_selector("stale || true")


# --- the index ---------------------------------------------------------------------------------------------
SCALARS = st.one_of(st.text(max_size=250), st.integers(-(2**63), 2**63 - 1), st.booleans(),
                    st.floats(allow_nan=False, allow_infinity=False))  # fmt: skip


@given(SCALARS, SCALARS)
def test_the_index_has_alike_what_is_the_same_and_nothing_else(one: Any, other: Any) -> None:
    from holdfast.language.operations import same

    assert (term_value(one) == term_value(other)) is same(one, other)


NAMES = st.sampled_from(["site", "os", "rack", "vlan"])
ROWS = st.builds(
    lambda type, labels, facts, groups, up: EntityRow("e", type, "", labels, parent=up, groups=groups, facts=facts),
    st.sampled_from(["", "device", "group"]),
    st.dictionaries(NAMES, st.sampled_from(["", "a", "=1", "1"]), max_size=3),
    st.dictionaries(NAMES, st.sampled_from(["", "a", "=1", "1", 1, 1.0, True, None, ["a"]]), max_size=4),
    st.lists(st.sampled_from(["g1", "g2"]), max_size=2, unique=True).map(tuple),
    st.sampled_from(["", "p"]),
)  # fmt: skip
CLAUSES = st.sampled_from(
    [
        "type == 'device'", "parent == 'p'", "group == 'g1'", "site == 'a'", "site == ''", "os == 1", "os == '1'",
        "rack == '=1'", "labels.site == 'a'", "facts.site == 'a'", "facts.os == true", "vlan == 1.0", "type == ''",
        "name == ''", "site != 'a'", "os > 0",
    ]
)  # fmt: skip


@given(ROWS, st.lists(CLAUSES, min_size=1, max_size=4))
def test_terms_and_test_together_say_what_the_expression_says(row: EntityRow, clauses: list[str]) -> None:
    text = " && ".join(clauses)
    # Behind a double negation nothing is a term, so all of it is evaluated.
    whole = compile_selector(f"!!({text})")
    assert whole.terms == ()
    assert found(compile_selector(text), row) is found(whole, row)


def test_a_label_hides_a_fact_of_its_name() -> None:
    assert ("hidden.os", "fact") in terms_of(R1)
    assert ("label.os", "label") in terms_of(R1)
    assert has_terms(R1, [("fact.os", "fact")])
    assert not has_terms(R1, [("any.os", "fact")])
