"""The closed set of functions that expressions may call. All pure, all linear in the size of their input."""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .nodes import a_type, type_name
from .notations import from_json, to_address, to_json, to_shell
from .operations import (
    MAX_SIZE,
    ExpressionError,
    as_json,
    calculate,
    checked,
    compare,
    contains,
    distinct,
    is_number,
    same,
    to_text,
    truthy,
)
from .problems import Unreadable
from .tree import Expr
from .values import Mismatch, coerce, parse_duration

if TYPE_CHECKING:
    from .regex import Match, Regex

MAX_RANGE = 10_000


class Function(NamedTuple):
    run: Callable[..., Any]
    least: int
    most: int
    signature: str
    text: str
    #: its first argument takes the steps that it has done, see `regex.Pay`
    is_paid: bool = False
    #: which of its arguments is a pattern
    pattern: int | None = None


#: takes the cost of what was done, and ends it where that is too much
Pay: TypeAlias = Callable[[int], None]


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
    return distinct(_list(node, "unique", items))


# --- patterns --------------------------------------------------------------------------------------
def _regex(node: Expr, name: str, pattern: Any) -> Regex:
    from .regex import compile_regex  # slow to import, and most workflows have no patterns

    try:
        return compile_regex(_string(node, name, pattern), dotall=True)
    except Unreadable as error:
        raise ExpressionError(f"`{name}`: {error}", node) from None


def _matches(pay: Pay, node: Expr, text: Any, pattern: Any) -> bool:
    return _regex(node, "matches", pattern).matches(_string(node, "matches", text), pay)


def _groups(match: Match) -> Any:
    """The match; its group, where the pattern has one; all of them, where it has more."""
    _, *groups = match.groups
    if not groups:
        return match.groups[0]
    return groups[0] if len(groups) == 1 else groups


def _find(pay: Pay, node: Expr, text: Any, pattern: Any) -> Any:
    match = _regex(node, "find", pattern).search(_string(node, "find", text), 0, pay)
    return None if match is None else _groups(match)


def _find_all(pay: Pay, node: Expr, text: Any, pattern: Any) -> list[Any]:
    regex = _regex(node, "find_all", pattern)
    return [_groups(match) for match in regex.find_all(_string(node, "find_all", text), pay)]


def _replace_regex(pay: Pay, node: Expr, text: Any, pattern: Any, new: Any) -> str:
    whole, to = _string(node, "replace_regex", text), _string(node, "replace_regex", new)
    size = 0

    def counted(steps: int) -> None:
        nonlocal size
        size += steps
        # Every character that is put in was paid for, so what is made cannot be larger.
        if size > 64 * MAX_SIZE:
            raise ExpressionError("the result is too large", node, code="HF0161")
        pay(steps)

    try:
        return _regex(node, "replace_regex", pattern).replace(whole, to, True, counted)
    except Unreadable as error:
        raise ExpressionError(f"`replace_regex`: {error}", node) from None


# --- data ------------------------------------------------------------------------------------------
def _parse_json(node: Expr, text: Any) -> Any:
    try:
        return from_json(_string(node, "parse_json", text))
    except ExpressionError as error:
        raise ExpressionError(f"`parse_json`: {error.message}", node, code=error.code) from None


def _merge(node: Expr, *values: Any) -> Any:
    if all(isinstance(value, dict) for value in values):
        made: dict[str, Any] = {}
        for value in values:
            made.update(value)
        return made
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    wrong = next(
        value for value in values if not isinstance(value, type(values[0])) or not isinstance(value, (dict, list))
    )
    raise _refuse(node, "merge", wrong, "maps only or lists only")


def _get(node: Expr, whole: Any, key: Any, other: Any = None) -> Any:
    if isinstance(whole, dict) and isinstance(key, str):
        return whole.get(key, other)
    if isinstance(whole, list) and is_number(key) and isinstance(key, int):
        return whole[key] if -len(whole) <= key < len(whole) else other
    if whole is None:
        return other
    raise ExpressionError(f"`get`: {a_type(whole)} has no items by {type_name(key)}", node, absent=key is None)


def _index_of(node: Expr, whole: Any, part: Any) -> int:
    if isinstance(whole, str):
        return whole.find(_string(node, "index_of", part))
    return next((at for at, item in enumerate(_list(node, "index_of", whole)) if same(item, part)), -1)


def _slice(node: Expr, whole: Any, start: Any, end: Any = None) -> Any:
    if not isinstance(whole, (str, list)):
        raise _refuse(node, "slice", whole, "a list or string")
    for value in (start, end):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise _refuse(node, "slice", value, "integers")
    return whole[start:end]


def _sort(node: Expr, items: Any) -> list[Any]:
    given = _list(node, "sort", items)
    for left, right in pairwise(given):
        # What follows another can be compared with it, so all can be with each other.
        compare("<", left, right, node)
    return sorted(given)


