"""Executions on entities whose blocks have hooks, for tests of what happens after an error. No language involved."""

from __future__ import annotations

from typing import Any

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.codec import pack_events, unpack_events
from holdfast.core.decide import decide
from holdfast.core.folding import fold
from holdfast.core.lanes import Op
from holdfast.core.model import Effect, Failure, JobKind, JobSpec, JobStatus, Mode, Policy, Retry, Undo
from holdfast.core.program import Advance, JobEnded, ScheduleJob
from holdfast.core.rows import GRACE, AgendaRow, JobRow, transit
from holdfast.core.rows import Rows as Follows
from holdfast.core.snapshot import canonical, encode, restore
from holdfast.core.state import FAR, State, open_state
from tests.core.scripted import ID, Rows, Scripted

BOOM = Failure("block-error", "boom")
NOW_AND_AGAIN = Retry(3, 1_000_000, 2.0, 60_000_000, 0.0)
SPECS = {
    "plain": JobSpec("plain"),
    "pure": JobSpec("pure", pure=True),
    "idem": JobSpec("idem", idempotent=True, retry=NOW_AND_AGAIN),
    "undo": JobSpec("undo", has_rollback=True),
    "undo-idem": JobSpec("undo-idem", idempotent=True, has_rollback=True, retry=NOW_AND_AGAIN),
    "undo-any": JobSpec("undo-any", has_rollback=True, accepts_unknown=True),
    "pivot": JobSpec("pivot", has_rollback=True, is_pivot=True),
    "look": JobSpec("look", has_verify=True, retry=NOW_AND_AGAIN),
    "look-once": JobSpec("look-once", has_verify=True),
    "both": JobSpec("both", has_verify=True, has_rollback=True),
}
NAMES = list(SPECS)


class Fleet(Scripted):
    """Steps of a branch are ("job", block, entity); a branch that fails is over, if failures are tolerated."""

    blocks = tuple(SPECS)

    def __init__(self, *branches: list[tuple[Any, ...]], tolerates: bool = False) -> None:
        super().__init__(*branches)
        self.tolerates = tolerates

    def pin(self, blocks: Any) -> tuple[tuple[JobSpec, ...], list[Any]]:
        return tuple(SPECS.values()), []

    def advance(self, state: Any, cause: Any, now: int, reads: Any) -> list[Any]:
        if isinstance(cause, JobEnded) and cause.failure is not None and self.tolerates:
            return self.go_on(state, cause.lane, ((Op.FORGET, cause.job),), now)
        return super().advance(state, cause, now, reads)

    def enter(self, state: Any, lane: int, branch: int, position: int, ops: tuple[Any, ...], now: int) -> list[Any]:
        steps = self.branches[branch]
        if position < len(steps) and steps[position][0] == "job":
            _, block, entity = steps[position]
            moved = (*ops, (Op.MOVE, position)) if position else ops
            return [
                Advance(lane, (*moved, (Op.WAIT, 1))),
                ScheduleJob(lane, position, NAMES.index(block), {"n": position}, entity=entity),
            ]
        return super().enter(state, lane, branch, position, ops, now)


class Shared(Rows):
    woken: tuple[str, ...] = ()

    def flagged(self, key: Any) -> tuple[str, ...]:
        return self.woken

    def watchers(self, key: Any) -> tuple[str, ...]:
        return ()


