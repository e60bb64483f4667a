"""The worker's line to an engine in the same process: no wire, the same messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from .messages import Answer, Exchange, Hello, Welcome

Reply = Callable[[Any, Exception | None], None]


class Exchanger(Protocol):
    """The part of an engine that a worker talks to."""

    def hello(self, hello: Hello, reply: Reply, *, is_local: bool = False) -> None: ...

    def exchange(self, exchange: Exchange, reply: Reply) -> None: ...

    def goodbye(self, incarnation: str, reply: Reply) -> None: ...


class LocalLink:
    def __init__(self, engine: Exchanger) -> None:
        self._engine = engine

    async def hello(self, hello: Hello) -> Welcome:
        welcome: Welcome = await self._call(lambda reply: self._engine.hello(hello, reply, is_local=True))
        return welcome

    async def exchange(self, exchange: Exchange) -> Answer:
        answer: Answer = await self._call(lambda reply: self._engine.exchange(exchange, reply))
        return answer

    async def goodbye(self, incarnation: str) -> None:
        await self._call(lambda reply: self._engine.goodbye(incarnation, reply))

    async def close(self) -> None:
        """Nothing is open."""

    async def _call(self, ask: Callable[[Reply], None]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        def reply(value: Any, error: Exception | None) -> None:
            # Called in the engine's thread, which nothing here may stop: the loop may be gone when the
            # worker was stopped, and may go in the moment between asking for it and using it.
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                pass

        ask(reply)
        return await future
