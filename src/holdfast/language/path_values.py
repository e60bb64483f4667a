"""What a `Path` node means: JMESPath's rules for values, over the scope that every expression has.

A path that leads nowhere is null, never an error. Null, false, empty texts, lists and maps are false; 0 is true.
`||` and `&&` give one of their sides. Only functions refuse values of the wrong type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.core.model import BlobRef

from .evaluate import ABSENT, Fn, Scope, compile_expression, settle, spend, weigh
from .nodes import a_type
from .operations import ExpressionError, as_json, checked, compare, contains, is_number, same
from .tree import Expr, Member, Path, StepRef

#: the name of the item at hand
HERE = "@"


def holds(value: Any) -> bool:
    return value is not None and value is not False and value != "" and value != [] and value != {}


class _Here:
    """The scope around, with an item at hand."""

    __slots__ = ("_around", "_item")

    def __init__(self, around: Scope, item: Any) -> None:
        self._around = around
        self._item = item

    def lookup(self, name: str) -> Any:
        return self._item if name == HERE else self._around.lookup(name)

    @property
    def fuel(self) -> int:
        return self._around.fuel

    @fuel.setter
    def fuel(self, left: int) -> None:
        self._around.fuel = left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._around, name)


def compile_path(node: Path) -> Fn:
    fns = tuple(compile_expression(part, lenient=True) for part in node.parts)
    special = _SPECIAL.get(node.operator)
    if special is not None:
        return special(node, *fns)
    takes = ARGUMENTS[node.operator]
    by = takes.by
    run = takes.run

    def call(scope: Scope) -> Any:
        spend(scope, 1, node)
        values = [
            _each(scope, fn) if at == by else settle(scope, fn(scope), node) for at, fn in enumerate(fns)
        ]  # fmt: skip
        for value in values:
            if isinstance(value, (str, list, dict)):
                spend(scope, len(value) // 32, node)
        return weigh(scope, run(node, *values), node)

    return call


def _each(scope: Scope, fn: Fn) -> Callable[[Any], Any]:
    return lambda item: settle(scope, fn(_Here(scope, item)), None)


def _loaded(scope: Scope, value: Any) -> Any:
    return scope.load(value) if type(value) is BlobRef else value


# --- what is no function -------------------------------------------------------------------------------
def _field(node: Path, of: Fn, name: Fn) -> Fn:
    key = name(None)  # type: ignore[arg-type]

    def field(scope: Scope) -> Any:
        value = _loaded(scope, of(scope))
        return value.get(key) if type(value) is dict else None

    return field


def _index(node: Path, of: Fn, at: Fn) -> Fn:
    number = at(None)  # type: ignore[arg-type]

    def index(scope: Scope) -> Any:
        value = _loaded(scope, of(scope))
        is_there = type(value) is list and -len(value) <= number < len(value)
        return value[number] if is_there else None

    return index


def _slice(node: Path, of: Fn, first: Fn, last: Fn, step: Fn) -> Fn:
    part = slice(first(None), last(None), step(None))  # type: ignore[arg-type]

    def sliced(scope: Scope) -> Any:
        value = _loaded(scope, of(scope))
        if type(value) is not list:
            return None
        spend(scope, 1 + len(value) // 32, node)
        return value[part]

    return sliced


def _flat(node: Path, of: Fn) -> Fn:
    def flat(scope: Scope) -> Any:
        value = settle(scope, of(scope), node)
        if type(value) is not list:
            return None
        found: list[Any] = []
        for item in value:
            spend(scope, 1, node)
            found += item if type(item) is list else [item]
        return weigh(scope, found, node)

    return flat


def _projected(scope: Scope, node: Path, items: list[Any], body: Fn) -> list[Any]:
    found: list[Any] = []
    for item in items:
        spend(scope, 1, node)
        value = settle(scope, body(_Here(scope, item)), node)
        if value is not None:
            found.append(value)
    return weigh(scope, found, node)  # type: ignore[no-any-return]


def _all(node: Path, of: Fn, body: Fn) -> Fn:
    def each(scope: Scope) -> Any:
        value = _loaded(scope, of(scope))
        return _projected(scope, node, value, body) if type(value) is list else None

    return each


def _values(node: Path, of: Fn, body: Fn) -> Fn:
    def each(scope: Scope) -> Any:
        value = _loaded(scope, of(scope))
        return _projected(scope, node, list(value.values()), body) if type(value) is dict else None

    return each


def _where(node: Path, of: Fn, body: Fn, test: Fn) -> Fn:
    def each(scope: Scope) -> Any:
        value = _loaded(scope, of(scope))
        if type(value) is not list:
            return None
        kept = []
        for item in value:
            spend(scope, 1, node)
            if holds(settle(scope, test(_Here(scope, item)), node)):
                kept.append(item)
        return _projected(scope, node, kept, body)

    return each


def _with(node: Path, of: Fn, body: Fn) -> Fn:
    return lambda scope: body(_Here(scope, of(scope)))


def _some(node: Path, of: Fn, made: Fn) -> Fn:
    return lambda scope: None if of(scope) is None else made(scope)


def _or(node: Path, left: Fn, right: Fn) -> Fn:
    def either(scope: Scope) -> Any:
        value = left(scope)
        return value if type(value) is BlobRef or holds(value) else right(scope)

    return either


def _and(node: Path, left: Fn, right: Fn) -> Fn:
    def both(scope: Scope) -> Any:
        value = left(scope)
        return right(scope) if type(value) is BlobRef or holds(value) else value

    return both


def _not(node: Path, of: Fn) -> Fn:
    return lambda scope: not holds(of(scope))


def _true(node: Path, of: Fn) -> Fn:
    return lambda scope: holds(of(scope))


def _equal(node: Path, left: Fn, right: Fn) -> Fn:
    return lambda scope: same(settle(scope, left(scope), node), settle(scope, right(scope), node))


def _unequal(node: Path, left: Fn, right: Fn) -> Fn:
    return lambda scope: not same(settle(scope, left(scope), node), settle(scope, right(scope), node))


def _ordered(node: Path, left: Fn, right: Fn) -> Fn:
    def ordered(scope: Scope) -> Any:
        a, b = left(scope), right(scope)
        return compare(node.operator, a, b, node) if is_number(a) and is_number(b) else None

    return ordered


def _list(node: Path, *fns: Fn) -> Fn:
    return lambda scope: weigh(scope, [settle(scope, fn(scope), node) for fn in fns], node)


def _written(node: Path, of: Fn) -> Fn:
    return lambda scope: _to_string(node, settle(scope, of(scope), node))


def _only_if(node: Path, test: Fn, of: Fn) -> Fn:
    return lambda scope: of(scope) if test(scope) is True else None


def _success(node: Path, of: Fn) -> Fn:
    """Of a step's output: one that failed and was let pass says so itself, one that never ran says nothing."""
    (part,) = node.parts
    assert isinstance(part, Member)
    assert isinstance(part.object, StepRef)
    id = part.object.id

    def success(scope: Scope) -> Any:
        value = scope.step(id)
        if value is ABSENT:
            return None
        value = _loaded(scope, value)
        return not (type(value) is dict and "error" in value and value.get("success") is False)

    return success


