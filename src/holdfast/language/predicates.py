"""Tests of values, without expressions or places: presence, equality, order, globs, and paths into data."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .evaluate import ABSENT
from .load import Unstorable, scalar
from .notations import from_json
from .operations import ExpressionError, same, truthy
from .problems import Unreadable

WHEN: dict[str, Callable[[Any], bool]] = {
    "absent": lambda value: value is ABSENT,
    "absent-or-null": lambda value: value is ABSENT or value is None,
    "present": lambda value: value is not ABSENT,
    "present-non-null": lambda value: value is not ABSENT and value is not None,
    "truthy": lambda value: value is not ABSENT and truthy(value),
    "falsy": lambda value: value is ABSENT or not truthy(value),
    "always": lambda value: True,
    "never": lambda value: False,
}
#: what a glob with `?` may cost
MAX_GLOB_STEPS = 300_000
is_there = WHEN["present-non-null"]

ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "less-than": lambda a, b: bool(a < b),
    "less-than-or-equal-to": lambda a, b: bool(a <= b),
    "greater-than": lambda a, b: bool(a > b),
    "greater-than-or-equal-to": lambda a, b: bool(a >= b),
}


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("kind"), str) and isinstance(value.get("message"), str)


def texts(value: Any) -> tuple[str, ...]:
    """What tests of text look at: of an error, its message, with its kind before it and without."""
    if isinstance(value, str):
        return (value,)
    if is_error(value):
        return value["message"], f"{value['kind']}: {value['message']}"
    return ()


def causes(error: Any) -> list[dict[str, Any]]:
    """The error and what caused it, outermost first."""
    found: list[dict[str, Any]] = []
    while isinstance(error, dict) and len(found) < 100:
        found.append(error)
        error = error.get("cause")
    return found


def equal(left: Any, right: Any) -> bool:
    """Equality of conditions: a text equals the number or boolean that it spells."""
    left = None if left is ABSENT else left
    if is_error(left) and isinstance(right, str):
        return right == left["kind"] or right in texts(left)
    if isinstance(left, str) != isinstance(right, str):
        text, other = (left, right) if isinstance(left, str) else (right, left)
        if other is None or isinstance(other, (list, dict)):
            return False
        try:
            return same(scalar(text) if text else text, other)
        except Unstorable:
            return False
    return same(left, right)


def ordered(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
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


def glob(pattern: str, text: str) -> bool:
    """`*` and `?`, without backtracking beyond the last star."""
    return _with_marks(pattern, text) if "?" in pattern else _with_stars(pattern, text)


def _with_stars(pattern: str, text: str) -> bool:
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    last = rest.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in rest:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _with_marks(pattern: str, text: str) -> bool:
    at = star = steps = 0
    mark = -1
    for_star = -1
    while at < len(text):
        steps += 1
        if steps > MAX_GLOB_STEPS:
            raise ExpressionError("the text is too long for a glob with `?`", code="HF0161")
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


# --- paths into data -------------------------------------------------------------------------------
class _Every:
    __slots__ = ()


_EVERY: Any = _Every()
_STEP = re.compile(
    r"""\.?(?P<name>[^\W\d][\w-]*)
      | \.(?P<star>\*)
      | \[\s*(?:(?P<index>-?\d{1,9})|(?P<every>\*)|'(?P<single>[^']*)'|"(?P<double>[^"]*)")\s*\]
    """,
    re.VERBOSE,
)


def parse_path(text: str) -> tuple[Any, ...]:
    """`$.a.b[0]`, `a['b c'][*]`: keys, indexes and "every item"; raises Unreadable."""
    parts: list[Any] = []
    at = 1 if text.startswith("$") else 0
    while at < len(text):
        match = _STEP.match(text, at)
        is_bare = match is not None and match.lastgroup == "name" and text[at] != "."
        # A name needs its dot, but for the first one where `$` is left out.
        if match is None or (is_bare and at > 0):
            help = "`..` and filters are not supported" if text.startswith(("..", "[?", ".["), at) else ""
            raise Unreadable("the path cannot be read", at, at + 1, help or "write `$.key`, `[0]`, `['key']` or `[*]`")
        kind, at = str(match.lastgroup), match.end()
        part = match.group(kind)
        parts.append(_EVERY if kind in ("every", "star") else int(part) if kind == "index" else part)
    return tuple(parts)


def follow_path(value: Any, path: tuple[Any, ...]) -> Any:
    """What is there, or ABSENT. A text is read as JSON; `[*]` gives a list of all that is found."""
    if isinstance(value, str):
        try:
            value = from_json(value)
        except ExpressionError:
            return ABSENT
    for place, part in enumerate(path):
        if part is _EVERY:
            items = list(value.values()) if isinstance(value, dict) else value
            if not isinstance(items, list):
                return ABSENT
            rest = path[place + 1 :]
            found = [_inside(item, rest) for item in items]
            gathered = [item for item in found if item is not ABSENT]
            if _EVERY in rest:
                return [item for inner in gathered for item in inner]
            return gathered
        value = item_of(value, part)
        if value is ABSENT:
            return ABSENT
    return value


def _inside(value: Any, path: tuple[Any, ...]) -> Any:
    """Texts inside of data are texts."""
    return (ABSENT if path else value) if isinstance(value, str) else follow_path(value, path)


def item_of(value: Any, part: Any) -> Any:
    """The value at a key or index, which may count from the end; or ABSENT."""
    if isinstance(value, dict) and isinstance(part, str) and part in value:
        return value[part]
    if isinstance(value, list) and isinstance(part, int) and -len(value) <= part < len(value):
        return value[part]
    return ABSENT
