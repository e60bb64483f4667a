"""The built-in block `http`: one request, with the idempotency key of the visit.

Standard library only, in a thread. It tells apart what failed before anything was sent (nothing done)
from what failed after (unknown). Redirects are answers like others; they are not followed.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import time
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from holdfast.core.model import PAYLOAD_LIMIT

from .context import Context
from .declare import block
from .results import Failed, NothingDone, PermanentFailure

_KEPT = "/%:=&?~+!$,;'@()*[]"


class RequestFailed(Failed):
    """The request was sent, but the answer was not one that was asked for, or did not come."""


@block(name="http", isolation="thread")
def http_request(
    endpoint: str,
    ctx: Context,
    method: str = "get",
    query: dict[str, Any] | None = None,
    body: Any = None,
    headers: dict[str, Any] | None = None,
    status_code: int | list[int] | Literal["any"] | None = None,
    timeout: float = 30.0,
    username: str | None = None,
    password: str | None = None,
) -> dict[str, Any]:
    """Send one HTTP request. The scheme defaults to https, accepted status codes to 200..399.

    `status_code` is one code, a range as two, a longer list, or `any`. `timeout` (seconds) is for
    connecting and for each wait. A `body` of text is sent as it is, anything else as JSON.
    """
    if (username is None) != (password is None):
        raise NothingDone("http: give both username and password, or neither", permanent=True)
    connection, path = _address(endpoint, query, timeout)
    content, sent = _message(body, headers, ctx, username, password)
    began = time.monotonic()
    try:
        connection.connect()
    except OSError as error:
        connection.close()
        ctx.check_cancelled()
        raise NothingDone(f"http: cannot connect to {connection.host}:{connection.port}: {error}") from error
    # A thread that waits for an answer cannot see that it was cancelled; without its socket it stops waiting.
    ctx.on_cancel(lambda: _hang_up(connection))
    try:
        ctx.check_cancelled()
        try:
            connection.request(method.upper(), path, content, sent)
            answer = connection.getresponse()
            received = answer.read(PAYLOAD_LIMIT + 1)
        except (ValueError, http.client.InvalidURL) as error:
            # http.client checks method, path and headers before the first byte leaves.
            raise NothingDone(f"http: {error}", permanent=True) from error
        except (OSError, http.client.HTTPException) as error:
            ctx.check_cancelled()
            said = f"{type(error).__name__}: {error}"
            raise RequestFailed(f"http: {method.upper()} {endpoint}: {said}") from error
    finally:
        connection.close()
    if len(received) > PAYLOAD_LIMIT:
        raise PermanentFailure(f"http: the answer of {endpoint} is longer than {PAYLOAD_LIMIT} bytes")
    result = _result(answer, received, time.monotonic() - began)
    if not _accepted(answer.status, status_code):
        raise RequestFailed(f"http: {method.upper()} {endpoint}: status {answer.status}", details=result)
    return result


def _address(endpoint: str, query: dict[str, Any] | None, timeout: float) -> tuple[http.client.HTTPConnection, str]:
    if "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError as error:
        raise NothingDone(f"http: endpoint {endpoint!r} cannot be read: {error}", permanent=True) from None
    if parts.scheme not in ("http", "https"):
        raise NothingDone(f"http: scheme `{parts.scheme}` is refused; use http or https", permanent=True)
    if not parts.hostname:
        raise NothingDone(f"http: endpoint {endpoint!r} names no host", permanent=True)
    if parts.username is not None:
        raise NothingDone("http: give username and password, not credentials in the endpoint", permanent=True)
    pairs = [
        (key, _text(value))
        for key, values in (query or {}).items()
        for value in (values if isinstance(values, list) else [values])
    ]
    # What stands in the endpoint already is kept; blanks and letters beyond ASCII are escaped.
    path = quote(parts.path or "/", safe=_KEPT)
    asked = "&".join(part for part in (quote(parts.query, safe=_KEPT), urlencode(pairs)) if part)
    path = f"{path}?{asked}" if asked else path
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, port, timeout=timeout), path


def _message(
    body: Any, headers: dict[str, Any] | None, ctx: Context, username: str | None, password: str | None
) -> tuple[bytes | None, dict[str, str]]:
    sent = {name: _text(value) for name, value in (headers or {}).items()}
    given = {name.lower() for name in sent}
    content: bytes | None = None
    if body is not None:
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        if "content-type" not in given:
            is_text = isinstance(body, str)
            sent["Content-Type"] = "text/plain; charset=utf-8" if is_text else "application/json"
    if ctx.idempotency_key and "idempotency-key" not in given:
        sent["Idempotency-Key"] = ctx.idempotency_key
    if username is not None and "authorization" not in given:
        sent["Authorization"] = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
    if "user-agent" not in given:
        sent["User-Agent"] = "holdfast"
    return content, sent


def _result(answer: http.client.HTTPResponse, received: bytes, duration: float) -> dict[str, Any]:
    headers: dict[str, list[str]] = {}
    for name, value in answer.getheaders():
        headers.setdefault(name.lower(), []).append(value)
    try:
        text = received.decode(answer.headers.get_content_charset() or "utf-8", errors="replace")
    except LookupError:  # a charset nobody knows
        text = received.decode(errors="replace")
    content: Any = text
    if "json" in (answer.headers.get_content_type() or ""):
        try:
            content = json.loads(text)
        except ValueError:
            content = text
    return {
        "status_code": answer.status,
        "headers": headers,
        "content": content,
        "content_text": text,
        "duration": round(duration, 6),
    }


def _accepted(status: int, wanted: int | list[int] | Literal["any"] | None) -> bool:
    match wanted:
        case None:
            return 200 <= status <= 399
        case int():
            return status == wanted
        case [low, high]:
            return low <= status <= high
        case "any":
            return True
        case codes:
            return status in codes


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _hang_up(connection: http.client.HTTPConnection) -> None:
    held = connection.sock
    if held is not None:
        try:
            held.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # already closed by the other side
