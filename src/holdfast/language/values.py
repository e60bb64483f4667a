"""Types of inputs and variables, and durations. Pure conversions; no expressions, no positions."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from holdfast.core.durations import is_duration, micros, spell

from .load import MAX_INTEGER, Unstorable, scalar
from .nodes import type_name

TYPES = ("string", "integer", "number", "boolean", "list", "map", "any", "duration")
TYPE_ALIASES = {
    "str": "string", "int": "integer", "long": "integer", "float": "number", "double": "number",
    "bool": "boolean", "array": "list", "object": "map", "dict": "map",
}  # fmt: skip
_YES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Mismatch(ValueError):
    """The value is not of that type, nor can it be read as one."""


def parse_duration(text: str) -> int:
    """`1h30m` in µs."""
    if not is_duration(text):
        hint = f"; write `{text}s` or another unit" if text.isdigit() else ""
        raise Mismatch(f"`{text[:64]}` is not a duration{hint}")
    total = micros(text)
    if total is None:
        raise Mismatch(f"`{text}` is longer than 100 years")
    return total


def duration_text(length: int) -> str:
    """The shortest spelling of a duration."""
    return spell(length)


def type_of(word: str) -> str | None:
    """The canonical name of a type, or nothing."""
    low = word.lower()
    low = TYPE_ALIASES.get(low, low)
    return low if low in TYPES else None


def yes_or_no(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _YES:
        return _YES[value.lower()]
    raise Mismatch("neither yes nor no")


def coerce(kind: str, value: Any) -> Any:
    """`value` as a `kind`. Strings are read the way the command line and forms write them."""
    if kind == "any":
        return value
    if kind == "string":
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            return str(value)
    elif kind == "boolean":
        if isinstance(value, (bool, str)):
            return yes_or_no(value)
    elif kind in ("integer", "number"):
        number = _number(value)
        if number is not None:
            if kind == "number":
                return number
            if isinstance(number, int):
                return number
            if number.is_integer() and abs(number) <= MAX_INTEGER:
                return int(number)
            raise Mismatch(f"{number} is not a whole number")
    elif kind == "duration":
        if isinstance(value, str):
            parse_duration(value)
            return value
    else:
        wanted = list if kind == "list" else dict
        if isinstance(value, wanted):
            return value
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            try:
                parsed = msgspec.json.decode(value)
            except (msgspec.DecodeError, RecursionError):
                parsed = None
            if isinstance(parsed, wanted):
                return parsed
    shown = f" `{value[:40]}`" if isinstance(value, str) else ""
    article = "an" if kind[0] in "aeiou" else "a"
    raise Mismatch(f"the {type_name(value)}{shown} is not {article} {kind}")


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        text = value.strip()
        try:
            parsed = scalar(text) if text else None
        except Unstorable:
            return None
        if isinstance(parsed, (int, float)) and not isinstance(parsed, bool):
            return parsed
    return None
