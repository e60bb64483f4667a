"""A small world for workflows: the real core and interpreter, rows in memory, a clock you hold, blocks as functions.

Every transition goes through bytes and is folded a second time from nothing, so that whatever the interpreter
believes about a lane is compared with what a rebuild makes of its history.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.attempts import claim
from holdfast.core.codec import pack, unpack, unpack_events
from holdfast.core.decide import decide
from holdfast.core.entity_locks import Contention
from holdfast.core.folding import fold
from holdfast.core.inventory import EntityRow, Found, has_terms
from holdfast.core.lanes import Frame
from holdfast.core.locks import LOCK_EVENTS, LockRow
from holdfast.core.locks import after as lock_after
from holdfast.core.model import (
    INLINE_LIMIT,
    BlobRef,
    BlockOffer,
    Effect,
    Failure,
    JobStatus,
    Status,
    Wait,
    blob_digest,
)  # fmt: skip
from holdfast.core.reads import (
    ChangesKey,
    ContentionKey,
    EntityKey,
    FlaggedKey,
    FoundKey,
    LockKey,
    Need,
    RelatedKey,
    SelectKey,
    SensorKey,
    TicketKey,
    TraceKey,
    WatchersKey,
    WorkflowKey,
)
from holdfast.core.rows import Rows, transit
from holdfast.core.sensors import SENSOR_EVENTS, SensorRow, Watched
from holdfast.core.sensors import after as sensor_after
from holdfast.core.snapshot import canonical
from holdfast.core.state import State, open_state
from holdfast.language import YamlProgram, interpret
from holdfast.language.workflow import Text, choose, load_workflows

Block = Callable[[Any], Any]


class Boom(Exception):
    """A block that fails; `effect` says what it may have done."""

    def __init__(self, message: str = "boom", effect: Effect | None = None, kind: str = "block-error") -> None:
        super().__init__(message)
        self.effect, self.kind = effect, kind


def flaky(times: int, **kinds: Any) -> Any:
    """Fails so often, then answers with the number of calls."""
    calls = [0]

    def block(given: Any) -> Any:
        calls[0] += 1
        if calls[0] <= times:
            raise Boom(f"boom {calls[0]}", **kinds)
        return {"calls": calls[0]}

    return block


class NeedsRows(Exception):
    """A decision needs rows that were not read."""

    def __init__(self, keys: tuple[Any, ...]) -> None:
        super().__init__(*keys)
        self.keys = keys


class World:
    def __init__(self, blocks: dict[str, Block] | None = None, offers: dict[str, BlockOffer] | None = None) -> None:
        self.now = 1_000_000_000
        self.blocks = blocks or {}
        self.known = offers or {}
        self.states: dict[str, State] = {}
        self.histories: dict[str, list[tuple[int, tuple[e.Event, ...]]]] = {}
        self.programs: dict[bytes, YamlProgram] = {}
        self.data: dict[bytes, bytes] = {}
        self.locks: dict[LockKey, LockRow] = {}
        self.sensors: dict[SensorKey, Watched] = {}
        self.agenda: list[tuple[int, int, str, Any]] = []
        self._gone: set[int] = set()
        self._items: dict[tuple[str, str], int] = {}
        self._number = 0
        self.logs: dict[str, list[str]] = {}
        self.transitions = 0
        #: (execution, step label, input)
        self.ran: list[tuple[str, str, Any]] = []
        #: the same jobs, by entity
        self.ran_on: list[str] = []
        #: the inventory; where there is none, whatever somebody asks for exists
        self.entities: dict[str, EntityRow] = {}
        self._ticket = 0
        #: whether the whole state is looked at after every transition
        self.is_compared = True

    # --- Reads ---------------------------------------------------------------------------------------
    def workflow(self, key: WorkflowKey) -> None:
        return None

    def program(self, digest: bytes) -> YamlProgram:
        return self.programs[digest]

    def offers(self, name: str) -> tuple[BlockOffer, ...]:
        return (self.known.get(name, BlockOffer(name)),)

    def load(self, execution: str, value: Any) -> Any:
        return unpack(self.data[value.digest]) if isinstance(value, BlobRef) else value

    def keep(self, execution: str, value: Any) -> Any:
        data = pack(value)
        if isinstance(value, BlobRef) or len(data) <= INLINE_LIMIT:
            return value
        self.data[blob_digest(data)] = data
        return BlobRef(blob_digest(data), len(data))

    def lock(self, key: LockKey) -> LockRow:
        return self.locks.get(LockKey(key.tenant, key.entity, key.name), LockRow())

    def sensor(self, key: SensorKey) -> SensorRow | None:
        return self.sensors[key].row if key in self.sensors else None

    def waiters(self, key: SensorKey) -> tuple[tuple[str, int], ...]:
        return self.sensors[key].waiters if key in self.sensors else ()

    def entity(self, key: EntityKey) -> EntityRow | None:
        return self.entities.get(key.id) if self.entities else EntityRow(key.id)

    def found(self, key: FoundKey) -> tuple[Found, ...]:
        return tuple(_brief(self.entities[id]) for id in key.ids if id in self.entities)

    def select(self, key: SelectKey) -> tuple[Any, ...]:
        rows = [row for _, row in sorted(self.entities.items()) if has_terms(row, key.terms)]
        return tuple(_brief(row) for row in rows) if key.is_brief else tuple(rows)

    def related(self, key: RelatedKey) -> tuple[Found, ...]:
        rows = [row for _, row in sorted(self.entities.items())]
        if key.relation == "children":
            return tuple(_brief(row) for row in rows if row.parent in key.ids)
        return tuple(_brief(row) for row in rows if not set(key.ids).isdisjoint(row.groups))

    def contention(self, key: ContentionKey) -> Contention:
        """Every world has one execution at a time: nobody stands in the way."""
        return Contention(missing=tuple(id for id in key.ids if id not in self.entities))

    def watchers(self, key: WatchersKey) -> tuple[str, ...]:
        return ()

    def flagged(self, key: FlaggedKey) -> tuple[str, ...]:
        return ()

    def trace(self, key: TraceKey) -> tuple[Any, ...]:
        return ()

    def changes(self, key: ChangesKey) -> tuple[Any, ...]:
        return ()

    def header_status(self, execution: str, tenant: str) -> int | None:
        return int(self.states[execution].status) if execution in self.states else None

    def ticket(self, key: TicketKey) -> int:
        self._ticket += 1
        return self._ticket

    def history(self, execution: str) -> list[tuple[int, tuple[e.Event, ...]]]:
        return self.histories[execution]

    # --- asking ------------------------------------------------------------------------------------
    def start(
        self, text: str, input: Any = None, *, id: str = "e1", name: str = "", entity: str = "",
        on: tuple[str, ...] = (),
    ) -> str:  # fmt: skip
        found = choose(load_workflows([Text(text, "test.yaml")]), name)
        digest = blob_digest(pack([text, name]))
        self.programs[digest] = found.program
        self.ask(id, r.StartExecution(id, input, definition=digest, entity=entity, entities=on))
        return id

    def ask(self, id: str, request: Any) -> None:
        state = self.states.get(id) or open_state(id)
        before = canonical(state) if state.version and self.is_compared else b""
        runs: list[interpret.Run] = []

        class Watched(interpret.Run):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                runs.append(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(interpret, "Run", Watched)
            decided = decide(state, request, self.now, self)  # type: ignore[arg-type]
        if isinstance(decided, Need):
            raise NeedsRows(decided.keys)
        if before:
            assert canonical(state) == before, "deciding changed the state"
        if decided:
            self._apply(id, state, decided)
        if (
            self.is_compared
            and runs
            and not state.status.is_ended
            and not any(isinstance(event, e.ErrorRaised | e.CleanupEnded) for event in decided)
        ):
            for walk in runs[-1].walks.values():
                _agree(walk, state)

    def _apply(self, id: str, state: State, decided: list[e.Event]) -> None:
        # Through bytes, as the store would do it: what cannot be stored fails here.
        events = unpack_events(pack(decided))
        rows = Rows()
        transit(state, self.now, events, rows)
        self.states[id] = state
        self.transitions += 1
        self.histories.setdefault(id, []).append((self.now, events))
        self.logs.setdefault(id, []).extend(row.line.message for row in rows.logs)
        for event in events:
            self._share(id, state, event)
        for (execution, item), due in rows.agenda.items():
            if (number := self._items.pop((execution, item), 0)) != 0:
                self._gone.add(number)
            if due is not None:
                self._number += 1
                self._items[execution, item] = self._number
                heapq.heappush(self.agenda, (due.due, self._number, execution, due.request))

    def _share(self, id: str, state: State, event: e.Event) -> None:
        if isinstance(event, LOCK_EVENTS):
            key = LockKey(state.tenant, event.entity, event.name)
            self.locks[key] = lock_after(self.locks.get(key, LockRow()), id, event, self.now)
        elif isinstance(event, e.SensorLeft):
            for sensor, watched in self.sensors.items():
                self.sensors[sensor] = sensor_after(watched, id, event, self.now)
        elif isinstance(event, SENSOR_EVENTS):
            sensor = SensorKey(state.tenant, event.entity, event.kind, event.name)
            self.sensors[sensor] = sensor_after(self.sensors.get(sensor, Watched()), id, event, self.now)

    # --- going on ----------------------------------------------------------------------------------
    def run(self, until: int | None = None, limit: int = 20_000) -> World:
        """Until nothing more happens by itself, or that time."""
        for _ in range(limit):
            if not self.step(until):
                break
        else:
            raise AssertionError("it does not come to an end")
        for id in self.states:
            self.check(id)
        return self

    def step(self, until: int | None = None) -> bool:
        for id, state in self.states.items():
            for job in state.jobs.values():
                if job.status is JobStatus.SENT:
                    self.work(id, job.id)
                    return True
        while self.agenda:
            due, number, execution, request = self.agenda[0]
            if until is not None and due > until:
                self.now = max(self.now, until)
                return False
            heapq.heappop(self.agenda)
            if number in self._gone:
                continue
            self._items = {key: each for key, each in self._items.items() if each != number}
            self.now = max(self.now, due)
            if execution in self.states:
                self.ask(execution, request)
            return True
        return False

    def claim(self, id: str, job: int) -> int:
        state = self.states[id]
        self._apply(id, state, claim(state, job, "w"))
        return state.jobs[job].attempt

    def work(self, id: str, job: int) -> None:
        """One attempt."""
        attempt = self.claim(id, job)
        state = self.states[id]
        row = state.jobs[job]
        spec = state.specs[row.spec]
        given = self.whole(row.input)
        self.ran.append((id, self.programs[state.definition].label(row.step), given))
        self.ran_on.append(row.entity)
        block = self.blocks.get(spec.block)
        try:
            handed = _OnEntity(given or {}, row.entity) if row.entity else given
            result = block(handed) if block is not None else {"ran": spec.block}
        except Boom as boom:
            self.ask(id, r.FailJob(job, attempt, Failure(boom.kind, str(boom)), boom.effect))
            return
        self.ask(id, r.CompleteJob(job, attempt, self.keep(id, result)))

    def lose(self, id: str, job: int) -> None:
        self.ask(id, r.LoseJob(job, self.states[id].jobs[job].attempt, "worker-lost", "the worker is gone"))

    def check(self, id: str) -> None:
        """A rebuild gives the same state."""
        rebuilt = open_state(id)
        for at, events in self.histories[id]:
            fold(rebuilt, at, events)
        assert canonical(rebuilt) == canonical(self.states[id])

    # --- looking -----------------------------------------------------------------------------------
    def whole(self, value: Any) -> Any:
        value = self.load("", value)
        if isinstance(value, list):
            return [self.whole(item) for item in value]
        if isinstance(value, dict):
            return {key: self.whole(item) for key, item in value.items()}
        return value

    def output(self, id: str = "e1") -> Any:
        state = self.states[id]
        assert state.status is Status.COMPLETED, (state.status, state.failure)
        return self.whole(state.output)

    def failure(self, id: str = "e1") -> Failure:
        state = self.states[id]
        assert state.status in (Status.FAILED_SAFE, Status.FAILED_UNSAFE), (state.status, state.output)
        assert state.failure is not None
        return state.failure

    def sensor_value(self, name: str, entity: str = "default", kind: str = "sensor") -> Any:
        row = self.sensor(SensorKey("default", entity, kind, name))
        return None if row is None else row.value

    def labels(self, id: str = "e1") -> list[str]:
        return [label for execution, label, _ in self.ran if execution == id]

    def events(self, kind: type, id: str = "e1") -> list[Any]:
        return [event for _, events in self.histories[id] for event in events if isinstance(event, kind)]


def _frame(frame: Frame, position: int) -> tuple[Any, ...]:
    return (frame.scope, frame.body, position, frame.error, frame.base, frame.is_matched, frame.then)


def _agree(walk: Any, state: State) -> None:
    """What the interpreter took a lane to be is what has become of it."""
    lane = state.lanes[walk.id]
    held = [_frame(frame, frame.position) for frame in walk.frames]
    held[-1] = _frame(walk.frames[-1], walk.at)
    assert held == [_frame(frame, frame.position) for frame in lane.frames]
    assert walk.all_variables() == lane.frames[0].variables
    assert (walk.output, {**walk.before, **walk.outputs}) == (lane.output, lane.outputs)
    assert (walk.phase, walk.open, walk.failed, walk.rounds) == (lane.phase, lane.open, lane.failed, lane.rounds)
    assert walk.wait is lane.wait or lane.wait in (Wait.LANES, Wait.JOB, Wait.TIMER, Wait.SIGNAL, Wait.TURN)
    assert walk.waypoints == lane.waypoints
    assert {**walk.own.visits, **walk.visits} == lane.visits
    assert walk.fan == lane.fan
    assert walk.stop == lane.stop
    assert {**walk.own.retries, **walk.retries} == lane.retries
    assert walk.timers == lane.timers
    assert {branch for branch in lane.results if not walk.has_result(branch)} == set()


class _OnEntity(dict[str, Any]):
    """The input of a block, and which entity it is for."""

    def __init__(self, given: dict[str, Any], entity: str) -> None:
        super().__init__(given)
        self.entity = entity


def _brief(row: EntityRow) -> Found:
    return Found(row.id, row.type, row.parent, row.groups)


def play(text: str, input: Any = None, blocks: dict[str, Block] | None = None, **kinds: BlockOffer) -> World:
    world = World(blocks, kinds)
    world.start(text, input)
    return world.run()


def steps(text: str, input: Any = None, blocks: dict[str, Block] | None = None) -> World:
    return play(f"steps:\n{text}", input, blocks)


IDEMPOTENT = msgspec.structs.replace(BlockOffer("x"), idempotent=True)
