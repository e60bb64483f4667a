"""The ASGI application: find the route, check the caller, read the request, call the handler, answer.

Reading handlers run in a bounded pool of threads; writing ones are coroutines that wait for the engine's
answer. Every error leaves here in one form. It knows no single route.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from holdfast.core.codec import plain
from holdfast.core.errors import (
    MalformedRequest,
    PayloadTooLarge,
    Refused,
    ShuttingDown,
    TooBusy,
    Unauthenticated,
)
from holdfast.engine.items import Reply as Callback
from holdfast.engine.service import Service
from holdfast.store.records import Header
from holdfast.transport.refusals import ErrorBody, ErrorDetail, body_of

from .auth import COOKIE, Auth, Role
from .routes import JSON, MSGPACK, YAML, Call, Reply, Route, Router, Stream
from .strict import convert, invalid, no_extension, read_json, read_query
from .waiting import Looks, Waiting

log = logging.getLogger("holdfast.api")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: seconds a client may take to send its body
BODY_WAIT = 30.0
#: A body over the limit, but not over this, is let pass unread: who sends it to the end sees the answer.
DRAINED = 64 * 1024 * 1024
#: bytes that the bodies of all open requests may take together
BODY_BYTES = 64 * 1024 * 1024
#: Bodies below this are not counted: the number of requests bounds them, and a cancel gets through while
#: others upload.
SMALL_BODY = 16 * 1024
_JSONS = frozenset({"", JSON, "text/json"})
_YAMLS = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml"})
_MSGPACKS = frozenset({MSGPACK, "application/msgpack", "application/vnd.msgpack"})
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}

_encode = msgspec.json.Encoder(enc_hook=plain).encode
_pack = msgspec.msgpack.Encoder(enc_hook=plain).encode


class App:
    def __init__(
        self,
        service: Service,
        auth: Auth,
        router: Router,
        *,
        threads: int = 8,
        max_requests: int = 1024,
        max_streams: int = 256,
        max_reads: int = 512,
        max_body_bytes: int = BODY_BYTES,
        refused_page: Callable[[Refused], Reply] | None = None,
    ) -> None:
        self.service = service
        self.auth = auth
        self.router = router
        self.waiting = Waiting()
        self.looks = Looks(lambda ids: self.threaded(self._headers, ids))
        self.started_at = time.monotonic()
        #: answers by status, for the metrics
        self.answered: Counter[int] = Counter()
        self.requests = 0
        self.streams = 0
        self.max_requests = max_requests
        self.max_streams = max_streams
        self.max_body_bytes = max_body_bytes
        #: of bodies that are being read, or are read and not yet answered
        self.body_bytes = 0
        self._max_reads = max_reads
        self._reads = 0
        self._pool = ThreadPoolExecutor(threads, "holdfast-api")
        self._refused_page = refused_page
        self._packers: dict[Any, msgspec.msgpack.Decoder[Any]] = {}

    def close(self) -> None:
        """In the loop: refuse what comes, end what waits."""
        self.waiting.close()

    def end(self) -> None:
        """After the loop."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def threaded(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run reading work in a thread; refuse when too much of it waits."""
        if self._reads >= self._max_reads:
            raise TooBusy(f"{self._reads} readers wait already; try again in a second")
        self._reads += 1
        try:
            return await self.waiting.loop.run_in_executor(self._pool, work, *args)
        finally:
            self._reads -= 1

    async def commit_from_thread(self, ask: Callable[[Callback], None]) -> Any:
        """The engine's answer to a request that takes some work to put together."""

        def ask_in_thread(reply: Callback) -> None:
            def work() -> None:
                try:
                    ask(reply)
                except Exception as error:
                    reply(None, error)

            self.waiting.loop.run_in_executor(self._pool, work)

        return await self.waiting.commit(ask_in_thread)

    def _headers(self, ids: list[str]) -> dict[str, Header]:
        with self.service.store.reading() as queries:
            return queries.headers_of(ids)

    def encode(self, value: Any) -> bytes:
        return _encode(value)

    # --- ASGI ----------------------------------------------------------------------------------------
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            return
        self.requests += 1
        try:
            response = await self._respond(scope, receive)
            self.answered[response.status_code] += 1
            if isinstance(response, StreamingResponse):
                self.streams += 1
                self.requests -= 1
                try:
                    await response(scope, receive, send)
                finally:
                    self.requests += 1
                    self.streams -= 1
            else:
                await response(scope, receive, send)
        finally:
            self.requests -= 1

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        try:
            return await self._handle(scope, receive)
        except Refused as refused:
            response = refusal_response(refused)
            if self._refused_page is not None and is_browser(scope):
                page = self._refused_page(refused)
                headers = {**response.headers, **HEADERS, **page.headers}
                del headers["content-type"], headers["content-length"]
                return Response(page.data, refused.status, headers, page.media)
            return response
        except Exception:
            incident = secrets.token_hex(4)
            log.exception("incident %s: %s %s", incident, scope["method"], scope["path"])
            message = f"an unexpected error; the server's log has it as incident {incident}"
            detail = ErrorDetail("HF0000", message, 500, incident=incident)
            return Response(_encode(ErrorBody(detail)), 500, HEADERS, JSON)

    async def _handle(self, scope: Scope, receive: Receive) -> Response:
        if self.waiting.is_closing:
            raise ShuttingDown("the server is shutting down; try again shortly")
        if self.requests > self.max_requests:
            raise TooBusy(f"{self.requests} requests are open; try again in a second")
        method = scope["method"]
        raw_path = scope.get("raw_path") or scope["path"].encode()
        route, path = self.router.find(method, raw_path.decode("latin-1"))
        headers = dict(scope["headers"])
        if len(headers) != len(scope["headers"]):
            only_once(scope["headers"])
        client = scope.get("client")
        caller = await self.auth.caller(method, headers, cookie_of(headers), client[0] if client else "", self.threaded)
        if route.role is not Role.PUBLIC:
            if caller is None:
                raise Unauthenticated("this needs a token: `Authorization: Bearer hf_…`")
            caller.need(route.role)
        query = read_query(scope["query_string"], route.query, route.lists)
        if route.body is None:
            return await self._answer(Call(self, route, scope, headers, caller, path, query, None, b""))
        reserved = self._reserve(headers, route.limit)
        try:
            raw = await read_body(receive, headers, route.limit)
            # What was said or feared beforehand gives way to what came.
            weight = len(raw) if len(raw) > SMALL_BODY else 0
            self.body_bytes -= reserved - weight
            reserved = weight
            if len(raw) > 64 * 1024:
                body = await self.threaded(self._parse, route, headers, raw)
            else:
                body = self._parse(route, headers, raw)
            return await self._answer(Call(self, route, scope, headers, caller, path, query, body, raw))
        finally:
            self.body_bytes -= reserved

    def _reserve(self, headers: Mapping[bytes, bytes], limit: int) -> int:
        """Make room for a body before any of it is read; returns how much of it counts."""
        length = headers.get(b"content-length", b"")
        if b"transfer-encoding" in headers:
            size = limit
        else:
            size = int(length[:20]) if length.isdigit() else 0
        if size <= SMALL_BODY or size > limit:  # one over the limit is refused, not read
            return 0
        # A single one always fits: else one that may be as large as all together would never be read.
        if self.body_bytes and self.body_bytes + size > self.max_body_bytes:
            raise TooBusy(f"other requests' bodies take {self.body_bytes:,} bytes already; try again in a second")
        self.body_bytes += size
        return size

    async def _answer(self, call: Call[Any, Any]) -> Response:
        if call.route.is_async:
            return self._finish(call, await call.route.handler(call))
        response: Response = await self.threaded(self._read, call)
        return response

    def _read(self, call: Call[Any, Any]) -> Response:
        """In a thread: look, and encode what was found there too."""
        return self._finish(call, call.route.handler(call))

    def _parse(self, route: Route, headers: Mapping[bytes, bytes], raw: bytes) -> Any:
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise MalformedRequest("compressed bodies are not read")
        media = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if media in _JSONS and JSON in route.accepts:
            return convert(read_json(raw), route.body)
        if media in _YAMLS and YAML in route.accepts:
            return None
        if media in _MSGPACKS and MSGPACK in route.accepts:
            return self._unpack(route.body, raw)
        raise MalformedRequest(f"a body of type {media[:80]!r} is not read here; send {' or '.join(route.accepts)}")

    def _unpack(self, type: Any, raw: bytes) -> Any:
        decoder = self._packers.get(type)
        if decoder is None:
            decoder = self._packers[type] = msgspec.msgpack.Decoder(type, ext_hook=no_extension)
        try:
            return decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise invalid(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError, OverflowError) as error:
            raise MalformedRequest(f"the body is not msgpack: {error}") from None
        except RecursionError:
            raise MalformedRequest("the body is nested too deeply") from None

    def _finish(self, call: Call[Any, Any], value: Any) -> Response:
        if isinstance(value, Stream):
            if self.streams >= self.max_streams:
                raise TooBusy(f"{self.streams} streams are open; try again later")
            if call.scope["method"] == "HEAD":
                return Response(b"", 200, HEADERS, value.media)
            return StreamingResponse(value.chunks, 200, HEADERS, value.media)
        status, headers = call.route.status, HEADERS
        if isinstance(value, Reply):
            status, headers = value.status, HEADERS | value.headers
            if value.data is not None:
                return Response(value.data, status, headers, value.media)
            value = value.value
        if MSGPACK in call.route.accepts and call.media in _MSGPACKS:
            return Response(_pack(value), status, headers, MSGPACK)
        return Response(_encode(value), status, headers, JSON)


