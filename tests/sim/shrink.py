"""Shrinking: the fewest fault events of a schedule with which the same invariant still breaks (ddmin)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .base import Violation
from .campaign import run_seed
from .plan import draw


def breaks(seed: int, only: Sequence[int] | None, trace: list[str] | None = None) -> Violation | None:
    try:
        run_seed(seed, None if only is None else tuple(only), trace=trace)
    except Violation as violation:
        return violation
    return None


def ddmin(items: Sequence[int], is_bad: Callable[[Sequence[int]], bool]) -> list[int]:
    """A subset that is bad and stops being so if any one item is taken away."""
    items, parts = list(items), 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        chunks = [items[at : at + size] for at in range(0, len(items), size)]
        for chunk in chunks:
            rest = [item for item in items if item not in chunk]
            if is_bad(rest):
                items, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(items):
                break
            parts = min(len(items), parts * 2)
    return [] if len(items) == 1 and is_bad([]) else items


def shrink(seed: int) -> tuple[list[int], Violation] | None:
    """The events that are needed, and what they break; None where nothing breaks."""
    whole = breaks(seed, None)
    if whole is None:
        return None

    def is_bad(only: Sequence[int]) -> bool:
        found = breaks(seed, only)
        return found is not None and found.invariant == whole.invariant

    kept = ddmin([event.number for event in draw(seed).events], is_bad)
    found = breaks(seed, kept)
    assert found is not None
    return kept, found


def report(seed: int, only: Sequence[int] | None, commit: str, lines: int = 60) -> str:
    """Everything somebody needs to begin looking."""
    trace: list[str] = []
    found = breaks(seed, only, trace)
    if found is None:
        return f"seed {seed}: nothing is violated"
    events = draw(seed, None if only is None else tuple(only)).events
    again = f"python -m tests.sim --seed {seed}" + (
        "" if only is None else f" --only {','.join(map(str, only)) or 'none'}"
    )
    return "\n".join(
        [
            f"seed {seed}, commit {commit}, step {found.step}, invariant {found.invariant}",
            f"  {found}",
            f"again: {again}",
            "faults:",
            *(f"  {event}" for event in events),
            f"the last of {len(trace)} lines:",
            *(f"  {line}" for line in trace[-lines:]),
        ]
    )
