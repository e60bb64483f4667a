"""One line to the server on the standard library: kept alive per thread, errors as our own classes."""

from __future__ import annotations

import http.client
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from holdfast.core.errors import BadConfiguration, ServerUnreachable
from holdfast.transport.refusals import refusal

BROKEN = (OSError, http.client.HTTPException)


class _Kept:
    """Closes what it keeps when its thread, or the client, is gone."""

    def __init__(self) -> None:
        self.connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    __del__ = close


class _Mine(threading.local):
    def __init__(self) -> None:
        self.kept = _Kept()


class Connections:
    def __init__(self, address: str, token: str, timeout: float) -> None:
        # A worker's list of engines: one of them is enough for asking.
        address = address.split(",")[0].strip()
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadConfiguration(f"{address!r} is not the address of a server; like http://127.0.0.1:3030")
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._scheme, self._host = parts.scheme, parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path.rstrip("/")
        self._token = token
        self.timeout = timeout
        self._mine = _Mine()

    def open(self, timeout: float | None = None) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout or self.timeout)
        try:
            connection.connect()
        except OSError as error:
            raise self._unreachable(error) from None
        assert connection.sock is not None
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def close(self) -> None:
        """The connection of this thread."""
        self._mine.kept.close()

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        reason = str(error) or type(error).__name__
        return ServerUnreachable(f"no server answers at {self.address} ({reason}); `holdfast up` starts one")

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        is_repeatable: bool = True,
    ) -> tuple[int, bytes]:
        """The answer, or what it refuses. A request that may be repeated survives one broken connection."""
        tries = 2 if is_repeatable else 1
        while True:
            tries -= 1
            is_fresh, connection = self._take(timeout or self.timeout)
            try:
                status, data, retry_after = self._once(connection, method, path, body, headers)
            except BROKEN as error:
                self.close()
                if tries and not (is_fresh and isinstance(error, TimeoutError)):
                    continue
                raise self._unreachable(error) from None
            if status >= 400:
                raise refusal(status, data, retry_after)
            return status, data

    def _take(self, timeout: float) -> tuple[bool, http.client.HTTPConnection]:
        connection = self._mine.kept.connection
        if connection is not None and (connection.sock is None or _is_stale(connection.sock)):
            self.close()
            connection = None
        if connection is None:
            connection = self._mine.kept.connection = self.open(timeout)
            return True, connection
        assert connection.sock is not None
        connection.sock.settimeout(timeout)
        return False, connection

    def _once(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> tuple[int, bytes, str | None]:
        try:
            connection.request(method, self._base + path, body, self.headers(headers, body))
        except (BrokenPipeError, ConnectionResetError):
            # It may have said why it hung up before it did: a body that is too large, for one.
            pass
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers.get("Retry-After")

    def headers(self, more: Mapping[str, str] | None = None, body: bytes | None = None) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        return headers | dict(more or {})

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str], timeout: float) -> Iterator[http.client.HTTPResponse]:
        """An answer to be read line by line, on a connection of its own."""
        connection = self.open(timeout)
        try:
            connection.request("GET", self._base + path, headers=self.headers(headers))
            answer = connection.getresponse()
            if answer.status >= 400:
                raise refusal(answer.status, answer.read(), answer.headers.get("Retry-After"))
            yield answer
        except BROKEN as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()


def _is_stale(sock: Any) -> bool:
    """Readable although nothing was asked: the other side has closed it."""
    try:
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True
