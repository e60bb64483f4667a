"""The closed set of functions that expressions may call. All pure, all linear in the size of their input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .nodes import a_type
from .operations import (
    MAX_SIZE,
    ExpressionError,
    as_json,
    calculate,
    checked,
    compare,
    contains,
    same,
    to_text,
    truthy,
)
from .tree import Expr
from .values import Mismatch, coerce

MAX_RANGE = 10_000


class Function(NamedTuple):
    run: Callable[..., Any]
    least: int
    most: int
    signature: str
    text: str


def _refuse(node: Expr, name: str, value: Any, wanted: str) -> ExpressionError:
    return ExpressionError(f"`{name}` needs {wanted}, not {a_type(value)}", node, absent=value is None)


def _string(node: Expr, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refuse(node, name, value, "a string")
    return value


def _list(node: Expr, name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _refuse(node, name, value, "a list")
    return value


def _map(node: Expr, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refuse(node, name, value, "a map")
    return value


def _size(node: Expr, value: Any) -> int:
    if not isinstance(value, (str, list, dict)):
        raise _refuse(node, "size", value, "a string, list or map")
    return len(value)


def _join(node: Expr, items: Any, separator: Any = "") -> str:
    glue = _string(node, "join", separator)
    parts = [to_text(item, node) for item in _list(node, "join", items)]
    # Checked before joining: a long separator times many items is made of little input.
    if sum(map(len, parts)) + len(glue) * len(parts) > MAX_SIZE:
        raise ExpressionError("the result is too large", node, code="HF0161")
    return glue.join(parts)


def _split(node: Expr, text: Any, separator: Any = None) -> list[str]:
    whole = _string(node, "split", text)
    if separator is None:
        return whole.split()
    if not _string(node, "split", separator):
        raise ExpressionError("`split` needs a separator that is not empty", node)
    return whole.split(separator)


def _replace(node: Expr, text: Any, old: Any, new: Any) -> str:
    whole, a, b = (_string(node, "replace", value) for value in (text, old, new))
    if not a:
        raise ExpressionError("`replace` needs a text to look for", node)
    if len(whole) + whole.count(a) * len(b) > MAX_SIZE:
        raise ExpressionError("the result is too large", node, code="HF0161")
    return whole.replace(a, b)


def _end(name: str, index: int) -> Callable[[Expr, Any], Any]:
    def end(node: Expr, value: Any) -> Any:
        if not isinstance(value, (list, str)):
            raise _refuse(node, name, value, "a list or string")
        if not value:
            raise ExpressionError(f"`{name}` of something empty", node, absent=True)
        return value[index]

    return end


def _extreme(name: str, operator: str) -> Callable[..., Any]:
    def extreme(node: Expr, *values: Any) -> Any:
        items = _list(node, name, values[0]) if len(values) == 1 else list(values)
        if not items:
            raise ExpressionError(f"`{name}` of nothing", node, absent=True)
        best = items[0]
        for item in items[1:]:
            if compare(operator, item, best, node):
                best = item
        return best

    return extreme


def _sum(node: Expr, items: Any) -> Any:
    total: Any = 0
    for item in _list(node, "sum", items):
        if isinstance(item, bool) or not isinstance(item, (int, float)):
            raise _refuse(node, "sum", item, "numbers")
        total = calculate("+", total, item, node)
    return total


def _range(node: Expr, start: Any, stop: Any = None) -> list[int]:
    first, last = (0, start) if stop is None else (start, stop)
    for value in (first, last):
        if isinstance(value, bool) or not isinstance(value, int):
            raise _refuse(node, "range", value, "integers")
    if last - first > MAX_RANGE:
        raise ExpressionError(f"`range` gives at most {MAX_RANGE:,} numbers", node, code="HF0161")
    return list(range(first, last))


def _as(name: str, kind: str) -> Callable[[Expr, Any], Any]:
    def convert(node: Expr, value: Any) -> Any:
        if name == "int" and isinstance(value, float):
            return checked(int(value), node)
        if name in ("int", "float") and isinstance(value, bool):
            return int(value) if name == "int" else float(value)
        try:
            made = coerce(kind, value.strip() if isinstance(value, str) else value)
        except Mismatch as mismatch:
            raise ExpressionError(f"`{name}`: {mismatch}", node, absent=value is None) from None
        return float(made) if name == "float" else made

    return convert


def _text(node: Expr, value: Any) -> str:
    if value is None:
        return "null"
    return as_json(value) if isinstance(value, (list, dict)) else to_text(value, node)


def _bool(node: Expr, value: Any) -> bool:
    if isinstance(value, str):
        try:
            made: bool = coerce("boolean", value.strip())
        except Mismatch as mismatch:
            raise ExpressionError(f"`bool`: {mismatch}", node) from None
        return made
    return truthy(value)


def _abs(node: Expr, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _refuse(node, "abs", value, "a number")
    return checked(abs(value), node)


def _round(node: Expr, value: Any, digits: Any = 0) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _refuse(node, "round", value, "a number")
    if isinstance(digits, bool) or not isinstance(digits, int) or not 0 <= digits <= 15:
        raise ExpressionError("`round` takes 0 to 15 digits", node)
    return checked(round(value, digits) if digits else round(value), node)


def _unique(node: Expr, items: Any) -> list[Any]:
    given = _list(node, "unique", items)
    if len(given) > 1_000:
        raise ExpressionError("`unique` takes at most 1,000 items", node, code="HF0161")
    made: list[Any] = []
    for item in given:
        if not any(same(item, other) for other in made):
            made.append(item)
    return made


def _default(node: Expr, value: Any, other: Any) -> Any:
    raise AssertionError("compiled as `??`")


FUNCTIONS: dict[str, Function] = {
    "size": Function(_size, 1, 1, "size(x)", "length of a string, list or map"),
    "lower": Function(lambda n, s: _string(n, "lower", s).lower(), 1, 1, "lower(s)", "in lower case"),
    "upper": Function(lambda n, s: _string(n, "upper", s).upper(), 1, 1, "upper(s)", "in upper case"),
    "trim": Function(lambda n, s: _string(n, "trim", s).strip(), 1, 1, "trim(s)", "without spaces around"),
    "contains": Function(
        lambda n, whole, part: contains(whole, part, n), 2, 2, "contains(x, part)",
        "whether a string, list or map has that part, item or key; the same as `part in x`",
    ),
    "starts_with": Function(
        lambda n, s, p: _string(n, "starts_with", s).startswith(_string(n, "starts_with", p)), 2, 2,
        "starts_with(s, prefix)", "whether a string begins so",
    ),
    "ends_with": Function(
        lambda n, s, p: _string(n, "ends_with", s).endswith(_string(n, "ends_with", p)), 2, 2,
        "ends_with(s, suffix)", "whether a string ends so",
    ),
    "replace": Function(_replace, 3, 3, "replace(s, old, new)", "every occurrence replaced"),
    "join": Function(_join, 1, 2, "join(list, separator = '')", "one text from many"),
    "split": Function(_split, 1, 2, "split(s, separator?)", "many texts from one; at white space by default"),
    "keys": Function(lambda n, m: list(_map(n, "keys", m)), 1, 1, "keys(map)", "its keys"),
    "values": Function(lambda n, m: list(_map(n, "values", m).values()), 1, 1, "values(map)", "its values"),
    "first": Function(_end("first", 0), 1, 1, "first(x)", "first item or character; absent if empty"),
    "last": Function(_end("last", -1), 1, 1, "last(x)", "last item or character; absent if empty"),
    "min": Function(_extreme("min", "<"), 1, 16, "min(list) or min(a, b, …)", "the smallest"),
    "max": Function(_extreme("max", ">"), 1, 16, "max(list) or max(a, b, …)", "the largest"),
    "sum": Function(_sum, 1, 1, "sum(list)", "all numbers added"),
    "abs": Function(_abs, 1, 1, "abs(n)", "without its sign"),
    "round": Function(_round, 1, 2, "round(n, digits = 0)", "rounded"),
    "range": Function(_range, 1, 2, "range(n) or range(a, b)", "integers from 0 or a, below n or b"),
    "unique": Function(_unique, 1, 1, "unique(list)", "without repeated items"),
    "int": Function(_as("int", "integer"), 1, 1, "int(x)", "as an integer; fractions are cut off"),
    "float": Function(_as("float", "number"), 1, 1, "float(x)", "as a number with a fraction"),
    "string": Function(_text, 1, 1, "string(x)", "as text; lists and maps as JSON"),
    "bool": Function(_bool, 1, 1, "bool(x)", "true, yes, on or false, no, off; other values by truth"),
    "default": Function(_default, 2, 2, "default(x, other)", "`other` where x is absent or null; like `??`"),
}  # fmt: skip
