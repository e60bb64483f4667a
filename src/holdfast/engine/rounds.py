"""The engine's rounds: what it looks after by itself — the agenda, leases, dead engines, the queue.

Everything here runs in the engine's thread, reads committed rows and puts items into the inbox as they are
made; what is true is decided when they are committed, so a round that comes twice or late does no harm.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.requests import LoseJob
from holdfast.core.rows import JobRow
from holdfast.store.queries import Queries
from holdfast.store.records import Batch, EngineRow
from holdfast.transport.messages import CancelNotice, Hello

from .agenda import HORIZON
from .deadlock import victims
from .dispatch import Held, JobKey, Session
from .exchanges import resend
from .items import Ask, Item, Put, Reply
from .patience import state_to_keep
from .reaper import Loss, Missed, given_up, lost, overdue
from .turn import Turn

if TYPE_CHECKING:
    from .engine import Engine

SECOND = 1_000_000
#: Seconds between two looks for lanes that wait for each other.
UNTYING = 5
#: Jobs read from the queue at once, at the most.
READY_LIMIT = 2000
#: Agenda rows read at once.
AGENDA_PAGE = 2000
#: Claims looked at per worker and sweep; with more than that nothing is concluded from an absence.
CLAIM_LIMIT = 5000
#: Workers that left, and tokens that have expired, are remembered this long: somebody may ask what became of them.
REMEMBERED = 24 * 3600 * SECOND


class Rounds:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._next_tick = 0
        self._next_agenda = 0
        self._next_sweep = 0
        self._next_beat = 0
        self._next_reload = 0
        self._next_untying = 0
        self._since = 0
        self._missed = Missed()
        #: the store was away at this moment; leases could not be kept up meanwhile
        self._trouble = 0
        self._is_more_ready = False
        self._is_more_due = False

    # --- beginning and trouble --------------------------------------------------------------------------
    def begin(self) -> list[Item]:
        """First of all: whoever certainly died with an earlier engine holds nothing any more."""
        engine = self._engine
        now = engine.store.now()
        self._since = now
        engine.add([Put(Batch(engines=[EngineRow(engine.id, engine.name, now, now)]))])
        self._sweep(now, self._dead(now, is_sure=not engine.store.is_shared), is_sure=not engine.store.is_shared)
        return []

    def troubled(self) -> None:
        """The store could not be reached just now."""
        self._trouble = self._engine.clock()
        self._missed.forget()

    def look_again(self) -> None:
        """What was due could not be committed. It is still in the table, and may be possible in a second."""
        self._next_agenda = min(self._next_agenda, self._engine.clock() + SECOND)

    def shift(self, delta: int) -> None:
        """The clock was set."""
        for name in (
            "_next_tick",
            "_next_agenda",
            "_next_sweep",
            "_next_beat",
            "_next_reload",
            "_next_untying",
            "_since",
            "_trouble",
        ):
            setattr(self, name, getattr(self, name) + delta)
        self._next_agenda = 0
        # Looks a moment apart would seem to be far apart: nobody is dead by the setting of a clock.
        self._missed.forget()

    # --- time ---------------------------------------------------------------------------------------
    def pause(self) -> float:
        """Seconds until something may have to be done without being asked."""
        engine = self._engine
        times = [self._next_tick, self._next_agenda]
        for due in (engine.agenda.next_due(), engine.exchanges.next_deadline()):
            if due is not None:
                times.append(due)
        return max(0.0, min(1.0, (min(times) - engine.clock()) / SECOND))

    def due(self) -> list[Item]:
        """What is due. Put into the inbox step by step: a later reading that fails costs nothing made before."""
        engine = self._engine
        now = engine.clock()
        if now >= self._next_agenda or (self._is_more_due and len(engine.agenda) < AGENDA_PAGE // 2):
            self._read_agenda(now)
        engine.add([Ask(row.execution, row.request) for row in engine.agenda.take(now)])
        if now >= self._next_tick:
            self._tick(now)
        return []

    def _read_agenda(self, now: int) -> None:
        engine = self._engine
        # Alone, everything new passes through memory and a look now and then suffices. With others,
        # what an engine that died left behind must be found by those who live.
        self._next_agenda = now + (SECOND if engine.store.is_shared else HORIZON // 2)
        with engine.store.reading() as queries:
            horizon = now if engine.store.is_shared and len(engine.agenda) else now + HORIZON
            rows = queries.due(horizon, AGENDA_PAGE)
        self._is_more_due = len(rows) == AGENDA_PAGE
        engine.agenda.add(rows, now)

    def _tick(self, now: int) -> None:
        engine = self._engine
        engine.set_clock(engine.store.now())
        now = engine.clock()
        self._next_tick = now + SECOND
        if engine.trouble:
            # Nobody may be asking: find out by a small write of our own whether it is over.
            engine.add([Put(Batch(engines=[EngineRow(engine.id, engine.name, engine.started_at, now)]))])
        for session in engine.dispatch.sessions.values():
            for loss in overdue(session, now):
                key = (loss.execution, loss.request.job)
                # Asked again after a while, should the store be away now.
                session.held[key].deadline = now + engine.exchanges.lease
                engine.add([Ask(loss.execution, loss.request, partial(_given_up, session, key))])
            if session.is_local and now - session.saved_at >= engine.exchanges.beat:
                engine.add([Put(Batch(workers=[engine.exchanges.row(session, now)]))])
        if now - self._trouble > engine.exchanges.lease:
            self._expire(now)
        dead: list[str] = []
        if engine.store.is_shared:
            self._shared(now)
            dead = self._dead(now)
        if dead or now >= self._next_sweep:
            self._sweep(now, dead)
        if now >= self._next_untying:
            self._untie(now)

    def _untie(self, now: int) -> None:
        """Lanes that wait for each other in a circle: one of them has to give way."""
        self._next_untying = now + UNTYING * SECOND
        with self._engine.store.reading() as queries:
            claims = queries.contended()
        self._engine.add([Ask(victim.execution, victim.request) for victim in victims(claims)])

    def _expire(self, now: int) -> None:
        engine = self._engine
        silent = engine.exchanges.silent(now)
        if silent:
            with engine.store.reading() as queries:
                rows = {session.name: queries.worker(session.name) for session in silent}
            for session in silent:
                engine.add(engine.exchanges.expire(session, rows[session.name], now))

    # --- several engines on one store ---------------------------------------------------------------
    def _shared(self, now: int) -> None:
        engine = self._engine
        engine.dispatch.is_stale = True
        engine.watchers.tell(None)
        if now >= self._next_beat:
            self._next_beat = now + 5 * SECOND
            engine.add([Put(Batch(engines=[EngineRow(engine.id, engine.name, engine.started_at, now)]))])
        with engine.store.reading() as queries:
            for session in list(engine.dispatch.sessions.values()):
                row = queries.worker(session.name)
                is_newer = row is not None and row.registered_at > engine.exchanges.registered_at(session)
                if row is not None and is_newer and row.incarnation != session.incarnation:
                    engine.exchanges.yield_to(session, row)
        self._tell_cancelled()

    def _dead(self, now: int, is_sure: bool = False) -> list[str]:
        engine = self._engine
        # In this order: an engine takes its lock before it writes its row, so every row read here had a lock.
        with engine.store.reading() as queries:
            engines = queries.engines()
        living = engine.store.living_engines()
        if is_sure:
            # The store is ours alone: whoever had it before us is gone, or we would not have it.
            return [row.id for row in engines if row.id != engine.id]
        return self._missed.look(engines, living, engine.id, now)

    def _tell_cancelled(self) -> None:
        """Cancels that another engine committed, or whose notice was lost, for jobs that are worked on here."""
        engine = self._engine
        if not any(session.held for session in engine.dispatch.sessions.values()):
            return
        with engine.store.reading() as queries:
            stopping = set(queries.stopping())
        for session in engine.dispatch.sessions.values():
            for (execution, job), claim in session.held.items():
                if (execution, job) in stopping and not claim.is_told:
                    claim.is_told = True
                    session.cancels.append(CancelNotice(execution, job, claim.attempt, "cancelled"))

    def hinted(self) -> list[Item]:
        self._engine.dispatch.is_stale = True
        self._engine.watchers.tell(None)
        return []

    def committed(self, turn: Turn) -> None:
        """After a commit: let others know that something has changed."""
        if self._engine.store.is_shared and turn.headers:
            self._engine.store.hint()

    # --- the queue ----------------------------------------------------------------------------------
    def reload(self) -> list[Item]:
        """What waits according to the store and could be taken here. Known jobs are not added twice."""
        engine = self._engine
        now = engine.clock()
        places = engine.dispatch.places()
        if not places or (engine.store.is_shared and now < self._next_reload):
            return []
        self._next_reload = now + SECOND // 5
        limit = min(READY_LIMIT, 4 * engine.dispatch.free_slots() + 64)
        with engine.store.reading() as queries:
            rows = queries.ready(limit, places)
        self._is_more_ready = len(rows) == limit
        engine.dispatch.is_stale = False
        for row in rows:
            engine.dispatch.add(row)
        return []

    def is_more_ready(self) -> bool:
        """The store has more than was read, and what was read is used up."""
        return self._is_more_ready and not self._engine.dispatch.waiting()

    # --- the dead -----------------------------------------------------------------------------------
    def _sweep(self, now: int, dead: list[str], is_sure: bool = False) -> None:
        """Give up what nobody will answer for. `is_sure`: whatever worked inside an engine before us is
        dead too; no lease has to be waited for."""
        engine = self._engine
        self._next_sweep = now + 15 * SECOND
        if now - self._trouble < engine.exchanges.lease and self._trouble:
            return
        losses: list[Loss] = []
        with engine.store.reading() as queries:
            gone = given_up(now, queries.workers(), engine.dispatch.sessions, dead, self._since)
            for worker, why in gone:
                losses += [lost(row, why) for row in queries.claimed(worker.incarnation, CLAIM_LIMIT)]
            if is_sure or now > self._since + engine.exchanges.lease:
                losses += [
                    lost(row, "its worker was replaced by a newer incarnation")
                    for row in queries.orphan_claims()
                    if row.incarnation not in engine.dispatch.sessions
                ]
            engine.add([Ask(loss.execution, _with_details(queries, loss)) for loss in losses])
            for session in engine.dispatch.sessions.values():
                if now - session.seen_at <= 2 * engine.exchanges.beat:
                    self._reconcile(session, queries.claimed(session.incarnation, CLAIM_LIMIT), now)
            stale = queries.stale_beats()
            departed = queries.departed(now - REMEMBERED)
            expired = queries.expired_tokens(now - REMEMBERED)
        changed = []
        for worker, _ in gone:
            kept = state_to_keep(worker, now, worker.engine in dead, engine.patience)
            if kept != worker.state:
                worker.state = kept
                changed.append(worker)
        rows = Batch(
            workers=changed, engines_gone=dead, beats_gone=stale, workers_gone=departed, tokens_gone=expired
        )  # fmt: skip
        if not rows.is_empty:
            engine.add([Put(rows)])
        if not engine.store.is_shared:
            self._tell_cancelled()

    def _reconcile(self, session: Session, claims: list[JobRow], now: int) -> None:
        """What a session believes it holds, and what the table says. Every commit of a claim passes through
        this thread, so where the two differ the table is right: a slot is freed, or a parcel that went
        astray is sent again (the worker knows attempts it has seen)."""
        if len(claims) == CLAIM_LIMIT:
            return
        claimed: dict[JobKey, JobRow] = {(row.execution, row.job): row for row in claims}
        for key in [key for key, held in session.held.items() if _differs(held, claimed.get(key))]:
            del session.held[key]
        for key, row in claimed.items():
            if key not in session.held:
                deadline = self._engine.exchanges.new_deadline(row, now)
                session.held[key] = Held(row.attempt, row.since, row.timeout, deadline)
                self._engine.add([resend(session, row)])

    def hello(self, hello: Hello, is_local: bool, reply: Reply) -> list[Item]:
        engine = self._engine
        with engine.store.reading() as queries:
            before = queries.worker(hello.name)
            claims = queries.claimed(hello.incarnation)
            stopping = set(queries.stopping())
            items: list[Item] = []
            if before is not None and before.incarnation != hello.incarnation:
                why = f"worker {hello.name} was restarted"
                old = [lost(row, why) for row in queries.claimed(before.incarnation)]
                items = [Ask(loss.execution, _with_details(queries, loss)) for loss in old]
        return items + engine.exchanges.hello(
            hello, engine.clock(), is_local=is_local, before=before, claims=claims, stopping=stopping, reply=reply
        )


def _differs(held: Held, row: JobRow | None) -> bool:
    return row is None or row.attempt != held.attempt


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
