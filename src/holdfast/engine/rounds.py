"""The engine's rounds: what it looks after by itself — the agenda, leases, dead engines, the queue.

Everything here runs in the engine's thread, reads committed rows and returns items; what is true is
decided when they are committed, so a round that comes twice or late does no harm.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.requests import LoseJob
from holdfast.core.rows import JobRow
from holdfast.store.queries import Queries
from holdfast.store.records import Batch, EngineRow, WorkerRow
from holdfast.transport.messages import CancelNotice, Hello

from .agenda import HORIZON
from .dispatch import Held, JobKey, Session
from .items import Ask, Item, Put, Reply, ResendJob
from .reaper import Loss, dead_engines, overdue, reap
from .turn import Turn

if TYPE_CHECKING:
    from .engine import Engine

SECOND = 1_000_000
#: Jobs kept in memory per reading of the queue.
READY_LIMIT = 5000
#: Claims read in one sweep; with more than that nothing is concluded from an absence.
CLAIM_LIMIT = 10_000


class Rounds:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._next_tick = 0
        self._next_agenda = 0
        self._next_sweep = 0
        self._next_beat = 0
        self._since = 0
        self._suspects: set[str] = set()
        self._is_more_ready = False

    # --- beginning and end --------------------------------------------------------------------------
    def begin(self) -> list[Item]:
        """First of all: whoever certainly died with an earlier engine holds nothing any more."""
        engine = self._engine
        now = engine.store.now()
        self._since = now
        rows = EngineRow(engine.id, engine.name, now, now)
        engine._inbox.extend([Put(Batch(engines=[rows]))])
        engine._inbox.extend(self._sweep(now, is_sure=not engine.store.is_shared))
        return []

    def end(self) -> list[Item]:
        return []

    # --- time ---------------------------------------------------------------------------------------
    def pause(self) -> float:
        """Seconds until something may have to be done without being asked."""
        engine = self._engine
        now = engine.clock()
        times = [self._next_tick, self._next_agenda]
        for due in (engine.agenda.next_due(), engine.exchanges.next_deadline()):
            if due is not None:
                times.append(due)
        return max(0.0, min(1.0, (min(times) - now) / SECOND))

    def due(self) -> list[Item]:
        engine = self._engine
        now = self._engine.clock()
        items: list[Item] = []
        if now >= self._next_agenda:
            self._read_agenda(now)
        items += [Ask(row.execution, row.request) for row in engine.agenda.take(now)]
        if now >= self._next_tick:
            items += self._tick(now)
        return items

    def _read_agenda(self, now: int) -> None:
        engine = self._engine
        # Alone, everything new passes through memory and a look now and then suffices. With others,
        # what an engine that died left behind must be found by those who live.
        self._next_agenda = now + (SECOND if engine.store.is_shared else HORIZON // 2)
        with engine.store.reading() as queries:
            horizon = now if engine.store.is_shared and len(engine.agenda) else now + HORIZON
            engine.agenda.add(queries.due(horizon, 2000), now)

    def _tick(self, now: int) -> list[Item]:
        engine = self._engine
        engine.set_clock(engine.store.now())
        self._next_tick = now + SECOND
        items: list[Item] = []
        if silent := engine.exchanges.silent(now):
            with engine.store.reading() as queries:
                rows = {row.name: row for row in queries.workers()}
            for lost in silent:
                items += engine.exchanges.expire(lost, rows.get(lost.name), now)
        for session in engine.dispatch.sessions.values():
            for loss in overdue(session, now):
                key = (loss.execution, loss.request.job)
                # Asked again after a while, should the store be away now.
                session.held[key].deadline = now + engine.exchanges.lease
                items.append(Ask(loss.execution, loss.request, partial(_given_up, session, key)))
            if session.is_local and now - session.saved_at >= engine.exchanges.beat:
                items.append(Put(Batch(workers=[engine.exchanges.row(session, now)])))
        if self._is_more_ready and not engine.dispatch.waiting():
            engine.dispatch.is_stale = True
        if engine.store.is_shared:
            items += self._shared(now)
        if now >= self._next_sweep:
            items += self._sweep(now)
        return items

    # --- several engines on one store ---------------------------------------------------------------
    def _shared(self, now: int) -> list[Item]:
        engine = self._engine
        items: list[Item] = []
        engine.dispatch.is_stale = True
        engine.tell_watchers(None)
        if now >= self._next_beat:
            self._next_beat = now + 5 * SECOND
            items.append(Put(Batch(engines=[EngineRow(engine.id, engine.name, engine.started_at, now)])))
        # In this order: an engine that has just started has its row before it has its lock.
        with engine.store.reading() as queries:
            engines = queries.engines()
        dead = dead_engines(engines, engine.store.living_engines(), engine.id)
        # Twice in a row: a connection that is being re-made is not a death.
        certain = [id for id in dead if id in self._suspects]
        self._suspects = set(dead)
        if certain:
            items += self._sweep(now)
        items += self._tell_cancelled()
        return items

    def _tell_cancelled(self) -> list[Item]:
        """Cancels that another engine committed, for jobs that are worked on here."""
        engine = self._engine
        held = {execution for s in engine.dispatch.sessions.values() for execution, _ in s.held}
        if not held:
            return []
        with engine.store.reading() as queries:
            stopping = set(queries.stopping())
        for session in engine.dispatch.sessions.values():
            for (execution, job), claim in session.held.items():
                if execution in stopping and not claim.is_told:
                    claim.is_told = True
                    session.cancels.append(CancelNotice(execution, job, claim.attempt, "cancelled"))
        return []

    def hinted(self) -> list[Item]:
        self._engine.dispatch.is_stale = True
        self._engine.tell_watchers(None)
        return []

    def committed(self, turn: Turn) -> None:
        """After a commit: let others know that something waits which nobody here can take."""
        if self._engine.store.is_shared and turn.headers:
            self._engine.store.hint()

    # --- the queue ----------------------------------------------------------------------------------
    def reload(self) -> list[Item]:
        """What waits according to the store. Known jobs are not added twice."""
        engine = self._engine
        if not engine.dispatch.sessions:
            engine.dispatch.is_stale = False
            return []
        with engine.store.reading() as queries:
            rows = queries.ready(READY_LIMIT)
        self._is_more_ready = len(rows) == READY_LIMIT
        engine.dispatch.is_stale = False
        for row in rows:
            if engine.dispatch.offers(row.queue, row.block):
                engine.dispatch.add(row)
        return []

    # --- the dead -----------------------------------------------------------------------------------
    def _sweep(self, now: int, is_sure: bool = False) -> list[Item]:
        """Give up what nobody will answer for. `is_sure`: the store is ours alone, every engine before
        us is dead, so whatever worked inside them is too; no lease has to be waited for."""
        engine = self._engine
        self._next_sweep = now + 15 * SECOND
        with engine.store.reading() as queries:
            engines = queries.engines()
            workers = queries.workers()
            claims = queries.claimed(limit=CLAIM_LIMIT)
        dead = dead_engines(engines, engine.store.living_engines(), engine.id)
        if engine.store.is_shared:
            dead = [id for id in dead if id in self._suspects]
        lease = 0 if is_sure else engine.exchanges.lease
        verdict = reap(now, workers, claims, engine.dispatch.sessions, dead, self._since, self._since + lease)
        items: list[Item] = self._reconcile(claims, now) if len(claims) < CLAIM_LIMIT else []
        with engine.store.reading() as queries:
            for loss in verdict.losses:
                items.append(Ask(loss.execution, _with_details(queries, loss)))
            if stale := queries.stale_beats():
                items.append(Put(Batch(beats_gone=stale)))
        if verdict.offline or verdict.engines_gone:
            items.append(Put(Batch(workers=verdict.offline, engines_gone=verdict.engines_gone)))
        return items

    def _reconcile(self, claims: list[JobRow], now: int) -> list[Item]:
        """What the sessions here believe they hold, and what the table says. Every commit of a claim passes
        through this thread, so where the two differ the table is right: a slot is freed, or a parcel that
        went astray is sent again (the worker knows attempts it has seen)."""
        engine = self._engine
        items: list[Item] = []
        tables: dict[str, dict[JobKey, JobRow]] = {}
        for row in claims:
            tables.setdefault(row.incarnation, {})[row.execution, row.job] = row
        for session in engine.dispatch.sessions.values():
            claimed = tables.get(session.incarnation, {})
            for key in [key for key in session.held if key not in claimed]:
                del session.held[key]
            for key, row in claimed.items():
                if key not in session.held:
                    session.held[key] = Held(row.attempt, row.since, row.timeout, now + engine.exchanges.lease * 24)
                    again = Ask(row.execution, ResendJob(row.job, row.attempt))
                    again.session = session.incarnation
                    items.append(again)
        return items

    def hello(self, hello: Hello, is_local: bool, reply: Reply) -> list[Item]:
        engine = self._engine
        with engine.store.reading() as queries:
            before: WorkerRow | None = next((w for w in queries.workers() if w.name == hello.name), None)
            claims = queries.claimed(hello.incarnation)
            is_other = before is not None and before.incarnation != hello.incarnation
            old = queries.claimed(before.incarnation) if before is not None and is_other else []
            why = f"worker {hello.name} was restarted"
            losses = [Loss(row.execution, LoseJob(row.job, row.attempt, "worker-lost", why)) for row in old]
            lost: list[Item] = [Ask(loss.execution, _with_details(queries, loss)) for loss in losses]
        return lost + engine.exchanges.hello(
            hello, self._engine.clock(), is_local=is_local, before=before, claims=claims, reply=reply
        )


def _with_details(queries: Queries, loss: Loss) -> LoseJob:
    """What the lost attempt last said goes on to the next one."""
    beat = queries.beat(loss.execution, loss.request.job)
    if beat is None or beat[0] != loss.request.attempt:
        return loss.request
    return msgspec.structs.replace(loss.request, details=beat[1])


def _given_up(session: Session, key: JobKey, value: Any, error: Exception | None) -> None:
    """The attempt no longer counts: its worker is told to stop, and its slot is free."""
    held = session.held.get(key)
    if error is None and held is not None:
        del session.held[key]
        session.cancels.append(CancelNotice(key[0], key[1], held.attempt, "timed out"))
