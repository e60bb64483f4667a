"""A worker's line that can be laid elsewhere: the server it worked for is gone, another one is there.

The worker itself notices nothing but a pause: its incarnation, its held attempts and its numbers go on.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.errors import ServerUnreachable, Unauthenticated
from holdfast.transport.messages import Answer, Exchange, Hello, Welcome
from holdfast.transport.port import Link


class Relay:
    """`find` is asked for a new line when the present one is dead; None means that there is none yet."""

    def __init__(self, link: Link, find: Callable[[], Link | None] | None = None) -> None:
        self._link = link
        self._old: list[Link] = []
        self._find = find

    def lay(self, link: Link) -> None:
        """From now on, speak through that one."""
        self._old.append(self._link)
        self._link = link

    async def hello(self, hello: Hello) -> Welcome:
        try:
            return await self._link.hello(hello)
        except (ServerUnreachable, Unauthenticated) as error:
            raise self._moved(error) from error

    async def exchange(self, exchange: Exchange) -> Answer:
        try:
            return await self._link.exchange(exchange)
        except (ServerUnreachable, Unauthenticated) as error:
            raise self._moved(error) from error

    def _moved(self, error: ServerUnreachable | Unauthenticated) -> ServerUnreachable | Unauthenticated:
        found = self._find() if self._find is not None else None
        if found is None:
            return error
        self.lay(found)
        return ServerUnreachable(f"the server has moved: {error.message}")

    async def goodbye(self, incarnation: str) -> None:
        await self._link.goodbye(incarnation)

    async def close(self) -> None:
        for link in (*self._old, self._link):
            await link.close()
