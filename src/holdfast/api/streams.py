"""Live feeds as server-sent events. The id of a message is the number in the history, so a reader that comes
back with `Last-Event-ID` gets what follows: no gap, no repeat.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from holdfast.core.errors import InvalidRequest
from holdfast.core.model import Actor

from .app import App
from .routes import Call, Stream

#: seconds of silence after which a comment is sent, so that nobody in between gives the connection up
HEARTBEAT = 15.0
#: Another engine's commits are only hinted at, and a hint may be lost.
LOOK_AGAIN = 1.0

Look = Callable[[Actor, str, int], tuple[list[Any], str]]
_encode = msgspec.json.encode


def cursor_of(call: Call[Any, Any], after: int) -> int:
    """Where a reader goes on: after what it says it has, or after what was asked for."""
    text = call.header(b"last-event-id")
    if not text:
        return after
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidRequest("Last-Event-ID is the number of an event")
    return int(text)


def wants_stream(call: Call[Any, Any]) -> bool:
    return "text/event-stream" in call.header(b"accept")


def events(call: Call[Any, Any], id: str, after: int) -> Stream:
    return Stream(_follow(call.app, call.actor, id, cursor_of(call, after), call.service.feed, _event))


def logs(call: Call[Any, Any], id: str, after: int) -> Stream:
    return Stream(_follow(call.app, call.actor, id, cursor_of(call, after), call.service.feed_logs, _line))


def _event(item: dict[str, Any]) -> tuple[int, str]:
    return item["seq"], item["type"]


def _line(item: Any) -> tuple[int, str]:
    return item.number, "log"


async def _follow(
    app: App, actor: Actor, id: str, after: int, look: Look, name: Callable[[Any], tuple[int, str]]
) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    quiet = 0.0
    pause = LOOK_AGAIN if app.service.store.is_shared else HEARTBEAT
    with app.waiting.listen(app.service.engine, id) as listener:
        while True:
            items, final = await app.threaded(look, actor, id, after)
            if items:
                quiet = 0.0
                chunks = []
                for item in items:
                    after, kind = name(item)
                    chunks.append(b"id: %d\nevent: %s\ndata: %s\n\n" % (after, kind.encode(), _encode(item)))
                yield b"".join(chunks)
            if final:
                yield b'event: end\ndata: {"id":"%s","status":"%s"}\n\n' % (id.encode(), final.encode())
                return
            if items:
                continue
            if listener.is_closing:
                return
            if not await listener.wait(pause):
                quiet += pause
                if quiet >= HEARTBEAT:
                    quiet = 0.0
                    yield b": still here\n\n"
