"""What the histories say, folded from their bytes as they are committed: the measure for everything else.

A shadow shares `apply` with the engine and nothing more: no cache, no rows, no memory of a turn. Beside the state
it remembers what a state forgets: which attempts were begun, which may have had an effect, how jobs ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core import events as e
from holdfast.core.codec import chain, unpack_events
from holdfast.core.folding import apply
from holdfast.core.model import Effect, JobKind, JobSpec, JobStatus, Undo
from holdfast.core.state import FAR, open_state, spec_of
from holdfast.store.records import HistoryRow

from .base import Violation
from .checks import EVENT_CHECKS

if TYPE_CHECKING:
    from .world import World


_OUTCOMES = frozenset({e.JobSucceeded, e.JobFailed, e.JobRescheduled, e.JobCancelled})


class Shadow:
    __slots__ = (
        "asked", "digest", "doubt", "id", "is_ended", "kinds", "planned", "rows", "settled", "started", "state",
        "succeeded",
    )  # fmt: skip

    def __init__(self, id: str) -> None:
        self.id = id
        self.state = open_state(id)
        self.digest = b""
        #: transitions so far
        self.rows = 0
        self.is_ended = False
        #: (job, attempt) that were claimed, ever, and when, in virtual time
        self.started: dict[tuple[int, int], int] = {}
        self.succeeded: set[int] = set()
        #: job → attempts of which nobody can say that they did nothing
        self.doubt: dict[int, int] = {}
        #: what kind of job each was
        self.kinds: dict[int, JobKind] = {}
        #: entries of the ledger that rollback was to see to, and what became of each
        self.planned: tuple[int, ...] = ()
        self.settled: dict[int, Undo] = {}
        #: entities whose change a job asked for and then succeeded
        self.asked: set[str] = set()

    def spec(self, job: int) -> JobSpec:
        return spec_of(self.state, self.state.jobs[job])

    def may_repeat(self, job: int) -> bool:
        """Said again, not asked of `JobSpec`: a planted bug may have changed its mind."""
        spec = self.state.specs[self.state.jobs[job].spec]
        return spec.pure or spec.idempotent or self.kinds[job] is not JobKind.EXECUTE

    def is_looked_at(self, job: int) -> bool:
        """It waits until somebody has seen what came of its last attempt."""
        found = self.state.jobs.get(job)
        return found is not None and found.status is JobStatus.RESCHEDULED and found.due == FAR

    def take(self, world: World, row: HistoryRow) -> None:
        state = self.state
        events = unpack_events(row.body)
        if row.seq != state.version + len(events):
            self.broken("I-2", f"row {row.seq} should end at event {state.version + len(events)}")
        if row.digest != chain(self.digest, row.seq, row.at, row.body):
            self.broken("I-3", f"row {row.seq} does not continue the chain")
        if row.at < state.at:
            self.broken("I-18", f"row {row.seq} is dated before the one it follows")
        state.at = row.at
        for event in events:
            kind = type(event)
            for check in EVENT_CHECKS.get(kind, ()):
                check(world, self, event)
            if kind is e.JobScheduled:
                self.kinds[event.job] = event.kind
            elif kind is e.JobStarted:
                self.started[event.job, event.attempt] = world.now
            elif kind in _OUTCOMES:
                if kind is e.JobSucceeded:
                    self.succeeded.add(event.job)
                    self.asked.update(change.id for change in event.changes)
                if event.effect:
                    self.doubt[event.job] = self.doubt.get(event.job, 0) + 1
            elif kind is e.EffectVerified and event.effect is Effect.NONE:
                self.doubt.pop(event.job, None)
            elif kind is e.RollbackPlanned:
                self.planned = event.jobs
            elif kind is e.EntrySettled:
                self.settled[event.job] = event.outcome
            try:
                apply(state, event)
            except (AssertionError, KeyError, IndexError, StopIteration) as error:
                invariant = "I-6" if "no edge" in str(error) else "I-4"
                self.broken(invariant, f"{event} cannot follow: {type(error).__name__}: {error}")
        self.digest = row.digest
        self.rows += 1
        self.is_ended = state.status.is_ended

    def broken(self, invariant: str, text: str) -> None:
        raise Violation(invariant, f"{self.id[:20]} ({self.state.workflow}, {self.state.status.name}): {text}")
