"""What the filters of `transform` do to values. Values in, values out; text and places are in `transforms`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .evaluate import ABSENT
from .nodes import a_type
from .notations import from_json, from_yaml, to_json, to_shell, to_yaml
from .operations import MAX_SIZE, ExpressionError, calculate, compare, distinct, is_number, to_text
from .predicates import follow_path
from .problems import Unreadable
from .regex import Pay, Regex, compile_regex
from .values import Mismatch, duration_text, parse_duration

MAX_MERGE_DEPTH = 50


def refuse(wanted: str, value: Any) -> ExpressionError:
    return ExpressionError(f"{wanted} is needed, not {a_type(value)}", absent=value is None)


def as_string(value: Any) -> str:
    if not isinstance(value, str):
        raise refuse("a string", value)
    return value


def as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise refuse("a list", value)
    return value


# --- text ------------------------------------------------------------------------------------------
def trim(value: Any) -> Any:
    """Texts without space around, lists without null and empty texts, maps without null."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return [item for item in value if item is not None and item != ""]
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if item is not None}
    raise refuse("a string, list or map", value)


def replace(text: str, old: str, new: str, is_all: bool) -> str:
    if not old:
        raise ExpressionError("there has to be a text to look for")
    count = text.count(old) if is_all else 1
    if len(text) + count * len(new) > MAX_SIZE:
        raise ExpressionError("the result is too large", code="HF0161")
    return text.replace(old, new, count)


def glob_regex(pattern: str, is_all: bool) -> Regex:
    """One match takes as much as it can, many as little."""
    out = "".join(
        (".*?" if is_all else ".*") if char == "*" else "." if char == "?" else char if char.isalnum() else f"\\{char}"
        for char in pattern
    )
    try:
        return compile_regex(out, dotall=True)
    except Unreadable as error:
        raise ExpressionError(f"the glob cannot be used: {error.message}") from None


def split(text: str, delimiter: str, limit: int, keeps: bool) -> list[str]:
    if not delimiter:
        raise ExpressionError("the delimiter is empty")
    parts = text.split(delimiter, limit - 1 if limit else -1)
    if not keeps:
        return parts
    return [item for part in parts for item in (delimiter, part)][1:]


def split_regex(text: str, delimiter: Regex, limit: int, keeps: bool, pay: Pay) -> list[str]:
    if not keeps:
        return delimiter.split(text, limit, pay)
    out: list[str] = []
    at = 0
    for count, match in enumerate(delimiter.find_all(text, pay), 1):
        if limit and count >= limit:
            break
        out += [text[at : match.start], match.groups[0] or ""]
        at = match.end
    return [*out, text[at:]]


def join(items: Any, separator: str) -> str:
    parts = [text_of(item) for item in as_list(items)]
    if sum(map(len, parts)) + len(separator) * len(parts) > MAX_SIZE:
        raise ExpressionError("the result is too large", code="HF0161")
    return separator.join(parts)


def text_of(value: Any) -> str:
    """Lists and maps as JSON, null as `null`."""
    return to_json(value) if value is None or isinstance(value, (list, dict)) else to_text(value, None)


# --- lists and maps --------------------------------------------------------------------------------
def add(value: Any, more: Any, is_before: bool) -> Any:
    """To a text, or to a list: one item, or all of another list."""
    if isinstance(value, list):
        items = more if isinstance(more, list) else [more]
        return [*items, *value] if is_before else [*value, *items]
    if isinstance(value, (dict, type(None))):
        raise refuse("a string or list", value)
    first, second = to_text(value, None), text_of(more)
    return second + first if is_before else first + second


def cut(value: Any, start: int, end: int | None) -> Any:
    if not isinstance(value, (str, list)):
        raise refuse("a string or list", value)
    return value[start:end]


def without(value: Any, part: Any) -> Any:
    """Without that key or item; the same where it is not there."""
    if isinstance(value, dict):
        wanted = text_of(part)
        return {key: item for key, item in value.items() if key != wanted}
    at = int(part) if isinstance(part, str) and part.lstrip("-").isdigit() else part
    if not isinstance(at, int) or isinstance(at, bool):
        raise ExpressionError(f"an item of a list is removed by its number, not by {a_type(part)}")
    items = as_list(value)
    if not -len(items) <= at < len(items):
        return items
    return [item for place, item in enumerate(items) if place != at % len(items)]


