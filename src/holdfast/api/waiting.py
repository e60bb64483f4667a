"""Between the engine's thread and the server's loop: answers to requests, and being woken when something moved.

Nothing here waits in a thread. Whoever waits in the loop is let go when the server closes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from holdfast.core.errors import ShuttingDown, StoreUnavailable
from holdfast.engine.engine import Engine
from holdfast.engine.items import Reply
from holdfast.failpoints import failpoint
from holdfast.store.records import Header

#: seconds a request waits for its commit
COMMIT_WAIT = 30.0


class Waiting:
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answered: deque[tuple[asyncio.Future[Any], Any, Exception | None]] = deque()
        self._is_called = False
        self._lets_go: set[Callable[[], None]] = set()
        self.is_closing = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def close(self) -> None:
        """In the loop: everybody who waits is told to go."""
        self.is_closing = True
        for let_go in list(self._lets_go):
            let_go()

    # --- answers -------------------------------------------------------------------------------------
    async def commit(self, ask: Callable[[Reply], None], seconds: float = COMMIT_WAIT) -> Any:
        """What the engine answers to a request, after its commit."""
        future: asyncio.Future[Any] = self.loop.create_future()

        def reply(value: Any, error: Exception | None) -> None:
            # In the engine's thread. One wake-up of the loop serves all answers of a commit.
            self._answered.append((future, value, error))
            if not self._is_called:
                self._is_called = True
                self.call(self._settle)

        def let_go() -> None:
            if not future.done():
                future.set_exception(ShuttingDown("the server is shutting down; ask again shortly"))

        self._lets_go.add(let_go)
        failpoint("api.commit.before")
        try:
            ask(reply)
            async with asyncio.timeout(seconds):
                answer = await future
            failpoint("api.commit.after")
            return answer
        except TimeoutError:
            raise StoreUnavailable(
                f"no commit within {seconds:g} s, and it may still happen; ask again (with the same key or id)"
            ) from None
        finally:
            self._lets_go.discard(let_go)

    def _settle(self) -> None:
        self._is_called = False
        while self._answered:
            future, value, error = self._answered.popleft()
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

    def call(self, what: Callable[[], None]) -> None:
        """From any thread: do this in the loop, if it is still there."""
        try:
            self.loop.call_soon_threadsafe(what)
        except RuntimeError:
            pass

    # --- being woken ---------------------------------------------------------------------------------
    def listen(self, engine: Engine, id: str, *, for_end: bool = False) -> Listener:
        return Listener(self, engine, id, for_end)

    def add(self, let_go: Callable[[], None]) -> None:
        self._lets_go.add(let_go)

    def remove(self, let_go: Callable[[], None]) -> None:
        self._lets_go.discard(let_go)


class Looks:
    """Whoever waits for executions that another engine may move has to look now and then. They look together:
    one question to the store for all that came while the one before was under way."""

    def __init__(self, read: Callable[[list[str]], Awaitable[dict[str, Header]]]) -> None:
        self._read = read
        self._asked: dict[str, list[asyncio.Future[Header | None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def header(self, id: str) -> Header | None:
        future: asyncio.Future[Header | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(id, []).append(future)
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        return await future

    async def _look(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                try:
                    found = await self._read(list(asked))
                except Exception as error:
                    for future in (future for futures in asked.values() for future in futures if not future.done()):
                        future.set_exception(error)
                    continue
                for id, futures in asked.items():
                    for future in futures:
                        if not future.done():
                            future.set_result(found.get(id))
        finally:
            self._task = None


class Listener:
    """Hears when an execution may have moved. Begin to listen, then look: nothing is missed between."""

    def __init__(self, waiting: Waiting, engine: Engine, id: str, for_end: bool) -> None:
        self._waiting = waiting
        self._engine = engine
        self._id = id
        self._for_end = for_end
        #: the newest one heard of; None where another engine may have moved it
        self.header: Header | None = None
        self._moved = asyncio.Event()
        self._is_called = False

    def __enter__(self) -> Self:
        self._waiting.loop  # noqa: B018 — known before another thread asks for it
        self._waiting.add(self._wake)
        self._unwatch = self._engine.watch(self._id, self._heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unwatch()
        self._waiting.remove(self._wake)

    def _heard(self, header: Header | None) -> None:
        if self._for_end and header is not None and not header.status.is_ended:
            return
        self.header = header
        if not self._is_called:
            self._is_called = True
            self._waiting.call(self._wake)

    def _wake(self) -> None:
        self._is_called = False
        self._moved.set()

    @property
    def is_closing(self) -> bool:
        return self._waiting.is_closing

    async def wait(self, seconds: float) -> bool:
        """Whether it may have moved within that time."""
        if self.is_closing:
            return False
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            return False
        self._moved.clear()
        return True
