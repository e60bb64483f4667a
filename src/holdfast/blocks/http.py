"""The built-in block `http`: one request, with the idempotency key of the visit, and its answer as data."""

from __future__ import annotations

import base64
import codecs
import json
import time
from typing import Any

from holdfast.core.model import PAYLOAD_LIMIT

from . import secrets
from .context import Context
from .declare import block
from .parameters import BadSignature
from .results import NothingDone
from .values import encode
from .wanted import Wanted, reader
from .web import HOPS, Answer, Request, RequestFailed, as_text, read_address, send

_CONFIG = ("trust-all", "ca-file", "redirects", "lax-redirect")
_YES_OR_NO = {True: True, False: False, "yes": True, "no": False, "true": True, "false": False}


@block(name="http", isolation="thread")
def http_request(
    endpoint: str,
    ctx: Context,
    method: str = "get",
    query: dict[str, Any] | None = None,
    body: Any = None,
    charset: str | None = None,
    headers: dict[str, Any] | None = None,
    status_code: Wanted | None = None,
    timeout: float | str = 30.0,
    username: str | None = None,
    password: str | None = None,
    config: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Send one HTTP request. The scheme defaults to https, accepted status codes to 200..399.

    `status_code` is what is accepted: a number, `any`, a range `200..299`, a list of these, or tests like
    `{less-than: 500}`. A `body` of text is sent as it is, anything else as JSON. `charset` is used for a text
    body and to read the answer, whatever the answer declares. `timeout` (seconds, or text like `10s`) is for
    connecting and for each wait. `password` and headers may be references, `secret://env/NAME`, to variables of
    the worker.

    `config` takes `trust-all` (accept any certificate), `ca-file` (whom to trust besides) and `redirects`: `no`
    (a redirect is an answer like others), `yes` (GET and HEAD follow up to 10), a number, or `all` (other methods
    too; `lax-redirect: true` is the same).

    Every request carries the header `Idempotency-Key`, the same for all attempts of a visit. The block is never
    taken to be harmless, whatever the method: a GET that may be repeated needs `idempotent: yes` on its step.

    Gives `{status_code, headers, content, content_text, content_json, content_bytes, duration}`: `headers` maps
    names in lower case to lists; `content` is the parsed value where the answer says that it is JSON, else text;
    `content_json` is null where the text is no JSON; `content_bytes` is base64, and null where the answer is
    text. A long answer is in `content` only. Where the status is not accepted, all of that is in the details of
    the failure.
    """
    if (username is None) != (password is None):
        raise NothingDone("http: give both username and password, or neither", permanent=True)
    accepts = reader("200..399" if status_code is None else status_code, "http: status_code")
    request = Request("http", read_address("http", endpoint, query), method.upper(), timeout=seconds(timeout, "http"))
    _configure(request, config or {})
    request.headers = {
        name: secrets.resolve(as_text(value), f"http: header `{name}`") for name, value in (headers or {}).items()
    }
    _compose(request, body, _known(charset), ctx)
    if username is not None and password is not None and not _has(request, "authorization"):
        pair = f"{secrets.resolve(username, 'http: username')}:{secrets.resolve(password, 'http: password')}"
        request.headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    for name, value in request.headers.items():
        if any(char in value for char in "\r\n\0"):
            # Said here and without the value, which may be a secret; the standard library would show it.
            raise NothingDone(f"http: the header `{name}` holds a line break", permanent=True)
    began = time.monotonic()
    answer = send(request, ctx)
    result = _result(answer, charset or "", time.monotonic() - began)
    if not accepts(answer.status):
        raise RequestFailed(f"http: {request.method} {endpoint}: status {answer.status}", details=result)
    return result


def seconds(timeout: float | str, name: str) -> float:
    from .declare import duration  # beside `block`, for its messages

    try:
        limit = duration(timeout, "timeout") / 1_000_000
    except BadSignature as error:
        raise NothingDone(f"{name}: {error}", permanent=True) from None
    if limit <= 0:
        raise NothingDone(f"{name}: the timeout must be more than nothing", permanent=True)
    return limit


def _known(charset: str | None) -> str:
    try:
        return codecs.lookup(charset or "utf-8").name
    except LookupError:
        raise NothingDone(f"http: there is no charset `{charset}`", permanent=True) from None


def _configure(request: Request, config: dict[str, Any]) -> None:
    for key, value in config.items():
        match "".join(char for char in key.lower() if char not in "-_"):
            case "trustall":
                request.trusts_all = _yes(key, value)
            case "cafile" if isinstance(value, str):
                request.authorities = value
            case "laxredirect":
                request.follows_all = _yes(key, value)
                request.hops = HOPS if request.follows_all else request.hops
            case "redirects" if value == "all":
                request.follows_all, request.hops = True, HOPS
            case "redirects" if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100:
                request.hops = value
            case "redirects":
                request.hops = HOPS if _yes(key, value) else 0
            case "trustselfsigned":
                message = "http: `trust-self-signed` is not offered; name the certificate with `ca-file`"
                raise NothingDone(message, permanent=True)
            case _:
                message = f"http: config has no `{key}` that takes {value!r}; it has {', '.join(_CONFIG)}"
                raise NothingDone(message, permanent=True)


def _yes(key: str, value: Any) -> bool:
    if not isinstance(value, (bool, str)) or value not in _YES_OR_NO:
        raise NothingDone(f"http: config `{key}` cannot be {value!r}", permanent=True)
    return _YES_OR_NO[value]


def _has(request: Request, header: str) -> bool:
    return any(name.lower() == header for name in request.headers)


def _compose(request: Request, body: Any, charset: str, ctx: Context) -> None:
    kind = ""
    match body:
        case None:
            pass
        case bytes() | bytearray():
            request.content, kind = bytes(body), "application/octet-stream"
        case str():
            try:
                request.content, kind = body.encode(charset), f"text/plain; charset={charset}"
            except UnicodeEncodeError as error:
                raise NothingDone(f"http: the body cannot be written as {charset}: {error}", permanent=True) from None
        case _:
            request.content, kind = json.dumps(body).encode(), "application/json"
    if kind and not _has(request, "content-type"):
        request.headers["Content-Type"] = kind
    if ctx.idempotency_key and not _has(request, "idempotency-key"):
        request.headers["Idempotency-Key"] = ctx.idempotency_key
    if not _has(request, "user-agent"):
        request.headers["User-Agent"] = "holdfast"


def _result(answer: Answer, charset: str, duration: float) -> dict[str, Any]:
    headers: dict[str, list[str]] = {}
    for name, value in answer.headers.items():
        headers.setdefault(name.lower(), []).append(value)
    text = answer.text(charset)
    parsed = _parsed(text)
    is_json = parsed is not None and "json" in answer.headers.get_content_type()
    # Three copies of a long answer would not fit into a result: then it has one.
    is_long = 3 * len(answer.body) > PAYLOAD_LIMIT
    is_binary = "\ufffd" in text
    return {
        "status_code": answer.status,
        "headers": headers,
        "content": parsed[0] if parsed is not None and is_json else text,
        "content_text": None if is_long else text,
        "content_json": parsed[0] if parsed is not None and not is_long else None,
        "content_bytes": base64.b64encode(answer.body).decode() if is_binary and not is_long else None,
        "duration": round(duration, 6),
    }


def _parsed(text: str) -> tuple[Any] | None:
    """The value, in a tuple because it may be null; nothing where there is none that could be sent on."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        encode(value)  # too deep, or a number too large: it stays the text it was
    except (ValueError, OverflowError, RecursionError, TypeError):
        return None
    return (value,)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
