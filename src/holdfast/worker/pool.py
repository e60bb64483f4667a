"""A warm pool of child processes: killable places to run one attempt at a time.

Children are started on demand up to a limit, replaced when they die, and ended with everything they
started. Never a fork without exec. It must not know what an outcome means to the engine.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable

from holdfast.blocks import trees
from holdfast.transport.messages import Outcome, Parcel

from . import outcomes
from .frames import Begun, Finished, FromChild, Ready, Said, Setup, Stop, Work, from_child, pack

#: seconds a child may take to import the blocks
START_LIMIT = 60.0
#: seconds an idle one may take to leave when asked
RETIRE_LIMIT = 2.0

Hear = Callable[[Said], None]


class NotStarted(Exception):
    """No child process could be started; the attempt was not begun."""


class Place:
    """One child process, as its parent sees it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        mark: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._mark = mark
        self._reader = reader
        self._writer = writer
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, sources: list[str]) -> Place:
        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: ASYNC240  (no disk involved)
        mark = trees.new_mark()
        process, ours = _spawn(path, mark)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        place = cls(process, mark, reader, writer)
        try:
            writer.write(pack(Setup(path, sources, os.environ.get("PYTHONPATH"))))
            frame = await asyncio.wait_for(place._receive(), START_LIMIT)
        except BaseException as error:
            await asyncio.shield(asyncio.ensure_future(place.end()))
            if isinstance(error, TimeoutError):
                raise NotStarted(f"a child process was not ready after {START_LIMIT:g} s") from error
            raise
        if not isinstance(frame, Ready) or frame.problem:
            await place.end()
            raise NotStarted(frame.problem if isinstance(frame, Ready) else "a child process died at its start")
        return place

    @property
    def is_usable(self) -> bool:
        return self._ending is None and not self._reader.at_eof() and self._process.poll() is None

    async def run(self, parcel: Parcel, hear: Hear) -> Outcome:
        """Run one attempt to its end, whatever that is."""
        has_begun = False
        # Guarded only while it works: what a block left running on purpose outlives a worker that ends idle.
        trees.guard.watch(self._mark)
        self._writer.write(pack(Work(parcel)))
        while True:
            match await self._receive():
                case Begun():
                    has_begun = True
                case Said() as said:
                    hear(said)
                case Finished(outcome):
                    trees.guard.release(self._mark)
                    return outcome
                case _:
                    break
        # The connection breaks a moment before the process can be reaped.
        await self.end()
        return outcomes.process_died(parcel, self._process.returncode, has_begun=has_begun)

    def stop(self, reason: str) -> None:
        """Ask the attempt to stop, and see to it that it does."""
        if not self._writer.is_closing():
            self._writer.write(pack(Stop(reason)))
        self._end_soon()

    async def retire(self) -> None:
        """End an idle process, and only it."""
        if self.is_usable:
            self._process.terminate()
            deadline = time.monotonic() + RETIRE_LIMIT
            while self._process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            if self._process.returncode is not None:
                self._writer.close()
                return
        await self.end()

    async def end(self) -> None:
        """Until the process and all it started are gone."""
        await asyncio.shield(self._end_soon())

    def _end_soon(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        return self._ending

    async def _end(self) -> None:
        await trees.end(self._process, self._mark)
        trees.guard.release(self._mark)
        self._writer.close()

    async def _receive(self) -> FromChild | None:
        try:
            head = await self._reader.readexactly(4)
            frame: FromChild = from_child.decode(await self._reader.readexactly(int.from_bytes(head, "big")))
            return frame
        except (asyncio.IncompleteReadError, OSError):
            return None


def _spawn(path: list[str], mark: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a child, on the worker's own thread: a child is told of the death of the thread it comes from."""
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.worker.child", str(theirs.fileno()), str(os.getpid())],
            env={**trees.environment(mark), "PYTHONPATH": os.pathsep.join(path)},
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=2,  # what a block prints must not mix with what a command of ours prints
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise NotStarted(f"cannot start a child process: {error}") from error
    finally:
        theirs.close()
    ours.setblocking(False)
    return process, ours


class Pool:
    """At most `size` places, given out one by one in the order asked."""

    def __init__(self, sources: list[str], size: int) -> None:
        self._sources = sources
        self._size = size
        self._idle: list[Place] = []
        self._places: set[Place] = set()
        self._starting = 0
        self._waiting: deque[asyncio.Future[Place | None]] = deque()

    async def acquire(self) -> Place:
        while True:
            while self._idle:
                place = self._idle.pop()  # the one used last is the warmest
                if place.is_usable:
                    return place
                await self._discard(place)
            if len(self._places) + self._starting < self._size:
                return await self._start()
            turn: asyncio.Future[Place | None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                place_or_room = await turn
            except asyncio.CancelledError:
                # Given a place in the very moment of being cancelled: the next in line must have it.
                if turn.done() and not turn.cancelled():
                    given = turn.result()
                    if given is not None:
                        self.release(given)
                    else:
                        self._let_next_in(None)
                raise
            if place_or_room is not None:
                return place_or_room

    def release(self, place: Place) -> None:
        if place.is_usable:
            if not self._let_next_in(place):
                self._idle.append(place)
        else:
            self._places.discard(place)
            self._let_next_in(None)

    async def warm(self, count: int = 1) -> None:
        """Have so many children ready before they are needed."""
        taken = [await self.acquire() for _ in range(min(count, self._size))]
        for place in taken:
            self.release(place)

    async def close(self) -> None:
        for turn in self._waiting:
            turn.cancel()
        self._waiting.clear()
        idle, busy = self._idle, self._places - set(self._idle)
        self._places, self._idle = set(), []
        await asyncio.gather(*(place.retire() for place in idle), *(place.end() for place in busy))

    async def _start(self) -> Place:
        self._starting += 1
        try:
            place = await Place.start(self._sources)
        except BaseException:
            self._let_next_in(None)
            raise
        finally:
            self._starting -= 1
        self._places.add(place)
        return place

    async def _discard(self, place: Place) -> None:
        self._places.discard(place)
        await place.end()

    def _let_next_in(self, place: Place | None) -> bool:
        """Wake whoever waits longest, with a place or with room to start one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(place)
                return True
        return False
