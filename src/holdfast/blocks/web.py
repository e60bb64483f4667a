"""HTTP as `http` and `load` need it: one request on the standard library, and following where its answer leads.

It tells apart what failed before anything was sent (nothing done) from what failed after (unknown). It must not
know what an answer is good for.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from holdfast.core.model import PAYLOAD_LIMIT, Effect

from .context import Context
from .results import Failed, NothingDone, PermanentFailure

#: redirects that are followed where the author asks for it without a number
HOPS = 10
_KEPT = "/%:=&?~+!$,;'@()*[]"
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
#: not for the eyes of another server than the one they were written for
_PRIVATE = frozenset(("authorization", "cookie", "proxy-authorization"))


class RequestFailed(Failed):
    """The request was sent, but the answer was not one that was asked for, or did not come."""


@dataclass(slots=True, frozen=True)
class Address:
    scheme: str
    host: str
    port: int | None
    #: with the query
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host.lower(), self.port or (443 if self.scheme == "https" else 80)

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{f':{self.port}' if self.port else ''}{self.path}"


@dataclass(slots=True)
class Request:
    """What is sent, and how far it may lead. `name` is the block's, for messages."""

    name: str
    address: Address
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    #: seconds, for connecting and for each wait
    timeout: float = 30.0
    #: redirects that are followed; 0 for none, they are answers like others then
    hops: int = 0
    #: whether requests that are neither GET nor HEAD follow too
    follows_all: bool = False
    trusts_all: bool = False
    authorities: str = ""


@dataclass(slots=True, frozen=True)
class Answer:
    status: int
    headers: Message
    body: bytes

    def text(self, charset: str = "") -> str:
        """Decoded with `charset`, else as declared, else as UTF-8; what does not fit is replaced."""
        try:
            return self.body.decode(charset or self.headers.get_content_charset() or "utf-8", errors="replace")
        except LookupError:  # declared as something nobody knows
            return self.body.decode(errors="replace")


def read_address(name: str, endpoint: str, query: dict[str, Any] | None = None) -> Address:
    if "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError as error:
        raise NothingDone(f"{name}: endpoint {endpoint!r} cannot be read: {error}", permanent=True) from None
    if parts.scheme not in ("http", "https"):
        raise NothingDone(f"{name}: scheme `{parts.scheme}` is refused; use http or https", permanent=True)
    if not parts.hostname:
        raise NothingDone(f"{name}: endpoint {endpoint!r} names no host", permanent=True)
    if parts.username is not None:
        raise NothingDone(f"{name}: give username and password, not credentials in the endpoint", permanent=True)
    pairs = [
        (key, as_text(value))
        for key, values in (query or {}).items()
        for value in (values if isinstance(values, list) else [values])
    ]
    # What stands in the endpoint already is kept; blanks and letters beyond ASCII are escaped.
    path = quote(parts.path or "/", safe=_KEPT)
    asked = "&".join(part for part in (quote(parts.query, safe=_KEPT), urlencode(pairs)) if part)
    return Address(parts.scheme, parts.hostname, port, f"{path}?{asked}" if asked else path)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def send(request: Request, ctx: Context) -> Answer:
    """The answer, after as many redirects as may be followed."""
    address, method, headers, content = request.address, request.method, request.headers, request.content
    for hop in range(request.hops + 1):
        answer = _exchange(request, address, method, headers, content, ctx, has_sent=hop > 0)
        target = _target(answer, address)
        if target is None or request.hops == 0 or not (request.follows_all or method in ("GET", "HEAD")):
            return answer
        if answer.status in (301, 302, 303) and method not in ("GET", "HEAD"):
            method, content = "GET", None
            headers = {key: value for key, value in headers.items() if key.lower() != "content-type"}
        if target.origin != address.origin:
            headers = {key: value for key, value in headers.items() if key.lower() not in _PRIVATE}
        address = target
    raise RequestFailed(f"{request.name}: {request.address.shown} leads on after {request.hops} redirects")


def _target(answer: Answer, address: Address) -> Address | None:
    """Where an answer leads; nothing if it is no redirect that could be followed."""
    location = answer.headers.get("location")
    if answer.status not in _REDIRECTS or not location:
        return None
    try:
        target = read_address("", urljoin(address.shown, location))
    except (NothingDone, ValueError):
        return None
    # What was asked for over TLS is not told in the clear.
    return None if (address.scheme, target.scheme) == ("https", "http") else target


def _exchange(
    request: Request,
    address: Address,
    method: str,
    headers: dict[str, str],
    content: bytes | None,
    ctx: Context,
    *,
    has_sent: bool,
) -> Answer:
    connection = _connection(request, address)
    ctx.check_cancelled(None if has_sent else Effect.NONE)
    try:
        connection.connect()
    except (OSError, UnicodeError) as error:
        connection.close()
        ctx.check_cancelled(None if has_sent else Effect.NONE)
        message = f"{request.name}: cannot connect to {connection.host}:{connection.port}: {error}"
        if isinstance(error, ssl.SSLCertVerificationError):
            message += "; `config: {ca-file: …}` names whom to trust"
        if has_sent:
            raise RequestFailed(message) from error
        raise NothingDone(message, permanent=isinstance(error, (ssl.SSLCertVerificationError, UnicodeError))) from error
    # A thread that waits for an answer cannot see that it was cancelled; without its socket it stops waiting.
    ctx.on_cancel(lambda: _hang_up(connection))
    try:
        ctx.check_cancelled(None if has_sent else Effect.NONE)
        try:
            connection.request(method, address.path, content, headers)
            response = connection.getresponse()
            received = response.read(PAYLOAD_LIMIT + 1)
        except (ValueError, http.client.InvalidURL) as error:
            # http.client checks method, path and headers before the first byte leaves.
            if has_sent:
                raise RequestFailed(f"{request.name}: {method} {address.shown}: {error}") from error
            raise NothingDone(f"{request.name}: {error}", permanent=True) from error
        except (OSError, http.client.HTTPException) as error:
            ctx.check_cancelled()
            said = f"{type(error).__name__}: {error}"
            raise RequestFailed(f"{request.name}: {method} {address.shown}: {said}") from error
    finally:
        connection.close()
    if len(received) > PAYLOAD_LIMIT:
        raise PermanentFailure(f"{request.name}: the answer of {address.shown} is longer than {PAYLOAD_LIMIT} bytes")
    return Answer(response.status, response.headers, received)


def _connection(request: Request, address: Address) -> http.client.HTTPConnection:
    if address.scheme == "http":
        return http.client.HTTPConnection(address.host, address.port, timeout=request.timeout)
    context = ssl.create_default_context()
    if request.authorities:
        try:
            context.load_verify_locations(request.authorities)
        except (OSError, ssl.SSLError) as error:
            message = f"{request.name}: ca-file `{request.authorities}` cannot be used: {error}"
            raise NothingDone(message, permanent=True) from error
    if request.trusts_all:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(address.host, address.port, timeout=request.timeout, context=context)


def _hang_up(connection: http.client.HTTPConnection) -> None:
    held = connection.sock
    if held is not None:
        try:
            held.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # already closed by the other side
