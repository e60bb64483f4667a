"""Dispatch: which worker gets which job. Pure bookkeeping; claims are decided and committed elsewhere.

A session is one incarnation of a worker as this engine sees it. What it holds counts against its slots
from the moment a claim is planned, so that no worker is given more than it can run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.core.model import BlockOffer
from holdfast.core.rows import JobRow
from holdfast.core.versions import place, split, with_padded
from holdfast.failpoints import failpoint
from holdfast.transport.messages import Answer, CancelNotice, Parcel

JobKey = tuple[str, int]
#: Answers kept for re-sending; a worker has two exchanges in flight.
KEPT_ANSWERS = 16


class Waiter:
    """An exchange whose answer is held back until there is something to say."""

    __slots__ = ("answer", "number", "until")

    def __init__(self, number: int, until: int, answer: Callable[[Answer], None]) -> None:
        self.number = number
        self.until = until
        self.answer = answer

    def also(self, reply: Callable[[Any, Exception | None], None]) -> None:
        """Another one who waits for this answer."""
        first = self.answer

        def both(answer: Answer) -> None:
            first(answer)
            reply(answer, None)

        self.answer = both


class Held(msgspec.Struct, gc=False):
    """A claim in a worker's hands."""

    attempt: int
    since: int
    timeout: int
    #: when nobody believes in an answer any more
    deadline: int
    #: last heartbeat's
    details: Any = None
    #: a cancel notice is out
    is_told: bool = False


