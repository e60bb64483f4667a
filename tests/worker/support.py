"""A link to an engine that lives in the test, and a runner that can be asked for one outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from holdfast.blocks import Context, Registry
from holdfast.core.errors import Refused, ServerUnreachable, UnknownWorker
from holdfast.transport.messages import Answer, CancelNotice, Exchange, Hello, Outcome, Parcel, Welcome
from holdfast.worker.runner import Key, Runner, key_of


def parcel(block: str, given: Any = None, job: int = 1, attempt: int = 1, **more: Any) -> Parcel:
    more.setdefault("token", f"token-{job}-{attempt}")
    return Parcel("x1", job, attempt, block=block, input=given, **more)


class Bench:
    """A runner on its own, and what came of the attempts it was given."""

    def __init__(self, registry: Registry, processes: int) -> None:
        self._waiting: dict[Key, asyncio.Future[Outcome]] = {}
        self.beats: list[Any] = []
        self.runner = Runner(registry, self._done, self._heard, processes=processes)

    def start(self, given: Parcel) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[key_of(given)] = future
        self.runner.start([given])
        return future

    async def run(self, given: Parcel) -> Outcome:
        return await in_time(self.start(given))

    def _done(self, given: Parcel, outcome: Outcome, size: int) -> None:
        self._waiting.pop(key_of(given)).set_result(outcome)

    def _heard(self, given: Parcel, context: Context, is_beat: bool) -> None:
        if is_beat:
            self.beats.append(context.beaten)


async def in_time(future: asyncio.Future[Outcome]) -> Outcome:
    """What comes of it; not to come at all is a failure, too."""
    await asyncio.wait({future}, timeout=15)
    assert future.done(), "it has not ended"
    return future.result()


@asynccontextmanager
async def bench(registry: Registry | None = None, processes: int = 1) -> AsyncIterator[Bench]:
    made = Bench(registry if registry is not None else Registry(), processes)
    try:
        yield made
    finally:
        await made.runner.close()


class FakeLink:
    """The engine's side of the port, in memory: hands out what it is told to, accepts every outcome once."""

    def __init__(self, beat: int = 10_000_000) -> None:
        self.beat = beat
        self.hellos: list[Hello] = []
        self.exchanges: list[Exchange] = []
        self.accepted: dict[Key, Outcome] = {}
        self.goodbyes: list[str] = []
        self.is_closed = False
        self.known = False
        #: called with each exchange before it is looked at; may raise
        self.before: Callable[[Exchange], None] = lambda exchange: None
        #: called with each answer before it is returned; may raise, and the answer is lost
        self.after: Callable[[Exchange], None] = lambda exchange: None
        self._jobs: list[Parcel] = []
        self._cancels: list[CancelNotice] = []
        self._answers: dict[int, Answer] = {}
        self._news = asyncio.Event()
        self._accepts = asyncio.Event()

    def give(self, *jobs: Parcel) -> None:
        self._jobs += jobs
        self._news.set()

    def cancel(self, job: int, attempt: int = 1, reason: str = "cancelled") -> None:
        self._cancels.append(CancelNotice("x1", job, attempt, reason))
        self._news.set()

    async def hello(self, hello: Hello) -> Welcome:
        self.hellos.append(hello)
        self.known = True
        return Welcome(lease=30_000_000, beat=self.beat)

    async def exchange(self, exchange: Exchange) -> Answer:
        self.exchanges.append(exchange)
        self.before(exchange)
        if not self.known:
            raise UnknownWorker("who are you?")
        saved = self._answers.get(exchange.number)
        if saved is None:
            for outcome in exchange.outcomes:
                key = (outcome.execution, outcome.job, outcome.attempt)
                assert key not in self.accepted, f"{key} was accepted before"
                self.accepted[key] = outcome
            self._accepts.set()
            if not exchange.outcomes and exchange.wait and not self._jobs and not self._cancels:
                self._news.clear()
                try:
                    await asyncio.wait_for(self._news.wait(), exchange.wait / 1_000_000)
                except TimeoutError:
                    pass
            saved = self._answers[exchange.number] = Answer(exchange.number, self._jobs, self._cancels)
            self._jobs, self._cancels = [], []
        self.after(exchange)
        return saved

    async def goodbye(self, incarnation: str) -> None:
        self.goodbyes.append(incarnation)

    async def close(self) -> None:
        self.is_closed = True

    async def outcome(self, job: int, attempt: int = 1, seconds: float = 15) -> Outcome:
        async with asyncio.timeout(seconds):
            while ("x1", job, attempt) not in self.accepted:
                self._accepts.clear()
                await self._accepts.wait()
        return self.accepted[("x1", job, attempt)]


class Nowhere(FakeLink):
    """No engine answers: each try fails at once, or hangs for ever."""

    def __init__(self, hangs: bool = False) -> None:
        super().__init__()
        self.hangs = hangs
        #: whether a try that hung was called off
        self.was_interrupted = False

    async def hello(self, hello: Hello) -> Welcome:
        self.hellos.append(hello)
        return await self._fail()

    async def goodbye(self, incarnation: str) -> None:
        await super().goodbye(incarnation)
        await self._fail()

    async def _fail(self) -> NoReturn:
        if self.hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.was_interrupted = True
                raise
        raise ServerUnreachable("no engine answers")


class Pauses:
    """Stands in for the worker's pause between two tries: the first `short` are over at once, the next never is."""

    def __init__(self, short: int) -> None:
        self._left = short
        #: in the pause that does not end by itself
        self.is_reached = threading.Event()
        self.was_interrupted = False

    async def __call__(self, tries: int, error: Refused) -> None:
        self._left -= 1
        if self._left >= 0:
            await asyncio.sleep(0)
            return
        self.is_reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_interrupted = True
            raise


def unreachable(times: int, when: Callable[[Exchange], bool] = lambda exchange: True) -> Callable[[Exchange], None]:
    """Breaks the connection so many times."""
    left = times

    def break_it(exchange: Exchange) -> None:
        nonlocal left
        if left > 0 and when(exchange):
            left -= 1
            raise ServerUnreachable("broken by the test")

    return break_it
