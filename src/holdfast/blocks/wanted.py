"""Which numbers are wanted: exit codes and status codes, said as plain data in a block's input.

Read once before anything is done, so that a mistake in it costs nothing. It must not know what the number is of.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from .results import NothingDone

#: a number, `any`, a range `200..299`, a list of these, or a map of tests
Wanted: TypeAlias = int | str | list[Any] | dict[str, Any]
Test: TypeAlias = Callable[[int], bool]

_NUMBER = re.compile(r"-?[0-9]{1,9}")
_RANGE = re.compile(r"(-?[0-9]{1,9})\s*\.\.\s*(-?[0-9]{1,9})")
_ORDERS: dict[str, Callable[[int, float], bool]] = {
    "less-than": lambda a, b: a < b,
    "less-than-or-equal-to": lambda a, b: a <= b,
    "greater-than": lambda a, b: a > b,
    "greater-than-or-equal-to": lambda a, b: a >= b,
}
_KEYS = {key.replace("-", ""): key for key in ("equals", *_ORDERS, "in-range", "not", "any", "all")}
_DEPTH_LIMIT = 20


def reader(wanted: Wanted, where: str) -> Test:
    """A test made of what the author wrote under `where`; NothingDone, for good, where it cannot be read."""
    try:
        return _read(wanted, 0)
    except _Unreadable as error:
        raise NothingDone(
            f"{where}: {error}; write a number, `any`, a range like `200..299`, a list of these, "
            "or tests like `{less-than: 500}`",
            permanent=True,
        ) from None


class _Unreadable(Exception):
    pass


def _read(wanted: Any, depth: int) -> Test:
    if depth > _DEPTH_LIMIT:
        raise _Unreadable("it is nested too deep")
    if isinstance(wanted, bool) or wanted is None:
        raise _Unreadable(f"{'null' if wanted is None else str(wanted).lower()} is no number")
    if isinstance(wanted, int):
        return lambda value: value == wanted
    if isinstance(wanted, str):
        return _read_text(wanted.strip())
    if isinstance(wanted, list):
        if not wanted:
            raise _Unreadable("the list is empty, so nothing could ever be accepted")
        return _one_of([_read(item, depth + 1) for item in wanted])
    if isinstance(wanted, dict):
        if not wanted:
            raise _Unreadable("the map has no tests")
        return _every([_read_test(key, item, depth + 1) for key, item in wanted.items()])
    raise _Unreadable(f"{wanted!r} is no number")


def _read_text(text: str) -> Test:
    if text == "any":
        return lambda value: True
    if _NUMBER.fullmatch(text):
        number = int(text)
        return lambda value: value == number
    if match := _RANGE.fullmatch(text):
        return _between(int(match[1]), int(match[2]))
    raise _Unreadable(f"`{text[:40]}` is no number")


def _read_test(key: Any, item: Any, depth: int) -> Test:
    known = _KEYS.get(str(key).replace("-", "").replace("_", "").lower())
    match known:
        case None:
            raise _Unreadable(f"`{key}` is no test; there are {', '.join(_KEYS.values())}")
        case "equals":
            return _read(item, depth)
        case "not":
            inner = _read(item, depth)
            return lambda value: not inner(value)
        case "any" | "all":
            if not isinstance(item, list) or not item:
                raise _Unreadable(f"`{key}` takes a list of tests")
            tests = [_read(one, depth) for one in item]
            return _one_of(tests) if known == "any" else _every(tests)
        case "in-range":
            if not isinstance(item, list) or len(item) != 2:
                raise _Unreadable(f"`{key}` takes two numbers, both included")
            return _between(_number(item[0]), _number(item[1]))
        case order:
            compare, limit = _ORDERS[order], _number(item)
            return lambda value: compare(value, limit)


def _number(item: Any) -> float:
    if isinstance(item, str) and _NUMBER.fullmatch(item.strip()):
        return int(item)
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        raise _Unreadable(f"{item!r} is no number")
    return item


def _between(low: float, high: float) -> Test:
    if low > high:
        raise _Unreadable(f"the range {low:g}..{high:g} is empty; the lower end comes first")
    return lambda value: low <= value <= high


def _one_of(tests: list[Test]) -> Test:
    return lambda value: any(test(value) for test in tests)


def _every(tests: list[Test]) -> Test:
    return lambda value: all(test(value) for test in tests)