class Session:
    """One incarnation of a worker, attached to this engine."""

    __slots__ = (
        "answers", "cancels", "engine", "forgotten", "greeting",
        "held", "incarnation", "is_draining", "is_local", "lease",
        "mailbox", "name", "offers", "planned", "queues", "refused", "saved_at", "seen_at", "slots", "waiter",
    )  # fmt: skip

    def __init__(
        self, name: str, incarnation: str, slots: int, queues: Iterable[str] = (), blocks: Iterable[str] = ()
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.slots = slots
        self.queues = frozenset(queues)
        #: by `name:version`
        self.offers: dict[str, BlockOffer] = {}
        self.offer(BlockOffer(*split(block)) if ":" in block else BlockOffer(block) for block in blocks)
        self.held: dict[JobKey, Held] = {}
        #: claims that are on their way through a commit
        self.planned = 0
        self.mailbox: list[Parcel] = []
        self.cancels: list[CancelNotice] = []
        self.refused: list[tuple[str, int, int, str]] = []
        self.waiter: Waiter | None = None
        #: by exchange number, until the worker says it has them
        self.answers: dict[int, Answer] = {}
        #: answers up to this number have arrived; nothing under such a number is said again
        self.forgotten = 0
        #: number of the hello that made this session
        self.greeting = 1
        self.is_draining = False
        self.is_local = False
        self.engine = ""
        self.lease = 0
        self.seen_at = 0
        self.saved_at = 0

    @property
    def blocks(self) -> Iterable[str]:
        return self.offers

    def offer(self, offers: Iterable[BlockOffer]) -> None:
        """What it says it can do; all versions of a block stand side by side."""
        self.offers = {place(offer.name, offer.version): with_padded(offer) for offer in offers}

    def has_other(self, offer: BlockOffer) -> bool:
        """It offers that block too, in that version, with other code."""
        own = self.offers.get(place(offer.name, offer.version))
        return own is not None and own.digest != offer.digest

    @property
    def free(self) -> int:
        return 0 if self.is_draining else self.slots - len(self.held) - self.planned

    def take_answer(self, number: int) -> Answer:
        """What there is to say, said under this number from now on."""
        failpoint("engine.handout.before")
        answer = Answer(number, self.mailbox, self.cancels, self.refused)
        self.mailbox, self.cancels, self.refused = [], [], []
        self.answers[number] = answer
        while len(self.answers) > KEPT_ANSWERS:
            # Nobody has said that it arrived. What was in it is said again; the worker knows what it has seen.
            oldest = self.answers.pop(next(iter(self.answers)))
            self.mailbox += oldest.jobs
            self.cancels += oldest.cancels
        failpoint("engine.handout.after")
        return answer

    def has_news(self) -> bool:
        return bool(self.mailbox or self.cancels or self.refused)


class Dispatch:
    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self._offering: dict[tuple[str, str], list[Session]] = {}
        #: (queue, block) → jobs waiting, oldest first
        self.ready: dict[tuple[str, str], deque[JobKey]] = {}
        self._known: set[JobKey] = set()
        #: what waits in memory may not be all there is, or may be wrong: read the queue again
        self.is_stale = True

    # --- workers ------------------------------------------------------------------------------------
    def attach(self, session: Session) -> None:
        self.sessions.pop(session.incarnation, None)
        self.sessions[session.incarnation] = session
        self._index()

    def detach(self, incarnation: str) -> Session | None:
        session = self.sessions.pop(incarnation, None)
        if session is not None:
            self._index()
        return session

    def named(self, name: str) -> list[Session]:
        return [session for session in self.sessions.values() if session.name == name]

    def _index(self) -> None:
        self._offering = {}
        # Newest first: where the same version stands for different code, the code that came last counts.
        for session in reversed(self.sessions.values()):
            for queue in session.queues:
                for block, offer in session.offers.items():
                    offering = self._offering.setdefault((queue, block), [])
                    if not offering or not offering[0].has_other(offer):
                        offering.append(session)
                        # A row that is older than versions names the block alone: whoever has any may take it.
                        anyone = self._offering.setdefault((queue, offer.name), [])
                        if session not in anyone:
                            anyone.append(session)
        # Whoever just came may offer what the queue in memory was not loaded for.
        self.is_stale = True

    def newest_offer(self, block: str) -> BlockOffer | None:
        offers = [session.offers[block] for session in self.sessions.values() if block in session.offers]
        return offers[-1] if offers else None

    def places(self) -> list[tuple[str, str]]:
        """Queues and blocks somebody here has room for."""
        return [at for at, sessions in self._offering.items() if any(s.free > 0 for s in sessions)]

    def offers(self, queue: str, block: str) -> bool:
        return (queue, block) in self._offering

    def free_slots(self) -> int:
        return sum(session.free for session in self.sessions.values())

    # --- jobs ---------------------------------------------------------------------------------------
    def add(self, row: JobRow) -> None:
        """A job waits; known ones are not added twice."""
        key = (row.execution, row.job)
        if key not in self._known:
            self._known.add(key)
            self.ready.setdefault((row.queue, row.block), deque()).append(key)

    def waiting(self) -> int:
        return len(self._known)

    def choose(self, queue: str, block: str) -> Session | None:
        """A worker for a job that was just created — unless older ones wait for the same."""
        at = (queue, block)
        return None if self.ready.get(at) else self._freest(at)

    def _freest(self, at: tuple[str, str]) -> Session | None:
        sessions = self._offering.get(at, ())
        if len(sessions) == 1:
            return sessions[0] if sessions[0].free > 0 else None
        best, most = None, 0
        for session in sessions:
            free = session.free
            if free > most:
                best, most = session, free
        return best

    def match(self) -> list[tuple[JobKey, Session]]:
        """Plan claims for what waits, oldest first per queue and block, spread over the freest workers."""
        matched: list[tuple[JobKey, Session]] = []
        empty: list[tuple[str, str]] = []
        for at, waiting in self.ready.items():
            while waiting:
                session = self._freest(at)
                if session is None:
                    break
                key = waiting.popleft()
                self._known.discard(key)
                session.planned += 1
                matched.append((key, session))
            if not waiting:
                empty.append(at)
        for at in empty:
            del self.ready[at]
        return matched

    def shift(self, delta: int) -> None:
        """The clock was set: what is measured from or to a moment in memory moves along."""
        for session in self.sessions.values():
            session.seen_at += delta
            session.saved_at += delta
            if session.waiter is not None:
                session.waiter.until += delta
            for held in session.held.values():
                held.since += delta
                held.deadline += delta

    def reset_ready(self) -> None:
        self.ready.clear()
        self._known.clear()
        self.is_stale = True
