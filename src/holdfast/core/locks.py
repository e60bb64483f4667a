"""Locks: who holds one, who waits, and who is next. First come, first served.

A lock is a row with a fence that only grows and a queue of numbered claims. Every function here is pure: the
program asks what would happen, the core writes down that it did, the engine's turn carries rows on from one
decision to the next, all with the same functions. Nothing here knows where rows are kept.

There is one holder at a time. Several at once (shared locks) will be claims with a fence of their own, so
nobody may conclude from `holder` that a claim in front of the queue waits.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from . import events as e

#: Waiters read with a lock at first, first come first; more where they are used up, see `LockRow.is_whole`. Few: a
#: long queue would otherwise be read anew for every release.
WINDOW = 64

LockEvent: TypeAlias = e.LockTaken | e.LockQueued | e.LockGranted | e.LockReleased | e.LockForced
LOCK_EVENTS = (e.LockTaken, e.LockQueued, e.LockGranted, e.LockReleased, e.LockForced)


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One lane's place at a lock."""

    #: place in the queue; only grows, so who has the lower number came first
    seq: int
    execution: str
    lane: int
    #: the lane and all lanes it lies within, itself first
    path: tuple[int, ...] = ()
    #: µs; waiting since, or holding since
    since: int = 0


class LockRow(msgspec.Struct, frozen=True, gc=False):
    """A lock as a decision sees it. A lock nobody ever took is the row without arguments."""

    #: of the last holder there was; the next one gets a greater one
    fence: int = 0
    next_seq: int = 1
    holder: Claim | None = None
    #: first come first
    waiters: tuple[Claim, ...] = ()
    #: false: more claims wait than are listed
    is_whole: bool = True


class Hold(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an execution knows of a claim of its own."""

    entity: str
    name: str
    lane: int
    seq: int
    #: 0 while it waits
    fence: int
    since: int
    #: taken by setting the sensor `lock-NAME`, so no block's end gives it back
    is_by_sensor: bool = False


Holds: TypeAlias = dict[tuple[str, str, int], Hold]


# --- what would happen -------------------------------------------------------------------------------
def ask(row: LockRow, execution: str, lane: int) -> tuple[int, int]:
    """The place in the queue, and the fence; 0 means that it has to wait. Nobody overtakes."""
    is_free = row.holder is None and not row.waiters and row.is_whole
    return row.next_seq, row.fence + 1 if is_free else 0


def release(row: LockRow, seq: int) -> tuple[Claim | None, int]:
    """Who has the lock once the claim `seq` is gone, and the new fence. `(None, 0)` where nobody gets it: nobody
    waits, or `seq` only waited itself, or was gone already."""
    if row.holder is None or row.holder.seq != seq or not row.waiters:
        return None, 0
    return row.waiters[0], row.fence + 1


def force(row: LockRow) -> tuple[Claim | None, int]:
    """Take the lock from whoever holds it: who has it then, and the new fence. The fence grows even if nobody
    waits: what the former holder still sends out can be told from what comes after."""
    return (row.waiters[0] if row.waiters else None), row.fence + 1


# --- what happened -----------------------------------------------------------------------------------
def after(row: LockRow, execution: str, event: LockEvent, at: int) -> LockRow:
    """The row after an event of that execution."""
    match event:
        case e.LockTaken():
            claim = Claim(event.seq, execution, event.lane, event.path, at)
            return LockRow(event.fence, event.seq + 1, claim, row.waiters, row.is_whole)
        case e.LockQueued():
            # Behind a window that is not whole nobody can be seen, nor has to be.
            claim = Claim(event.seq, execution, event.lane, event.path, at)
            waiters = (*row.waiters, claim) if row.is_whole else row.waiters
            return LockRow(row.fence, event.seq + 1, row.holder, waiters, row.is_whole)
        case e.LockReleased():
            return _without(row, event.seq, event.heir, event.fence, at)
        case e.LockForced():
            return _without(row, event.owner_seq, event.heir, event.fence, at)
        case e.LockGranted():
            # The row knew before the execution did.
            return row


def _without(row: LockRow, seq: int, heir: tuple[str, int, int] | None, fence: int, at: int) -> LockRow:
    holder = row.holder
    if holder is None or holder.seq != seq:
        waiters = tuple(claim for claim in row.waiters if claim.seq != seq)
        return LockRow(max(row.fence, fence), row.next_seq, holder, waiters, row.is_whole)
    if heir is None:
        return LockRow(max(row.fence, fence), row.next_seq, None, row.waiters, row.is_whole)
    execution, lane, next_seq = heir
    path = next((claim.path for claim in row.waiters if claim.seq == next_seq), ())
    waiters = tuple(claim for claim in row.waiters if claim.seq != next_seq)
    return LockRow(fence, row.next_seq, Claim(next_seq, execution, lane, path, at), waiters, row.is_whole)


def change(holds: Holds, execution: str, event: LockEvent, at: int) -> None:
    """What an execution knows of its claims, after one of its own events."""
    match event:
        case e.LockTaken():
            key = (event.entity, event.name, event.lane)
            holds[key] = Hold(*key, event.seq, event.fence, at, event.is_by_sensor)
        case e.LockQueued():
            key = (event.entity, event.name, event.lane)
            holds[key] = Hold(*key, event.seq, 0, at)
        case e.LockGranted():
            key = (event.entity, event.name, event.lane)
            holds[key] = Hold(*key, event.seq, event.fence, at)
        case e.LockReleased():
            holds.pop((event.entity, event.name, event.lane), None)
        case e.LockForced():
            if event.owner == execution:
                hold = find(holds, event.entity, event.name, event.owner_seq)
                if hold is not None:
                    del holds[hold.entity, hold.name, hold.lane]


def find(holds: Holds, entity: str, name: str, seq: int) -> Hold | None:
    """The claim of that number at that lock."""
    return next((x for x in holds.values() if x.seq == seq and x.name == name and x.entity == entity), None)
