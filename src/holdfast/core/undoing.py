"""The way back: which entries of the ledger can be undone, in which order, and what an outcome leads to. Pure.

Entries are undone in the reverse order of their start, and never beneath a later effect that stays: what overlaps an
entry and started later has to be UNDONE before it. Entries overlap if they are about the same entity, or about a thing
and a part of it, or if one of them is *wide*: about no entity or about a group. So between two wide entries there is
one chain per entity, and the chains go in parallel; a wide entry waits for all chains above it.

The plan is the ledger. `link` writes the order into the entries themselves, so that each outcome costs what it leads
to, however long the plan is; a rebuild links the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from . import events as e
from .ledger import Entry
from .model import Effect, Failure, JobKind, JobSpec, Undo

if TYPE_CHECKING:
    from .subjects import Subject

#: Stands in `Entry.below` of a wide entry.
WIDE = -1


class Standing(msgspec.Struct, array_like=True, gc=False):
    """How far rollback has come."""

    #: the wide entry that waits for the chains above it, or is being undone; 0 if none is left
    barrier: int = 0
    #: entries above it that are not settled
    left: int = 0
    #: one of them was not undone: nothing beneath the barrier will be
    is_stuck: bool = False


# --- what can be undone ----------------------------------------------------------------------------------
def why_not(entry: Entry, spec: JobSpec, is_lost: bool = False) -> str:
    """Why that entry cannot be undone, whatever stands above it; empty if it can."""
    if is_lost:
        return f"entity {entry.entity} was taken away: somebody else may have it"
    if spec.is_pivot:
        return f"block {spec.block} is a point of no return"
    if not spec.has_rollback:
        return f"block {spec.block} has no rollback"
    if (entry.effect is not Effect.DONE or entry.unknown) and not spec.accepts_unknown:
        return f"nobody knows whether it took effect, and the rollback of block {spec.block} has to be sure of that"
    return ""


def doubtful(ledger: Mapping[int, Entry], specs: Sequence[JobSpec], lost: Sequence[str] = ()) -> list[int]:
    """Entries that somebody should look at before anything is undone, in order of their start."""
    return sorted(
        job
        for job, entry in ledger.items()
        if entry.effect is Effect.UNKNOWN
        and not entry.is_verified
        and specs[entry.spec].has_verify
        and (not entry.entity or entry.entity not in lost)
    )


# --- the order -------------------------------------------------------------------------------------------
def link(ledger: Mapping[int, Entry], subjects: Mapping[int, Subject]) -> int:
    """Write the plan into the entries that have to be undone, and say which is the first."""
    groups = {subject.id for subject in subjects.values() if subject.type == "group"}
    above = {subject.id: subject.above or subject.within for subject in subjects.values() if subject.within}
    plan = sorted((job for job, entry in ledger.items() if entry.is_residue), reverse=True)
    about = {ledger[job].entity for job in plan}
    #: the lowest entry of each chain so far
    lowest: dict[str, Entry] = {}
    before: Entry | None = None
    for job in plan:
        entry = ledger[job]
        entry.below, entry.then = 0, 0
        if before is not None:
            before.then = job
        before = entry
        if not entry.entity or entry.entity in groups:
            entry.below = WIDE
            lowest.clear()
            continue
        # A part is in one chain with its whole where something was done to the whole, too.
        chain = _top(entry.entity, above, about)
        if chain in lowest:
            lowest[chain].below = job
        lowest[chain] = entry
    return plan[0] if plan else 0


def _top(entity: str, above: Mapping[str, str], about: set[str]) -> str:
    """The outermost of those it is a part of to which something was done; itself if there is none."""
    top, whole, seen = entity, above.get(entity, ""), {entity}
    while whole and whole not in seen:
        seen.add(whole)
        if whole in about:
            top = whole
        whole = above.get(whole, "")
    return top


def planned(ledger: Mapping[int, Entry], first: int) -> list[int]:
    """All entries of a plan, in its order."""
    order = []
    while first:
        order.append(first)
        first = ledger[first].then
    return order


def section(ledger: Mapping[int, Entry], first: int) -> tuple[list[int], Standing]:
    """From an entry down to the next wide one: the heads of the chains, and how things stand there."""
    heads: list[int] = []
    lower: set[int] = set()
    count = 0
    while first and (entry := ledger[first]).below != WIDE:
        if first not in lower:
            heads.append(first)
        lower.add(entry.below)
        count += 1
        first = entry.then
    return heads, Standing(first, count)


def settle(standing: Standing, ledger: Mapping[int, Entry], job: int, outcome: Undo) -> Standing:
    """How things stand after that outcome."""
    if job == standing.barrier:
        return section(ledger, ledger[job].then)[1] if outcome is Undo.UNDONE else Standing(is_stuck=True)
    left = max(0, standing.left - 1)
    return Standing(standing.barrier, left, standing.is_stuck or outcome is not Undo.UNDONE)


# --- going back ------------------------------------------------------------------------------------------
class Walk:
    """What one outcome, or the beginning, leads to: events in the making."""

    __slots__ = ("events", "is_moving", "ledger", "lost", "next_job", "specs", "standing")

    def __init__(
        self,
        ledger: Mapping[int, Entry],
        specs: Sequence[JobSpec],
        standing: Standing,
        next_job: int,
        lost: Sequence[str] = (),
    ) -> None:
        self.ledger = ledger
        self.specs = specs
        self.standing = standing
        self.next_job = next_job
        self.lost = lost
        self.events: list[e.Event] = []
        #: a job was scheduled
        self.is_moving = False

    @property
    def is_over(self) -> bool:
        return not self.standing.left and not self.standing.barrier

    def begin(self, first: int) -> None:
        heads, self.standing = section(self.ledger, first)
        for head in heads:
            self._try(head)
        if not heads:
            self._reach_barrier()

    def settled(self, job: int, outcome: Undo, failure: Failure | None = None) -> None:
        """Rollback is over for that entry."""
        is_wide = job == self.standing.barrier
        entry = self._settle(job, outcome, failure)
        if is_wide:
            if outcome is Undo.UNDONE:
                self.begin(entry.then)
            else:
                self._skip(entry.then, lambda below: below.then)
            return
        if outcome is not Undo.UNDONE:
            self._skip(entry.below, lambda below: below.below)
        elif entry.below:
            self._try(entry.below)
        if not self.standing.left:
            self._reach_barrier()

    def _reach_barrier(self) -> None:
        """Everything above the next wide entry is settled."""
        barrier = self.standing.barrier
        if not barrier:
            return
        if self.standing.is_stuck:
            self.settled(barrier, Undo.SKIPPED_BELOW_FAILURE)
        else:
            self._try(barrier)

    def _try(self, job: int) -> None:
        entry = self.ledger[job]
        why = why_not(entry, self.specs[entry.spec], bool(entry.entity) and entry.entity in self.lost)
        if why:
            self.settled(job, Undo.NOT_COMPENSABLE, Failure("not-compensable", why))
            return
        self.events.append(hook(self.next_job, JobKind.ROLLBACK, entry))
        self.next_job += 1
        self.is_moving = True

    def _skip(self, job: int, after: Callable[[Entry], int]) -> None:
        while job:
            job = after(self._settle(job, Undo.SKIPPED_BELOW_FAILURE))

    def _settle(self, job: int, outcome: Undo, failure: Failure | None = None) -> Entry:
        self.events.append(e.EntrySettled(job, outcome, failure))
        self.standing = settle(self.standing, self.ledger, job, outcome)
        return self.ledger[job]


def hook(job: int, kind: JobKind, entry: Entry) -> e.JobScheduled:
    """A job that looks at, or undoes, what another one did; it belongs to no lane."""
    return e.JobScheduled(job, 0, entry.step, entry.spec, entry.input, 1, entry.entity, kind, entry.job)


# --- what hooks say --------------------------------------------------------------------------------------
_SAID = {"applied": Effect.DONE, "not-applied": Effect.NONE, "unknown": Effect.UNKNOWN}


def outcome_of(result: Any) -> tuple[Effect, Any]:
    """What a `verify` found, and the data that goes with it. What cannot be understood proves nothing."""
    data = None
    if isinstance(result, dict):
        result, data = result.get("outcome"), result.get("data")
    if not isinstance(result, str):
        return Effect.UNKNOWN, None
    return _SAID.get(result.lower().replace("_", "-"), Effect.UNKNOWN), data
