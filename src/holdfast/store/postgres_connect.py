"""Connections to one PostgreSQL: how they are opened, what they are checked for, what their errors mean.

Every session is made safe before it is used; a server that would not keep what it acknowledges is refused.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import conninfo, sql
from psycopg.rows import TupleRow

from holdfast.core.errors import (
    BadStoreAddress,
    Conflict,
    PayloadTooLarge,
    StoreDamaged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeStore,
)

from .postgres_arrays import register

Connection = psycopg.Connection[TupleRow]

#: The oldest release we test against that times each statement of a message by itself; see `COMMIT`.
MIN_SERVER = 14
#: Tables live in a schema of their own, so that Holdfast can move into a database that is in use.
SCHEMA = "holdfast"
#: Seconds one call spends on reconnecting before it gives up.
PATIENCE = 1.0
#: First half of every advisory lock we take: "hold".
LOCK_SPACE = 0x686F6C64
#: How long rows that somebody else has are waited for.
LOCK_TIMEOUT = "10s"
#: Second half of the lock that serialises migrations; engines use hashes of their ids.
MIGRATING = 0

# Dead peers are found by the kernel on both ends: libpq's side here, the server's in `_SESSION`.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "client_encoding": "UTF8",
}
_SESSION = {
    "search_path": SCHEMA,
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "30s",
    # An engine that stops in the middle (SIGSTOP, a suspended machine) holds its rows no longer than this…
    "idle_in_transaction_session_timeout": "5s",
    # …so whoever waits for them gets them before this runs out.
    "lock_timeout": LOCK_TIMEOUT,
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
#: Everything the committer asks goes by primary key. A table too young for statistics must not tempt the
#: planner into a sequential scan that a cached plan then repeats for ever.
WRITER = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
READER = {"default_transaction_read_only": "on", "statement_timeout": "10s", "jit": "off"}
#: Idle by nature; everything it says is one short statement.
PRESENCE = {"idle_session_timeout": "0", "statement_timeout": "5s"}

_CHECK = (
    "SELECT current_setting('fsync'), current_setting('synchronous_commit'),"
    " current_setting('server_encoding'), pg_is_in_recovery()"
)


def is_lost(connection: Connection) -> bool:
    return connection.closed or connection.pgconn.status != psycopg.pq.ConnStatus.OK


@contextmanager
def translated(address: str) -> Iterator[None]:
    """PostgreSQL's errors as ours; anything unknown passes."""
    try:
        yield
    except psycopg.Error as error:
        meant = _meaning(address, error)
        if meant is None:
            raise
        raise meant from error


def _meaning(address: str, error: psycopg.Error) -> Exception | None:
    said = str(error).strip()
    match error.sqlstate:
        case "23505" | "40001" | "40P01":
            return Conflict(f"{address}: {said}")
        case "53100":
            return StoreFull(f"{address}: no space left on the server ({said}); nothing was acknowledged")
        case "25006":
            return StoreReadOnly(f"{address} accepts no writes: {said}")
        case "54000":
            return PayloadTooLarge(f"{address}: a name or key is too long to be indexed ({said})")
        case "XX001" | "XX002":
            return StoreDamaged(f"{address}: the server reports damaged data: {said}; restore a backup")
        case "55P03":
            return StoreUnavailable(f"{address}: rows stay locked by another session: {said}")
        case "57014":
            return StoreUnavailable(f"{address}: the server took too long: {said}")
        case "42501":
            return StoreUnavailable(f"{address}: the database user lacks a right: {said}")
        case "25P03" | "25P04":
            return StoreUnavailable(f"{address}: the transaction stood still for too long: {said}")
        case str(state) if state[:2] in ("08", "53", "57", "58"):
            return StoreUnavailable(f"{address}: {said}")
        case _ if isinstance(error, psycopg.OperationalError):
            return StoreUnavailable(f"{address}: {said}")
        case _:
            return None


class Connector:
    """Opens connections to one database, each checked and set up for its role."""

    def __init__(self, dsn: str, application: str) -> None:
        given = _read(dsn)
        self.address = shown(given)
        self._parameters = {**_DEFAULTS, "application_name": application[:63], **given}

    def open(self, role: dict[str, str], patience: float = PATIENCE) -> Connection:
        """A connection ready for use. The server may just be restarting, so a refusal is not believed at
        once; the pauses are jittered, because every engine of the installation is knocking."""
        deadline = time.monotonic() + patience
        pause = 0.02
        while True:
            try:
                with translated(self.address):
                    return self._open(role)
            except StoreUnavailable:
                rest = deadline - time.monotonic()
                if rest <= 0:
                    raise
                time.sleep(min(rest, pause * random.uniform(0.5, 1.5)))  # noqa: S311
                pause *= 2

    def _open(self, role: dict[str, str]) -> Connection:
        connection = psycopg.connect("", autocommit=True, cursor_factory=psycopg.RawCursor, **self._parameters)
        try:
            self._make_safe(connection, role)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_safe(self, connection: Connection, role: dict[str, str]) -> None:
        version = connection.info.server_version // 10000
        if version < MIN_SERVER:
            raise UnsafeStore(f"{self.address} is PostgreSQL {version}; Holdfast needs {MIN_SERVER} or newer")
        found = connection.execute(_CHECK).fetchone()
        assert found is not None
        fsync, synchronous_commit, encoding, in_recovery = found
        if fsync != "on":
            raise UnsafeStore(
                f"{self.address} runs with fsync={fsync}: a power cut may destroy it; set fsync=on and"
                " restart the server"
            )
        if synchronous_commit == "off":
            raise UnsafeStore(
                f"{self.address} has synchronous_commit=off: what was acknowledged could be lost; set it to"
                " on for this database and user"
            )
        if encoding != "UTF8":
            raise UnsafeStore(f"{self.address} stores text as {encoding}; create the database with ENCODING 'UTF8'")
        if in_recovery:
            raise StoreReadOnly(f"{self.address} is a standby; connect to the primary")
        settings = sql.SQL("; ").join(
            sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            for name, value in {**_SESSION, **role}.items()
        )
        connection.execute(settings)
        register(connection)


def _read(dsn: str) -> dict[str, Any]:
    try:
        given: dict[str, Any] = conninfo.conninfo_to_dict(dsn)
        for port in str(given.get("port") or "").split(","):
            int(port or 0)
    except (psycopg.Error, ValueError):
        # libpq quotes the part it cannot read, and that part may be the password.
        raise BadStoreAddress(
            "the PostgreSQL address cannot be read; write postgresql://user:password@host:5432/database"
            " and percent-encode special characters in the password"
        ) from None
    return given


def shown(parameters: dict[str, Any]) -> str:
    """An address for people: neither the password nor anything else that may be secret."""
    user = f"{parameters['user']}@" if parameters.get("user") else ""
    host = str(parameters.get("host") or parameters.get("hostaddr") or "")
    port = f":{parameters['port']}" if parameters.get("port") else ""
    return f"postgresql://{user}{host}{port}/{parameters.get('dbname') or ''}"


def discard(connection: Connection | None) -> None:
    """Close what may already be broken."""
    if connection is not None:
        with suppress(psycopg.Error, OSError):
            connection.close()
