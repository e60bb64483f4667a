"""The port between a worker and an engine. `local` and `http` implement it; one suite tests both."""

from __future__ import annotations

from typing import Protocol

from .messages import Answer, Exchange, Hello, Welcome


class Link(Protocol):
    """One worker's line to an engine. All methods are called from the worker's own event loop.

    A lost connection is `ServerUnreachable` (try the same exchange again); a refusal (`UnknownWorker`
    → say hello again; `WorkerSuperseded` → stop) is raised as such.
    """

    async def hello(self, hello: Hello) -> Welcome: ...

    async def exchange(self, exchange: Exchange) -> Answer: ...

    async def goodbye(self, incarnation: str) -> None: ...

    async def close(self) -> None: ...