def merge(value: Any, kind: str, is_deep: bool, is_lax: bool) -> Any:
    """A list of maps as one map, a list of lists as one list. Lax leaves out what does not fit."""
    items = as_list(value)
    if is_lax:
        wanted = dict if kind == "map" else object
        items = [item for item in items if item is not None and isinstance(item, wanted)]
    if not kind:
        kind = "map" if items and all(isinstance(item, dict) for item in items) else "list"
    if kind == "map":
        made: dict[str, Any] = {}
        for item in items:
            if not isinstance(item, dict):
                raise refuse("a map", item)
            made = _merged(made, item, MAX_MERGE_DEPTH) if is_deep else {**made, **item}
        return made
    flat = [inner for item in items for inner in (item if isinstance(item, list) else [item])]
    return distinct(flat) if kind == "set" else flat


def _merged(left: Any, right: Any, depth: int) -> Any:
    if isinstance(left, dict) and isinstance(right, dict):
        if not depth:
            raise ExpressionError("the value is nested too deeply", code="HF0161")
        return {
            **left,
            **{key: _merged(left[key], item, depth - 1) if key in left else item for key, item in right.items()},
        }
    return [*left, *right] if isinstance(left, list) and isinstance(right, list) else right


def end_of(index: int) -> Callable[[Any], Any]:
    def end(value: Any) -> Any:
        if not isinstance(value, (list, str)):
            raise refuse("a list or string", value)
        if not value:
            raise ExpressionError("there is nothing in it", absent=True)
        return value[index]

    return end


def size(value: Any) -> int:
    if not isinstance(value, (str, list, dict)):
        raise refuse("a string, list or map", value)
    return len(value)


def get(value: Any, path: tuple[Any, ...]) -> Any:
    # Only the path reads JSON in a text by itself; here a text is a text.
    found = ABSENT if isinstance(value, str) and path else follow_path(value, path) if path else value
    if found is ABSENT:
        raise ExpressionError("there is nothing at that place", absent=True)
    return found


# --- numbers and durations -------------------------------------------------------------------------
def _durations(items: Sequence[Any]) -> list[int] | None:
    try:
        return [parse_duration(item) for item in items if isinstance(item, str)] if _all_texts(items) else None
    except Mismatch:
        return None


def _all_texts(items: Sequence[Any]) -> bool:
    return bool(items) and all(isinstance(item, str) for item in items)


def extreme(operator: str) -> Callable[[Any], Any]:
    def best_of(value: Any) -> Any:
        items = as_list(value)
        if not items:
            raise ExpressionError("there is nothing in it", absent=True)
        lengths = _durations(items)
        if lengths is not None:
            wanted = (min if operator == "<" else max)(lengths)
            return items[lengths.index(wanted)]
        best = items[0]
        for item in items[1:]:
            if compare(operator, item, best, None):
                best = item
        return best

    return best_of


def total(value: Any) -> Any:
    """The sum of numbers or of durations."""
    items = as_list(value)
    lengths = _durations(items)
    if lengths is not None:
        return duration_text(sum(lengths))
    made: Any = 0
    for item in items:
        if not is_number(item):
            raise refuse("a number", item)
        made = calculate("+", made, item, None)
    return _whole(made)


def average(value: Any) -> Any:
    items = as_list(value)
    if not items:
        raise ExpressionError("there is nothing in it", absent=True)
    lengths = _durations(items)
    if lengths is not None:
        return duration_text(sum(lengths) // len(lengths))
    return _whole(calculate("/", total(items), len(items), None))


def _whole(number: Any) -> Any:
    return int(number) if isinstance(number, float) and number.is_integer() and abs(number) < 2**53 else number


# --- notations -------------------------------------------------------------------------------------
def notation(name: str, mode: str) -> Callable[[Any], Any]:
    """`string`: texts as they are, others written; `encode`: all written; `parse`: read; otherwise only texts are."""
    write, read = (to_json, from_json) if name == "json" else (to_yaml, _last_document)

    def convert(value: Any) -> Any:
        if mode == "encode":
            return write(value)
        if mode == "string":
            return value if isinstance(value, str) else write(value)
        if not isinstance(value, str):
            return read(write(value)) if mode == "parse" else value
        return read(value)

    return convert


def _last_document(text: str) -> Any:
    """What stands before a line `---` is no part of it."""
    lines = text.splitlines(keepends=True)
    marks = [place for place, line in enumerate(lines) if line.rstrip() == "---"]
    return from_yaml("".join(lines[marks[-1] + 1 :]) if marks else text)


def bash(name: str, mode: str) -> Callable[[Any], Any]:
    """One word of a shell command; texts as they are, unless they are to be encoded."""
    write = notation(name or "json", mode or "string")
    return lambda value: to_shell(write(value))
