"""How many at a time, and how many may fail: batches of a rollout, tolerance for failed entities. Numbers only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .nodes import a_type
from .problems import Unreadable

_NUMBER = re.compile(r"-?\d{1,9}")
_PERCENT = re.compile(r"(-?\d{1,9}(?:\.\d{1,6})?)\s*%")


@dataclass(slots=True, frozen=True)
class Share:
    """So many, or such a part of all."""

    count: int = 0
    #: in millionths of a percent of all; -1 where it is a count
    part: int = -1

    def of(self, total: int) -> int:
        """Rounded down."""
        return self.count if self.part < 0 else self.part * total // _WHOLE

    def exceeded(self, failed: int, total: int) -> bool:
        """Exactly as much as it says is still allowed."""
        return failed > self.count if self.part < 0 else failed * _WHOLE > self.part * total

    def __str__(self) -> str:
        return str(self.count) if self.part < 0 else f"{self.part * 100 / _WHOLE:g}%"


_WHOLE = 100_000_000


def parse_share(given: Any, least: int, what: str) -> Share:
    """`5` or `25%`; raises Unreadable."""
    if isinstance(given, int) and not isinstance(given, bool):
        text = str(given)
    elif isinstance(given, str):
        text = given.strip()
    else:
        raise Unreadable(f"{what} is a number or a percentage like `25%`, not {a_type(given)}", 0, 1)
    if _NUMBER.fullmatch(text):
        count = int(text)
        if count < least:
            raise Unreadable(f"{what} is at least {least}, not {count}", 0, len(text))
        return Share(count)
    found = _PERCENT.fullmatch(text)
    if found is None:
        raise Unreadable(f"`{text[:40]}` is neither a number nor a percentage like `25%`", 0, len(text))
    whole, _, fraction = found.group(1).partition(".")
    part = int(whole.lstrip("-") + fraction.ljust(6, "0"))
    if whole.startswith("-") or part > _WHOLE or (least and not part):
        raise Unreadable(f"{what} is {'more than 0%' if least else '0%'} to 100%, not {text[:40]}", 0, len(text))
    return Share(part=part)


def batch_sizes(plan: tuple[Share, ...], total: int) -> list[int]:
    """Percentages are of all and rounded down, but a batch is never empty. The last entry is repeated until all are
    in a batch."""
    sizes: list[int] = []
    left = total
    while left > 0:
        size = min(left, max(1, plan[min(len(sizes), len(plan) - 1)].of(total)))
        sizes.append(size)
        left -= size
    return sizes
