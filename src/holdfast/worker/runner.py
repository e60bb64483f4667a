"""Runs attempts: find the block, convert the input, run it under its isolation, make an outcome.

One instance per worker, on the worker's loop. What is known before the block waits for anything is done
without a task, a timer or a lock of its own. It must not know exchanges, links or the engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any, NamedTuple

import msgspec

from holdfast import failpoints
from holdfast.blocks import Cancelled, Context, Registry
from holdfast.blocks.parameters import InvalidInput
from holdfast.blocks.routines import Routine
from holdfast.core.model import Effect
from holdfast.failpoints import failpoint
from holdfast.transport.messages import Outcome, Parcel

from . import outcomes
from .contexts import context_of
from .frames import Said
from .pool import NotStarted, Place, Pool
from .threads import Threads

#: seconds a block that cannot be killed gets after its time is up, before it is given up
GIVE_UP = 10.0

Key = tuple[str, int, int]
Done = Callable[[Parcel, Outcome, int], None]
Heard = Callable[[Parcel, Context, bool], None]


def key_of(parcel: Parcel) -> Key:
    return parcel.execution, parcel.job, parcel.attempt


class Attempt:
    """An attempt that is taking its time: what stops it, and why it was stopped."""

    __slots__ = (
        "context",
        "has_ended",
        "limit",
        "parcel",
        "reason",
        "stop",
        "timer",
        "was_stopped",
        "was_timed",
    )

    def __init__(self, parcel: Parcel, context: Context | None, limit: int, stop: Callable[[], None]) -> None:
        self.parcel = parcel
        self.context = context
        #: µs it may take; 0 for as long as it likes
        self.limit = limit
        self.stop = stop
        self.timer: asyncio.TimerHandle | None = None
        self.was_stopped = False
        self.was_timed = False
        self.reason = ""
        self.has_ended = False


class Ready(NamedTuple):
    """An attempt that waits for its first step on the loop."""

    parcel: Parcel
    function: Callable[..., Any]
    arguments: dict[str, Any]
    context: Context | None
    limit: int


class Strand:
    """One task that runs async blocks one after the other until one of them has to wait."""

    __slots__ = ("attempt", "current", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.current: Ready | None = None
        self.attempt: Attempt | None = None


class Runner:
    """`done` hears of every outcome exactly once; `heard` when a block logged or showed life."""

    def __init__(
        self,
        registry: Registry,
        done: Done,
        heard: Heard = lambda parcel, context, is_beat: None,
        *,
        processes: int = 4,
        name: str = "worker",
    ) -> None:
        self._registry = registry
        self._done = done
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._clean = copy_context()
        self._thread = threading.get_ident()
        self._pool = Pool(registry.sources, processes)
        self._threads = Threads(f"holdfast-{name}")
        self._ready: deque[Ready] = deque()
        #: attempts that wait for something; one that ends at once is never here
        self._attempts: dict[Key, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._from_threads: deque[tuple[Attempt, Outcome, int]] = deque()

    async def warm(self, count: int = 1) -> None:
        await self._pool.warm(count)

    def start(self, parcels: Iterable[Parcel]) -> None:
        """Begin attempts; outcomes go to `done`, some of them before the loop's next turn is over."""
        has_ready = bool(self._ready)
        for parcel in parcels:
            block = self._registry.get(parcel.block, parcel.version)
            if block is None:
                self._done(parcel, outcomes.unknown_block(parcel), 0)
                continue
            routine = block.routines.get(parcel.kind)
            if routine is None:
                self._done(parcel, outcomes.unknown_hook(parcel), 0)
                continue
            limit = parcel.timeout or block.offer.timeout
            if routine.isolation == "process":
                self._start_process(parcel, limit)
                continue
            try:
                arguments = routine.arguments(parcel.input, parcel.forward.result if parcel.forward else None)
            except InvalidInput as error:
                self._done(parcel, outcomes.invalid_input(parcel, str(error)), 0)
                continue
            context = None
            if routine.context_name:
                arguments[routine.context_name] = context = self._context(parcel)
            if routine.isolation == "async":
                self._ready.append(Ready(parcel, routine.function, arguments, context, limit))
            else:
                self._start_thread(parcel, routine, arguments, context or self._context(parcel), limit)
        if self._ready and not has_ready:
            self._start_strand()

    def cancel(self, key: Key, reason: str = "cancelled") -> None:
        """Ask an attempt to stop. What it says afterwards still counts."""
        # Soon, not now: an attempt begun in this very turn of the loop is known only after its first step.
        self._loop.call_soon(self._cancel, key, reason)

    def cancel_all(self, reason: str) -> None:
        for key in [*self._attempts, *(key_of(entry.parcel) for entry in self._ready)]:
            self.cancel(key, reason)

    def _cancel(self, key: Key, reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            if not attempt.was_stopped:
                self._stop(attempt, reason)
            return
        for entry in self._ready:
            if key_of(entry.parcel) == key:
                self._ready.remove(entry)
                self._done(entry.parcel, outcomes.cancelled(entry.parcel, reason, effect=Effect.NONE), 0)
                return

    async def close(self) -> None:
        """Stop everything at once; what has no outcome by then gets none."""
        self.cancel_all("the worker is stopping")
        await self._pool.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GIVE_UP)
        self._threads.close()

    # --- async ----------------------------------------------------------------------------------
    def _start_strand(self) -> None:
        strand = Strand()
        strand.task = task = self._loop.create_task(self._run_strand(strand), context=self._clean.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Runs right after the task's first step: it finds the strand ended, or waiting inside a block.
        self._loop.call_soon(self._after_first_step, strand)

    async def _run_strand(self, strand: Strand) -> None:
        ready = self._ready
        clean = copy_context()
        is_armed = failpoints.is_armed
        while ready:
            parcel, function, arguments, context, _ = strand.current = ready.popleft()
            if is_armed:
                failpoint("worker.block.before")
            try:
                outcome, size = outcomes.succeeded(parcel, await function(**arguments))
            except (GeneratorExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                outcome, size = self._raised(parcel, strand.attempt, error), 0
            if is_armed:
                failpoint("worker.block.after")
            strand.current = None
            if strand.attempt is not None:
                # It had to wait, and somebody else has taken over the rest.
                self._end(strand.attempt, outcome, size)
                return
            if context is not None:
                outcome = _with_said(outcome, context)
            self._done(parcel, outcome, size)
            if copy_context() != clean:
                # It set a context variable, which the next block must not see: a new task has clean ones.
                if ready:
                    self._start_strand()
                return

    def _after_first_step(self, strand: Strand) -> None:
        current, task = strand.current, strand.task
        if current is None or task is None or task.done():
            return
        strand.attempt = attempt = Attempt(current.parcel, current.context, current.limit, lambda: _cancel(task))
        self._begin(attempt)
        if self._ready:
            self._start_strand()

    # --- thread ---------------------------------------------------------------------------------
    def _start_thread(
        self, parcel: Parcel, routine: Routine, arguments: dict[str, Any], context: Context, limit: int
    ) -> None:
        attempt = Attempt(parcel, context, limit, lambda: None)

        def call() -> None:
            size = 0
            failpoint("worker.thread.before")
            try:
                outcome, size = outcomes.succeeded(parcel, routine.function(**arguments))
            except BaseException as error:
                outcome = self._raised(parcel, attempt, error)
            failpoint("worker.thread.after")
            self._from_threads.append((attempt, outcome, size))
            self._call(self._take_from_threads)

        self._begin(attempt)
        self._threads.submit(call)

    def _take_from_threads(self) -> None:
        # Each ended call asks for this; the first one takes all that are there.
        while self._from_threads:
            self._end(*self._from_threads.popleft())

    # --- process --------------------------------------------------------------------------------
    def _start_process(self, parcel: Parcel, limit: int) -> None:
        context = self._context(parcel)
        attempt = Attempt(parcel, context, limit, lambda: None)
        task = self._loop.create_task(self._run_process(attempt, context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._begin(attempt)

    async def _run_process(self, attempt: Attempt, context: Context) -> None:
        parcel, task = attempt.parcel, asyncio.current_task()
        assert task is not None
        # Only from here on: a task cancelled before its first step would end without an outcome.
        attempt.stop = lambda: _cancel(task)
        try:
            if attempt.was_stopped:
                raise asyncio.CancelledError
            place = await self._pool.acquire()
        except asyncio.CancelledError:
            # Stopped while it waited for a process: not begun, so nothing can have been changed.
            outcome = self._stopped(attempt)
            self._end(attempt, msgspec.structs.replace(outcome, effect=Effect.NONE), 0)
            return
        except NotStarted as error:
            self._end(attempt, outcomes.not_begun(parcel, "process-not-started", str(error)), 0)
            return
        attempt.stop = lambda: place.stop(attempt.reason)
        try:
            failpoint("worker.process.before")
            outcome = await self._run_at(place, attempt, context)
            failpoint("worker.process.after")
        finally:
            self._pool.release(place)
        self._end(attempt, outcome, 0 if outcome.value is None else -1)

    async def _run_at(self, place: Place, attempt: Attempt, context: Context) -> Outcome:
        def hear(said: Said) -> None:
            if said.is_beat:
                context.beaten = said.details
                self._heard(attempt.parcel, context, True)
            if said.lines:
                context.hear(said.lines)

        outcome = await place.run(attempt.parcel, hear)
        if attempt.was_stopped:
            await place.end()  # nothing may be left when the outcome is told
            if outcome.is_cancelled or (outcome.failure is not None and outcome.failure.kind == "process-died"):
                return msgspec.structs.replace(self._stopped(attempt), effect=outcome.effect)
        return outcome

    # --- all of them ----------------------------------------------------------------------------
    def _context(self, parcel: Parcel) -> Context:
        context = context_of(
            parcel,
            on_line=lambda: self._call(self._heard, parcel, context, False),
            on_beat=lambda: self._call(self._heard, parcel, context, True),
        )
        return context

    def _begin(self, attempt: Attempt) -> None:
        self._attempts[key_of(attempt.parcel)] = attempt
        if attempt.limit:
            attempt.timer = self._loop.call_later(attempt.limit / 1_000_000, self._expire, attempt)

    def _expire(self, attempt: Attempt) -> None:
        if attempt.has_ended or attempt.was_stopped:
            return
        attempt.was_timed = True
        self._stop(attempt, "timed out")
        attempt.timer = self._loop.call_later(GIVE_UP, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        # It cannot be killed and does not listen. The truth about it is all that can still be told.
        self._end(attempt, outcomes.timed_out(attempt.parcel, attempt.limit, still_running=True), 0)

    def _stop(self, attempt: Attempt, reason: str) -> None:
        attempt.was_stopped, attempt.reason = True, reason
        if attempt.context is not None:
            attempt.context.cancel(reason)
        attempt.stop()

    def _raised(self, parcel: Parcel, attempt: Attempt | None, error: BaseException) -> Outcome:
        is_stop = isinstance(error, (Cancelled, asyncio.CancelledError))
        if is_stop and attempt is not None and attempt.was_stopped:
            return msgspec.structs.replace(self._stopped(attempt), effect=outcomes.effect_at_stop(error))
        return outcomes.raised(parcel, error)

    def _stopped(self, attempt: Attempt) -> Outcome:
        if attempt.was_timed:
            return outcomes.timed_out(attempt.parcel, attempt.limit)
        return outcomes.cancelled(attempt.parcel, attempt.reason)

    def _end(self, attempt: Attempt, outcome: Outcome, size: int) -> None:
        if attempt.has_ended:
            return  # given up before; the engine was told so
        attempt.has_ended = True
        if attempt.timer is not None:
            attempt.timer.cancel()
        del self._attempts[key_of(attempt.parcel)]
        if attempt.context is not None:
            outcome = _with_said(outcome, attempt.context)
        self._done(attempt.parcel, outcome, size)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        """On the loop's thread: now if this is it, else soon."""
        if threading.get_ident() == self._thread:
            function(*args)
            return
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            pass  # the loop is closed; a thread that was given up has come back late


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _with_said(outcome: Outcome, context: Context) -> Outcome:
    lines = context.take_lines()
    if lines:
        outcome = msgspec.structs.replace(outcome, logs=lines)
    return outcomes.with_changes(outcome, context)
