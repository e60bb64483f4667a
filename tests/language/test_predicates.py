"""Conditions with a subject, all tests and all that turns to another value; presence apart from null."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.language.conditions import compile_condition, compile_test
from holdfast.language.evaluate import ABSENT, FUEL
from holdfast.language.operations import ExpressionError
from holdfast.language.predicates import follow_path, glob, parse_path
from holdfast.language.problems import Unreadable

from .scopes import MapScope, marked, read

VALUES: dict[str, Any] = {
    "s": "hello\nworld", "n": None, "z": 0, "five": 5, "l": [1, 2, 3, 4], "pattern": "h.*",
    "m": {"a": {"b": [10, 20]}, "list": [{"k": 1}, {"k": 2}, {"x": 3}], "none": None}, "text": '{"a": 1}',
    "big": "x" * 250_000,
}  # fmt: skip
CAUSE = {"kind": "http", "message": "status 404\nnot found", "code": "HF1", "step": "get", "value": 404, "cause": None}
ERROR = {"kind": "step-failed", "message": "it broke", "code": "HF2", "step": "a", "value": {"x": 1}, "cause": CAUSE}
ENTITY = {("sensor", "up"): True, ("sensor", "none"): None, ("sensor", "lock-a"): "e1", ("config", "size"): 3}


def holds(condition: str, subject: Any = "no subject", error: Any = ABSENT) -> bool:
    node, names, report = read(condition, VALUES, in_handler=error is not ABSENT)
    about = None if subject == "no subject" else (lambda scope: subject)
    made = compile_condition(node, names, about)
    assert [problem.message for problem in report.errors] == []
    return made is None or made(MapScope(VALUES, error, ENTITY))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("{target: '${s}', regex: 'hello.world'}", True), ("{target: '${s}', regex: hello}", False),
        ("{target: '${s}', regex: '${pattern}'}", True), ("{target: '${five}', regex: '[0-9]'}", True),
        ("{target: '${l}', regex: '.*'}", False), ("{target: '${nope}', regex: '.*'}", False),
        ("{target: '${l}', filter: {greater-than: 2}, size: 2}", True),
        ("{target: '${m}', filter: {when: absent_or_null}, size: 1}", True),
        ("{target: '${five}', filter: 5}", False),
        ("{target: '${m}', jsonpath: '$.a.b[1]', equals: 20}", True),
        ("{target: '${m}', jsonpath: 'a.b[-1]', equals: 20}", True),
        ("{target: '${m}', jsonpath: '$.list[*].k', equals: [1, 2]}", True),
        ("{target: '${m}', jsonpath: $.zz}", False),
        ("{target: '${m}', jsonpath: $.zz, when: absent}", True),
        ("{target: '${m}', jsonpath: $.none, when: present}", True),
        ("{target: '${text}', jsonpath: $.a, equals: 1}", True),
        ("{target: '${m}', jsonpath: {name: a.b, size: 2}}", True),
        ("{target: '${m}', key: a, has-element: {size: 2}}", True), ("{target: '${l}', index: -1, equals: 4}", True),
        ("{target: '${m}', key: zz, when: absent}", True), ("{target: '${m}', key: none, when: absent}", False),
        ("{sensor: up}", True), ("{sensor: up, equals: true}", True), ("{sensor: none}", False),
        ("{sensor: none, when: present}", True), ("{sensor: zz, when: absent}", True),
        ("{sensor: 'lock-a', equals: e1}", True),
        ("{sensor: {name: up, when: truthy}}", True), ("{sensor: 'lock-${nope}', when: absent}", True),
        ("{config: size, in-range: [1, 3]}", True), ("{all: [{sensor: up}, {config: size, equals: 3}]}", True),
        ("{target: '${five}', check: {equals: 5}}", True), ("{target: '${five}', check: {equals: 6}}", False),
        ("{target: '${five}', assert: {equals: 5}}", True), ("{any: [false, true]}", True),
        ("{all: [true, false]}", False),
        ("{not: true}", False),
        ("{target: '${n}', when: absent}", False), ("{target: '${n}', when: present}", True),
        ("{target: '${nope}', when: present}", False), ("{target: '${n}', when: absent_or_null}", True),
        ("{target: '${nope.a}', when: absent}", True), ("{target: '${nope}', when: falsy}", True),
        ("{target: '${nope}', equals: null}", True), ("{target: '${1 / 0}', when: absent}", True),
        ("{target: '${nope}', not: {equals: 1}}", True), ("{target: '${entity.sensor.none}', when: present}", True),
        ("{target: '${entity.sensor.zz}', when: absent}", True),
    ],
)  # fmt: skip
def test_conditions(condition: str, expected: bool) -> None:
    assert holds(condition) is expected


@pytest.mark.parametrize(
    ("condition", "subject", "expected"),
    [
        ("5", 5, True), ("5", "5", True), ("5", 6, False), ("five", "five", True), ("'${five} > 3'", 0, True),
        ("null", None, True),
        ("'${z}'", 9, False), ("true", False, True), ("false", True, False), ("{equals: 5}", 5, True),
        ("{when: absent}", ABSENT, True),
        ("{when: absent}", None, False), ("{when: present}", None, True), ("{when: present}", ABSENT, False),
        ("{any: [{when: absent}, {equals: '${workflow.id}'}]}", ABSENT, True),
        ("{any: [{when: absent}, {equals: '${workflow.id}'}]}", "e1", True),
        ("{any: [{when: absent}, {equals: '${workflow.id}'}]}", "e2", False),
        ("{less-than: 10}", 5, True), ("{target: '${five}', equals: 5}", 9, True),
        ("{key: a, equals: 1}", {"a": 1}, True),
        ("{regex: '[a-z]+'}", "abc", True), ("{size: 0}", [], True), ("x", ABSENT, False),
    ],
)  # fmt: skip
def test_conditions_about_a_subject(condition: str, subject: Any, expected: bool) -> None:
    assert holds(condition, subject) is expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("{error-field: kind, equals: step-failed}", True), ("{error-field: {name: kind, equals: http}}", False),
        ("{error-field: nothing, when: absent}", True), ("{error-cause: {glob: '*404*'}}", True),
        ("{error-cause: {error-field: kind, equals: http}}", True), ("{error-cause: {glob: '*505*'}}", False),
        ("{error-cause: http}", True), ("{error-cause: {error-field: kind, equals: http}, error-field: value}", None),
        ("{error-cause: {error-field: kind, equals: http}, key: value, equals: 404}", None),
        ("{error-cause: {error-field: kind, equals: http}, regex: 'status.*found'}", True),
        ("{regex: 'it broke'}", True), ("{regex: 'step-failed: .*'}", True), ("{regex: broke}", False),
        ("{glob: '*brok?'}", True),
        ("step-failed", True), ("it broke", True), ("other", False), ("{equals: step-failed}", True),
        ("{key: value, jsonpath: x}", None), ("{jsonpath: value.x, equals: 1}", True),
        ("'${error.kind} == ''step-failed'''", True), ("{target: '${error.cause.value}', equals: 404}", True),
    ],
)  # fmt: skip
def test_conditions_about_an_error(condition: str, expected: bool | None) -> None:
    if expected is None:
        node, names, report = read(condition, VALUES, in_handler=True)
        compile_condition(node, names, lambda scope: ERROR)
        assert ["contradict" in problem.message for problem in report.errors] == [True]
        return
    assert holds(condition, ERROR, ERROR) is expected


def test_an_error_is_tested_without_a_subject_too() -> None:
    assert holds("{error-field: kind, equals: step-failed}", error=ERROR)
    assert holds("{error-cause: {glob: '*404*'}}", error=ERROR)
    assert holds("{error-field: kind, when: absent}")


def test_what_is_asserted_fails_where_it_does_not_hold() -> None:
    with pytest.raises(ExpressionError, match="what is asserted does not hold"):
        holds("{target: '${five}', assert: {equals: 6}}")


@pytest.mark.parametrize(
    ("condition", "code", "under", "help"),
    [
        ("{target: '${s}', regex: 'a(?=b)'}", "HF0127", "(?=", ""),
        ("{target: '${s}', regex: '(a'}", "HF0127", "(", ""),
        ("{target: '${s}', java-instance-of: X}", "HF0102", "java-instance-of", "kind"),
        ("{tag: x}", "HF0127", "", "target"),
        ("{target: '${s}', tag: x}", "HF0102", "tag", "sensor"),
        ("{target: '${s}', regx: x}", "HF0102", "regx", "regex"),
        ("{target: '${m}', jsonpath: $..a}", "HF0127", ".", ".."),
        ("{sensor: a, config: b}", "HF0127", "config", "all"),
        ("{sensor: 5}", "HF0127", "5", ""), ("{key: a, equals: 1}", "HF0127", "", "target"),
        ("{target: '${m}', key: 5}", "HF0127", "5", ""),
        ("{target: '${l}', index: a}", "HF0127", "a", ""), ("[1, 2]", "HF0127", "[1, 2]", "any"),
        ("{target: '${m}', key: {equals: 1}}", "HF0127", "", ""),
        ("{target: '${s}', equals: 1, Equals: 2}", "HF0103", "Equals", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_condition(condition: str, code: str, under: str, help: str) -> None:
    node, names, report = read(condition, VALUES)
    compile_condition(node, names)
    found = [problem for problem in report.errors if problem.code == code]
    assert len(found) == 1, report.found
    assert not under or marked(found[0]) == under
    assert help in found[0].help


@pytest.mark.parametrize(
    ("test", "value", "expected"),
    [
        ("0", 0, True), ("0", 1, False), ("{less-than: 3}", 2, True), ("{any: [0, 2]}", 2, True),
        ("{in-range: [200, 399]}", 404, False),
        ("'${five}'", 5, True), ("{when: absent}", ABSENT, True), ("{regex: '2..'}", 204, True),
        ("{not: {equals: 1}}", 0, True),
    ],
)  # fmt: skip
def test_tests_of_a_value(test: str, value: Any, expected: bool) -> None:
    node, names, report = read(test, VALUES)
    made = compile_test(node, names)
    assert report.errors == []
    assert made(MapScope(VALUES), value) is expected


def test_a_list_is_no_test() -> None:
    node, names, report = read("[200, 201]", VALUES)
    compile_test(node, names)
    assert "any:" in report.errors[0].help


def test_patterns_are_paid_for() -> None:
    node, names, report = read("{target: '${big}', regex: '.*y'}", VALUES)
    made = compile_condition(node, names)
    assert report.errors == []
    assert made is not None
    scope = MapScope(VALUES)
    assert made(scope) is False
    assert FUEL - scope.fuel > len(VALUES["big"]) // 100
    scope.fuel = 1_000
    with pytest.raises(ExpressionError, match="too many steps") as caught:
        made(scope)
    assert caught.value.code == "HF0161"


@given(st.text("ab*?", max_size=7), st.text("ab*", max_size=8))
def test_globs_agree_with_patterns(pattern: str, text: str) -> None:
    as_regex = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    assert glob(pattern, text) is (re.fullmatch(as_regex, text, re.DOTALL) is not None)


# --- paths -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", {"a": [{"b": 1}, {"b": [2]}], "x y": {"z": 0}}), ("$.a[0].b", 1), ("a[1].b[0]", 2), ("$['x y'].z", 0),
        ('$["x y"]["z"]', 0),
        ("$.a[*].b", [1, [2]]), ("$.a[*].b[*]", [2]), ("$.a[-1].b", [2]), ("$.a[9]", ABSENT), ("$.a.b", ABSENT),
        ("$.q", ABSENT),
        ("$.*.z", [0]), ("$.a[*].c", []), ("['x y'].z", 0), ("$.a[0].b[*]", ABSENT),
    ],
)  # fmt: skip
def test_paths(path: str, expected: Any) -> None:
    assert follow_path({"a": [{"b": 1}, {"b": [2]}], "x y": {"z": 0}}, parse_path(path)) == expected


@pytest.mark.parametrize("path", ["$..a", "$.a[?(@.b)]", "$.a[", "$.1", "$a", "a b", "$.", "a['b]", "$.a[1:2]"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(Unreadable):
        parse_path(path)


@given(st.text("$.ab[]*0-1' ", max_size=12))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = parse_path(text)
    except Unreadable:
        return
    follow_path({"a": [{"b": 1}], "b": {"a": 2}}, path)
