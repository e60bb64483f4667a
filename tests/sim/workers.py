"""Workers: the real messages, said as the real worker says them, around blocks that only pretend to work.

Like the real one it has two exchanges under way, one that pushes outcomes and one that waits for jobs; it asks
until it is answered, begins no attempt twice and drops no outcome. What its blocks do outside is told to the
world, where no engine can see it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import EngineBug, Refused, StaleExchange, UnknownWorker, WorkerSuperseded
from holdfast.core.model import Effect, Failure
from holdfast.engine.items import Reply
from holdfast.transport.messages import Answer, Beat, Exchange, Hello, Holding, Outcome, Parcel, Welcome

from .base import MS, SECOND, Violation
from .models import OFFERS, perform
from .models_entities import PICKS
from .models_entities import perform as perform_on_entities

if TYPE_CHECKING:
    from .hosts import Host, SimEngine
    from .world import World

Key = tuple[str, int, int]
#: a token nobody was given
FORGED = "0" * 32


class Talk:
    """One exchange, asked until it is answered."""

    __slots__ = ("due", "exchange", "is_over")

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.is_over = False
        #: when it is asked again
        self.due = 0


class SimWorker:
    def __init__(self, world: World, name: str, home: Host | None) -> None:
        self.world = world
        self.name = name
        #: the machine whose engine it lives in; None for a worker of its own
        self.home = home
        self.lives = 0
        self.is_alive = False
        # Crowded more often than not: what comes together is decided together.
        self.host = home or world.hosts[int(world.random() ** world.plan.crowding * len(world.hosts))]
        self.slots = 3 + int(world.random() * 6)
        self._forget()

    def _forget(self) -> None:
        self.held: dict[Key, Parcel] = {}
        self.outbox: list[Outcome] = []
        #: what attempts found out on the way
        self.found: dict[Key, Outcome] = {}
        self.beats: list[Beat] = []
        self.seen: set[Key] = set()
        self.number = 0
        self.outstanding: dict[int, Talk] = {}
        self.pushing: Talk | None = None
        self.polling: Talk | None = None
        self.watched = 0
        #: which connection; what comes over an older one is not heard
        self.link = 0
        #: when something it said last reached an engine
        self.heard_at = 0
        #: when it was last heard after a silence longer than its lease
        self.returned_at = -(10**12)
        #: hellos said, and the number of the last one that was answered
        self.said = self.greeted = 0
        self.is_greeting = False
        self.is_draining = False
        self.paused_until = 0

    # --- life -----------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Another life; whatever the last one knew is gone."""
        if self.is_alive or (self.home is not None and self.home.engine is None):
            return
        self._forget()
        self.lives += 1
        self.incarnation = self.world.name_for(self.name)
        self.is_alive = True
        self.greet()

    def die(self) -> None:
        if self.is_alive:
            self.world.bereaved.update(execution for execution, _, _ in self.held)
        self.is_alive = False

    def restart(self, after: int) -> None:
        self.die()
        self.world.later(after, self.begin)

    def leave(self) -> None:
        """Orderly: take no more jobs, end what runs, deliver it, say goodbye."""
        self.is_draining = True
        self._later(300 * MS, self._farewell)

    def _farewell(self) -> None:
        if self.held or self.outbox or self.pushing is not None:
            self._later(300 * MS, self._farewell)
            return
        self._call(lambda engine, reply: engine.goodbye(self.incarnation, reply), lambda value, error: None)
        self.restart(SECOND)

    def move(self, host: Host) -> None:
        """To another engine; nothing the old one still has to say will arrive."""
        if self.home is None and host is not self.host:
            self.world.reach("worker moved")
            self.host = host
            self.link += 1

    # --- the wire -------------------------------------------------------------------------------------
    def _later(self, delay: int, action: Any, *arguments: Any) -> None:
        """In this life only, and not while the process is stopped."""
        self.world.later(delay, partial(self._now, self.lives, action, *arguments))

    def _now(self, life: int, action: Any, *arguments: Any) -> None:
        if life != self.lives or not self.is_alive:
            return
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until, partial(self._now, life, action, *arguments))
            return
        action(*arguments)

    def _call(self, ask: Any, heard: Any) -> None:
        if self.home is None:
            self.world.network.call(self.name, self.host, ask, partial(self._heard, self.lives, self.link, heard))
        elif self.home.engine is not None:
            ask(self.home.engine, partial(self._heard_at_home, self.lives, heard))
            self.home.has_mail()

    def _heard(self, life: int, link: int, heard: Any, value: Any, error: Exception | None) -> None:
        if link == self.link:
            self._now(life, heard, value, error)

    def _heard_at_home(self, life: int, heard: Any, value: Any, error: Exception | None) -> None:
        # Through the worker's own loop, never from within the engine's thread.
        self.world.later(0, partial(self._now, life, heard, value, error))

    # --- hello ----------------------------------------------------------------------------------------
    def greet(self) -> None:
        if not self.is_greeting:
            self.is_greeting = True
            self._greet(0)

    def _greet(self, tries: int) -> None:
        if not self.is_greeting:
            return
        sending = self.pushing.exchange.outcomes if self.pushing is not None else ()
        keys = {*self.held, *((o.execution, o.job, o.attempt) for o in (*self.outbox, *sending))}
        hello = Hello(
            self.name, self.incarnation, OFFERS, self.slots, holding=[Holding(*key) for key in sorted(keys)],
            greeting=self.said + 1,
        )  # fmt: skip
        self.said += 1
        is_local = self.home is not None

        def ask(engine: SimEngine, reply: Reply) -> None:
            engine.hello(hello, reply, is_local=is_local)

        self._call(ask, partial(self._greeted, hello.greeting))
        self._later(min(200 << min(tries, 3), 1000) * MS, self._greet, tries + 1)

    def _greeted(self, greeting: int, welcome: Welcome | None, error: Exception | None) -> None:
        if error is not None:
            self._check(error)
            return
        if self.is_greeting and greeting == self.said:
            self.is_greeting = False
            self.greeted = greeting
            self._push()
            self._poll()

    # --- the two exchanges ----------------------------------------------------------------------------
    def _exchange(self, outcomes: list[Outcome], beats: list[Beat], wait: int) -> Talk:
        seen = min(self.outstanding) - 1 if self.outstanding else self.number
        self.number += 1
        exchange = Exchange(
            self.incarnation, self.number, outcomes, beats, seen, wait, self.is_draining, self.greeted
        )  # fmt: skip
        talk = Talk(exchange)
        self.outstanding[self.number] = talk
        self._say(talk)
        return talk

    def _say(self, talk: Talk) -> None:
        """Asked again under the same number, wherever the worker is connected by then."""
        exchange = talk.exchange

        def ask(engine: SimEngine, reply: Reply) -> None:
            if self.world.now - self.heard_at > self.world.plan.lease:
                self.returned_at = self.world.now
            self.heard_at = self.world.now
            engine.exchange(exchange, reply)

        self._call(ask, partial(self._answered, talk))
        talk.due = self.world.now + exchange.wait + SECOND
        self._watch(talk.due)

    def _watch(self, due: int) -> None:
        """One alarm for all exchanges that are under way."""
        if self.watched <= self.world.now or due < self.watched:
            self.watched = due
            self._later(due - self.world.now, self._look, due)

    def _look(self, due: int) -> None:
        if due != self.watched:
            return
        self.watched = 0
        overdue = [talk for talk in self.outstanding.values() if talk.due <= self.world.now]
        if overdue and self.world.random() < 0.4:
            # Whatever stands between it and the engines sends it elsewhere.
            self.move(self.world.hosts[int(self.world.random() * len(self.world.hosts))])
        for talk in overdue:
            self._say(talk)
        if self.outstanding:
            self._watch(min(talk.due for talk in self.outstanding.values()))

    def _answered(self, talk: Talk, answer: Answer | None, error: Exception | None) -> None:
        if talk.is_over:
            return
        if error is None:
            assert answer is not None
            self._done(talk)
            if talk.exchange.outcomes:
                self.world.acknowledged(self, talk.exchange.outcomes, answer)
            self._take(answer)
        elif isinstance(error, UnknownWorker):
            self.world.forgotten(self)
            self._done(talk, give_back=True)
            if talk.exchange.greeting == self.greeted:
                self.greet()
                return
        elif isinstance(error, StaleExchange):
            self._done(talk, give_back=True)
        elif isinstance(error, WorkerSuperseded):
            self.world.reach("worker superseded")
            self.die()
            if not any(other.is_alive for other in self.world.workers if other.name == self.name):
                self.restart(500 * MS)
            return
        else:
            self._check(error)
            talk.due = self.world.now + int((50 + 100 * self.world.random()) * MS)
            self._watch(talk.due)
            return
        if not self.is_greeting:
            self._push()
            self._poll()

    def _done(self, talk: Talk, give_back: bool = False) -> None:
        talk.is_over = True
        self.outstanding.pop(talk.exchange.number, None)
        if talk is self.pushing:
            self.pushing = None
        if talk is self.polling:
            self.polling = None
        if give_back:
            self.outbox[:0] = talk.exchange.outcomes

    def _check(self, error: Exception) -> None:
        if isinstance(error, EngineBug):
            raise Violation("BUG", f"a worker was refused because of a bug: {error}")
        assert isinstance(error, Refused), error

    def _push(self) -> None:
        if self.pushing is None and (self.outbox or self.beats) and self.greeted and not self.is_greeting:
            outcomes, self.outbox = self.outbox, []
            beats, self.beats = self.beats, []
            self.pushing = self._exchange(outcomes, beats, 0)

    def _poll(self) -> None:
        if self.polling is None and self.greeted and not self.is_greeting:
            self.polling = self._exchange([], [], min(self.world.plan.lease // 3, 2 * SECOND))

    # --- jobs -----------------------------------------------------------------------------------------
    def _take(self, answer: Answer) -> None:
        for parcel in answer.jobs:
            key = (parcel.execution, parcel.job, parcel.attempt)
            if key in self.seen:
                self.world.reach("parcel sent again")
            elif self.is_draining:
                self.seen.add(key)
                self.outbox.append(Outcome(*key, parcel.token, effect=Effect.NONE, retry_after=0))
            else:
                self.seen.add(key)
                self.held[key] = parcel
                self._run(key, parcel)
        for notice in answer.cancels:
            key = (notice.execution, notice.job, notice.attempt)
            if key in self.held and self.world.random() < 0.7:
                self.world.reach("attempt cancelled")
                self._later(20 * MS, self._stop, key)

    def _run(self, key: Key, parcel: Parcel) -> None:
        done = (perform_on_entities if parcel.workflow in PICKS else perform)(self.world, parcel)
        self.world.begun(self, parcel, done.has_effect)
        if done.act is not None:
            self._later(done.acts_after, self._act, key, done.act)
        if done.beat_after:
            self._later(done.beat_after, self._beat, key, parcel)
        self._later(done.takes, self._finish, key, done.outcome)

    def _act(self, key: Key, act: Callable[[], Outcome | None]) -> None:
        """Whoever was stopped before that does nothing."""
        if key in self.held:
            better = act()
            if better is not None:
                self.found[key] = better

    def _beat(self, key: Key, parcel: Parcel) -> None:
        if key in self.held:
            self.world.reach("heartbeat with details")
            self.beats.append(Beat(*key, parcel.token, {"attempt": parcel.attempt}))
            self._push()

    def _stop(self, key: Key) -> None:
        parcel = self.held.get(key)
        if parcel is not None:
            self._finish(key, Outcome(*key, parcel.token, failure=Failure("cancelled", "told to"), is_cancelled=True))

    def forge(self, execution: str, job: int, attempt: int) -> None:
        """An outcome among its own for an attempt of somebody else."""
        if (execution, job, attempt) not in self.seen:
            self.outbox.append(Outcome(execution, job, attempt, FORGED, "forged"))
            self._push()

    def _finish(self, key: Key, outcome: Outcome) -> None:
        if self.held.pop(key, None) is not None:
            self.world.produced.add(key)
            self.outbox.append(self.found.pop(key, outcome))
            self._push()