class Case:
    """An execution under test. Before every request it is rebuilt from its events, as after a crash: whatever the live
    path knew besides them would be missed."""

    def __init__(
        self,
        *branches: list[tuple[Any, ...]],
        policy: Policy | None = None,
        types: dict[str, str] | None = None,
        within: dict[str, str] | None = None,
        above: dict[str, str] | None = None,
        tolerates: bool = False,
    ) -> None:
        self.rows = Shared(Fleet(*branches, tolerates=tolerates))
        self.state: State = open_state(ID)
        self.now = 1000
        self.history: list[tuple[int, bytes]] = []
        self.queue: dict[int, JobRow] = {}
        self.agenda: dict[tuple[str, str], AgendaRow] = {}
        self.flags: dict[str, str] = {}
        self.when(r.StartExecution(ID, definition=b"d" * 16))
        if policy is not None:
            self.given(e.PolicySet(policy))
        if types:
            ids = tuple(types)
            around = tuple((within or {}).get(id, "") for id in ids)
            between = tuple((above or {}).get(id, "") for id in ids) if above else ()
            modes = (Mode.X,) * len(ids)
            self.given(
                e.EntitiesFound(ids, tuple(types.values()), modes, within=around, above=between), e.EntitiesLocked(7, 7)
            )

    def given(self, *events: e.Event) -> None:
        follows = Follows()
        transit(self.state, self.now, events, follows)
        self.history.append((self.state.at, pack_events(events)))
        for (_, job), row in follows.jobs.items():
            if row is None:
                self.queue.pop(job, None)
            else:
                self.queue[job] = row
        for place, due in follows.agenda.items():
            if due is None:
                self.agenda.pop(place, None)
            else:
                self.agenda[place] = due
        if follows.flags_gone:
            self.flags.clear()
        self.flags |= {flag.entity: flag.kind for _, flag in follows.flags}

    def when(self, request: r.Request) -> list[e.Event]:
        rebuilt = open_state(ID)
        for at, events in self.history:
            fold(rebuilt, at, unpack_events(events))
        assert canonical(rebuilt) == canonical(self.state)
        assert canonical(restore(encode(rebuilt))) == canonical(self.state)
        self.now += 10
        decided = decide(self.state, request, self.now, self.rows)
        assert isinstance(decided, list)
        assert decide(restore(encode(rebuilt)), request, self.now, self.rows) == decided, "a rebuild decides otherwise"
        if decided:
            self.given(*decided)
        self._check()
        return decided

    def _check(self) -> None:
        """Every job that is not over is in exactly one place."""
        jobs = self.state.jobs.values()
        assert set(self.queue) == {x.id for x in jobs if x.status in (JobStatus.SENT, JobStatus.STARTED)}
        waiting = {f"job/{x.id}" for x in jobs if x.status is JobStatus.RESCHEDULED and x.due != FAR}
        assert {item for id, item in self.agenda if id == ID} - {GRACE} == waiting
        open_hooks = [x for x in jobs if x.kind in (JobKind.VERIFY, JobKind.ROLLBACK)]
        assert self.state.hooks == len(open_hooks)
        assert self.state.running == sum(x.status is JobStatus.STARTED for x in jobs)

    # --- workers ------------------------------------------------------------------------------------------
    def claim(self, job: int) -> int:
        """The attempt."""
        (started,) = self.when(r.ClaimJob(job, "w", "inc"))
        assert isinstance(started, e.JobStarted)
        return started.attempt

    def done(self, job: int, result: Any = None, effect: Effect | None = None) -> list[e.Event]:
        return self.when(r.CompleteJob(job, self.claim(job), result, effect))

    def failed(self, job: int, effect: Effect | None = None, **more: Any) -> list[e.Event]:
        return self.when(r.FailJob(job, self.claim(job), BOOM, effect, **more))

    def lost(self, job: int, kind: str = "worker-lost") -> list[e.Event]:
        return self.when(r.LoseJob(job, self.claim(job), kind, "gone"))

    def hooks(self, kind: JobKind) -> dict[int, int]:
        """Jobs of that kind that wait in a queue: the job they are about → themselves."""
        jobs = [self.state.jobs[id] for id in self.queue]
        return {job.about: job.id for job in jobs if job.kind is kind and job.status is JobStatus.SENT}

    @property
    def looking(self) -> dict[int, int]:
        return self.hooks(JobKind.VERIFY)

    @property
    def undoing(self) -> dict[int, int]:
        return self.hooks(JobKind.ROLLBACK)

    @property
    def outcomes(self) -> dict[int, Undo]:
        return {job: entry.undo for job, entry in sorted(self.state.ledger.items())}

    def settlements(self) -> list[tuple[int, Undo]]:
        return [
            (event.job, event.outcome)
            for _, events in self.history
            for event in unpack_events(events)
            if isinstance(event, e.EntrySettled)
        ]


def kinds(events: list[e.Event]) -> list[str]:
    return [type(event).__name__ for event in events]
