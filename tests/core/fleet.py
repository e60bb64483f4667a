"""Executions that work on entities, and the tables they share: an inventory, claims, flags, a counter, an agenda."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from holdfast.core import events as e
from holdfast.core import program as p
from holdfast.core import requests as r
from holdfast.core.decide import decide
from holdfast.core.entity_locks import Contention, EntityClaim
from holdfast.core.errors import InvalidRequest
from holdfast.core.folding import fold
from holdfast.core.inventory import EntityRow, Flag, Found
from holdfast.core.lanes import Op
from holdfast.core.model import BlockOffer, Gate, JobSpec, JobStatus, Mode, Policy, Problem, Retry, Wait
from holdfast.core.reads import (
    ContentionKey,
    EntityKey,
    FlaggedKey,
    FoundKey,
    RelatedKey,
    SelectKey,
    TicketKey,
    TraceKey,
    WatchersKey,
)
from holdfast.core.rows import AgendaRow, Arriving, Rows, item_of, transit
from holdfast.core.snapshot import canonical, encode, restore
from holdfast.core.state import State, open_state
from holdfast.core.subjects import Progress

TENANT = "default"
BOUND = Policy(works_on_entities=True)
SPECS = (
    JobSpec("touch", run_on="device"),
    JobSpec("look", pure=True, run_on="device"),
    JobSpec("ask", retry=Retry(2, 1_000_000, 1.0, 1_000_000, 0.0), has_acquire=True),
)


def execution_id(n: int) -> str:
    return f"{n:032x}"


class Crew:
    """A program: one job for each subject, then it completes. Without jobs it waits for a signal `done` or `fail`."""

    name = "crew"
    blocks = ("touch", "look", "ask")
    retention = ("", "")
    cleans_up = False
    is_replayable = True

    def __init__(
        self,
        policy: Policy = BOUND,
        wants: Iterable[p.Wanted] = (),
        specs: tuple[JobSpec, ...] = SPECS,
        asks: int = 0,
        gates: tuple[Gate, ...] = (),
        jobs: bool = False,
    ) -> None:
        self.policy = policy
        self.wants = tuple(wants)
        self.specs = specs
        self.asks = asks
        self.gates_ = gates
        self.has_jobs = jobs
        self.told: list[p.Cause] = []

    def check_input(self, input: Any) -> tuple[Any, list[Problem]]:
        return input, []

    def pin(self, blocks: Any) -> tuple[tuple[JobSpec, ...], list[Problem]]:
        return self.specs, []

    def gates(self, input: Any, now: int) -> tuple[Gate, ...]:
        return self.gates_

    def wanted(self, input: Any) -> tuple[p.Wanted, ...]:
        return self.wants

    def selector(self, text: str) -> p.Wanted:
        key, equals, value = text.partition("==")
        if not equals:
            raise InvalidRequest(f"{text!r} is no selector")
        return p.Wanted("select", terms=((key.strip(), value.strip()),), text=text)

    def acquires(self, input: Any, specs: Any) -> tuple[p.Acquire, ...]:
        return tuple(p.Acquire(step, 2, {"n": step}) for step in range(self.asks))

    def label(self, step: int) -> str:
        return f"step-{step}"

    def may_resume(self, state: State) -> str:
        return ""

    def used_at(self, block: str) -> str:
        return ""

    def find_step(self, name: str) -> int | None:
        return None

    def advance(self, state: State, cause: p.Cause, now: int, reads: Any) -> list[p.Command]:
        self.told.append(cause)
        match cause:
            case p.Begun() | p.CarryOn() | p.GoAgain():
                todo = [s for s in state.subjects.values() if s.progress is not Progress.DONE]
                if not self.has_jobs:
                    return [p.Advance(1, ((Op.WAIT, Wait.SIGNAL),))]
                if not todo:
                    return [p.Complete("nothing to do")]
                reached = tuple((Op.SUBJECT, s.index, Progress.REACHED) for s in todo)
                work = [p.ScheduleJob(1, 0, 0, {"of": s.id}, entity=s.id) for s in todo]
                return [p.Advance(1, (*reached, (Op.WAIT, Wait.JOB))), *work]
            case p.SignalArrived(name="done"):
                return [p.Complete("done")]
            case p.SignalArrived(name="fail") | p.JobEnded(failure=e.Failure()):
                return [p.Fail(e.Failure("fail", "told to"))]
            case p.JobEnded(job=id):
                index = next(s.index for s in state.subjects.values() if s.id == state.jobs[id].entity)
                done: list[p.Command] = [p.Advance(1, ((Op.RESULT, id, ""), (Op.SUBJECT, index, Progress.DONE)))]
                left = [job for job in state.jobs.values() if job.id != id]
                return done if left else [*done, p.Complete("done")]
            case _:
                return []


class Tables:
    """The shared rows as a store would hold them; also `Reads`."""

    def __init__(self) -> None:
        self.programs: dict[bytes, Any] = {}
        #: definitions that no longer compile
        self.refused: set[bytes] = set()
        self.entities: dict[str, EntityRow] = {}
        #: (entity, execution, ticket) → claim; those that are over stay
        self.claims: dict[tuple[str, str, int], EntityClaim] = {}
        self.over: set[tuple[str, str, int]] = set()
        self.flags: list[Flag] = []
        self.agenda: dict[tuple[str, str], AgendaRow] = {}
        self.logs: list[str] = []
        self.jobs: dict[tuple[str, int], Any] = {}
        self.last = 0
        self.given: dict[str, int] = {}
        self.statuses: dict[str, int] = {}

    def add(self, id: str, type: str = "device", parent: str = "", *groups: str) -> None:
        self.entities[id] = EntityRow(id, type, parent=parent, groups=groups)

    def live(self) -> list[EntityClaim]:
        return [claim for key, claim in self.claims.items() if key not in self.over]

    def holders(self) -> list[EntityClaim]:
        return [claim for claim in self.live() if claim.fence]

    def write(self, rows: Rows) -> None:
        """In the order that `Rows` names."""
        self.given.clear()
        for id in rows.entities_released:
            self.over |= {key for key in self.claims if key[1] == id}
        for new in rows.entities_queued.values():
            for entity, mode in zip(new.entities, new.modes, strict=True):
                key = (entity, new.execution, new.ticket)
                assert key not in self.claims, "a place is given once"
                watching = entity == new.watch
                self.claims[key] = EntityClaim(
                    entity, new.execution, mode, new.ticket, new.priority, new.fence, new.since, watching
                )
        for id, (fence, since) in rows.entities_granted.items():
            for key in self._of(id):
                was = self.claims[key]
                assert not was.fence, "nobody is granted what he has"
                self.claims[key] = EntityClaim(was.entity, id, was.mode, was.ticket, was.priority, fence, since)
        for id, watch in rows.entities_watching.items():
            for key in self._of(id):
                was = self.claims[key]
                self.claims[key] = EntityClaim(
                    was.entity, id, was.mode, was.ticket, was.priority, was.fence, was.since, was.entity == watch
                )
        for _, entity, id in rows.entities_lost:
            self.over |= {key for key in self._of(id) if key[0] == entity}
        for _, flag in rows.flags:
            self.flags.append(flag)
        self.flags = [flag for flag in self.flags if flag.execution not in rows.flags_gone]
        for at, due in rows.agenda.items():
            self.agenda.pop(at, None)
            if due is not None:
                self.agenda[at] = due
        for job, row in rows.jobs.items():
            self.jobs.pop(job, None)
            if row is not None:
                self.jobs[job] = row
        self.logs += [row.line.message for row in rows.logs]

    def _of(self, execution: str) -> list[tuple[str, str, int]]:
        return [key for key in self.claims if key[1] == execution and key not in self.over]

    # --- Reads ------------------------------------------------------------------------------------------
    def workflow(self, key: Any) -> Any:
        return None

    def program(self, digest: bytes) -> Any:
        if digest in self.refused:
            raise InvalidRequest("it does not compile any more")
        return self.programs[digest]

    def offers(self, name: str) -> tuple[BlockOffer, ...]:
        return (BlockOffer(name),)

    def load(self, execution: str, value: Any) -> Any:
        return value

    def keep(self, execution: str, value: Any) -> Any:
        return value

    def entity(self, key: EntityKey) -> EntityRow | None:
        return self.entities.get(key.id)

    def select(self, key: SelectKey) -> tuple[Any, ...]:
        def fits(row: EntityRow) -> bool:
            values = {"type": row.type, "parent": row.parent} | {f"label.{k}": v for k, v in row.labels.items()}
            return all(values.get(term) == value for term, value in key.terms)

        rows = [row for row in self.entities.values() if fits(row)]
        return tuple(map(_brief, rows)) if key.is_brief else tuple(rows)

    def found(self, key: FoundKey) -> tuple[Found, ...]:
        return tuple(_brief(self.entities[id]) for id in key.ids if id in self.entities)

    def related(self, key: RelatedKey) -> tuple[Found, ...]:
        if key.relation == "children":
            return tuple(_brief(row) for row in self.entities.values() if row.parent in key.ids)
        return tuple(_brief(row) for row in self.entities.values() if not {*row.groups}.isdisjoint(key.ids))

    def contention(self, key: ContentionKey) -> Contention:
        assert list(key.ids) == sorted(key.ids)
        asked = set(key.ids)
        return Contention(
            tuple(id for id in key.ids if id not in self.entities),
            tuple(claim for claim in self.live() if claim.entity in asked),
            tuple(flag for flag in self.flags if flag.entity in asked),
        )

    def watchers(self, key: WatchersKey) -> tuple[str, ...]:
        own = {claim.entity for claim in self.live() if claim.execution == key.execution}
        others = {c.execution for c in self.live() if c.is_watching and c.entity in own}
        return tuple(sorted(others - {key.execution}))

    def flagged(self, key: FlaggedKey) -> tuple[str, ...]:
        shut = {f.entity for f in self.flags if f.execution == key.execution and f.kind == "quarantine"}
        return tuple(sorted({c.execution for c in self.live() if c.is_watching and c.entity in shut}))

    def ticket(self, key: TicketKey) -> int:
        if key.execution not in self.given:
            self.last += 1
            self.given[key.execution] = self.last
        return self.given[key.execution]

    def header_status(self, execution: str, tenant: str) -> int | None:
        return self.statuses.get(execution) if tenant == TENANT else None

    def trace(self, key: TraceKey) -> tuple[EntityClaim, ...]:
        own: dict[str, int] = {}
        for (entity, id, _), claim in self.claims.items():
            if id == key.execution:
                own[entity] = max(own.get(entity, 0), claim.fence)
        others = [
            claim
            for claim in self.claims.values()
            if claim.execution != key.execution
            and claim.mode in (Mode.IX, Mode.X)
            and claim.fence > own.get(claim.entity, claim.fence)
        ]
        return tuple(sorted(others, key=lambda claim: (claim.entity, claim.fence)))

    def history(self, execution: str) -> Any:
        return []


def _brief(row: EntityRow) -> Found:
    return Found(row.id, row.type, row.parent, row.groups)


class Fleet:
    """Executions and the rows they share; `when` decides, applies and writes."""

    def __init__(self, *entities: str) -> None:
        self.tables = Tables()
        self.states: dict[str, State] = {}
        self.history: dict[str, list[tuple[int, list[e.Event]]]] = {}
        self.now = 1_000_000_000_000
        for id in entities:
            self.tables.add(id)

    def start(self, n: int, *entities: str, crew: Crew | None = None, **given: Any) -> list[e.Event]:
        """Every execution has a definition of its own."""
        digest = n.to_bytes(16, "big")
        self.tables.programs[digest] = crew or Crew()
        id = execution_id(n)
        self.states[id] = open_state(id)
        self.history[id] = []
        return self.when(n, r.StartExecution(id, definition=digest, entities=entities, **given))

    def state(self, n: int) -> State:
        return self.states[execution_id(n)]

    def crew(self, n: int) -> Crew:
        found: Crew = self.tables.programs[n.to_bytes(16, "big")]
        return found

    def when(self, n: int | str, request: r.Request) -> list[e.Event]:
        id = n if isinstance(n, str) else execution_id(n)
        state = self.states[id]
        self.now += 10
        decided = decide(state, request, self.now, self.tables)
        assert isinstance(decided, list)
        assert decide(state, request, self.now, self.tables) == decided, "deciding twice differs"
        rows = Rows()
        if isinstance(request, get_args(Arriving)):
            rows.agenda[id, item_of(request)] = None
        transit(state, self.now, decided, rows)
        self.tables.write(rows)
        self.tables.statuses[id] = int(state.status)
        self.history[id].append((self.now, decided))
        return decided

    def tell(self, n: int, word: str) -> list[e.Event]:
        return self.when(n, r.SendSignal(word))[1:]

    def claim(self, n: int, job: int) -> list[e.Event]:
        return self.when(n, r.ClaimJob(job, "w", "w/1"))

    def finish(self, n: int, job: int, result: Any = None) -> list[e.Event]:
        return self.when(n, r.CompleteJob(job, self.state(n).jobs[job].attempt, result))

    def work(self, n: int) -> None:
        """Every job of it, one after the other."""
        while waiting := [j for j in self.state(n).jobs.values() if j.status is JobStatus.SENT]:
            self.claim(n, waiting[0].id)
            self.finish(n, waiting[0].id)

    def due(self) -> list[tuple[str, AgendaRow]]:
        """In no particular order; those that are not here yet are dropped, as the engine does."""
        found = [(id, row) for (id, _), row in self.tables.agenda.items() if row.due <= self.now]
        return found

    def wake(self, pick: Callable[[int], int] = lambda count: 0) -> list[e.Event]:
        """Everything that is due, and what follows from it, until nothing is left."""
        decided: list[e.Event] = []
        while due := self.due():
            id, row = due[pick(len(due))]
            decided += self.when(id, row.request)
        return decided

    def sleep(self, until: int) -> list[e.Event]:
        self.now = max(self.now, until)
        return self.wake()

    def rebuild(self, n: int) -> None:
        """A crash: what is left of an execution is its history."""
        id = execution_id(n)
        state = open_state(id)
        for at, events in self.history[id]:
            fold(state, at, events)
        assert canonical(state) == canonical(self.states[id])
        assert canonical(restore(encode(state))) == canonical(state)
        self.states[id] = state

    def holders(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for claim in self.tables.holders():
            found.setdefault(claim.entity, []).append(claim.execution)
        return found
