"""The engine: one thread that takes requests, commits them in groups and tells everybody.

The public verbs may be called from any thread; each ends in `Store.commit` after one hop through the
inbox. What is decided lies in core, how a batch is made in `committer`, who works on what in `dispatch`
and `exchanges`; this file holds the thread, the clock and the store.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.core.codec import pack
from holdfast.core.errors import Conflict, EngineBug, Refused, ShuttingDown, StoreUnavailable, SyncFailed, TooBusy
from holdfast.core.ids import make_id
from holdfast.core.model import Actor, Failure, Gate
from holdfast.core.program import Program
from holdfast.core.reads import SensorKey
from holdfast.core.requests import (
    CancelExecution,
    ClaimJob,
    CompleteJob,
    Due,
    FailJob,
    Request,
    SendSignal,
    StartExecution,
)
from holdfast.failpoints import failpoint
from holdfast.store.port import Store
from holdfast.store.records import Batch, Header, TokenRow
from holdfast.transport.messages import Exchange, Hello

from .agenda import Agenda
from .committer import Broken, Committer
from .dispatch import Dispatch, Session
from .driver import Driver
from .editing import Edit, EditEntities
from .exchanges import Exchanges
from .inbox import Inbox
from .items import Ask, Item, Publish, PublishAll, Put, Reply, silent, spill
from .patience import PATIENCE, Patience
from .purging import Purge
from .rounds import Rounds
from .sensing import PutSensor
from .watchers import Watcher, Watchers
from .wishes import LOST

log = logging.getLogger("holdfast.engine")

#: A conflicting item is decided again this often before its caller hears of it.
MAX_TRIES = 20


class Call:
    """A worker's message on its way into the engine's thread."""

    __slots__ = ("reply", "work")

    def __init__(self, reply: Reply, work: Callable[[], list[Item]]) -> None:
        self.reply = reply
        self.work = work

    def __call__(self) -> list[Item]:
        """Whoever asked hears of it when the asking itself fails."""
        try:
            return self.work()
        except Refused as refused:
            self.reply(None, refused)
        except Exception as bug:
            log.error("a worker's message was refused because of a bug", exc_info=bug)
            self.reply(None, EngineBug(f"{type(bug).__name__}: {bug}"))
        return []


def new_execution_id() -> str:
    return make_id(time.time_ns() // 1_000_000, os.urandom(10))


class Engine:
    def __init__(
        self,
        store: Store,
        compile: Callable[[bytes], Program],
        *,
        key: bytes,
        id: str = "",
        name: str = "",
        lease: float = 30.0,
        beat: float = 10.0,
        patience: Patience = PATIENCE,
        max_pending: int = 20_000,
        max_bytes: int = 256 << 20,
    ) -> None:
        self.store = store
        self.id = id or os.urandom(6).hex()
        self.name = name or f"engine-{self.id[:6]}"
        self._key = key
        self.max_pending = max_pending
        self.max_bytes = max_bytes
        #: bytes of long values on their way to the engine's thread
        self._queued = 0
        self.dispatch = Dispatch()
        self.agenda = Agenda()
        self.committer = Committer(
            compile,
            self.dispatch,
            is_shared=store.is_shared,
            token=self.attempt_token,
            patience=patience,
        )
        self.driver = Driver(store, self.committer, set_clock=self.set_clock, rest=self._rest)
        self.patience = patience
        self.exchanges = Exchanges(
            self.dispatch, engine=self.id, lease=int(lease * 1e6), beat=int(beat * 1e6), is_shared=store.is_shared,
            patience=patience,
        )  # fmt: skip
        self.rounds = Rounds(self)
        self._queue: SimpleQueue[Call | Callable[[], list[Item]] | Item] = SimpleQueue()
        self._inbox = Inbox()
        #: items a commit lately had, or a little less
        self._usual = 0
        self.watchers = Watchers()
        #: told, in the engine's thread, what has just ended
        self.on_ended: Callable[[list[Header]], None] | None = None
        self._is_stopping = False
        self._fatal: Exception | None = None
        self._full_until = 0.0
        self._full: Refused | None = None
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="holdfast-committer", daemon=True)
        self.started_at = store.now()
        self._offset = self.started_at - time.monotonic_ns() // 1000

    # --- life ---------------------------------------------------------------------------------------
    def start(self) -> Engine:
        if gc.get_threshold()[0] == 700:
            # A commit makes thousands of objects that all go with it. Looked for cycles every 700 of them, as
            # Python does by default, a fifth of the time would go into finding none.
            gc.set_threshold(50_000, 20, 20)
        self._thread.start()
        return self

    def stop(self, timeout: float = 30.0) -> None:
        """Commit what was accepted, refuse the rest, end the thread. The store stays open."""
        failpoint("engine.stop.before")
        self._is_stopping = True
        self._queue.put(list)
        self._thread.join(timeout)
        failpoint("engine.stop.after")

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and self._fatal is None

    @property
    def fatal(self) -> Exception | None:
        """Why the engine has stopped by itself, if it has."""
        return self._fatal

    @property
    def trouble(self) -> str:
        """Why nothing can be committed at present; empty while all is well."""
        return self._trouble

    @property
    def pending(self) -> int:
        return self._queue.qsize() + len(self._inbox)

    # --- verbs --------------------------------------------------------------------------------------
    def start_execution(
        self,
        *,
        workflow: str = "",
        definition: bytes = b"",
        program: Program | None = None,
        input: Any = None,
        key: str = "",
        labels: dict[str, str] | None = None,
        actor: Actor,
        id: str = "",
        entity: str = "",
        entities: Sequence[str] = (),
        select: Sequence[str] = (),
        gates: Sequence[Gate] = (),
        priority: int | None = None,
        retry_of: str = "",
        is_exact: bool = False,
        content: bytes = b"",
        reply: Reply,
    ) -> None:
        """By published name, or with an inline definition (canonical bytes, and compiled). `content` is what the key
        stands for, if it is not all of this."""
        self._admit()
        digest = blake2b(definition, digest_size=16).digest() if definition else b""
        ask = Ask(id or new_execution_id(), _PLACEHOLDER, reply)
        ask.request = StartExecution(ask.execution, spill(ask, input), workflow, digest, labels or {}, actor, entity,
                                     tuple(entities), tuple(select), tuple(gates), priority, retry_of,
                                     is_exact)  # fmt: skip
        ask.definition, ask.program = definition, program
        if key:
            ask.key = key
            said: tuple[Any, ...] = (workflow, digest, input, labels or {}, *((entity,) if entity else ()))
            if entities or select or gates or priority is not None:
                # Without deadlines: they are counted from each request anew.
                ahead = [(gate.kind, gate.what, gate.due) for gate in gates]
                said = (*said, sorted(entities), sorted(select), ahead, priority)
            ask.content = content or blake2b(pack(said), digest_size=16).digest()
        self._put(ask)

    def signal(self, execution: str, name: str, value: Any, actor: Actor, reply: Reply, key: str = "") -> None:
        self._admit()
        ask = Ask(execution, _PLACEHOLDER, reply)
        ask.request = SendSignal(name, spill(ask, value), key, actor)
        self._put(ask)

    def cancel(self, execution: str, reason: str, actor: Actor, reply: Reply) -> None:
        self.ask(execution, CancelExecution(reason, actor), reply)

    def ask(self, execution: str, request: Request, reply: Reply) -> None:
        self._admit()
        self._enqueue(Ask(execution, request, reply))

    def publish(self, tenant: str, name: str, data: bytes, actor: str, reply: Reply) -> None:
        """Answers (version, is it new)."""
        self._admit()
        digest = blake2b(data, digest_size=16).digest()
        self._enqueue(Publish(tenant, name, digest, data, actor, reply))

    def publish_all(self, tenant: str, definitions: Iterable[tuple[str, bytes]], actor: str, reply: Reply) -> None:
        """Names and definitions that belong together, in one commit. Answers a list of (version, is it new)."""
        self._admit()
        items = [Publish(tenant, name, blake2b(data, digest_size=16).digest(), data, actor, silent)
                 for name, data in definitions]  # fmt: skip
        self._enqueue(PublishAll(items, reply))

    def edit_entities(
        self,
        tenant: str,
        edits: list[Edit],
        reply: Reply,
        *,
        is_lenient: bool = False,
        sensors: Mapping[str, Iterable[tuple[str, str]]] | None = None,
    ) -> None:
        """Answers what became of each, as a list of `Edited`."""
        self._admit()
        self._enqueue(EditEntities(tenant, edits, reply, is_lenient=is_lenient, sensors=sensors))

    def put_sensor(self, key: SensorKey, value: Any, by: str, reply: Reply, *, is_gone: bool = False) -> None:
        """Answers what is there then."""
        self._admit()
        self._enqueue(PutSensor(key, value, by, reply, is_gone=is_gone))

    def purge(self, wanted: dict[str, tuple[int, int]], reply: Reply) -> None:
        """Forget these, each as it was at (version, log lines). Answers with the ids of those that are gone."""
        self._admit()
        self._enqueue(Purge(wanted, reply))

    def forget_starts(self, keys: list[tuple[str, str]], reply: Reply) -> None:
        """Idempotency keys, as (tenant, key), that may be used anew."""
        self._admit()
        self._enqueue(Put(Batch(starts_gone=keys), reply))

    def put_tokens(self, tokens: list[TokenRow], reply: Reply) -> None:
        self._admit()
        self._enqueue(Put(Batch(tokens=tokens), reply))

    def hello(self, hello: Hello, reply: Reply, *, is_local: bool = False) -> None:
        self._enqueue(Call(reply, lambda: self.rounds.hello(hello, is_local, reply)))

    def exchange(self, exchange: Exchange, reply: Reply) -> None:
        """Never refused for being busy: it brings results, and results make room."""
        self._enqueue(Call(reply, lambda: self.exchanges.exchange(exchange, self.clock(), reply)))

    def goodbye(self, incarnation: str, reply: Reply) -> None:
        self._enqueue(Call(reply, lambda: self.exchanges.goodbye(incarnation, self.clock(), reply)))

    def _enqueue(self, thing: Call | Item) -> None:
        self._queue.put(thing)
        if self._fatal is not None:
            # Nobody takes it any more; also if the end came between the two lines above.
            self._refuse_queued(self._farewell())

    def add(self, items: Iterable[Item]) -> None:
        """What the engine asks of itself; only from its own thread."""
        self._inbox.extend(items)

    def _admit(self) -> None:
        if isinstance(self._fatal, SyncFailed):
            raise self._fatal
        if self._is_stopping or self._fatal is not None:
            raise ShuttingDown("the engine is shutting down; try again shortly")
        if self.pending >= self.max_pending:
            raise TooBusy(f"{self.pending} requests wait already; try again in a second")
        if self._inbox.size + self._queued >= self.max_bytes:
            raise TooBusy(f"more than {self.max_bytes >> 20} MiB wait already; try again in a second")

    def _put(self, ask: Ask) -> None:
        ask.size = len(ask.definition) + sum(map(len, ask.blobs.values()))
        # An estimate is enough: threads may lose an addition to each other, never the order of magnitude.
        self._queued += ask.size
        self._enqueue(ask)

    # --- watching -----------------------------------------------------------------------------------
    def watch(self, execution: str, watcher: Watcher) -> Callable[[], None]:
        """See `Watchers.add`."""
        return self.watchers.add(execution, watcher)

    def hinted(self) -> None:
        """Another engine committed something: look at the queue, and let watchers look."""
        self._queue.put(self.rounds.hinted)

    # --- tokens -------------------------------------------------------------------------------------
    def attempt_token(self, execution: str, epoch: int, job: int, attempt: int) -> str:
        """Derived, not stored: whoever has the server key can check it, nobody else can make it."""
        text = f"{execution}/{epoch}/{job}/{attempt}".encode()
        return blake2b(text, key=self._key, digest_size=16).hexdigest()

    def clock(self) -> int:
        """The store's time without asking it: corrected at every transaction and every tick."""
        return time.monotonic_ns() // 1000 + self._offset

    def set_clock(self, now: int) -> None:
        """What the store's clock says. If it was set, forwards or backwards, everything in memory that is
        measured in time moves along: a lease is a duration, not a moment."""
        offset = now - time.monotonic_ns() // 1000
        delta, self._offset = offset - self._offset, offset
        if abs(delta) > 2_000_000:
            log.warning("the clock was set by %+.1f s", delta / 1e6)
            self.dispatch.shift(delta)
            self.rounds.shift(delta)

    # --- the thread ---------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            failpoint("engine.start.before")
            while self._guarded(self.rounds.begin) is None and not self._is_stopping:
                log.warning("waiting for the store")
                self._refuse_queued(StoreUnavailable(self._trouble))
            failpoint("engine.start.after")
            while not (self._is_stopping and self._queue.empty() and not len(self._inbox)):
                self._collect(self.rounds.pause() if not len(self._inbox) else 0.0)
                self.step()
        except SyncFailed as failed:
            # Final: what the system shows may not be on the disk, and the next sync would say nothing of it.
            log.critical("the engine has stopped: %s", failed)
            self._fatal, self._trouble = failed, failed.message
            self._refuse_rest()
        except BaseException as error:
            log.exception("the engine stopped because of a bug or a broken invariant")
            self._fatal = error if isinstance(error, Exception) else RuntimeError(repr(error))
            self._refuse_rest()
            raise

    def step(self) -> None:
        """What is due, what can be claimed, what was asked: one commit, then the answers."""
        self._guarded(self.rounds.due)
        self._inbox.extend(self._claims())
        items = self._inbox.take()
        if items:
            self._usual = max(len(items), self._usual * 15 // 16)
            self._turn(items)
        self.exchanges.flush(self.clock())

    def _refuse_rest(self) -> None:
        while len(self._inbox):
            self._reject(self._inbox.take(), self._farewell())
        self._refuse_queued(self._farewell())

    def _farewell(self) -> Refused:
        return self._fatal if isinstance(self._fatal, SyncFailed) else ShuttingDown("the engine has stopped")

    def _refuse_queued(self, why: Refused) -> None:
        while True:
            try:
                thing = self._queue.get_nowait()
            except Empty:
                return
            if isinstance(thing, Call) or not callable(thing):
                thing.reply(None, why)

    def _rest(self, seconds: float) -> None:
        """The store is away; so are we, for a moment."""
        time.sleep(seconds)

    def _guarded(self, work: Callable[[], list[Item] | None]) -> list[Item] | None:
        """Reading rounds may fail while the store is away; they come again."""
        try:
            return work()
        except Refused as refused:
            log.warning("store: %s", refused)
            self._trouble = refused.message
            self.rounds.troubled()
            self._rest(0.2)
            return None

    def _collect(self, timeout: float) -> None:
        """Everything that waits; sleeps only when nothing does."""
        try:
            self._take(self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait())
            self._take_all()
        except Empty:
            return
        if timeout > 0:
            # Whoever came first has woken us. Where commits are usually much larger, the others are about to ask
            # and ride along instead of waiting for a commit of their own: three times some 60 µs, no more.
            for _ in range(3):
                if 4 * len(self._inbox) >= 3 * self._usual:
                    return
                time.sleep(0)
                self._take_all()

    def _take_all(self) -> None:
        try:
            while len(self._inbox) < self.max_pending:
                self._take(self._queue.get_nowait())
        except Empty:
            pass

    def _take(self, thing: Call | Callable[[], list[Item]] | Item) -> None:
        if callable(thing):
            self._inbox.extend(self._guarded(thing) or ())
            return
        self._inbox.extend((thing,))
        self._queued = max(0, self._queued - thing.size)

    def _claims(self) -> list[Item]:
        """Claims for jobs that waited: they ride with what is being committed anyway."""
        if self.dispatch.is_stale or self.rounds.is_more_ready():
            self._guarded(self.rounds.reload)
        claims: list[Item] = []
        for (execution, job), session in self.dispatch.match():
            ask = Ask(execution, ClaimJob(job, session.name, session.incarnation), partial(_give_back, session))
            ask.session = session.incarnation
            claims.append(ask)
        return claims

    def _turn(self, items: list[Item]) -> None:
        if self._full is not None and time.monotonic() < self._full_until:
            self.rounds.look_again()
            self._reject(items, self._full)
            return
        try:
            turn = self.driver.run(items)
        except Conflict:
            self.committer.counters.conflicts += 1
            self._again(items)
        except SyncFailed as failed:
            self._reject(items, failed)
            raise
        except Broken:
            # It is committed, but nobody can say any more what follows from it.
            self._reject(items, ShuttingDown("the engine has stopped; whether this was done, its history tells"))
            raise
        except Refused as refused:
            if refused.status == 507:
                # No retry loop: for a second everything is refused at once, then one batch may try.
                self._full, self._full_until = refused, time.monotonic() + 1.0
                self.rounds.look_again()
            log.warning("commit refused: %s", refused)
            self._trouble = refused.message
            if isinstance(refused, StoreUnavailable):
                # What the engine asks of itself nobody would ask again.
                own = [item for item in items if isinstance(item, Ask) and item.is_own]
                items = [item for item in items if not (isinstance(item, Ask) and item.is_own)]
                self._inbox.put_back(own)
                self.rounds.troubled()
                self._rest(0.1)
            self._reject(items, refused)
        except Exception as bug:
            self._isolate(items, bug)
        else:
            self._full, self._trouble = None, ""
            self.agenda.add(turn.batch.agenda, turn.now)
            if self.agenda.has_stumbles:
                self.agenda.went_well((item.execution, item.request) for item in items if isinstance(item, Ask))
            failpoint("engine.answer.before")
            turn.answer()
            failpoint("engine.answer.after")
            self.watchers.tell(turn.headers)
            if turn.ended and self.on_ended is not None:
                self.on_ended([turn.headers[id] for id in turn.ended])
            self.rounds.committed(turn)

    def _again(self, items: list[Item]) -> None:
        """Somebody was faster. Decide again on what is there now; the culprit is found by halving."""
        for item in items:
            if isinstance(item, Ask):
                item.tries += 1
        worn = [item for item in items if isinstance(item, Ask) and item.tries > MAX_TRIES]
        if worn:
            self._reject(worn, TooBusy("the execution keeps changing under this request; try again"))
        left = [item for item in items if item not in worn]
        # Somebody was busy with one of them: the next look decides anew.
        purges = [item for item in left if isinstance(item, Purge)]
        self._reject(purges, TooBusy("looked at again"))
        left = [item for item in left if not isinstance(item, Purge)]
        # Claims are not carried over: they give their slot back and are matched again from the queue.
        claims = [item for item in left if isinstance(item, Ask) and type(item.request) is ClaimJob]
        self._reject(claims, TooBusy("matched again"))
        left = [item for item in left if not (isinstance(item, Ask) and type(item.request) is ClaimJob)]
        if len(left) > 1:
            self._halves(left)
        else:
            self._inbox.put_back(left)

    def _isolate(self, items: list[Item], bug: Exception) -> None:
        """Something unforeseen in one item must stop neither the engine nor its neighbours: nothing was
        committed, so halve until it is alone."""
        if len(items) == 1:
            log.error("a request was refused because of a bug", exc_info=bug)
            item = items[0]
            if isinstance(item, Ask) and item.tries >= 0 and isinstance(item.request, CompleteJob | FailJob):
                # A job whose outcome cannot be recorded must not hang: that it failed, and why, can be.
                failure = Failure("engine-error", f"{type(bug).__name__}: {bug}"[:500], EngineBug.code)
                item.request = FailJob(item.request.job, item.request.attempt, failure, is_permanent=True)
                item.blobs, item.tries = {}, -1
                self._turn([item])
                return
            why = f"{type(bug).__name__}: {bug}"
            if isinstance(item, Ask) and isinstance(item.request, Due):
                self.agenda.stumbled(item.execution, item.request, why, self.clock())
            self._reject(items, EngineBug(why))
            return
        self._halves(items)

    def _halves(self, items: list[Item]) -> None:
        middle = (len(items) + 1) // 2
        try:
            self._turn(items[:middle])
        except BaseException:
            # The engine stops, and the others would never hear of it.
            self._reject(items[middle:], ShuttingDown("the engine has stopped; ask again"))
            raise
        self._turn(items[middle:])

    def _reject(self, items: Sequence[Item], error: Exception) -> None:
        for item in items:
            item.reply(None, error)


def _give_back(session: Session, value: Any, error: Exception | None) -> None:
    """A planned claim that did not come about frees the slot it was planned for."""
    if error is not None or value is LOST:
        session.planned -= 1


_PLACEHOLDER = CancelExecution()