def _reverse(node: Expr, whole: Any) -> Any:
    if not isinstance(whole, (str, list)):
        raise _refuse(node, "reverse", whole, "a list or string")
    return whole[::-1]


def _flatten(node: Expr, items: Any) -> list[Any]:
    made: list[Any] = []
    for item in _list(node, "flatten", items):
        made.extend(item if isinstance(item, list) else [item])
    return made


def _entries(node: Expr, pairs: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in _map(node, "entries", pairs).items()]


def _duration(node: Expr, text: Any) -> int | float:
    try:
        length = parse_duration(_string(node, "duration", text))
    except Mismatch as mismatch:
        raise ExpressionError(f"`duration`: {mismatch}", node) from None
    return length // 1_000_000 if length % 1_000_000 == 0 else length / 1_000_000


def _whole(name: str, cut: Callable[[float], int]) -> Callable[[Expr, Any], int]:
    def run(node: Expr, value: Any) -> int:
        if not is_number(value):
            raise _refuse(node, name, value, "a number")
        made: int = checked(cut(value), node)
        return made

    return run


def _average(node: Expr, items: Any) -> Any:
    total = _sum(node, items)
    if not items:
        raise ExpressionError("`average` of nothing", node, absent=True)
    return calculate("/", total, len(items), node)


def _base64_decode(node: Expr, text: Any) -> str:
    try:
        return binascii.a2b_base64(_string(node, "base64_decode", text), strict_mode=True).decode()
    except ValueError:
        raise ExpressionError("`base64_decode` needs the base64 of a text", node) from None


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
    "matches": Function(
        _matches, 2, 2, "matches(s, pattern)", "whether all of it matches a regular expression", True, 1,
    ),
    "find": Function(
        _find, 2, 2, "find(s, pattern)",
        "the first match of a regular expression, or its groups if it has any; null if there is none", True, 1,
    ),
    "find_all": Function(_find_all, 2, 2, "find_all(s, pattern)", "all matches, like `find`", True, 1),
    "replace_regex": Function(
        _replace_regex, 3, 3, "replace_regex(s, pattern, new)", "every match replaced; `$1` is a group", True, 1,
    ),
    "json": Function(lambda n, x: to_json(x), 1, 1, "json(x)", "as JSON"),
    "parse_json": Function(_parse_json, 1, 1, "parse_json(s)", "the value of JSON"),
    "merge": Function(_merge, 1, 16, "merge(a, b, …)", "maps in one, where later ones win, or lists in a row"),
    "get": Function(_get, 2, 3, "get(x, key, other?)", "the item of a map or list, or `other` if there is none"),
    "index_of": Function(_index_of, 2, 2, "index_of(x, part)", "where it is in a list or text, -1 if it is not"),
    "slice": Function(_slice, 2, 3, "slice(x, start, end?)", "a part of a list or text; negative from the end"),
    "sort": Function(_sort, 1, 1, "sort(list)", "numbers or texts in order"),
    "reverse": Function(_reverse, 1, 1, "reverse(x)", "a list or text from its end"),
    "flatten": Function(_flatten, 1, 1, "flatten(list)", "with the items of the lists in it"),
    "entries": Function(_entries, 1, 1, "entries(map)", "a list of `{key, value}`"),
    "lines": Function(lambda n, s: _string(n, "lines", s).splitlines(), 1, 1, "lines(s)", "the lines of a text"),
    "duration": Function(_duration, 1, 1, "duration(s)", "a duration such as `1h30m` in seconds"),
    "floor": Function(_whole("floor", math.floor), 1, 1, "floor(n)", "the integer at or below"),
    "ceil": Function(_whole("ceil", math.ceil), 1, 1, "ceil(n)", "the integer at or above"),
    "average": Function(_average, 1, 1, "average(list)", "the mean of numbers"),
    "type": Function(
        lambda n, x: type_name(x), 1, 1, "type(x)", "`string`, `integer`, `number`, `boolean`, `list`, `map` or `null`",
    ),
    "base64": Function(
        lambda n, s: binascii.b2a_base64(_string(n, "base64", s).encode(), newline=False).decode(), 1, 1,
        "base64(s)", "a text in base64",
    ),
    "base64_decode": Function(_base64_decode, 1, 1, "base64_decode(s)", "the text that base64 stands for"),
    "url_encode": Function(
        lambda n, s: to_address(to_text(s, n)), 1, 1, "url_encode(s)", "as a part of an address",
    ),
    "shell_quote": Function(
        lambda n, s: to_shell(to_text(s, n)), 1, 1, "shell_quote(s)", "as one word of a shell command",
    ),
    "default": Function(_default, 2, 2, "default(x, other)", "`other` where x is absent or null; like `??`"),
}  # fmt: skip
