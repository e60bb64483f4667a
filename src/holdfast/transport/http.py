"""The worker's line to an engine over HTTP: two kept-alive connections, one that pushes, one that waits.

Just enough HTTP/1.1 for our own server. Every message of a worker may be repeated (exchanges are numbered,
hello and goodbye change nothing twice), so a connection that broke is simply opened anew. Several addresses:
when one engine is not there, the next is asked; it knows the worker after a hello.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast.core.errors import BadConfiguration, Refused, ServerUnreachable, ShuttingDown

from .messages import Answer, Exchange, Hello, Welcome
from .refusals import refusal

T = TypeVar("T")
_PACKED = "application/x-msgpack"
_BASE = "/api/v1/worker"
#: seconds beyond the time the engine may hold an answer back
SLACK = 15.0
CONNECT = 5.0
LONGEST_ANSWER = 64 * 1024 * 1024

_encode = msgspec.msgpack.Encoder().encode


class _Target:
    """One engine's address."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadConfiguration(f"{address!r} is not the address of a server; like http://127.0.0.1:3030")
        self.address = f"{parts.scheme}://{parts.netloc}"
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.netloc = parts.netloc
        self.base = parts.path.rstrip("/") + _BASE
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None


class HttpLink:
    """Implements `port.Link`."""

    def __init__(self, address: str, token: str) -> None:
        """`address` may name several engines, with commas between them."""
        self._targets = [_Target(part.strip()) for part in address.split(",") if part.strip()]
        if not self._targets:
            raise BadConfiguration("a worker needs the address of at least one server")
        self._token = token
        self._at = 0
        self._push = _Line(self)
        self._poll = _Line(self)

    @property
    def address(self) -> str:
        return self.target.address

    @property
    def target(self) -> _Target:
        return self._targets[self._at]

    @property
    def token(self) -> str:
        return self._token

    async def hello(self, hello: Hello) -> Welcome:
        return await self._ask(self._push, "hello", hello, Welcome, SLACK)

    async def exchange(self, exchange: Exchange) -> Answer:
        line = self._poll if exchange.wait and not exchange.outcomes else self._push
        return await self._ask(line, "exchange", exchange, Answer, exchange.wait / 1e6 + 30 + SLACK)

    async def goodbye(self, incarnation: str) -> None:
        await self._ask(self._push, "goodbye", {"incarnation": incarnation}, dict[str, Any], SLACK)

    async def close(self) -> None:
        self._push.drop()
        self._poll.drop()

    async def _ask(self, line: _Line, verb: str, message: Any, type: type[T], limit: float) -> T:
        body = _encode(message)
        async with line.lock:
            target = self.target
            try:
                async with asyncio.timeout(limit):
                    status, headers, data = await line.ask(target, verb, body)
            except (OSError, EOFError, asyncio.LimitOverrunError, ValueError, TimeoutError) as error:
                line.drop()
                self._fail_over(target)
                reason = str(error) or ("it took too long" if isinstance(error, TimeoutError) else "it hung up")
                raise ServerUnreachable(f"no engine answers at {target.address} ({reason})") from None
            except BaseException:
                # Given up half-way: what still comes on this connection belongs to nobody.
                line.drop()
                raise
        if status >= 400:
            refused = refusal(status, data, headers.get("retry-after"))
            if isinstance(refused, (ShuttingDown, ServerUnreachable)):
                self._fail_over(target)
            raise refused
        try:
            return msgspec.msgpack.decode(data, type=type)
        except msgspec.MsgspecError as error:
            raise Refused(f"the engine's answer cannot be read: {error}") from None

    def _fail_over(self, failed: _Target) -> None:
        """Both connections move together: a worker belongs to one engine at a time."""
        if self.target is failed:
            self._at = (self._at + 1) % len(self._targets)


class _Line:
    """One connection, one request at a time."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link
        self.lock = asyncio.Lock()
        self._target: _Target | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    def drop(self) -> None:
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.transport.abort()

    async def ask(self, target: _Target, verb: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if self._target is not target:
            self.drop()
            self._target = target
        head = (
            f"POST {target.base}/{verb} HTTP/1.1\r\nHost: {target.netloc}\r\n"
            f"Authorization: Bearer {self._link.token}\r\nContent-Type: {_PACKED}\r\nAccept: {_PACKED}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1")
        is_reused = self._writer is not None
        try:
            return await self._once(target, head + body)
        except (OSError, EOFError):
            # A kept-alive connection that the server closed meanwhile; a new one tells whether it is there.
            self.drop()
            if not is_reused:
                raise
        return await self._once(target, head + body)

    async def _once(self, target: _Target, request: bytes) -> tuple[int, dict[str, str], bytes]:
        if self._writer is None or self._reader is None:
            async with asyncio.timeout(CONNECT):
                self._reader, self._writer = await asyncio.open_connection(target.host, target.port, ssl=target.tls)
        reader, writer = self._reader, self._writer
        writer.write(request)
        await writer.drain()
        raw = await reader.readuntil(b"\r\n\r\n")
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        status = int(rest[:3])
        if not version.startswith("HTTP/1."):
            raise ValueError("that is not HTTP")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            data = await _chunked(reader)
        else:
            length = int(headers.get("content-length", "0"))
            if not 0 <= length <= LONGEST_ANSWER:
                raise ValueError(f"an answer of {length} bytes")
            data = await reader.readexactly(length) if length else b""
        if headers.get("connection", "").lower() == "close":
            self.drop()
        return status, headers, data


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    """Proxies may answer so."""
    chunks: list[bytes] = []
    size = 0
    while True:
        length = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        size += length
        if not 0 <= size <= LONGEST_ANSWER:
            raise ValueError(f"an answer of more than {LONGEST_ANSWER} bytes")
        chunk = await reader.readexactly(length + 2)
        if not length:
            return b"".join(chunks)
        chunks.append(chunk[:-2])
