"""The line inside one process: what the engine's thread must never notice of a worker that goes."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.transport.local import LocalLink, Reply
from holdfast.transport.messages import Answer, Exchange, Hello


class Silent:
    """An engine that keeps what it was asked and answers later, or never."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def hello(self, hello: Hello, reply: Reply, *, is_local: bool = False) -> None:
        self.replies.append(reply)

    def exchange(self, exchange: Exchange, reply: Reply) -> None:
        self.replies.append(reply)

    def goodbye(self, incarnation: str, reply: Reply) -> None:
        self.replies.append(reply)


def test_an_answer_after_the_loop_has_closed_is_nobodys() -> None:
    engine = Silent()

    async def ask() -> None:
        task = asyncio.create_task(LocalLink(engine).exchange(Exchange("i", 1)))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(ask())
    engine.replies[0](Answer(1), None)
    engine.replies[0](None, RuntimeError("a refusal is not heard either"))


def test_a_loop_that_closes_in_the_very_moment_of_the_answer_raises_nothing(monkeypatch: Any) -> None:
    engine = Silent()

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(LocalLink(engine).exchange(Exchange("i", 1)))
        await asyncio.sleep(0)

        def closed(*args: Any) -> None:
            raise RuntimeError("Event loop is closed")

        # As it is when another thread closes it between the question and the call.
        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon_threadsafe", closed)
            assert not loop.is_closed()
            engine.replies[0](Answer(1), None)
        task.cancel()

    asyncio.run(ask())
