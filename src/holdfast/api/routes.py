"""Routes as objects: each says its method, address, role, parameters, answers and refusals — once.

The guard, the router, the OpenAPI document and the tests read the same objects. There is no default role: a
route without one cannot be written. Addresses match exactly, part by part, before anything is decoded.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from holdfast.core.errors import (
    Forbidden,
    InvalidRequest,
    MalformedRequest,
    MethodNotAllowed,
    NoSuchRoute,
    PayloadTooLarge,
    Refused,
    ShuttingDown,
    StoreUnavailable,
    SyncFailed,
    TooBusy,
    TooManyAttempts,
    Unauthenticated,
)
from holdfast.core.model import PAYLOAD_LIMIT, Actor
from holdfast.engine.service import Service

from .auth import Caller, Role
from .strict import list_fields, read_segment

if TYPE_CHECKING:
    from .app import App

API = "/api/v1"
#: A value at its limit, and what stands around it.
BODY_LIMIT = PAYLOAD_LIMIT + 64 * 1024
JSON = "application/json"
YAML = "application/yaml"
MSGPACK = "application/x-msgpack"
SSE = "text/event-stream"

Q = TypeVar("Q")
B = TypeVar("B")


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


class Call(Generic[Q, B]):
    """One request, read and checked, on its way into a handler."""

    __slots__ = ("app", "body", "caller", "headers", "path", "query", "raw", "route", "scope")

    def __init__(
        self,
        app: App,
        route: Route,
        scope: Any,
        headers: Mapping[bytes, bytes],
        caller: Caller | None,
        path: dict[str, str],
        query: Q,
        body: B,
        raw: bytes,
    ) -> None:
        self.app = app
        self.route = route
        self.scope = scope
        self.headers = headers
        self.caller = caller
        self.path = path
        self.query = query
        self.body = body
        #: the body as it came
        self.raw = raw

    @property
    def service(self) -> Service:
        return self.app.service

    @property
    def actor(self) -> Actor:
        assert self.caller is not None, "a public route must not look at data"
        return self.caller.actor

    @property
    def id(self) -> str:
        """The whole id of the execution in the address, of which the beginning suffices."""
        return self.service.resolve(self.actor, self.path["id"])

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def media(self) -> str:
        return self.header(b"content-type").partition(";")[0].strip().lower()


@dataclass(slots=True)
class Reply:
    """An answer that is more than its value."""

    value: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    #: already encoded; `value` is not looked at
    data: bytes | None = None
    media: str = JSON


@dataclass(slots=True)
class Stream:
    """An answer without end: what `chunks` yields, until it stops or nobody listens any more."""

    chunks: AsyncIterator[bytes]
    media: str = SSE


Handler = Callable[[Any], Any]

#: Every route that looks at a token may answer with these.
_GUARD: tuple[type[Refused], ...] = (Unauthenticated, Forbidden, TooManyAttempts)
_ALWAYS: tuple[type[Refused], ...] = (
    MalformedRequest,
    InvalidRequest,
    TooBusy,
    ShuttingDown,
    StoreUnavailable,
    SyncFailed,
)


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    role: Role
    handler: Handler
    tag: str
    query: type[msgspec.Struct]
    #: what the body has to be; None where none is read
    body: Any
    #: content types the body may have
    accepts: tuple[str, ...]
    #: type of the answer; None where it is not JSON
    answer: Any
    media: str
    #: may also answer as server-sent events
    streams: bool
    status: int
    #: other good statuses and what they mean
    also: Mapping[int, str]
    refusals: tuple[type[Refused], ...]
    limit: int
    is_async: bool
    lists: frozenset[str]
    parts: tuple[str, ...]
    #: where in the address the parameters are
    places: tuple[tuple[int, str], ...]

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.handler) or "").partition("\n\n")[0].replace("\n", " ")

    @property
    def name(self) -> str:
        """Unique; the operation id of the OpenAPI document."""
        return f"{self.tag}_{self.handler.__name__}"

    def all_refusals(self) -> list[type[Refused]]:
        guard = _GUARD if self.role is not Role.PUBLIC else (Unauthenticated, TooManyAttempts)
        body = (PayloadTooLarge,) if self.body is not None else ()
        return list(dict.fromkeys([*guard, *_ALWAYS, *body, *self.refusals]))


class Table:
    """The routes of one file."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.routes: list[Route] = []

    def add(
        self,
        method: str,
        path: str,
        *,
        role: Role,
        answer: Any = None,
        query: type[msgspec.Struct] = Nothing,
        body: Any = None,
        accepts: tuple[str, ...] = (JSON,),
        media: str = JSON,
        streams: bool = False,
        status: int = 200,
        also: Mapping[int, str] | None = None,
        refusals: tuple[type[Refused], ...] = (),
        limit: int = BODY_LIMIT,
    ) -> Callable[[Handler], Handler]:
        parts = tuple(path.split("/")[1:])

        def register(handler: Handler) -> Handler:
            assert inspect.getdoc(handler), f"{method} {path} has no summary"
            self.routes.append(
                Route(
                    method=method,
                    path=path,
                    role=role,
                    handler=handler,
                    tag=self.tag,
                    query=query,
                    body=body,
                    accepts=accepts,
                    answer=answer,
                    media=media,
                    streams=streams,
                    status=status,
                    also=also or {},
                    refusals=refusals,
                    limit=limit,
                    is_async=inspect.iscoroutinefunction(handler),
                    lists=list_fields(query),
                    parts=parts,
                    places=tuple((at, part[1:-1]) for at, part in enumerate(parts) if part.startswith("{")),
                )
            )
            return handler

        return register


class _Node:
    __slots__ = ("fixed", "param", "routes")

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.param: _Node | None = None
        self.routes: dict[str, Route] = {}


class Router:
    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = list(routes)
        self._root = _Node()
        for route in self.routes:
            node = self._root
            for part in route.parts:
                if part.startswith("{"):
                    node.param = node.param or _Node()
                    node = node.param
                else:
                    node = node.fixed.setdefault(part, _Node())
            assert route.method not in node.routes, f"{route.method} {route.path} is declared twice"
            node.routes[route.method] = route

    def __iter__(self) -> Iterator[Route]:
        return iter(self.routes)

    def find(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
        """The route and its parameters. `raw_path` is as sent: only parameters are decoded, and each by
        itself, so that no encoding can make an address mean another one."""
        parts = raw_path.split("/")[1:]
        wanted = "GET" if method == "HEAD" else method
        is_short = len(parts) <= 16 and len(raw_path) <= 2000
        found = (_walk(self._root, parts, 0, wanted) or _walk(self._root, parts, 0)) if is_short else None
        if found is None:
            raise NoSuchRoute(f"there is nothing at {raw_path[:100]}; GET {API}/openapi.json lists what there is")
        route = found.routes.get(wanted)
        if route is None:
            allowed = ", ".join(sorted(found.routes))
            refused = MethodNotAllowed(f"{raw_path[:100]} understands {allowed}, not {method[:20]}")
            vars(refused)["allow"] = allowed
            raise refused
        return route, {name: read_segment(parts[at]) for at, name in route.places}


def _walk(node: _Node, parts: list[str], index: int, method: str = "") -> _Node | None:
    """Fixed parts go first, where there is something for that method: an entity may be called `import`."""
    if index == len(parts):
        return node if (method in node.routes if method else node.routes) else None
    fixed = node.fixed.get(parts[index])
    if fixed is not None:
        found = _walk(fixed, parts, index + 1, method)
        if found is not None:
            return found
    if node.param is not None and parts[index]:
        return _walk(node.param, parts, index + 1, method)
    return None
