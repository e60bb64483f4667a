"""Durations as people write them: `1h30m` to µs and back."""

from __future__ import annotations

import re

#: µs in each unit, longest first
UNITS = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
    "µs": 1,
}
MAX_DURATION = 36_500 * UNITS["d"]
_DURATION = re.compile(r"(?:\s*(\d{1,15}(?:\.\d{1,9})?)\s*(ms|us|µs|d|h|m|s))+\s*\Z")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|us|µs|d|h|m|s)")


def is_duration(text: str) -> bool:
    """Whether it reads as one, however long."""
    return len(text) <= 64 and _DURATION.match(text) is not None


def micros(text: str) -> int | None:
    """`1h30m` in µs; nothing if it is no duration or longer than 100 years."""
    if not is_duration(text):
        return None
    total = sum(round(float(number) * UNITS[unit]) for number, unit in _PART.findall(text))
    return total if total <= MAX_DURATION else None


def spell(micros: int) -> str:
    """The shortest spelling of a duration."""
    out, rest = "", micros
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, UNITS[unit])
        if count:
            out += f"{count}{unit}"
    return out or "0s"
