"""A worker: takes jobs from an engine through a link, has them run, and reports until it is heard.

Two exchanges may be under way: one pushes outcomes and returns when they are durable, one waits for jobs.
Whatever breaks in between, no outcome is dropped and no attempt is begun twice. It must not know how
blocks are run, nor how a link travels.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable

from holdfast import failpoints
from holdfast.blocks import Context, Registry
from holdfast.core.errors import (
    EngineBug,
    Forbidden,
    Refused,
    ServerUnreachable,
    StaleExchange,
    Unauthenticated,
    UnknownWorker,
    WorkerSuperseded,
)
from holdfast.failpoints import failpoint
from holdfast.transport.messages import Answer, Beat, CancelNotice, Exchange, Hello, Holding, Outcome, Parcel
from holdfast.transport.port import Link

from . import outcomes
from .outbox import Outbox
from .runner import Key, Runner, key_of

log = logging.getLogger("holdfast.worker")

#: µs a poll may be held back while there is nothing to say
POLL_WAIT = 20_000_000
#: seconds that lines and beats may wait for company; outcomes never wait
SPEAK_DELAY = 0.5
#: the longest pause between tries to reach an engine that does not answer
BACKOFF_LIMIT = 2.0
#: finished attempts remembered, so that a parcel sent again is recognised
RECENT_LIMIT = 8192
#: answers "that is a bug" to the same outcomes, after which they are taken apart instead of sent again
BUG_LIMIT = 3
#: seconds to deliver what is left when draining, after the grace for the jobs is over
FAREWELL = 10.0
#: seconds for a goodbye to an engine that did not answer the last time either
SHORT_FAREWELL = 0.5


class Worker:
    """One life of a worker; make another for another life."""

    def __init__(
        self,
        link: Link,
        registry: Registry | None = None,
        name: str = "",
        slots: int = 64,
        queues: Iterable[str] = ("default",),
        modules: Iterable[str] = (),
        *,
        processes: int | None = None,
    ) -> None:
        self.registry = registry if registry is not None else Registry()
        self.registry.discover(modules)
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.slots = slots
        self.queues = list(queues)
        #: fresh in every life, so that the engine can tell this one from the one before
        self.incarnation = secrets.token_hex(8)
        #: why the worker ended; None while it lives and after an orderly end
        self.error: BaseException | None = None
        self._link = link
        self._processes = processes if processes is not None else min(4, slots)
        self._outbox = Outbox()
        self._held: dict[Key, Parcel] = {}
        #: outcomes in the exchange under way
        self._sending: list[Outcome] = []
        #: attempts over here, with their tokens; those not yet accepted are among the newest
        self._recent: set[tuple[str, int, int, str]] = set()
        self._older: set[tuple[str, int, int, str]] = set()
        #: parcels under a newer token of attempts that still run under an older one
        self._successors: dict[Key, Parcel] = {}
        self._number = 0
        self._outstanding: set[int] = set()
        self._beat = 10_000_000
        #: hellos said, and the number of the last one that was answered. A hello that is said again has another
        #: number: it may reach another engine, and only one of the two may count as the one we are with
        self._said = self._greeted = 0
        #: whether the last try to reach the engine, of whichever loop, was answered
        self._is_heard = True
        self._is_draining = False
        self._runner: Runner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_welcome = threading.Event()

    # --- life -----------------------------------------------------------------------------------
    async def run(self) -> None:
        """Live until drained. Raises what made going on impossible, `WorkerSuperseded` for one."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._change = asyncio.Event()
        self._over = asyncio.Event()
        self._greeting = asyncio.Lock()
        self._speech: asyncio.TimerHandle | None = None
        self._runner = Runner(self.registry, self._done, self._heard, processes=self._processes, name=self.name)
        tasks: list[asyncio.Task[object]] = []
        try:
            if self._is_draining:
                return  # told to go before it came
            over = asyncio.create_task(self._over.wait(), name="holdfast-over")
            greeting = asyncio.create_task(self._greet(0), name="holdfast-greet")
            tasks = [over, greeting]
            await _first(tasks)
            if over.done():
                return  # a hello that arrived all the same is forgotten when its lease ends
            self._is_welcome.set()
            tasks = [
                over,
                asyncio.create_task(self._push(), name="holdfast-push"),
                asyncio.create_task(self._poll(), name="holdfast-poll"),
            ]
            await _first(tasks)
        except BaseException as error:
            self.error = error
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._leave()
            self._is_welcome.set()

    async def drain(self, grace: float = 30.0) -> None:
        """Take no more jobs, let the running ones end, cancel what is left after `grace`, and go."""
        self._is_draining = True
        runner = self._runner
        if runner is None or self._over.is_set():
            return
        self._wake.set()
        if not await self._until_idle(grace):
            runner.cancel_all("the worker is stopping")
            await self._until_idle(FAREWELL)
        self._over.set()

    def start_in_thread(self, timeout: float = 30.0, unless: threading.Event | None = None) -> bool:
        """Live in a thread and loop of its own; returns once the engine has said welcome.

        Also when `unless` is set or the worker was stopped meanwhile; then False.
        """
        self._thread = threading.Thread(target=self._live, name=f"holdfast-worker-{self.name}", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + timeout
        while not self._is_welcome.wait(min(timeout, 0.1) if unless is not None else timeout):
            if unless is not None and unless.is_set():
                return False
            if time.monotonic() >= deadline:
                raise ServerUnreachable(f"worker {self.name}: no engine has answered within {timeout:g} s")
        if self.error is not None:
            raise self.error
        return self._greeted > 0

    def stop(self, grace: float = 10.0) -> None:
        """End a worker started in a thread: drain, then wait until it is gone."""
        self._is_draining = True  # for a thread that has not come to its loop yet
        thread, loop = self._thread, self._loop
        if thread is None:
            return
        if thread.is_alive() and loop is not None:
            drain = self.drain(grace)
            try:
                asyncio.run_coroutine_threadsafe(drain, loop)
            except RuntimeError:
                drain.close()  # it ended in this very moment
        thread.join(grace + FAREWELL + 15)

    def _live(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self.run())
        except Exception as error:
            self.error = error
            log.error("worker %s has ended: %s", self.name, error)
            self._is_welcome.set()

    async def _leave(self) -> None:
        if self._speech is not None:
            self._speech.cancel()
        assert self._runner is not None
        await self._runner.close()
        try:
            async with asyncio.timeout(FAREWELL if self._is_heard else SHORT_FAREWELL):
                if self._greeted and not isinstance(self.error, WorkerSuperseded):
                    failpoint("worker.goodbye.before")
                    await self._link.goodbye(self.incarnation)
                    failpoint("worker.goodbye.after")
        except (Refused, TimeoutError) as error:
            log.warning("worker %s could not say goodbye: %s", self.name, error)
        await self._link.close()

    async def _until_idle(self, limit: float) -> bool:
        """Nothing in hand and nothing to say, within so many seconds."""
        try:
            async with asyncio.timeout(limit):
                while self._held or self._outbox.has_outcomes or self._sending:
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            return False
        return True

    # --- the two loops --------------------------------------------------------------------------
    async def _push(self) -> None:
        """Send outcomes as soon as there are any; while one push is under way, more of them gather."""
        has_announced_drain = False
        while True:
            await self._wake.wait()
            self._wake.clear()
            announce = self._is_draining and not has_announced_drain
            while announce or self._outbox.has_outcomes or self._outbox.has_beats:
                has_announced_drain, announce = self._is_draining, False
                taken, beats = self._outbox.take()
                self._sending = taken
                await self._deliver(taken, beats)
                self._sending = []
                self._change.set()

    async def _deliver(self, taken: list[Outcome], beats: list[Beat]) -> None:
        try:
            answer = await self._exchange(taken, beats, 0)
        except Refused as error:
            if _is_final(error):
                raise
            await self._take_apart(taken, beats, error)
            return
        if answer is None:
            self._outbox.give_back(taken, beats)
            return
        self._take(answer)

    async def _take_apart(self, taken: list[Outcome], beats: list[Beat], error: Refused) -> None:
        """The engine will never have all of it: find out what is to blame, so that the rest gets through."""
        if taken and beats:
            await self._deliver([], beats)
            await self._deliver(taken, [])
        elif len(beats) > 1:
            middle = len(beats) // 2
            await self._deliver([], beats[:middle])
            await self._deliver([], beats[middle:])
        elif beats:
            beat = beats[0]
            log.error("worker %s: a sign of life of %s was refused: %s", self.name, _named(beat), error)
        elif len(taken) > 1:
            middle = len(taken) // 2
            await self._deliver(taken[:middle], [])
            await self._deliver(taken[middle:], [])
        elif taken[0].failure is None or taken[0].failure.kind != outcomes.REFUSED:
            log.error("worker %s: the outcome of %s was refused: %s", self.name, _named(taken[0]), error)
            await self._deliver([outcomes.refused(taken[0], error)], [])
        else:
            # Kept, it would stand in the way of all others for ever. The engine gives the attempt up in time.
            log.error("worker %s: the outcome of %s was dropped, refused: %s", self.name, _named(taken[0]), error)

    async def _poll(self) -> None:
        """Wait for jobs; also the worker's sign of life, so it never waits longer than a beat."""
        idle_turns = 0
        while True:
            wait = min(1_000_000 if self._is_draining else POLL_WAIT, self._beat)
            began = time.monotonic()
            try:
                answer = await self._exchange([], [], wait)
            except Refused as error:
                if _is_final(error):
                    raise
                log.error("worker %s: the engine refused a poll: %s", self.name, error)
                answer = None
            if answer is not None and (answer.jobs or answer.cancels):
                self._take(answer)
            # An engine that answers at once with nothing must not be asked without end.
            is_hasty = answer is None or not (answer.jobs or answer.cancels)
            idle_turns = idle_turns + 1 if is_hasty and time.monotonic() - began < 0.05 else 0
            if idle_turns > 5:
                await asyncio.sleep(0.05)

    # --- exchanges ------------------------------------------------------------------------------
    async def _exchange(self, taken: list[Outcome], beats: list[Beat], wait: int) -> Answer | None:
        """One numbered exchange, asked until it is answered; None if it has to be asked anew."""
        seen = min(self._outstanding) - 1 if self._outstanding else self._number
        self._number += 1
        number = self._number
        exchange = Exchange(self.incarnation, number, taken, beats, seen, wait, self._is_draining, self._greeted)
        self._outstanding.add(number)
        greeted = self._greeted
        tries = bugs = 0
        try:
            while True:
                try:
                    failpoint("worker.exchange.before")
                    answer = await self._link.exchange(exchange)
                    failpoint("worker.exchange.after")
                    self._is_heard = True
                    return answer
                except UnknownWorker:
                    # The engine has forgotten us, so it has neither applied nor kept this exchange.
                    await self._greet(greeted)
                    return None
                except StaleExchange:
                    return None
                except Refused as error:
                    if not _is_passing(error):
                        raise
                    bugs += _is_bug(error)
                    if bugs >= BUG_LIMIT and (taken or beats):
                        raise
                    # It may have been applied and only the answer lost: the same number asks for that answer.
                    tries += 1
                    self._is_heard = not isinstance(error, ServerUnreachable)
                    await _pause(tries, error)
        finally:
            self._outstanding.discard(number)

    async def _greet(self, greeted: int) -> None:
        """Say hello, unless the other loop has done so since the `greeted`-th time."""
        async with self._greeting:
            if self._greeted != greeted:
                return
            tries = 0
            while True:
                sending = ((o.execution, o.job, o.attempt) for o in self._sending)
                held = {*self._held, *self._outbox.keys(), *sending}
                self._said += 1
                hello = Hello(
                    self.name,
                    self.incarnation,
                    self.registry.offers(),
                    self.slots,
                    self.queues,
                    socket.gethostname(),
                    os.getpid(),
                    [Holding(*key) for key in sorted(held)],
                    self._said,
                )
                try:
                    failpoint("worker.hello.before")
                    welcome = await self._link.hello(hello)
                    failpoint("worker.hello.after")
                    self._is_heard = True
                    break
                except Refused as error:
                    if not _is_passing(error):
                        raise
                    tries += 1
                    self._is_heard = not isinstance(error, ServerUnreachable)
                    await _pause(tries, error)
            for warning in welcome.warnings:
                log.warning("%s", warning)
            self._beat = max(welcome.beat, 1000)
            self._greeted = hello.greeting

    # --- jobs -----------------------------------------------------------------------------------
    def _take(self, answer: Answer) -> None:
        assert self._runner is not None
        fresh: list[Parcel] = []
        held, recent, older = self._held, self._recent, self._older
        for parcel in answer.jobs:
            key = key_of(parcel)
            mark = (*key, parcel.token)
            if mark in recent or mark in older:
                continue  # finished; its outcome was accepted, or is on its way until it is
            other = held.get(key)
            if other is not None:
                if other.token != parcel.token:
                    # The older one was superseded: stop it, and begin anew only when it has ended.
                    self._successors[key] = parcel
                    self._runner.cancel(key, "superseded")
            elif self._is_draining:
                self._outbox.put(outcomes.handed_back(parcel), 0)
                self._wake.set()
            else:
                held[key] = parcel
                fresh.append(parcel)
        if fresh:
            failpoint("worker.take.before")
            self._runner.start(fresh)
            failpoint("worker.take.after")
        for notice in answer.cancels:
            self._cancel(notice)

    def _cancel(self, notice: CancelNotice) -> None:
        assert self._runner is not None
        self._runner.cancel((notice.execution, notice.job, notice.attempt), notice.reason)

    def _done(self, parcel: Parcel, outcome: Outcome, size: int) -> None:
        key = (parcel.execution, parcel.job, parcel.attempt)
        del self._held[key]
        self._recent.add((*key, parcel.token))
        if len(self._recent) > RECENT_LIMIT:
            # Two generations: to take the oldest out one by one costs more and more.
            self._older, self._recent = self._recent, set()
        if self._successors and (successor := self._successors.pop(key, None)) is not None:
            assert self._runner is not None
            self._held[key] = successor
            self._runner.start([successor])
            return
        if failpoints.is_armed:
            failpoint("worker.outbox.before")
        self._outbox.put(outcome, size)
        self._wake.set()
        if failpoints.is_armed:
            failpoint("worker.outbox.after")

    def _heard(self, parcel: Parcel, context: Context, is_beat: bool) -> None:
        if key_of(parcel) not in self._held:
            return  # said in the moment of ending: the outcome carries it
        self._outbox.speak(parcel, context)
        if self._speech is None:
            assert self._loop is not None
            self._speech = self._loop.call_later(SPEAK_DELAY, self._speak)

    def _speak(self) -> None:
        self._speech = None
        if self._outbox.has_beats:
            self._wake.set()


def _is_final(error: Refused) -> bool:
    return isinstance(error, (WorkerSuperseded, Unauthenticated, Forbidden))


def _is_passing(error: Refused) -> bool:
    return isinstance(error, ServerUnreachable) or error.retry_after > 0 or error.status >= 500


def _is_bug(error: Refused) -> bool:
    """Ours or the engine's: it may never pass. An answer without a code of its own is an unexpected error."""
    return isinstance(error, EngineBug) or (error.code == Refused.code and error.status == 500)


def _named(item: Outcome | Beat) -> str:
    return f"job {item.job} of {item.execution} (attempt {item.attempt})"


async def _first(tasks: list[asyncio.Task[object]]) -> None:
    """Until one of them ends; raises what it raised."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _pause(tries: int, error: Refused) -> None:
    """Longer each time, and not the same for all workers: they would come back all at once."""
    if tries == 4:
        log.warning("the engine does not answer, still trying: %s", error)
    limit = min(BACKOFF_LIMIT, 0.05 * 2.0 ** min(tries, 10))
    await asyncio.sleep(limit * (0.5 + secrets.randbelow(1000) / 2000))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop
