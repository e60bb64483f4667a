"""Conditions: expressions, booleans, and the map form with `target` and tests. All give true or false.

What is absent counts as null, so a condition never fails for a missing name. Tests in one map must all hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .evaluate import Scope, settle
from .load import Unstorable, scalar
from .names import Excerpt, Names, Value
from .nodes import Node, type_name
from .operations import ExpressionError, same, truthy
from .problems import did_you_mean

Test: TypeAlias = Callable[[Scope, Any], bool]

WHEN: dict[str, Callable[[Any], bool]] = {
    "absent": lambda value: value is None,
    "absent-or-null": lambda value: value is None,
    "present": lambda value: value is not None,
    "present-non-null": lambda value: value is not None,
    "truthy": truthy,
    "falsy": lambda value: not truthy(value),
    "always": lambda value: True,
    "never": lambda value: False,
}
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "less-than": lambda a, b: bool(a < b),
    "less-than-or-equal-to": lambda a, b: bool(a <= b),
    "greater-than": lambda a, b: bool(a > b),
    "greater-than-or-equal-to": lambda a, b: bool(a >= b),
}
#: key of a condition map → what it tests
TESTS = {
    "equals": "the same value; text and number are compared by value",
    **dict.fromkeys(ORDERS, "an order of numbers or of texts"),
    "in-range": "`[low, high]`, both included",
    "glob": "text with `*` and `?`",
    "size": "a test of its size",
    "has-element": "a test that one of its items passes",
    "when": ", ".join(f"`{word}`" for word in WHEN),
    "not": "a test that must not hold",
    "any": "a list of tests, one of which must hold",
    "all": "a list of tests that must all hold",
    "key": "test one of its keys instead",
    "index": "test one of its items instead",
}
_KEYS = ("target", *TESTS)


def style_free(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()


_BY_STYLE = {style_free(key): key for key in _KEYS}
_WHEN_BY_STYLE = {style_free(key): key for key in WHEN}


def compile_condition(node: Node, names: Names) -> Callable[[Scope], bool] | None:
    """A closure, or nothing if the condition always holds."""
    report = names.shared.report
    value = node.value
    if isinstance(value, bool):
        return None if value else (lambda scope: False)
    if isinstance(value, str):
        if not value.strip():
            report.add(node, "HF0127", "the condition is empty")
            return None
        test = names.test(Excerpt(value, node))
        if test.fn is None:
            return _literal(node, test, names)
        return _guarded(test)
    if isinstance(value, dict):
        if not any(style_free(key) == "target" for key in value) and not _nests_target(node):
            report.add(node, "HF0127", "the condition has no `target`",
                       help="say what is tested: `target: ${…}`")  # fmt: skip
            return None
        check = _tests(node, names)
        return lambda scope: check(scope, None)
    report.add(node, "HF0127", f"a condition is an expression, a boolean or a map, not {node.kind}")
    return None


def _nests_target(node: Node) -> bool:
    """`any`, `all` and `not` may hold the targets themselves."""
    inner = [item for key, item in node.value.items() if style_free(key) in ("any", "all", "not")]
    return bool(inner) and len(inner) == len(node.value)


def _literal(node: Node, test: Value, names: Names) -> Callable[[Scope], bool] | None:
    if isinstance(test.constant, bool):
        held = test.constant
        return None if held else (lambda scope: False)
    if test.constant is not None:
        names.shared.report.add(node, "HF0127", "the condition is always the same",
                                help="write an expression, e.g. `${x} > 3`")  # fmt: skip
    return None


def _guarded(test: Value) -> Callable[[Scope], bool]:
    def guarded(scope: Scope) -> bool:
        try:
            return truthy(test.get(scope))
        except ExpressionError as error:
            if error.absent:
                return False
            raise

    return guarded


def _lenient(value: Value) -> Callable[[Scope], Any]:
    def get(scope: Scope) -> Any:
        try:
            return settle(scope, value.get(scope), None)
        except ExpressionError as error:
            if error.absent:
                return None
            raise

    return get


def _tests(node: Node, names: Names) -> Test:
    """All tests of one map, or the value to be equal to."""
    if not isinstance(node.value, dict):
        return _equals(node, names)
    report = names.shared.report
    target: Callable[[Scope], Any] | None = None
    checks: list[Test] = []
    retargeted = ""
    seen: set[str] = set()
    for key, item in node.value.items():
        known = _BY_STYLE.get(style_free(key))
        if known is None:
            report.add(node, "HF0102", f"unknown key `{key}` in a condition", key=key,
                       label="not a test", help=did_you_mean(key, _KEYS))  # fmt: skip
            continue
        if known in seen:
            report.add(node, "HF0103", f"the key `{known}` occurs twice", key=key)
            continue
        seen.add(known)
        if known == "target":
            if isinstance(item.value, str) and "${" not in item.value:
                report.add(item, "HF0127", "the target is a fixed text", help=f"write `${{{item.value}}}`")
            target = _lenient(names.shape(item, lenient=True))
        elif known in ("key", "index"):
            retargeted = known
            checks.append(_inner(known, item, node, names))
        else:
            checks.append(_TEST[known](item, names))
    if retargeted and len(checks) > 1:
        report.add(node, "HF0127", f"other tests beside `{retargeted}` go under it", key=retargeted)
    if not checks:
        if target is None:
            report.add(node, "HF0127", "the condition tests nothing", help="add `equals`, `when`, …")
        checks.append(lambda scope, subject: subject is not None)
    if len(checks) == 1:
        only = checks[0]
        if target is None:
            return only
        get = target
        return lambda scope, subject: only(scope, get(scope))
    all_of = tuple(checks)

    def tests(scope: Scope, subject: Any) -> bool:
        value = subject if target is None else target(scope)
        return all(check(scope, value) for check in all_of)

    return tests


def _inner(known: str, item: Node, node: Node, names: Names) -> Test:
    """`key: {name: k, …tests}` tests the value at that key; a scalar tests that it is there."""
    report = names.shared.report
    wanted: Any = item.value
    then: Test = lambda scope, value: value is not None  # noqa: E731
    if isinstance(wanted, dict):
        name = wanted.get("name")
        if name is None:
            report.add(item, "HF0127", f"`{known}` needs a `name` and tests")
            return then
        rest = Node(item.document, {k: v for k, v in wanted.items() if k != "name"}, item.parent, item.key)
        rest.line, rest.column, rest.marks = item.line, item.column, item.marks
        then = _tests(rest, names)
        wanted = name.value
    if not isinstance(wanted, str if known == "key" else int) or isinstance(wanted, bool):
        report.add(item, "HF0127", f"`{known}` needs a {'text' if known == 'key' else 'number'}")

    def inner(scope: Scope, subject: Any) -> bool:
        value = None
        if isinstance(subject, dict):
            value = subject.get(wanted)
        elif isinstance(subject, list) and isinstance(wanted, int) and -len(subject) <= wanted < len(subject):
            value = subject[wanted]
        return then(scope, value)

    return inner


def _equals(node: Node, names: Names) -> Test:
    wanted = _lenient(names.shape(node, lenient=True))
    return lambda scope, subject: equal(subject, wanted(scope))


def equal(left: Any, right: Any) -> bool:
    """Equality of conditions: a text equals the number or boolean that it spells."""
    if isinstance(left, str) != isinstance(right, str):
        text, other = (left, right) if isinstance(left, str) else (right, left)
        if other is None or isinstance(other, (list, dict)):
            return False
        try:
            return same(scalar(text) if text else text, other)
        except Unstorable:
            return False
    return same(left, right)


def _order(key: str) -> Callable[[Node, Names], Test]:
    compare = ORDERS[key]

    def build(node: Node, names: Names) -> Test:
        limit = _lenient(names.shape(node, lenient=True))
        return lambda scope, subject: _ordered(compare, subject, limit(scope))

    return build


def _ordered(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    """What cannot be compared is not in order. Numbers in texts count as numbers."""
    a, b = _number(left), _number(right)
    if a is not None and b is not None:
        return compare(a, b)
    if isinstance(left, str) and isinstance(right, str):
        return compare(left, right)
    return False


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str) and value:
        try:
            read = scalar(value)
        except Unstorable:
            return None
        return read if isinstance(read, (int, float)) and not isinstance(read, bool) else None
    return None


def _in_range(node: Node, names: Names) -> Test:
    if not isinstance(node.value, list) or len(node.value) != 2:
        names.shared.report.add(node, "HF0127", "`in-range` needs `[low, high]`")
        return lambda scope, subject: False
    low, high = (_lenient(names.shape(item, lenient=True)) for item in node.value)
    at_least, at_most = ORDERS["greater-than-or-equal-to"], ORDERS["less-than-or-equal-to"]
    return lambda scope, subject: _ordered(at_least, subject, low(scope)) and _ordered(at_most, subject, high(scope))


def _glob(node: Node, names: Names) -> Test:
    pattern = _lenient(names.shape(node, lenient=True))

    def matches(scope: Scope, subject: Any) -> bool:
        wanted = pattern(scope)
        return isinstance(subject, str) and isinstance(wanted, str) and glob(wanted, subject)

    return matches


def glob(pattern: str, text: str) -> bool:
    """`*` and `?`, without backtracking beyond the last star."""
    if len(pattern) * len(text) > 10_000_000:
        raise ExpressionError("the text is too long for a glob", code="HF0161")
    at = star = 0
    mark = -1
    for_star = -1
    while at < len(text):
        if star < len(pattern) and (pattern[star] == "?" or pattern[star] == text[at]) and pattern[star] != "*":
            at, star = at + 1, star + 1
        elif star < len(pattern) and pattern[star] == "*":
            for_star, mark = star, at
            star += 1
        elif for_star >= 0:
            mark += 1
            star, at = for_star + 1, mark
        else:
            return False
    return pattern[star:].strip("*") == ""


def _size(node: Node, names: Names) -> Test:
    check = _tests(node, names)
    return lambda scope, subject: isinstance(subject, (str, list, dict)) and check(scope, len(subject))


def _has_element(node: Node, names: Names) -> Test:
    check = _tests(node, names)

    def has(scope: Scope, subject: Any) -> bool:
        items = list(subject.values()) if isinstance(subject, dict) else subject
        return isinstance(items, list) and any(check(scope, item) for item in items)

    return has


def _when(node: Node, names: Names) -> Test:
    word = _WHEN_BY_STYLE.get(style_free(node.value)) if isinstance(node.value, str) else None
    if word is None:
        shown = node.value if isinstance(node.value, str) else type_name(node.value)
        names.shared.report.add(node, "HF0127", f"`{shown}` is not a test of presence",
                                help=did_you_mean(str(shown), WHEN) or f"use {', '.join(WHEN)}")  # fmt: skip
        return lambda scope, subject: False
    check = WHEN[word]
    return lambda scope, subject: check(subject)


def _not(node: Node, names: Names) -> Test:
    check = _tests(node, names)
    return lambda scope, subject: not check(scope, subject)


def _many(join: Callable[[Any], bool]) -> Callable[[Node, Names], Test]:
    def build(node: Node, names: Names) -> Test:
        if not isinstance(node.value, list) or not node.value:
            names.shared.report.add(node, "HF0127", "a list of tests is needed here")
            return lambda scope, subject: False
        checks = [_tests(item, names) for item in node.value]
        return lambda scope, subject: join(check(scope, subject) for check in checks)

    return build


_TEST: dict[str, Callable[[Node, Names], Test]] = {
    "equals": _equals,
    **{key: _order(key) for key in ORDERS},
    "in-range": _in_range,
    "glob": _glob,
    "size": _size,
    "has-element": _has_element,
    "when": _when,
    "not": _not,
    "any": _many(any),
    "all": _many(all),
}
