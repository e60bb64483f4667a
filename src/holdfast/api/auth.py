"""Who is asking: API tokens, sessions of browsers, one-time login codes. Deny by default.

A token is `hf_<id>_<secret>`; the secret has 256 bits and only its SHA-256 is stored. The tenant comes from
the token and from nowhere else. A browser's session is a token too, kept in a cookie that scripts cannot read.
What a route needs is said by the route object, never by the text of an address.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from hashlib import sha256
from typing import Any

import msgspec

from holdfast.core.errors import Forbidden, TooManyAttempts, Unauthenticated, UnknownToken
from holdfast.core.model import Actor
from holdfast.engine.items import COMMIT_WAIT, future_reply
from holdfast.engine.service import Service
from holdfast.store.records import TokenRow

COOKIE = "holdfast_session"
#: seconds
SESSION_LIFE = 12 * 3600
CODE_LIFE = 300
#: A row read from the store is believed this long; another engine may have revoked it meanwhile.
BELIEF = 2.0
WINDOW = 60.0
_MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Role(IntEnum):
    """Each may do what the ones before it may; WORKER stands aside and may only work."""

    PUBLIC = 0
    VIEWER = 1
    OPERATOR = 2
    AUTHOR = 3
    ADMIN = 4
    WORKER = 9

    def allows(self, needed: Role) -> bool:
        if needed is Role.WORKER:
            return self in (Role.WORKER, Role.ADMIN)
        return self is not Role.WORKER and self >= needed


ROLES = {role.name.lower(): role for role in Role if role is not Role.PUBLIC}


class Caller(msgspec.Struct, frozen=True):
    actor: Actor
    role: Role
    token: str
    is_browser: bool = False

    def need(self, role: Role, what: str = "this") -> None:
        if not self.role.allows(role):
            mine = self.role.name.lower()
            raise Forbidden(f"{what} needs the role {role.name.lower()}; the token {self.actor.name!r} has {mine}")


def new_token(actor: Actor, role: Role, lifetime: float = 0, *, now: int | None = None) -> tuple[TokenRow, str]:
    """The row to store and the text to hand out once. No lifetime: until revoked."""
    now = time.time_ns() // 1000 if now is None else now
    id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    expires_at = now + int(lifetime * 1e6) if lifetime else 0
    row = TokenRow(id, _hash(secret), actor.tenant, actor.name, role.name.lower(), now, expires_at)
    return row, f"hf_{id}_{secret}"


def _hash(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


class Attempts:
    """Wrong tokens of the last minute, by address and by address and token id."""

    def __init__(self, limit: int = 10, most: int = 10_000) -> None:
        self.limit = limit
        self._most = most
        self._failed: dict[object, list[float]] = {}

    def is_over(self, key: object) -> bool:
        times = self._failed.get(key)
        if not times:
            return False
        since = time.monotonic() - WINDOW
        if times[0] <= since:
            times[:] = [at for at in times if at > since]
        return len(times) >= self.limit

    def failed(self, *keys: object) -> None:
        now = time.monotonic()
        for key in keys:
            times = self._failed.pop(key, [])[-self.limit + 1 :]
            self._failed[key] = [*times, now]
        while len(self._failed) > self._most:
            del self._failed[next(iter(self._failed))]


Threaded = Callable[..., Awaitable[Any]]


class Auth:
    def __init__(self, service: Service, *, attempts: int = 10) -> None:
        self._service = service
        self._attempts = Attempts(attempts)
        #: tokens of this process only: the owner's own command line, never stored
        self._local: dict[str, TokenRow] = {}
        self._believed: dict[str, tuple[TokenRow, float]] = {}
        #: SHA-256 of a one-time code → who it logs in, and until when
        self._codes: dict[bytes, tuple[Actor, Role, float]] = {}

    # --- giving --------------------------------------------------------------------------------------
    def local_token(self, name: str = "local", role: Role = Role.ADMIN, tenant: str = "default") -> str:
        """A token that ends with this process; for the 0600 file of the store's owner."""
        row, text = new_token(Actor(name, tenant), role)
        self._local[row.id] = row
        return text

    def login_code(self, name: str, role: Role, tenant: str = "default", life: float = CODE_LIFE) -> str:
        code = secrets.token_urlsafe(24)
        now = time.monotonic()
        self._codes = {key: entry for key, entry in self._codes.items() if entry[2] > now}
        self._codes[_hash(code)] = (Actor(name, tenant), role, now + life)
        return code

    def redeem(self, code: str, address: str) -> tuple[TokenRow, str]:
        """The session that a one-time code stands for; the caller stores the row. Taken out first: of two
        who come at once, one finds nothing."""
        place = ("login", address)
        if self._attempts.is_over(place):
            raise TooManyAttempts("too many wrong login links from this address; wait a minute")
        actor, role, until = self._codes.pop(_hash(code), (Actor(), Role.PUBLIC, 0.0))
        if until < time.monotonic():
            self._attempts.failed(place)
            raise Unauthenticated("this login link was used or is too old; `holdfast up` prints a new one")
        return new_token(actor, role, SESSION_LIFE)

    # --- the table -----------------------------------------------------------------------------------
    def rows(self, actor: Actor) -> list[TokenRow]:
        with self._service.store.reading() as queries:
            return [row for row in queries.tokens() if row.tenant == actor.tenant]

    def row(self, actor: Actor, id: str) -> TokenRow:
        with self._service.store.reading() as queries:
            row = queries.token(id)
        if row is None or row.tenant != actor.tenant:
            raise UnknownToken(f"no API token has the id {id[:40]!r}; GET /api/v1/tokens lists them")
        return row

    def create(self, name: str, role: Role, tenant: str = "default", lifetime: float = 0) -> str:
        """Store a new token and return it; for the owner's process. Waits for the commit."""
        row, text = new_token(Actor(name, tenant), role, lifetime)
        future, reply = future_reply()
        self._service.engine.put_tokens([row], reply)
        future.result(COMMIT_WAIT)
        return text

    def forget(self, id: str) -> None:
        self._believed.pop(id, None)

    # --- asking --------------------------------------------------------------------------------------
    async def caller(
        self, method: str, headers: Mapping[bytes, bytes], cookie: str, address: str, threaded: Threaded
    ) -> Caller | None:
        """Who this request comes from; None where it says nothing about that. A wrong token is refused even
        where none is needed."""
        given = headers.get(b"authorization")
        if given is not None:
            scheme, _, text = given.decode("latin-1").partition(" ")
            text = text.strip() if scheme.lower() == "bearer" else ""
        elif cookie:
            text = cookie
        else:
            return None
        row = await self._verify(text, address, threaded)
        caller = Caller(Actor(row.name, row.tenant), ROLES[row.role], row.id, given is None)
        if caller.is_browser and method in _MUTATING and not is_same_origin(headers):
            raise Forbidden("a request with a session cookie has to come from our own pages")
        return caller

    async def _verify(self, text: str, address: str, threaded: Threaded) -> TokenRow:
        prefix, _, rest = text.partition("_")
        id, _, secret = rest.partition("_")
        is_formed = prefix == "hf" and 0 < len(id) <= 32 and id.isalnum() and 0 < len(secret) <= 128
        if is_formed and self._attempts.is_over((address, id)):
            raise TooManyAttempts("too many wrong tokens from this address; wait a minute")
        row = await self._find(id, threaded) if is_formed else None
        # Compared in any case, so that an unknown id takes as long as a wrong secret.
        is_right = hmac.compare_digest(_hash(secret), row.hash if row is not None else b"\0" * 32)
        if row is None or not is_right or row.role not in ROLES:
            is_over = self._attempts.is_over(address)
            self._attempts.failed(address, *([(address, id)] if is_formed else []))
            if is_over:
                raise TooManyAttempts("too many wrong tokens from this address; wait a minute")
            raise Unauthenticated("the token is not valid")
        if row.is_revoked or 0 < row.expires_at <= time.time_ns() // 1000:
            raise Unauthenticated("the token was revoked" if row.is_revoked else "the token has expired")
        return row

    async def _find(self, id: str, threaded: Threaded) -> TokenRow | None:
        row = self._local.get(id)
        if row is not None:
            return row
        believed = self._believed.get(id)
        now = time.monotonic()
        if believed is not None and believed[1] > now:
            return believed[0]
        found: TokenRow | None = await threaded(self._read, id)
        if found is not None:
            if len(self._believed) >= 1000:
                self._believed.clear()
            self._believed[id] = (found, now + BELIEF)
        return found

    def _read(self, id: str) -> TokenRow | None:
        with self._service.store.reading() as queries:
            return queries.token(id)


def is_same_origin(headers: Mapping[bytes, bytes]) -> bool:
    """Browsers say where a request comes from; one that says nothing is not from our pages."""
    site = headers.get(b"sec-fetch-site")
    if site is not None and site != b"same-origin":
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return site is not None
    scheme, _, host = origin.partition(b"://")
    return scheme in (b"http", b"https") and host == headers.get(b"host")
