"""The shared store: any number of engine processes on one PostgreSQL.

A transaction locks the headers of its executions in the order of their keys, reads what other engines
wrote meanwhile, and commits a batch. READ COMMITTED is enough: whatever a decision depends on is locked,
immutable, or guarded by a unique key. Time is the server's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.core.errors import StoreDamaged, StoreUnavailable
from holdfast.core.ids import from_key, to_key
from holdfast.core.program import Key

from .migrate import pending
from .port import CommitUnknown
from .postgres_arrays import bigints, byteas
from .postgres_connect import (
    LOCK_SPACE,
    MIGRATING,
    READER,
    SCHEMA,
    WRITER,
    Connection,
    Connector,
    discard,
    is_lost,
    translated,
)
from .postgres_presence import Presence, living
from .postgres_read import shared_rows
from .postgres_write import write
from .queries import Queries, bindable
from .records import Batch, HistoryRow, Locked

#: Connections for questions; whoever finds all of them busy waits.
READERS = 4
_READER_PATIENCE = 5.0
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# The statement timeout must not cut short the wait for a synchronous standby: the server would then report
# success for a commit that is on one machine only.
_COMMIT = "SET LOCAL statement_timeout = 0; COMMIT"

_LOCK = (
    "SELECT id, version, digest, snapshot, logs FROM executions WHERE id = ANY($1::bytea[])"
    " ORDER BY id FOR UPDATE"
)
_NEWER = (
    "SELECT h.execution, h.seq, h.at, h.body, h.digest FROM unnest($1::bytea[], $2::bigint[]) AS k(id, seq)"
    " JOIN history AS h ON h.execution = k.id AND h.seq > k.seq ORDER BY h.execution, h.seq"
)
_PARTS = "SELECT execution, part, data FROM parts WHERE execution = ANY($1::bytea[])"


class PostgresStore:
    kind = "postgres"
    is_shared = True

    def __init__(self, dsn: str, *, engine_id: str = "") -> None:
        self._connector = Connector(dsn, f"holdfast {engine_id}".strip())
        self.address = self._connector.address
        self._writer: Connection | None = self._connector.open(WRITER)
        self._readers: list[_PostgresQueries] = []
        self._reader_lock = threading.Lock()
        self._reader_slots = threading.BoundedSemaphore(READERS)
        self._is_closed = False
        try:
            with translated(self.address):
                _migrate(self._writer, self.address)
            self._presence = Presence(self._connector, engine_id)
        except BaseException:
            discard(self._writer)
            raise

    # --- the port -----------------------------------------------------------------------------------
    def now(self) -> int:
        with self.reading() as q:
            return int(q.rows(f"SELECT {_CLOCK}")[0][0])

    def begin(self) -> _PostgresTransaction:
        # Nothing has been said yet in this transaction, so a connection that died since the last one (a
        # restart of the server, a failover) is replaced without anybody noticing.
        for is_last_try in (False, True):
            writer = self._writer
            if writer is None or is_lost(writer):
                discard(writer)
                self._writer = None
                if self._is_closed:
                    raise StoreUnavailable(f"{self.address} has been closed")
                writer = self._writer = self._connector.open(WRITER)
            try:
                with translated(self.address):
                    return _PostgresTransaction(writer, _begin(writer), self.address)
            except StoreUnavailable:
                if is_last_try or not is_lost(writer):
                    raise
        raise AssertionError

    @contextmanager
    def reading(self) -> Iterator[Queries]:
        if not self._reader_slots.acquire(timeout=_READER_PATIENCE):
            raise StoreUnavailable(f"{self.address}: all {READERS} reading connections are busy; try again")
        try:
            with self._reader_lock:
                if self._is_closed:
                    raise StoreUnavailable(f"{self.address} has been closed")
                reader = self._readers.pop() if self._readers else None
            reader = reader or _PostgresQueries(lambda: self._connector.open(READER), self.address)
            try:
                yield reader
            finally:
                with self._reader_lock:
                    if not self._is_closed:
                        self._readers.append(reader)
                    else:
                        reader.close()
        finally:
            self._reader_slots.release()

    def living_engines(self) -> list[str] | None:
        """Engines whose process holds its advisory lock now. Absent means dead, or cut off for as long as
        it takes to reconnect: believe it only when it lasts."""
        with self.reading() as q:
            return living(q)

    def hint(self) -> None:
        """Tell the other engines that something was committed. Never waits; may be lost."""
        self._presence.hint()

    def on_hint(self, callback: Callable[[], None]) -> None:
        """Call back, from a thread of ours, after another engine's hint. It must return at once."""
        self._presence.on_hint(callback)

    def close(self) -> None:
        with self._reader_lock:
            self._is_closed = True
            readers, self._readers = self._readers, []
        for reader in readers:
            reader.close()
        self._presence.close()
        discard(self._writer)
        self._writer = None


class _PostgresQueries(Queries):
    """Each question is a read of its own in autocommit, so one whose connection died is simply asked again."""

    def __init__(self, connect: Callable[[], Connection], address: str) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._address = address

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        is_fresh = False
        while True:
            connection = self._connection
            if connection is None or is_lost(connection):
                discard(connection)
                connection = self._connection = self._connect()
                is_fresh = True
            try:
                with translated(self._address):
                    return connection.execute(_numbered(sql), bindable(params), binary=True).fetchall()
            except StoreUnavailable:
                if is_fresh or not is_lost(connection):
                    raise

    def close(self) -> None:
        discard(self._connection)
        self._connection = None