def refusal_response(refused: Refused) -> Response:
    headers = dict(HEADERS)
    if refused.retry_after > 0:
        headers["retry-after"] = str(math.ceil(refused.retry_after))
    if isinstance(refused, Unauthenticated):
        headers["www-authenticate"] = 'Bearer realm="holdfast"'
    if vars(refused).get("is_endless"):
        headers["connection"] = "close"
    allow = vars(refused).get("allow")
    if allow:
        headers["allow"] = allow
    return Response(_encode(body_of(refused)), refused.status, headers, JSON)


def is_browser(scope: Scope) -> bool:
    """Somebody who wants to see a page, where there are pages."""
    if scope["path"].startswith("/api/"):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def only_once(headers: list[tuple[bytes, bytes]]) -> None:
    """Of two headers that decide something, one in between may have looked at the other."""
    names = [name for name, _ in headers]
    for name in (
        b"authorization", b"host", b"origin", b"content-length", b"content-type", b"idempotency-key", b"if-match",
    ):  # fmt: skip
        if names.count(name) > 1:
            raise MalformedRequest(f"the header {name.decode()} is given twice")


def cookie_of(headers: Mapping[bytes, bytes]) -> str:
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limit: int) -> bytes:
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and int(length[:20]) > limit:
        raise too_large(int(length[:20]), limit, is_endless=int(length[:20]) > DRAINED)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_WAIT):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise MalformedRequest("the connection was closed before the whole body was there")
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise too_large(size, limit, is_endless=True)
                if not message.get("more_body", False):
                    return chunk if not chunks else b"".join([*chunks, chunk])
                chunks.append(chunk)
    except TimeoutError:
        raise MalformedRequest(f"the body did not arrive within {BODY_WAIT:g} s") from None


def too_large(size: int, limit: int, *, is_endless: bool) -> PayloadTooLarge:
    refused = PayloadTooLarge(f"a body of {size:,} bytes is over the limit of {limit:,}; send a reference instead")
    vars(refused)["is_endless"] = is_endless
    return refused
