"""Gates: what has to be so before an execution begins, looked at all together. Pure.

An execution behind a gate holds nothing: no lock, no job. Times and windows are met by the clock and may be unmet
again; a person's word and the end of another execution stay. Whatever changes, all gates are looked at again: only if
every one is met at the same moment the execution is READY.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from .model import Failure, Gate, Problem, Status

KINDS = ("not-before", "window", "approval", "after")
MINUTE = 60_000_000
DAY = 24 * 60 * MINUTE
_WINDOW = re.compile(r"(\d\d):(\d\d)\s*-\s*(\d\d):(\d\d)(?:\s*(?:Z|([+-])(\d\d):(\d\d)))?")


# --- windows ---------------------------------------------------------------------------------------------
def parse_window(text: str) -> tuple[int, int, int]:
    """Minutes of the day at which it opens and closes, and the offset of its clock from UTC, in minutes. It may go
    over midnight. `ValueError` says what is wrong."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no window: write `HH:MM-HH:MM`, with `+HH:MM` behind it if it is not UTC")
    hours, minutes, to_hours, to_minutes = (int(part) for part in found.group(1, 2, 3, 4))
    opens, closes = 60 * hours + minutes, 60 * to_hours + to_minutes
    offset = 60 * int(found[6] or 0) + int(found[7] or 0)
    if max(minutes, to_minutes, int(found[7] or 0)) > 59 or opens >= 1440 or closes > 1440 or offset > 14 * 60:
        raise ValueError(f"{text!r} is no window: a day has 24 hours of 60 minutes, an offset at most 14 hours")
    if opens == closes:
        raise ValueError(f"{text!r} is no window: it closes when it opens")
    return opens, closes, -offset if found[5] == "-" else offset


def next_opening(text: str, now: int) -> int:
    """`now` where the window is open, else the moment it opens next; µs UTC."""
    opens, closes, offset = parse_window(text)
    shift = offset * MINUTE
    midnight = (now + shift) // DAY * DAY - shift
    length = (closes - opens) % 1440 or 1440
    for day in (-1, 0, 1):
        start = midnight + day * DAY + opens * MINUTE
        if now < start:
            return start
        if now < start + length * MINUTE:
            return now
    raise AssertionError("a daily window opens every day")


# --- dependencies ----------------------------------------------------------------------------------------
def awaited(gate: Gate) -> tuple[str, bool]:
    """Of an `after` gate: the execution that must have ended, and whether it must have completed."""
    execution, _, word = gate.what.partition(" ")
    return execution, word.strip() == "completed"


def misfits(gates: Sequence[Gate]) -> list[Problem]:
    """What is wrong with gates that came with a request or were computed by a workflow."""
    problems = []
    for gate in gates:
        wrong = ""
        if gate.kind not in KINDS:
            wrong = f"there is no gate `{gate.kind}`; there are {', '.join(KINDS)}"
        elif gate.kind == "not-before" and gate.due <= 0:
            wrong = "a `not-before` gate needs a time"
        elif gate.kind == "window":
            try:
                parse_window(gate.what)
            except ValueError as error:
                wrong = str(error)
        elif gate.kind == "after" and (not gate.what or gate.what.partition(" ")[2].strip() not in ("", "completed")):
            wrong = f"{gate.what!r}: an `after` gate names an execution, and after it perhaps `completed`"
        if wrong:
            problems.append(Problem("HF0739", wrong, help="gates are not-before, window, approval and after"))
    return problems


# --- all of them -----------------------------------------------------------------------------------------
def look(gates: Sequence[Gate], now: int) -> tuple[Gate, ...]:
    """The gates as they are at that moment."""
    seen = []
    for gate in gates:
        if gate.kind == "not-before":
            seen.append(_with(gate, gate.due, now >= gate.due))
        elif gate.kind == "window":
            due = next_opening(gate.what, now)
            seen.append(_with(gate, gate.due if due == now else due, due == now))
        else:
            seen.append(gate)
    return tuple(seen)


def all_met(gates: Sequence[Gate]) -> bool:
    return all(gate.is_met for gate in gates)


def next_check(gates: Sequence[Gate]) -> int | None:
    """When they have to be looked at again if nothing happens until then."""
    times = [gate.due for gate in gates if not gate.is_met and gate.kind in ("not-before", "window")]
    times += [gate.deadline for gate in gates if not gate.is_met and gate.deadline]
    return min(times, default=None)


def overdue(gates: Sequence[Gate], now: int) -> Failure | None:
    """The failure of the first gate whose deadline has passed unmet."""
    for number, gate in enumerate(gates):
        if gate.deadline and not gate.is_met and now >= gate.deadline:
            what = f" ({gate.what})" if gate.what else ""
            message = f"gate {number}, {gate.kind}{what}, was not met before its deadline; nothing was begun"
            return Failure("gate-timeout", message, code="HF0739", details={"gate": number})
    return None


def meet(gates: Sequence[Gate], number: int, by: str, note: str = "") -> tuple[Gate, ...]:
    """With that gate met for good."""
    met = msgspec.structs.replace(gates[number], is_met=True, by=by, note=note)
    return (*gates[:number], met, *gates[number + 1 :])


def rejected(number: int, gate: Gate, by: str, note: str) -> Failure:
    said = f": {note}" if note else ""
    what = f" {gate.what!r}" if gate.what else ""
    message = f"gate {number}, approval{what}, was rejected by {by or 'somebody'}{said}; nothing was begun"
    return Failure("rejected", message, code="HF0739", details={"gate": number, "by": by, "note": note})


def hear(gates: Sequence[Gate], execution: str, status: Status) -> tuple[tuple[Gate, ...], Failure | None]:
    """That execution has ended so. The failure is of a gate that can never be met now."""
    heard = list(gates)
    for number, gate in enumerate(gates):
        if gate.kind != "after" or gate.is_met:
            continue
        other, must_complete = awaited(gate)
        if other != execution:
            continue
        if must_complete and status not in (Status.COMPLETED, Status.COMPLETED_ACK):
            message = f"execution {execution}, which had to complete before, ended as {status.name}; nothing was begun"
            return tuple(heard), Failure("dependency-failed", message, code="HF0739", details={"gate": number})
        heard[number] = msgspec.structs.replace(gate, is_met=True, by=f"execution {execution}", note=status.name)
    return tuple(heard), None


def _with(gate: Gate, due: int, is_met: bool) -> Gate:
    same = gate.due == due and gate.is_met == is_met
    return gate if same else msgspec.structs.replace(gate, due=due, is_met=is_met)
