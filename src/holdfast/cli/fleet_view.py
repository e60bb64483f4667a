"""How a fleet is shown: a line per entity, or marks in rows where there are too many; and how each of them ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .fleet import Fleet, Member
from .text import MARKS, bold, clip, dim, is_plain, plural, say, style, table, took

#: more entities than this are shown as marks, not as lines
LINES = 30
#: lines of a terminal that are left to others
SPARE = 4
_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SHOWN = {
    "done": (MARKS["done"], "green"),
    "rolled back": ("↶", "yellow"),
    "in doubt": ("?", "red"),
    "failed": (MARKS["failed"], "red"),
    "stopped": (MARKS["failed"], "magenta"),
    "not reached": (MARKS["skipped"], ""),
    "verify": (MARKS["waiting"], "yellow"),
    "undo": ("↶", "cyan"),
    "retry": (MARKS["retry"], "yellow"),
    "queued": (MARKS["waiting"], "cyan"),
    "pending": (MARKS["pending"], ""),
}
_WORDS = {"verify": "looking", "undo": "undoing", "queued": "queued", "pending": "waiting", "retry": "again soon"}


def look_of(fleet: Fleet, member: Member, now: int = 0) -> tuple[str, str, str]:
    """Mark, its colour and the word for what it is at."""
    verdict = fleet.verdict(member)
    if verdict == "running":
        return _SPIN[now // 100_000 % len(_SPIN)] if now else MARKS["running"], "cyan", verdict
    mark, colour = _SHOWN[verdict]
    return mark, colour, _WORDS.get(verdict, verdict)


def summary(fleet: Fleet) -> str:
    """All of them in a line."""
    parts = [f"{count} {_WORDS.get(word, word)}" for word, count in fleet.counts.items()]
    if fleet.waits_for:
        parts.insert(0, f"waiting for {fleet.waits_for}, which somebody else holds")
    elif fleet.batch and not fleet.is_ended:
        parts.insert(0, "rollback" if fleet.is_undoing else f"batch {fleet.batch}")
    return " · ".join(parts)


# --- on a terminal ----------------------------------------------------------------------------------
def has_lines(fleet: Fleet, height: int) -> bool:
    """There is room for a line for each."""
    return len(fleet) <= min(LINES, height)


def drawn(fleet: Fleet, now: int, width: int, height: int) -> list[Any]:
    """For rich, at most so large: a line with the sum of it, then the entities."""
    from rich.text import Text

    head = Text("  ")
    head.append(plural(len(fleet), "entity").replace("entitys", "entities"), style="bold")
    head.append(f"  {summary(fleet)}", style="dim")
    head.truncate(width, overflow="ellipsis")
    return [head, *(_lines if has_lines(fleet, height - 1) else _marks)(fleet, now, width, height - 1)]


def _lines(fleet: Fleet, now: int, width: int, height: int) -> list[Any]:
    # Widths are our own: a long remark must not squeeze what stands before it, nor columns move from draw to draw.
    ids = min(max(len(member.id) for member in fleet.members), max(12, width // 3))
    places = min(max(8, *(len(member.step) for member in fleet.members)), max(12, width // 4))
    return [_line(fleet, member, now, width, ids, places) for member in fleet.members]


def _line(fleet: Fleet, member: Member, now: int, width: int, ids: int = 0, places: int = 0) -> Any:
    from rich.text import Text

    mark, colour, word = look_of(fleet, member, now)
    is_faint = word in ("waiting", "not reached")
    line = Text("  ").append(mark, style=colour or "dim")
    line.append(f" {clip(member.id, ids) if ids else member.id:<{ids}}", style="dim" if is_faint else "bold")
    place = fleet.place(member)
    line.append(f"  {clip(place, places) if places else place:<{places}}", style="dim")
    line.append(f"  {word}", style=colour or "dim")
    time_text = f" {took(now - member.since)}" if member.since and not fleet.is_ended else ""
    line.append(time_text.ljust(13 - len(word)), style="dim")
    line.append(f"  {fleet.remark(member)}", style="red" if word in ("in doubt", "failed") else "dim")
    line.truncate(width - 1, overflow="ellipsis")
    return line


def _marks(fleet: Fleet, now: int, width: int, height: int) -> list[Any]:
    """A mark for each, in order; trouble in lines of its own below."""
    from rich.text import Text

    room = max(10, width - 4)
    troubled = [m for m in fleet.members if fleet.verdict(m) in ("in doubt", "failed", "retry")]
    spare = max(1, height - 1 - min(len(troubled), 5))
    rows = -(-len(fleet) // room)
    each = 1
    if rows > spare:
        each = -(-len(fleet) // (room * spare))  # one mark for several, that of who is worst off
    out = []
    shown = [_worst(fleet, fleet.members[at : at + each]) for at in range(0, len(fleet), each)]
    for at in range(0, len(shown), room):
        line = Text("  ")
        for member in shown[at : at + room]:
            mark, colour, _ = look_of(fleet, member, now)
            line.append(mark, style=colour or "dim")
        out.append(line)
    out += [_line(fleet, member, now, width) for member in troubled[:5]]
    return out


def _worst(fleet: Fleet, members: Sequence[Member]) -> Member:
    order = ("in doubt", "failed", "retry", "verify", "undo", "running", "queued", "rolled back", "stopped", "done")
    rank = {word: number for number, word in enumerate(order)}
    return min(members, key=lambda member: rank.get(fleet.verdict(member), len(order)))


# --- as text ----------------------------------------------------------------------------------------
def tell_each(fleet: Fleet) -> None:
    """How each of them ended; of many, only those that somebody has to look at."""
    shown, more = fleet.members, 0
    if len(shown) > LINES:
        shown = [member for member in shown if fleet.verdict(member) in ("in doubt", "failed", "stopped")]
        shown, more = shown[:LINES], max(0, len(shown) - LINES)
    rows = []
    for member in shown:
        mark, colour, word = look_of(fleet, member)
        paint = style(f"{mark} {word}", fg=colour) if colour else dim(f"{mark} {word}")
        remark = fleet.remark(member)
        rows.append(
            [
                bold(member.id),
                paint,
                dim(fleet.place(member)),
                remark if word == "in doubt" or not remark else dim(remark),
            ]
        )
    if rows:
        say(table((), rows, indent="  "))
    if more:
        say(dim(f"  … and {more:,} more like that"))
    if is_plain():
        say(f"  {bold(plural(len(fleet), 'entity').replace('entitys', 'entities'))}  {summary(fleet)}")
