"""Workers' side of the engine: hello, exchange, goodbye — turned into items, sessions and answers.

Sans I/O: called with the time and the rows it needs, it returns items for the committer and answers
through callbacks. A refusal of one outcome never stops the others of the same exchange.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial
from typing import Any

from holdfast.core.codec import pack
from holdfast.core.errors import PayloadTooLarge, Refused, StaleExchange, UnknownWorker, WorkerSuperseded
from holdfast.core.inventory import CHANGE_LIMIT, CHANGES_LIMIT, EntityChange
from holdfast.core.model import PAYLOAD_LIMIT, Failure
from holdfast.core.requests import CompleteJob, FailJob, LoseJob
from holdfast.core.rows import JobRow
from holdfast.failpoints import failpoint
from holdfast.store.records import Batch, WorkerRow
from holdfast.transport.messages import Answer, CancelNotice, Exchange, Hello, Outcome, Welcome

from .dispatch import Dispatch, Held, JobKey, Session, Waiter
from .items import Ask, Item, KeepLogs, Put, Reply, ResendJob, spill
from .patience import PATIENCE, SILENT, Patience

#: Refusals a worker cannot do anything about: the outcome is done with. Others make it ask again.
_FINAL = ("HF02", "HF03", "HF04", "HF09")
#: Longest time a block may ask to be left alone, µs.
LONGEST_PAUSE = 366 * 24 * 3600 * 1_000_000
#: Longest failure kept whole, encoded.
FAILURE_LIMIT = 16 * 1024
_PLACEHOLDER = LoseJob(0, 0, "", "")


class Exchanges:
    def __init__(
        self,
        dispatch: Dispatch,
        *,
        engine: str,
        lease: int,
        beat: int,
        is_shared: bool,
        patience: Patience = PATIENCE,
    ) -> None:
        self.dispatch = dispatch
        self.engine = engine
        self.lease = lease
        self.beat = beat
        self.is_shared = is_shared
        self.patience = patience
        #: incarnations replaced by newer ones, so that they learn why
        self._superseded: dict[str, str] = {}
        #: (incarnation, number) of exchanges whose outcomes are being committed
        self._open: dict[tuple[str, int], _Bundle] = {}
        #: exchanges to be answered after this turn
        self._answers: list[_Bundle] = []
        #: incarnation → host, pid, time of registration
        self._hosts: dict[str, tuple[str, int, int]] = {}

    # --- hello and goodbye --------------------------------------------------------------------------
    def hello(
        self,
        hello: Hello,
        now: int,
        *,
        is_local: bool,
        before: WorkerRow | None,
        claims: Sequence[JobRow],
        stopping: Container[tuple[str, int]],
        reply: Reply,
    ) -> list[Item]:
        """`before` is the stored row of that name, `claims` what this incarnation has claimed according
        to the store, `stopping` the jobs that somebody asked to stop. What an older incarnation had
        claimed is given up by the caller, who can read it."""
        known = self.dispatch.sessions.get(hello.incarnation)
        if known is not None and hello.greeting < known.greeting:
            reply(None, StaleExchange(f"hello {hello.greeting} of {hello.name} is older than {known.greeting}"))
            return []
        failpoint("engine.hello.before")
        items: list[Item] = []
        for older in self.dispatch.named(hello.name):
            if older.incarnation != hello.incarnation:
                self._supersede(older.incarnation, hello.name)
                items += self._lose(older, f"worker {hello.name} was restarted")
                self._close(older)
        if before is not None and before.incarnation != hello.incarnation:
            self._supersede(before.incarnation, hello.name)
        items += self._attach(hello, now, is_local, claims, stopping)
        session = self.dispatch.sessions[hello.incarnation]
        welcome = Welcome(self.lease, self.beat, self._contradictions(session))
        rows = Batch(workers=[self.row(session, now, hello)], blocks=list(session.offers.values()))
        items.append(Put(rows, lambda _, error: reply(None if error else welcome, error)))
        failpoint("engine.hello.after")
        return items

    def _contradictions(self, session: Session) -> list[str]:
        """Blocks that another worker here offers under the same version with other code. The code that came
        last is used while it is here: somebody has just edited it."""
        found = []
        for other in self.dispatch.sessions.values():
            offers = [offer for offer in session.offers.values() if other.has_other(offer)]
            if other is not session and offers:
                listed = ", ".join(f"`{offer.name}` {offer.version}" for offer in offers)
                found.append(
                    f"worker {other.name} has other code for {listed} under the same version; its jobs come here"
                    f" as long as {session.name} lives. Restart {other.name}, or give the new code a new version"
                )
        return found

    def _offer_again(self, gone: Session) -> list[Item]:
        """A worker has left: what the others offer under the same names counts again."""
        offers = [self.dispatch.newest_offer(name) for name in gone.offers]
        back = [offer for offer in offers if offer is not None and gone.has_other(offer)]
        return [Put(Batch(blocks=back))] if back else []

    def _supersede(self, incarnation: str, name: str) -> None:
        self._superseded[incarnation] = name
        if len(self._superseded) > 1000:
            del self._superseded[next(iter(self._superseded))]

    def _attach(
        self, hello: Hello, now: int, is_local: bool, claims: Sequence[JobRow], stopping: Container[tuple[str, int]]
    ) -> list[Item]:
        """A session, or the same one renewed: outcomes and claims that are under way keep counting on it."""
        session = self.dispatch.sessions.get(hello.incarnation)
        if session is None:
            session = Session(hello.name, hello.incarnation, hello.slots)
        if session.waiter is not None:
            # Whoever says hello asks under new numbers: what went into the answer to an older one nobody would read.
            session.waiter.answer(Answer(session.waiter.number))
            session.waiter = None
        session.slots, session.queues = hello.slots, frozenset(hello.queues)
        session.offer(hello.blocks)
        session.greeting, session.is_draining = hello.greeting, False
        session.is_local, session.engine = is_local, self.engine if is_local else ""
        session.lease, session.seen_at, session.saved_at = self.lease, now, now
        session.mailbox, session.held = [], {}
        holding = {(h.execution, h.job): h.attempt for h in hello.holding}
        items: list[Item] = []
        for row in claims:
            key = (row.execution, row.job)
            held = session.held[key] = Held(row.attempt, row.since, row.timeout, self.new_deadline(row, now))
            if (row.execution, row.job) in stopping:
                # The notice may have been lost with the engine that sent it.
                held.is_told = True
                session.cancels.append(CancelNotice(row.execution, row.job, row.attempt))
            if holding.get(key) != row.attempt:
                # Claimed, but the answer that carried it was lost: the same parcel again.
                items.append(resend(session, row))
        self.dispatch.attach(session)
        return items

    def new_deadline(self, row: JobRow, now: int) -> int:
        """Of a claim that was made elsewhere or before: nobody here knows when it last showed life. Its own time may be
        over; what came of it meanwhile is then said right after the hello."""
        if not row.timeout:
            return now + self.patience.stuck
        return max(self.patience.deadline(row.since, row.timeout), now + self.lease)

    def row(self, session: Session, now: int, hello: Hello | None = None, state: str = "online") -> WorkerRow:
        if hello is not None:
            self._hosts[session.incarnation] = (hello.host, hello.pid, now)
        host, pid, registered_at = self._hosts.get(session.incarnation, ("", 0, now))
        session.saved_at = now
        return WorkerRow(
            session.name, session.incarnation, session.engine, host, pid, session.slots,
            sorted(session.queues), sorted(session.blocks), registered_at,
            session.seen_at if state == SILENT else now, session.lease, state,
        )  # fmt: skip

    def yield_to(self, session: Session, row: WorkerRow) -> None:
        """Another engine has a newer incarnation under that name; it has given up what this one held."""
        self._supersede(session.incarnation, row.name)
        self._close(session)

    def registered_at(self, session: Session) -> int:
        return self._hosts.get(session.incarnation, ("", 0, 0))[2]

    def goodbye(self, incarnation: str, now: int, reply: Reply) -> list[Item]:
        session = self.dispatch.sessions.get(incarnation)
        if session is None:
            reply(None, None)
            return []
        failpoint("engine.goodbye.before")
        items = self._lose(session, f"worker {session.name} left")
        items.append(Put(Batch(workers=[self.row(session, now, state="offline")]), reply))
        self._close(session)
        failpoint("engine.goodbye.after")
        return items + self._offer_again(session)

    def silent(self, now: int) -> list[Session]:
        """Remote workers not heard of here for a whole lease."""
        sessions = self.dispatch.sessions.values()
        return [session for session in sessions if not session.is_local and session.seen_at + session.lease < now]

    def expire(self, session: Session, row: WorkerRow | None, now: int) -> list[Item]:
        """Give a silent worker up, unless its stored row says that another engine hears it: then it has
        only moved, and everything it holds goes on there."""
        items: list[Item] = []
        is_elsewhere = row is not None and row.incarnation == session.incarnation and row.seen_at + row.lease >= now
        if not is_elsewhere:
            silence = (now - session.seen_at) // 1_000_000
            items += self._lose(session, f"worker {session.name} has been silent for {silence} s")
            if row is not None and row.incarnation == session.incarnation:
                items.append(Put(Batch(workers=[self.row(session, now, state=SILENT)])))
        self._close(session)
        return items + self._offer_again(session)

    def _close(self, session: Session) -> None:
        self.dispatch.detach(session.incarnation)
        self._hosts.pop(session.incarnation, None)
        if session.waiter is not None:
            session.waiter.answer(Answer(session.waiter.number))
            session.waiter = None

    def _lose(self, session: Session, why: str) -> list[Item]:
        unsent: set[JobKey] = set()
        if session.is_local or not self.is_shared:
            # With other engines about, one of them may have sent the same parcel after a hello there: then
            # that it never left here proves nothing.
            unsent = {(parcel.execution, parcel.job) for parcel in session.mailbox}
        return [
            Ask(
                execution,
                LoseJob(job, held.attempt, "worker-lost", why, (execution, job) in unsent, held.details),
            )
            for (execution, job), held in session.held.items()
        ]

    # --- exchange -----------------------------------------------------------------------------------
    def exchange(self, exchange: Exchange, now: int, reply: Reply) -> list[Item]:
        session = self.dispatch.sessions.get(exchange.incarnation)
        if session is None or session.greeting != exchange.greeting:
            # Or it was with another engine meanwhile: what it holds now only a new hello can tell.
            reply(None, self._stranger(exchange.incarnation))
            return []
        session.seen_at = now
        for number in [n for n in session.answers if n <= exchange.seen]:
            del session.answers[number]
        saved = session.answers.get(exchange.number)
        if saved is not None:
            reply(saved, None)
            return []
        session.forgotten = max(session.forgotten, exchange.seen)
        if exchange.number <= session.forgotten:
            # A copy that was long under way. Answering it anew would put jobs into an answer nobody reads.
            reply(None, StaleExchange(f"exchange {exchange.number} was answered and forgotten"))
            return []
        if exchange.drain:
            session.is_draining = True
        items: list[Item] = []
        for beat in exchange.beats:
            held = session.held.get((beat.execution, beat.job))
            if held is None or held.attempt != beat.attempt:
                # Nobody speaks for an attempt that is not in its hands.
                continue
            if beat.logs:
                items.append(Ask(beat.execution, KeepLogs(tuple(beat.logs))))
            if beat.details is not None and beat.details != held.details:
                said = (beat.execution, beat.job, beat.attempt, pack(beat.details))
                items.append(Put(Batch(beats=[said])))
            held.details = beat.details
            if not held.timeout:
                held.deadline = max(held.deadline, now + self.patience.stuck)
        if now - session.saved_at >= self.beat:
            items.append(
                Put(Batch(workers=[self.row(session, now, state="draining" if session.is_draining else "online")]))
            )
        if not exchange.outcomes:
            self._poll(session, exchange, now, reply)
            return items
        place = (exchange.incarnation, exchange.number)
        bundle = self._open.get(place)
        if bundle is not None:
            # The same exchange again while it is being committed: whoever asks last gets the answer.
            bundle.reply = reply
            return items
        bundle = _Bundle(self, session, exchange.number, len(exchange.outcomes), reply)
        items += [self._outcome(session, outcome, bundle) for outcome in exchange.outcomes]
        # Counted as free from now on, so that the next jobs can ride in the same commit.
        session.planned -= len(bundle.freed)
        self._open[place] = bundle
        return items

    def _stranger(self, incarnation: str) -> Refused:
        name = self._superseded.get(incarnation)
        if name is not None:
            return WorkerSuperseded(f"another worker named {name} has registered since; give this one another name")
        return UnknownWorker(f"no worker with incarnation {incarnation} is registered here; say hello again")

    def _poll(self, session: Session, exchange: Exchange, now: int, reply: Reply) -> None:
        if not exchange.wait:
            reply(session.take_answer(exchange.number), None)
            return
        if session.waiter is not None:
            if session.waiter.number == exchange.number:
                # Asked again before it was answered. Whichever of the two is still listened to, it must be the
                # same answer: with nothing in one and jobs in the other, the jobs could end where nobody reads.
                session.waiter.also(reply)
                return
            # One poll at a time: the older one is answered with nothing.
            session.waiter.answer(Answer(session.waiter.number))
            session.waiter = None
        if session.has_news():
            reply(session.take_answer(exchange.number), None)
        else:
            session.waiter = Waiter(exchange.number, now + exchange.wait, lambda answer: reply(answer, None))

    def _outcome(self, session: Session, outcome: Outcome, bundle: _Bundle) -> Ask:
        """The request an outcome stands for."""
        ask = Ask(outcome.execution, _PLACEHOLDER, partial(bundle.one, outcome))
        if not session.is_local:
            ask.token = outcome.token
        key = (outcome.execution, outcome.job)
        held = session.held.get(key)
        if held is not None and held.attempt == outcome.attempt:
            bundle.freed.append((key, outcome.attempt))
        details = held.details if held is not None else None
        logs = tuple(outcome.logs)
        if outcome.failure is None and outcome.retry_after is None:
            try:
                result = spill(ask, outcome.value)
            except Refused as refused:
                kind = "result-too-large" if isinstance(refused, PayloadTooLarge) else "result-not-sendable"
                failure = Failure(kind, refused.message, refused.code)
                ask.request = FailJob(outcome.job, outcome.attempt, failure, outcome.effect, True, logs=logs)
                return ask
            if outcome.changes and (wrong := _too_much(outcome.changes)):
                failure = Failure("result-too-large", wrong, PayloadTooLarge.code)
                ask.request = FailJob(outcome.job, outcome.attempt, failure, outcome.effect, True, logs=logs)
                return ask
            ask.size = sum(map(len, ask.blobs.values()))
            changes = tuple(outcome.changes)
            ask.request = CompleteJob(outcome.job, outcome.attempt, result, outcome.effect, logs, changes)
            return ask
        failure = _storable(outcome.failure or Failure("retry-later", "asked to be tried again later"))
        ask.request = FailJob(
            outcome.job, outcome.attempt, failure, outcome.effect, outcome.is_permanent, outcome.is_cancelled,
            None if outcome.retry_after is None else max(0, min(outcome.retry_after, LONGEST_PAUSE)), details, logs,
        )  # fmt: skip
        return ask

    def finished(self, bundle: _Bundle) -> None:
        """All outcomes of an exchange are decided and committed, or the store refused."""
        self._open.pop((bundle.session.incarnation, bundle.number), None)
        session = bundle.session
        session.planned += len(bundle.freed)
        if bundle.error is not None:
            # Not saved as an answer: the worker asks again under the same number.
            bundle.reply(None, bundle.error)
            return
        for key, attempt in bundle.freed:
            held = session.held.get(key)
            if held is not None and held.attempt == attempt:
                del session.held[key]
        session.refused += bundle.refused
        self._answers.append(bundle)

    def flush(self, now: int) -> None:
        """After each turn: say what there is to say."""
        for bundle in self._answers:
            # After another hello the worker no longer asks under this number: the next answer carries what there is.
            is_current = bundle.greeting == bundle.session.greeting
            bundle.reply(bundle.session.take_answer(bundle.number) if is_current else Answer(bundle.number), None)
        self._answers.clear()
        for session in self.dispatch.sessions.values():
            waiter = session.waiter
            if waiter is not None and (session.has_news() or waiter.until <= now):
                session.waiter = None
                waiter.answer(session.take_answer(waiter.number))

    def next_deadline(self) -> int | None:
        return min((s.waiter.until for s in self.dispatch.sessions.values() if s.waiter), default=None)


def resend(session: Session, row: JobRow) -> Ask:
    """The same parcel again. If that is refused, because the store is full or of a bug, nobody has it in hand;
    the next sweep sees it and tries again."""

    def reply(value: Any, error: Exception | None) -> None:
        held = session.held.get((row.execution, row.job))
        if error is not None and held is not None and held.attempt == row.attempt:
            del session.held[row.execution, row.job]

    ask = Ask(row.execution, ResendJob(row.job, row.attempt), reply)
    ask.session = session.incarnation
    return ask


class _Bundle:
    """The outcomes of one exchange on their way through commits."""

    __slots__ = ("error", "freed", "greeting", "left", "number", "owner", "refused", "reply", "session")

    def __init__(self, owner: Exchanges, session: Session, number: int, left: int, reply: Reply) -> None:
        self.owner = owner
        self.session = session
        #: number of the hello it was asked under
        self.greeting = session.greeting
        self.number = number
        self.left = left
        self.reply = reply
        self.freed: list[tuple[JobKey, int]] = []
        self.refused: list[tuple[str, int, int, str]] = []
        self.error: Exception | None = None

    def one(self, outcome: Outcome, value: Any, error: Exception | None) -> None:
        if isinstance(error, Refused) and error.code.startswith(_FINAL):
            self.refused.append((outcome.execution, outcome.job, outcome.attempt, error.code))
        elif error is not None:
            self.error = error
        self.left -= 1
        if not self.left:
            self.owner.finished(self)


def _too_much(changes: Sequence[EntityChange]) -> str:
    """Why nobody can keep these changes of the inventory; empty if they can be kept."""
    if len(changes) > CHANGES_LIMIT:
        return f"it asks for {len(changes)} changes of the inventory; the limit is {CHANGES_LIMIT}"
    whole = 0
    for change in changes:
        size = len(pack(change))
        whole += size
        if size > CHANGE_LIMIT:
            return f"a change of entity {_text(change.id, 200)} has {size} bytes; the limit is {CHANGE_LIMIT}"
    if whole > PAYLOAD_LIMIT:
        return f"the changes of the inventory it asks for have {whole} bytes; the limit is {PAYLOAD_LIMIT}"
    return ""


def _storable(failure: Failure) -> Failure:
    """A failure that fits into a history: what cannot be stored or is too long is cut, never refused."""
    try:
        if len(pack(failure)) <= FAILURE_LIMIT:
            return failure
    except (NotImplementedError, TypeError, ValueError, OverflowError, RecursionError):
        pass
    return Failure(
        failure.kind, _text(failure.message, 2000), failure.code, _text(failure.type, 200),
        _text(failure.traceback, 4000), _text(repr(failure.details), 2000) if failure.details is not None else None,
    )  # fmt: skip


def _text(text: str, limit: int) -> str:
    return text[:limit].encode(errors="replace").decode()
