"""What the committer is asked to do in one turn. Replies are called after the commit, never before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from holdfast.core.codec import pack
from holdfast.core.errors import InvalidRequest, PayloadTooLarge, StoreUnavailable
from holdfast.core.model import INLINE_LIMIT, PAYLOAD_LIMIT, BlobRef, LogLine, blob_digest
from holdfast.core.program import Program
from holdfast.core.requests import Request
from holdfast.store.records import Batch

from .editing import EditEntities
from .purging import Purge
from .sensing import PutSensor

#: Default wait of a verb for its commit, seconds.
COMMIT_WAIT = 30.0
#: Levels of lists and maps within each other that a value may have.
DEPTH_LIMIT = 100
#: Called once: with a value, or with the reason why not.
Reply = Callable[[Any, Exception | None], None]


def silent(value: Any, error: Exception | None) -> None:
    """For requests nobody waits for."""


def future_reply() -> tuple[Future[Any], Reply]:
    """For callers that wait in a thread."""
    future: Future[Any] = Future()

    def reply(value: Any, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    return future, reply


def committed(future: Future[Any]) -> Any:
    """What the engine answers, after its commit."""
    try:
        return future.result(COMMIT_WAIT)
    except TimeoutError:
        text = f"no commit within {COMMIT_WAIT:g} s, and it may still happen; ask again (with the same key or id)"
        raise StoreUnavailable(text) from None


class ResendJob(msgspec.Struct, frozen=True):
    """Give a worker that reconnected a parcel it should have; changes nothing."""

    job: int
    attempt: int


class KeepLogs(msgspec.Struct, frozen=True):
    """Lines a running block said; they are kept, and decide nothing."""

    lines: tuple[LogLine, ...]


class Ask(msgspec.Struct, eq=False):
    """A request to one execution."""

    execution: str
    request: Request | ResendJob | KeepLogs
    reply: Reply = silent
    #: digest → data of long values that travel with the request
    blobs: dict[bytes, bytes] = {}
    #: idempotency key of a start, and digest of what it starts
    key: str = ""
    content: bytes = b""
    #: attempt token a remote worker sent; None where the caller is trusted
    token: str | None = None
    #: incarnation of the worker a claim is for
    session: str = ""
    #: an inline definition: its bytes, and compiled
    definition: bytes = b""
    program: Program | None = None
    tries: int = 0
    #: bytes of long values that came with it
    size: int = 0

    @property
    def is_own(self) -> bool:
        """The engine asks it of itself: nobody waits for the answer, and nobody would ask again."""
        return self.reply is silent or type(self.request) is ResendJob


def is_deeper(value: Any, limit: int) -> bool:
    """Lists and maps within each other beyond `limit`: nobody could show them any more."""
    level = [value]
    for _ in range(limit + 1):
        level = [
            item
            for holder in level
            if type(holder) in (list, dict, tuple)
            for item in (holder.values() if type(holder) is dict else holder)
            if type(item) in (list, dict, tuple)
        ]
        if not level:
            return False
    return True


def spill(ask: Ask, value: Any) -> Any:
    """The value, or a reference to it where it is long and travels beside the request."""
    if value is None or type(value) in (bool, float) or not value:
        return value
    try:
        data = pack(value)
    except (NotImplementedError, TypeError, UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"a value cannot be stored: {error}") from error
    if is_deeper(value, DEPTH_LIMIT):
        raise InvalidRequest(f"a value is nested more than {DEPTH_LIMIT} levels deep")
    if len(data) <= INLINE_LIMIT:
        return value
    if len(data) > PAYLOAD_LIMIT:
        raise PayloadTooLarge(f"a value of {len(data):,} bytes is over the limit of {PAYLOAD_LIMIT:,}")
    digest = blob_digest(data)
    ask.blobs[digest] = data
    return BlobRef(digest, len(data))


class Put:
    """Rows that belong to no execution: workers, blocks, tokens, definitions."""

    __slots__ = ("batch", "reply")
    size = 0

    def __init__(self, batch: Batch, reply: Reply = silent) -> None:
        self.batch = batch
        self.reply = reply


class Publish:
    """A definition under a name; the next version, unless it is the newest one already."""

    __slots__ = ("actor", "data", "digest", "name", "reply", "tenant")
    size = 0

    def __init__(self, tenant: str, name: str, digest: bytes, data: bytes, actor: str, reply: Reply) -> None:
        self.tenant = tenant
        self.name = name
        self.digest = digest
        self.data = data
        self.actor = actor
        self.reply = reply


class PublishAll:
    """Definitions that belong together: all in one commit, or none. Answers with a list."""

    __slots__ = ("items", "reply")
    size = 0

    def __init__(self, items: list[Publish], reply: Reply) -> None:
        self.items = items
        self.reply = reply


Item = Ask | Put | Publish | PublishAll | PutSensor | EditEntities | Purge
