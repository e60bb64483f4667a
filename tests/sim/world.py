"""The simulated world: engines, workers and clients on one store, virtual time, one seed for everything.

Engines are the real `Engine` without its thread (`hosts`), workers and clients speak the real messages. An event
heap says what happens next; nothing happens in between. What happens outside is noted here, where no engine can
see it, and compared with what the histories say.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any, TypeVar

import holdfast.engine.cached as cached_module
import holdfast.engine.engine as engine_module
import holdfast.engine.patience as patience_module
import holdfast.engine.writing as writing_module
import holdfast.language.interpret as interpret_module
from holdfast.core.model import JobStatus, Status
from holdfast.store.records import Batch
from holdfast.transport.messages import Answer, Outcome, Parcel

from .base import MS, SECOND, Crash, Violation
from .checks import COMMIT_CHECKS, END_CHECKS
from .clients import Cancel, Free, Start
from .faults import FAULTS
from .hosts import TIME, Host, SimEngine
from .invariants import DEAFENING, states_in_memory
from .memory import Tables
from .models import MODELS
from .models_entities import GROUPS, INVENTORY, ONCE, PARTS, Upon
from .network import Network
from .operators import Operator
from .plan import Event, Plan, Wanted
from .shadow import Shadow
from .witness import Witness
from .workers import FORGED, SimWorker

T = TypeVar("T")
#: when everything must have ended, counted from the last fault
HEALED = 60 * SECOND
#: commits in one world that nobody could explain by what was asked of it
LIVELOCK = 1500


@contextmanager
def _customs(plan: Plan) -> Iterator[None]:
    """Inside, engines tell the time by their machine, and limits are small enough to be met. Outside, nobody in
    this process notices that there was a world."""
    wanted: list[tuple[Any, str, Any]] = [
        (engine_module, "time", TIME),
        (writing_module, "SNAPSHOT_EVERY", plan.snapshot_every),
        (patience_module, "TIMEOUT_GRACE", SECOND),
        (cached_module, "SLEEP", plan.sleep),
        (interpret_module, "FUEL", plan.fuel),
        (interpret_module, "QUANTUM", max(1, plan.fuel // 10)),
    ]
    before = [getattr(module, name) for module, name, _ in wanted]
    for module, name, value in wanted:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(wanted, before, strict=True):
            setattr(module, name, value)


class World:
    def __init__(self, plan: Plan, *, is_paranoid: bool = False, trace: list[str] | None = None) -> None:
        self.plan = plan
        self.seed = plan.seed
        self.random = Random(plan.seed * 2).random
        self.now = 0
        #: the store's clock is ahead of virtual time by so much
        self.skew = 1_000_000 * SECOND
        self.away_until = 0
        self.tables = Tables(is_paranoid)
        self.tables.about_entities.entities = {("default", row.id): row for row in INVENTORY}
        self.network = Network(self)
        self.trace = blake2b(digest_size=16)
        self.told = trace
        self.hit: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        #: (lock, fence) that were ever given
        self.fences: set[tuple[str, int]] = set()
        #: fences under which entities were ever held, and the last at each
        self.entity_fences: set[int] = set()
        self.fenced: dict[str, int] = {}
        #: what became of entries that were to be undone
        self.undos: Counter[str] = Counter()
        self.open_operations = 0
        self.commits = 0
        self.transitions = 0
        #: moment → faults that wait for it
        self.armed: dict[str, list[Event]] = {}
        self.shadows: dict[str, Shadow] = {}
        self.open_executions = 0
        self.starts: list[Start] = []
        self.acknowledged_starts: dict[str, Start] = {}
        #: key (or id) → ids it was asked under
        self.asked: dict[str, tuple[Start, list[str]]] = {}
        self.witness = Witness(self, PARTS, GROUPS, ONCE)
        self.operator = Operator(self)
        #: (execution, job, attempt) begun
        self.begun_attempts: set[tuple[str, int, int]] = set()
        #: attempt → who began it, in which life
        self.holders: dict[tuple[str, int, int], tuple[SimWorker, int]] = {}
        #: executions of which an attempt died with its worker
        self.bereaved: set[str] = set()
        #: attempts whose worker has an outcome to tell
        self.produced: set[tuple[str, int, int]] = set()
        self._heap: list[tuple[int, int, Callable[[], Any]]] = []
        self._order = 0
        self._ids = 0
        self._steps = 0
        self.workers: list[SimWorker] = []
        self.hosts = [Host(self, n) for n in range(plan.engines)]

    # --- time and chance ------------------------------------------------------------------------------
    def at(self, moment: int, action: Callable[[], Any]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (moment, self._order, action))

    def later(self, delay: int, action: Callable[[], Any]) -> None:
        self.at(self.now + delay, action)

    def store_now(self) -> int:
        return self.now + self.skew

    def set_clock(self, by: int) -> None:
        """The store's clock, which is everybody's."""
        self.skew += by

    def pick(self, things: Sequence[T], chance: float) -> T:
        return things[int(chance * len(things))]

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def name_for(self, worker: str) -> str:
        return f"{worker}.{self.next_id()}"

    def reach(self, path: str) -> None:
        """A path that is not taken in every world was taken."""
        self.reached[path] += 1

    # --- faults ---------------------------------------------------------------------------------------
    def inject(self, event: Event) -> None:
        fault = FAULTS[event.name]
        if fault.moment:
            self.armed.setdefault(fault.moment, []).append(event)
        elif fault.act(self, event):
            self.count(event)

    def fire(self, moment: str, subject: Any, batch: Batch | None) -> None:
        """That moment has come: the first fault that waited for it happens."""
        waiting = self.armed[moment]
        if batch is not None and not batch.history and waiting[0].b < 0.85:
            # Most wait for a commit that moves an execution; those are the ones that matter.
            return
        event = waiting.pop(0)
        if not waiting:
            del self.armed[moment]
        self.count(event)
        FAULTS[event.name].act(self, event, subject)

    def count(self, event: Event) -> None:
        self.hit[event.name] += 1
        if self.told is not None:
            self.told.append(f"{self.now / SECOND:9.4f}  ! {event.name}")

    # --- people ---------------------------------------------------------------------------------------
    def begin_start(self, model: str, has_key: bool, upon: Upon) -> None:
        # Whoever has to send signals has to learn the id.
        key = f"key-{len(self.starts)}" if has_key or MODELS[model].signals else ""
        self.starts.append(Start(self, MODELS[model], key, upon))

    def repeat(self, start: Start) -> None:
        Start(self, start.model, start.key, start.upon)

    def cancel(self, id: str) -> None:
        Cancel(self, id)

    def free(self, id: str, entity: str, fence: int) -> None:
        Free(self, id, entity, fence)

    def note_asked(self, start: Start, id: str) -> None:
        place = start.key or str(id)
        self.asked.setdefault(place, (start, []))[1].append(id)

    def started(self, start: Start, id: str) -> None:
        """A client was told that its execution exists."""
        shadow = self.shadows.get(id)
        if shadow is None:
            raise Violation("I-1", f"{id} was acknowledged before it was stored")
        self.acknowledged_starts[id] = start
        if start.key:
            row = self.tables.starts.get(("default", start.key))
            if row is None or row.execution != id:
                raise Violation("I-7", f"key {start.key} was answered with {id}, but stands for {row}")

    def cancelled(self, id: str) -> None:
        status = self.shadows[id].state.status
        if not self.shadows[id].state.is_cancelled and status not in (Status.CANCELLING, Status.CANCELLED):
            raise Violation("I-29", f"the cancel of {id} was acknowledged, but it is {status.name}")

    def cancel_refused(self, id: str) -> None:
        state = self.shadows[id].state
        if state.is_cancelled and state.status in (Status.CANCELLING, Status.ROLLBACK, Status.CANCELLED):
            raise Violation("I-7", f"the cancel of {id} was asked again and refused, and it is {state.status.name}")

    def signalled(self, id: str, key: str) -> None:
        if key not in self.shadows[id].state.signal_keys:
            raise Violation("I-1", f"a signal to {id} was acknowledged, but is not in its history")

    # --- workers --------------------------------------------------------------------------------------
    def hire(self, name: str, home: Host | None = None) -> SimWorker:
        worker = SimWorker(self, name, home)
        self.workers.append(worker)
        return worker

    def begun(self, worker: SimWorker, parcel: Parcel, has_effect: bool) -> None:
        """A block begins to run: what follows, no engine can take back."""
        id, job, attempt = parcel.execution, parcel.job, parcel.attempt
        self.trace.update(b"%d %d %d" % (self.now, job, attempt))
        if self.told is not None:
            self.told.append(f"{self.now / SECOND:9.4f}  {worker.incarnation} begins {id[:20]}/{job} attempt {attempt}")
        shadow = self.shadows.get(id)
        if shadow is None or (job, attempt) not in shadow.started:
            raise Violation("I-14", f"attempt {attempt} of {id}/{job} begins, but its claim is not stored")
        if (id, job, attempt) in self.begun_attempts:
            raise Violation("I-13", f"attempt {attempt} of {id}/{job} begins twice")
        self.begun_attempts.add((id, job, attempt))
        self.holders[id, job, attempt] = (worker, worker.lives)
        if has_effect:
            self.witness.does(parcel)
        self.witness.begins(parcel)

    def forgotten(self, worker: SimWorker) -> None:
        """An engine says that it does not know a worker that had been talking to it."""
        self.reach("worker greets again")
        excuses = (*DEAFENING, "long", "lost", "partition", "worker")
        if not worker.link and not any(name.startswith(excuses) for name in self.hit):
            raise Violation("PATIENCE", f"{worker.incarnation} was forgotten although it was heard all the time")

    def attempted(self, id: str, job: int) -> bool:
        return any((id, job, attempt) in self.begun_attempts for attempt in range(1, 40))

    def acknowledged(self, worker: SimWorker, outcomes: list[Outcome], answer: Answer) -> None:
        """A worker was told that it may forget these outcomes."""
        if answer.refused:
            self.reach("late result refused")
        for outcome in outcomes:
            if outcome.token == FORGED:
                continue
            job = self.shadows[outcome.execution].state.jobs.get(outcome.job)
            if job is not None and job.status is JobStatus.STARTED and job.attempt == outcome.attempt:
                raise Violation("I-14", f"the outcome of {outcome.execution}/{outcome.job} was taken and is not stored")

    # --- commits --------------------------------------------------------------------------------------
    def logs_of(self, id: str) -> int:
        return self.tables.logs.get(id, 0)

    def committed(self, batch: Batch) -> None:
        self.commits += 1
        if self.commits > LIVELOCK:
            raise Violation("I-46", f"{self.commits} commits, and no end")
        trace, shadows = self.trace, self.shadows
        trace.update(b"%d" % self.now)
        for row in batch.history:
            shadow = shadows.get(row.execution)
            if shadow is None:
                shadow = shadows[row.execution] = Shadow(row.execution)
                self.open_executions += 1
            trace.update(row.digest)
            self.transitions += 1
            was_ended = shadow.is_ended
            shadow.take(self, row)
            self.open_executions -= shadow.is_ended and not was_ended
            if self.told is not None:
                self._tell(shadow, row.body)
        for header in batch.headers:
            shadow = shadows[header.id]
            for check in COMMIT_CHECKS:
                check(self, shadow, header, batch)
            self.operator.look(shadow)

    def _tell(self, shadow: Shadow, body: bytes) -> None:
        from holdfast.core.codec import unpack_events

        assert self.told is not None
        for event in unpack_events(body):
            self.told.append(f"{self.now / SECOND:9.4f}    {shadow.id[:20]} {str(event)[:150]}")

    # --- engines --------------------------------------------------------------------------------------
    def living_engines(self) -> list[str] | None:
        return [host.engine.id for host in self.hosts if host.engine is not None and host.unseen_until <= self.now]

    def stepped(self, engine: SimEngine) -> None:
        self._steps += 1
        if self._steps % 64 == 0:
            states_in_memory(self, engine)
        if engine.committer.counters.conflicts:
            engine.committer.counters.conflicts = 0
            self.reach("decided again after a conflict")

    # --- the run --------------------------------------------------------------------------------------
    def is_quiet(self) -> bool:
        return not self.open_operations and not self.open_executions

    def run_until(self, end: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end:
            moment, _, action = heapq.heappop(heap)
            if moment > self.now:
                self.now = moment
            action()
        self.now = max(self.now, end)

    def run(self) -> None:
        with _customs(self.plan):
            self._run()

    def _run(self) -> None:
        plan = self.plan
        for host in self.hosts:
            host.boot()
        for n in range(plan.remote):
            self.hire(f"w{n}").begin()
        for n in range(plan.local):
            self.hire(f"local{n}", self.hosts[n]).begin()
        last = 0
        for wanted in plan.starts:
            self.open_operations += 1
            self.at(wanted.at, partial(self._begin_planned, wanted))
        for event in plan.events:
            self.at(event.at, partial(self.inject, event))
            last = max(last, event.at)
        limit = last + HEALED
        while not self.is_quiet():
            self._run_until_quiet(limit)
            # What is still under way arrives: late copies, results of attempts that were given up.
            self.run_until(self.now + 400 * MS)
        for check in END_CHECKS:
            check(self)

    def _run_until_quiet(self, limit: int) -> None:
        heap = self._heap
        while self.open_operations or self.open_executions:
            moment, _, action = heapq.heappop(heap)
            if moment > self.now:
                self.now = moment
                if moment > limit:
                    raise Violation("I-45", f"after {HEALED // SECOND} s without faults: {self.open_ones()}")
            action()

    def _begin_planned(self, wanted: Wanted) -> None:
        self.open_operations -= 1
        self.begin_start(wanted.model, wanted.has_key, wanted.upon)

    def open_ones(self) -> str:
        ones = [f"{id[:20]} {s.state.workflow} {s.state.status.name}" for id, s in self.shadows.items()
                if not s.state.status.is_ended]  # fmt: skip
        return ", ".join(ones) or f"{self.open_operations} operations without an answer"

    @property
    def faults(self) -> int:
        return sum(n for name, n in self.hit.items() if not FAULTS[name].is_verb)


__all__ = ["Crash", "World"]