@lru_cache(maxsize=512)
def _numbered(sql: str) -> str:
    """`?` as `$1`, `$2`, …"""
    first, *rest = sql.split("?")
    numbers = count(1)
    return first + "".join(f"${next(numbers)}{piece}" for piece in rest)


class _PostgresTransaction:
    def __init__(self, connection: Connection, now: int, address: str) -> None:
        self.now = now
        self._connection = connection
        self._address = address
        #: version of every execution locked here
        self._versions: dict[str, int] = {}

    def lock(self, known: Mapping[str, int]) -> dict[str, Locked | None]:
        if not known:
            return {}
        with translated(self._address):
            return self._lock(known)

    def _lock(self, known: Mapping[str, int]) -> dict[str, Locked | None]:
        result: dict[str, Locked | None] = dict.fromkeys(known)
        keys: list[bytes] = []
        after: list[int] = []
        whole: list[bytes] = []
        for key, version, digest, snapshot, logs in self._rows(_LOCK, [byteas([to_key(id) for id in known])]):
            id = from_key(key)
            self._versions[id] = version
            if known[id] == version:
                del result[id]
                continue
            if known[id] > version:
                raise StoreDamaged(
                    f"{self._address}: execution {id} is at {version}, but this engine has seen {known[id]}: the"
                    " database was set back (a restore, or a failover that lost commits); restart every engine"
                )
            result[id] = Locked(version, digest, snapshot, logs, [], {})
            keys.append(key)
            after.append(known[id] or snapshot)
            if snapshot and not known[id]:
                whole.append(key)
        # The rows are locked now: what follows sees everything up to their versions and nothing beyond.
        if keys:
            for key, seq, at, body, digest in self._rows(_NEWER, [byteas(keys), bigints(after)]):
                locked = result[id := from_key(key)]
                assert locked is not None
                locked.rows.append(HistoryRow(id, seq, at, body, digest))
        if whole:
            for key, part, data in self._rows(_PARTS, [byteas(whole)]):
                locked = result[from_key(key)]
                assert locked is not None
                locked.parts[part] = data
        return result

    def read(self, keys: Sequence[Key]) -> dict[Key, Any]:
        with translated(self._address):
            return shared_rows(self._rows, keys)

    def commit(self, batch: Batch) -> None:
        try:
            with translated(self._address):
                write(self._run, batch, self.now, self._versions)
        except BaseException:
            # COMMIT was not sent, so it has not happened; the locks go now, not when somebody calls abort.
            self.abort()
            raise
        self._commit()

    def _commit(self) -> None:
        """From here to the answer a lost connection leaves the outcome open."""
        try:
            with translated(self._address):
                cursor = self._connection.execute(_COMMIT)
                cursor.nextset()
        except Exception as error:
            if is_lost(self._connection):
                raise CommitUnknown(
                    f"{self._address}: the connection was lost during COMMIT: {error}"
                ) from error
            # An answer came, and it was no: the transaction is rolled back.
            self.abort()
            raise
        except BaseException:
            # Interrupted between question and answer: nobody can use this connection any more.
            discard(self._connection)
            raise
        assert cursor.statusmessage == "COMMIT", cursor.statusmessage

    def abort(self) -> None:
        if is_lost(self._connection):
            return
        try:
            _roll_back(self._connection)
        except psycopg.Error:
            # The server rolls back whatever has lost its connection.
            discard(self._connection)

    def _rows(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, params, prepare=True, binary=True).fetchall()

    def _run(self, sql: str, params: Sequence[Any]) -> int:
        return self._connection.execute(sql, params, prepare=True).rowcount


def _roll_back(connection: Connection) -> None:
    if connection.info.transaction_status != TransactionStatus.IDLE:
        connection.execute("ROLLBACK")


def _begin(connection: Connection) -> int:
    _roll_back(connection)  # of a transaction its caller forgot
    cursor = connection.execute(f"BEGIN; SELECT {_CLOCK}")
    cursor.nextset()
    found = cursor.fetchone()
    assert found is not None
    return int(found[0])


def _migrate(connection: Connection, address: str) -> None:
    """All that is missing in one transaction, one engine at a time. An engine with nothing to do needs no
    right to create anything."""

    def applied() -> dict[int, str]:
        there = connection.execute("SELECT to_regclass($1)", [f"{SCHEMA}.migrations"]).fetchone()
        assert there is not None
        if there[0] is None:
            return {}
        return dict(connection.execute("SELECT number, checksum FROM migrations").fetchall())

    if not pending("postgres", applied(), address):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock($1::int, $2::int)", [LOCK_SPACE, MIGRATING])
        found = connection.execute("SELECT to_regnamespace($1)", [SCHEMA]).fetchone()
        assert found is not None
        if found[0] is None:
            connection.execute(f"CREATE SCHEMA {SCHEMA}")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (number bigint PRIMARY KEY, checksum text, at bigint)"
        )
        for migration in pending("postgres", applied(), address):
            connection.execute(migration.sql)
            connection.execute(
                f"INSERT INTO migrations VALUES ($1, $2, {_CLOCK})", [migration.number, migration.checksum]
            )