def _entities(node: Path, type: Fn) -> Fn:
    wanted = type(None)  # type: ignore[arg-type]

    def entities(scope: Scope) -> Any:
        listed = scope.lookup(f"entities.{wanted}")
        if listed is ABSENT:
            return []
        spend(scope, len(listed) // 32, node)
        return [{"id": id, "type": wanted} for id in listed]

    return entities


_SPECIAL: dict[str, Callable[..., Fn]] = {
    "field": _field,
    "index": _index,
    "slice": _slice,
    "flat": _flat,
    "each": _all,
    "each-value": _values,
    "where": _where,
    "with": _with,
    "some": _some,
    "or": _or,
    "and": _and,
    "not": _not,
    "true": _true,
    "==": _equal,
    "!=": _unequal,
    **dict.fromkeys(("<", "<=", ">", ">="), _ordered),
    "list": _list,
    "text": _written,
    "only-if": _only_if,
    "success": _success,
    "entities": _entities,
}


# --- functions -------------------------------------------------------------------------------------------
def _refuse(node: Expr, value: Any, wanted: str) -> ExpressionError:
    name = node.operator if isinstance(node, Path) else ""
    return ExpressionError(f"`{name}` needs {wanted}, not {a_type(value)}", node, absent=value is None)


def _need_list(node: Expr, value: Any) -> list[Any]:
    if type(value) is not list:
        raise _refuse(node, value, "a list")
    return value


def _need_text(node: Expr, value: Any) -> str:
    if type(value) is not str:
        raise _refuse(node, value, "a string")
    return value


def _need_map(node: Expr, value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _refuse(node, value, "a map")
    return value


def _need_number(node: Expr, value: Any) -> Any:
    if not is_number(value):
        raise _refuse(node, value, "a number")
    return value


def _alike(node: Expr, items: Any, texts: bool = True) -> list[Any]:
    """A list of numbers, or of texts."""
    found = _need_list(node, items)
    if all(is_number(item) for item in found) or (texts and all(type(item) is str for item in found)):
        return found
    raise ExpressionError(f"`{getattr(node, 'operator', '')}` needs a list of numbers{' or of strings' * texts}", node)


def _length(node: Expr, value: Any) -> int:
    if type(value) not in (str, list, dict):
        raise _refuse(node, value, "a string, a list or a map")
    return len(value)


def _contains(node: Expr, whole: Any, part: Any) -> bool:
    if type(whole) not in (str, list):
        raise _refuse(node, whole, "a string or a list")
    return contains(whole, part, node) if type(whole) is list or type(part) is str else False


def _to_string(node: Expr, value: Any) -> str:
    return value if type(value) is str else as_json(value)


def _to_number(node: Expr, value: Any) -> Any:
    if is_number(value):
        return value
    if type(value) is not str:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(value) if value.strip().lstrip("+-").isdecimal() and abs(number) < 2**63 else number


def _type(node: Expr, value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def _sum(node: Expr, items: Any) -> Any:
    return checked(sum(_alike(node, items, texts=False)), node)


def _average(node: Expr, items: Any) -> Any:
    found = _alike(node, items, texts=False)
    return checked(sum(found) / len(found), node) if found else None


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def extreme(node: Expr, items: Any) -> Any:
        found = _alike(node, items)
        return choose(found) if found else None

    return extreme


def _by(choose: Callable[..., Any], on_empty: Any) -> Callable[..., Any]:
    """By what each item gives, which is numbers only or texts only."""

    def by(node: Expr, items: Any, key: Callable[[Any], Any]) -> Any:
        found = _need_list(node, items)
        keys = _alike(node, [key(item) for item in found])
        if not found:
            return on_empty
        at = choose(range(len(found)), key=lambda index: keys[index])
        return [found[index] for index in at] if isinstance(at, list) else found[at]

    return by


def _join(node: Expr, between: Any, items: Any) -> str:
    texts = _need_list(node, items)
    for text in texts:
        _need_text(node, text)
    return _need_text(node, between).join(texts)


def _merge(node: Expr, *maps: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in maps:
        found |= _need_map(node, each)
    return found


def _reverse(node: Expr, value: Any) -> Any:
    if type(value) not in (str, list):
        raise _refuse(node, value, "a string or a list")
    return value[::-1]


def _rounded(cut: Callable[[Any], int]) -> Callable[..., Any]:
    return lambda node, value: checked(cut(_need_number(node, value)), node)


class Takes(NamedTuple):
    """A function: what it does, how many arguments it takes, and which of them is `&…`."""

    run: Callable[..., Any]
    least: int
    most: int
    by: int = -1


ARGUMENTS: dict[str, Takes] = {
    "abs": Takes(lambda node, value: checked(abs(_need_number(node, value)), node), 1, 1),
    "avg": Takes(_average, 1, 1),
    "ceil": Takes(_rounded(math.ceil), 1, 1),
    "contains": Takes(_contains, 2, 2),
    "ends_with": Takes(lambda node, text, end: _need_text(node, text).endswith(_need_text(node, end)), 2, 2),
    "floor": Takes(_rounded(math.floor), 1, 1),
    "join": Takes(_join, 2, 2),
    "keys": Takes(lambda node, value: list(_need_map(node, value)), 1, 1),
    "length": Takes(_length, 1, 1),
    "map": Takes(lambda node, key, items: [key(item) for item in _need_list(node, items)], 2, 2, 0),
    "max": Takes(_extreme(max), 1, 1),
    "max_by": Takes(_by(max, None), 2, 2, 1),
    "merge": Takes(_merge, 0, 100),
    "min": Takes(_extreme(min), 1, 1),
    "min_by": Takes(_by(min, None), 2, 2, 1),
    "not_null": Takes(lambda node, *values: next((value for value in values if value is not None), None), 1, 100),
    "reverse": Takes(_reverse, 1, 1),
    "sort": Takes(lambda node, items: sorted(_alike(node, items)), 1, 1),
    "sort_by": Takes(_by(sorted, []), 2, 2, 1),
    "starts_with": Takes(lambda node, text, begin: _need_text(node, text).startswith(_need_text(node, begin)), 2, 2),
    "sum": Takes(_sum, 1, 1),
    "to_array": Takes(lambda node, value: value if type(value) is list else [value], 1, 1),
    "to_number": Takes(_to_number, 1, 1),
    "to_string": Takes(_to_string, 1, 1),
    "type": Takes(_type, 1, 1),
    "values": Takes(lambda node, value: list(_need_map(node, value).values()), 1, 1),
}
