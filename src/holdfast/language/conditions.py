"""Conditions: expressions, booleans, and the map form with a subject and tests. All give true or false.

What is absent counts as null, so a condition never fails for a missing name; only `when` tells the two apart.
Tests in one map must all hold. What a condition is about by itself (the error, the value of a `switch`, the old
value of a sensor) is its subject.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from .evaluate import ABSENT, STEPS_PER_FUEL, Scope, settle, spend
from .names import Excerpt, Names, Value
from .nodes import Node, type_name
from .operations import ExpressionError, truthy
from .predicates import ORDERS, WHEN, causes, equal, follow_path, is_there, item_of, ordered, parse_path, texts
from .predicates import glob as glob
from .problems import Unreadable, did_you_mean

if TYPE_CHECKING:
    from .regex import Regex

#: a test of a value, which may be ABSENT
Test: TypeAlias = Callable[[Scope, Any], bool]
Subject: TypeAlias = Callable[[Scope], Any]
#: from one subject to another
_Turn: TypeAlias = Callable[[Scope, Any], Any]

#: key of a condition map → what it tests
TESTS = {
    "equals": "the same value; text and number are compared by value",
    **dict.fromkeys(ORDERS, "an order of numbers or of texts"),
    "in-range": "`[low, high]`, both included",
    "regex": "all of the text matches a regular expression; `.` matches newlines too",
    "glob": "text with `*` and `?`",
    "size": "a test of its size",
    "has-element": "a test that one of its items passes",
    "when": ", ".join(f"`{word}`" for word in WHEN),
    "not": "a test that must not hold",
    "check": "a test of its own, as if it stood here",
    "any": "a list of tests, one of which must hold",
    "all": "a list of tests that must all hold",
    "assert": "a test that fails the step where it does not hold",
}
#: key of a condition map → what is tested instead
TURNS = {
    "target": "test this value",
    "sensor": "test that sensor of the entity",
    "config": "test that config of the entity",
    "key": "test one of its keys",
    "index": "test one of its items; negative numbers count from the end",
    "filter": "test only those of its items that pass this test",
    "jsonpath": "test what is at `$.a.b[0]`; `[*]` gives a list",
    "error-field": "test that field of the error: kind, message, code, step, value or cause",
    "error-cause": "test the error or what caused it, whichever passes this test first",
}
_UNSUPPORTED = {
    "java-instance-of": "there are no classes here; test `error-field: kind`",
    "tag": "there are no tags here; test a `sensor` or `config`",
}
_KEYS = (*TURNS, *TESTS)
#: what stands by itself: no target is needed beside it
_FREE = frozenset(("target", "sensor", "config", "error-field", "error-cause"))
_JOINS = frozenset(("any", "all", "not", "check", "assert"))


def style_free(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()


_BY_STYLE = {style_free(key): key for key in (*_KEYS, *_UNSUPPORTED)}
_WHEN_BY_STYLE = {style_free(key): key for key in WHEN}


#: texts in YAML 1.2, though not to everybody
_BOOLEANS = {"yes": "true", "no": "false", "on": "true", "off": "false"}


def compile_condition(node: Node, names: Names, subject: Subject | None = None) -> Callable[[Scope], bool] | None:
    """A closure, or nothing if the condition always holds. With a `subject`, a map needs no `target`, and a plain
    scalar is what the subject must be equal to; a text with `${…}` is always an expression."""
    report = names.shared.report
    value = node.value
    if node.tree is not None:
        test = names.ready(node, node.tree)
        return _guarded(test) if test.fn is not None or not test.constant else None
    if isinstance(value, bool):
        return None if value else (lambda scope: False)
    if isinstance(value, str) and not value.strip():
        report.add(node, "HF0127", "the condition is empty")
        return None
    if isinstance(value, str) and (subject is None or "${" in value):
        if (word := _BOOLEANS.get(value.strip().lower())) is not None:
            report.add(node, "HF0127", f"`{value}` is a text, not a boolean", help=f"write `{word}`")
            return None
        test = names.test(Excerpt(value, node))
        if test.fn is None:
            return _literal(node, test, names)
        return _guarded(test)
    if isinstance(value, dict) or (subject is not None and not isinstance(value, list)):
        if subject is None and not _is_free(node):
            report.add(node, "HF0127", "the condition has no `target`",
                       help="say what is tested: `target: ${…}`")  # fmt: skip
            return None
        check = _tests(node, names)
        if subject is None:
            return lambda scope: check(scope, ABSENT)
        about = _subject(subject)
        return lambda scope: check(scope, about(scope))
    report.add(node, "HF0127", f"a condition is an expression, a boolean or a map, not {node.kind}",
               help="for several tests write `any: […]` or `all: […]`" if isinstance(value, list) else "")  # fmt: skip
    return None


def compile_test(node: Node, names: Names) -> Test:
    """A test of a value that is given when it runs: a map of tests, or the value to be equal to."""
    if isinstance(node.value, list):
        names.shared.report.add(node, "HF0127", "a test is a value or a map, not a list",
                                help="write `any: […]` for one of several")  # fmt: skip
    return _tests(node, names)


def _is_free(node: Node) -> bool:
    """It says itself what it tests; `any`, `all` and `not` may hold the targets themselves."""
    known = [_BY_STYLE.get(style_free(key), "") for key in node.value]
    return bool(known) and (any(key in _FREE for key in known) or all(key in _JOINS for key in known))


def _subject(get: Subject) -> Subject:
    def settled(scope: Scope) -> Any:
        value = get(scope)
        return value if value is ABSENT else settle(scope, value, None)

    return settled


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


def _lenient(value: Value, absent: Any = None) -> Subject:
    def get(scope: Scope) -> Any:
        try:
            return settle(scope, value.get(scope), None)
        except ExpressionError as error:
            if error.absent:
                return absent
            raise

    return get


# --- maps of tests ---------------------------------------------------------------------------------
def _tests(node: Node, names: Names) -> Test:
    """All tests of one map, or the value to be equal to."""
    if not isinstance(node.value, dict):
        return _equals(node, names)
    report = names.shared.report
    turns: dict[str, _Turn] = {}
    checks: list[Test] = []
    seen: set[str] = set()
    for key, item in node.value.items():
        known = _BY_STYLE.get(style_free(key))
        if known is None or known in _UNSUPPORTED:
            report.add(node, "HF0102", f"unknown key `{key}` in a condition", key=key, label="not a test",
                       help=_UNSUPPORTED[known] if known else did_you_mean(key, _KEYS))  # fmt: skip
            continue
        if known in seen:
            report.add(node, "HF0103", f"the key `{known}` occurs twice", key=key)
            continue
        seen.add(known)
        if known not in TURNS:
            checks.append(_TEST[known](item, names))
            continue
        if (known in ("target", "sensor", "config") and turns) or len(turns.keys() - {"target"}) > 0:
            report.add(node, "HF0127", f"`{known}` and `{next(iter(turns))}` contradict each other", key=key,
                       help="test one of them under `all: […]`")  # fmt: skip
            continue
        turns[known], inner = _turn(known, item, names)
        if inner is not None:
            checks.append(inner)
    if not checks:
        if not turns:
            report.add(node, "HF0127", "the condition tests nothing", help="add `equals`, `when`, …")
        checks.append(lambda scope, subject: is_there(subject))
    return _joined(tuple(turns.values()), tuple(checks))


def _joined(turns: tuple[_Turn, ...], checks: tuple[Test, ...]) -> Test:
    if not turns and len(checks) == 1:
        return checks[0]

    def tests(scope: Scope, subject: Any) -> bool:
        for turn in turns:
            subject = turn(scope, subject)
        return all(check(scope, subject) for check in checks)

    return tests


def _turn(known: str, item: Node, names: Names) -> tuple[_Turn, Test | None]:
    """What is tested instead, and a test that stands inside: `key: {name: k, …tests}`."""
    if known == "target":
        if isinstance(item.value, str) and "${" not in item.value:
            names.shared.report.add(item, "HF0127", "the target is a fixed text", help=f"write `${{{item.value}}}`")
        get = _lenient(names.shape(item, lenient=True, keep_absent=True), ABSENT)
        return (lambda scope, subject: get(scope)), None
    if known == "filter":
        return _filter(_tests(item, names)), None
    if known == "error-cause":
        return _cause(_tests(item, names)), None
    inner: Test | None = None
    if isinstance(item.value, dict):
        name = item.value.get("name")
        if name is None:
            names.shared.report.add(item, "HF0127", f"`{known}` needs a `name` and tests")
            return (lambda scope, subject: ABSENT), None
        rest = Node(item.document, {k: v for k, v in item.value.items() if k != "name"}, item.parent, item.key)
        rest.line, rest.column, rest.marks = item.line, item.column, item.marks
        inner = _tests(rest, names) if rest.value else None
        item = name
    wanted = item.value
    if not isinstance(wanted, int if known == "index" else str) or isinstance(wanted, bool):
        names.shared.report.add(item, "HF0127", f"`{known}` needs a {'number' if known == 'index' else 'text'}")
        return (lambda scope, subject: ABSENT), inner
    if known in ("sensor", "config"):
        return _of_entity(known, item, names), inner
    if known == "jsonpath":
        return _at_path(item, names), inner
    if known == "error-field":
        return (lambda scope, subject: item_of(_error(scope, subject), wanted)), inner
    return (lambda scope, subject: item_of(subject, wanted)), inner


def _of_entity(kind: str, item: Node, names: Names) -> _Turn:
    name = _lenient(names.template(Excerpt(item.value, item), lenient=True), "")

    def read(scope: Scope, subject: Any) -> Any:
        value = scope.entity(kind, str(name(scope)))
        return value if value is ABSENT else settle(scope, value, None)

    return read


def _at_path(item: Node, names: Names) -> _Turn:
    try:
        path = parse_path(item.value)
    except Unreadable as error:
        Excerpt(item.value, item).report(
            names.shared.report, "HF0127", error.message, error.start, error.end, help=error.help
        )
        return lambda scope, subject: ABSENT
    return lambda scope, subject: follow_path(subject, path)


def _error(scope: Scope, subject: Any) -> Any:
    return subject if isinstance(subject, dict) else scope.error()


def _cause(check: Test) -> _Turn:
    def first(scope: Scope, subject: Any) -> Any:
        found = causes(_error(scope, subject))
        return next((error for error in found if check(scope, error)), ABSENT)

    return first


def _filter(check: Test) -> _Turn:
    def kept(scope: Scope, subject: Any) -> Any:
        if isinstance(subject, list):
            return [item for item in subject if check(scope, item)]
        if isinstance(subject, dict):
            return {key: item for key, item in subject.items() if check(scope, item)}
        return ABSENT

    return kept


# --- single tests ----------------------------------------------------------------------------------
def _equals(node: Node, names: Names) -> Test:
    wanted = _lenient(names.shape(node, lenient=True))
    return lambda scope, subject: equal(subject, wanted(scope))


def _order(key: str) -> Callable[[Node, Names], Test]:
    compare = ORDERS[key]

    def build(node: Node, names: Names) -> Test:
        limit = _lenient(names.shape(node, lenient=True))
        return lambda scope, subject: ordered(compare, subject, limit(scope))

    return build


def _in_range(node: Node, names: Names) -> Test:
    if not isinstance(node.value, list) or len(node.value) != 2:
        names.shared.report.add(node, "HF0127", "`in-range` needs `[low, high]`")
        return lambda scope, subject: False
    low, high = (_lenient(names.shape(item, lenient=True)) for item in node.value)
    at_least, at_most = ORDERS["greater-than-or-equal-to"], ORDERS["less-than-or-equal-to"]
    return lambda scope, subject: ordered(at_least, subject, low(scope)) and ordered(at_most, subject, high(scope))


def _glob(node: Node, names: Names) -> Test:
    pattern = _lenient(names.shape(node, lenient=True))

    def matches(scope: Scope, subject: Any) -> bool:
        wanted = pattern(scope)
        return isinstance(wanted, str) and any(glob(wanted, text) for text in _texts(subject))

    return matches


def _texts(subject: Any) -> tuple[str, ...]:
    return (str(subject),) if type(subject) in (int, float) else texts(subject)


def _regex(node: Node, names: Names) -> Test:
    from .regex import compile_regex  # as in `functions`

    pattern = names.shape(node, lenient=True)
    ready: Regex | None = None
    if pattern.fn is None:
        try:
            ready = compile_regex(str(pattern.constant), dotall=True)
        except Unreadable as error:
            Excerpt(str(node.value), node).report(
                names.shared.report, "HF0127", error.message, error.start, error.end, help=error.help
            )
            return lambda scope, subject: False
    get = _lenient(pattern)

    def matches(scope: Scope, subject: Any) -> bool:
        regex = ready
        if regex is None:
            wanted = get(scope)
            if not isinstance(wanted, str):
                return False
            try:
                regex = compile_regex(wanted, dotall=True)
            except Unreadable as error:
                raise ExpressionError(f"the regular expression cannot be read: {error}") from None
        fuel = lambda steps: spend(scope, 1 + steps // STEPS_PER_FUEL, None)  # noqa: E731
        return any(regex.matches(text, fuel) for text in _texts(subject))

    return matches


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


def _part(node: Node, names: Names) -> Test:
    """A test inside of another: a boolean is one by itself."""
    if isinstance(node.value, bool):
        held = node.value
        return lambda scope, subject: held
    return _tests(node, names)


def _not(node: Node, names: Names) -> Test:
    check = _part(node, names)
    return lambda scope, subject: not check(scope, subject)


def _assert(node: Node, names: Names) -> Test:
    check = _part(node, names)
    shown = str(node.plain())
    shown = shown if len(shown) <= 80 else f"{shown[:79]}…"

    def asserted(scope: Scope, subject: Any) -> bool:
        if not check(scope, subject):
            raise ExpressionError(f"what is asserted does not hold: {shown}")
        return True

    return asserted


def _many(join: Callable[[Any], bool]) -> Callable[[Node, Names], Test]:
    def build(node: Node, names: Names) -> Test:
        if not isinstance(node.value, list) or not node.value:
            names.shared.report.add(node, "HF0127", "a list of tests is needed here")
            return lambda scope, subject: False
        checks = [_part(item, names) for item in node.value]
        return lambda scope, subject: join(check(scope, subject) for check in checks)

    return build


_TEST: dict[str, Callable[[Node, Names], Test]] = {
    "equals": _equals,
    **{key: _order(key) for key in ORDERS},
    "in-range": _in_range,
    "regex": _regex,
    "glob": _glob,
    "size": _size,
    "has-element": _has_element,
    "when": _when,
    "not": _not,
    "check": _part,
    "any": _many(any),
    "all": _many(all),
    "assert": _assert,
}
