"""The shared store: any number of engine processes on one PostgreSQL.

A transaction locks the headers of its executions in the order of their keys, reads what other engines
wrote meanwhile, and commits a batch. READ COMMITTED is enough: whatever a decision depends on is locked,
immutable, or guarded by a unique key. Time is the server's clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import count
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from holdfast.core.errors import Conflict, Refused, StoreDamaged, StoreUnavailable
from holdfast.core.ids import from_key, to_key
from holdfast.core.reads import Key, LockKey, SensorKey
from holdfast.failpoints import failpoint

from .filling import fill
from .migrate import pending
from .port import CommitUnknown
from .postgres_arrays import bigints, byteas, texts
from .postgres_connect import (
    LOCK_SPACE,
    LOCK_TIMEOUT,
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
from .postgres_entities import LOCK_ENTITIES, PostgresDialect, entities_to_lock, write_terms
from .postgres_presence import Presence, living
from .postgres_read import PATIENCE, SECURE, advisory_key, shared_rows
from .postgres_write import write
from .queries import Queries, bindable
from .records import Batch, HistoryRow, Locked

#: Connections for questions; whoever finds all of them busy waits.
READERS = 4
_READER_PATIENCE = 5.0
#: Seconds a reading of the server's clock is carried on by ours.
_CLOCK_KEEPS = 1.0
#: Seconds to wait for the end of a transaction that lost its connection during COMMIT.
_SETTLE = 10.0
#: What is wanted out of order is not waited for as long as the server takes to find a deadlock.
_IMPATIENT = "200ms"
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# The statement timeout must not cut short the wait for a synchronous standby: the server would then report
# success for a commit that is on one machine only.
_COMMIT = "SET LOCAL statement_timeout = 0; COMMIT"

_LOCK = "SELECT id, version, digest, snapshot, logs FROM executions WHERE id = ANY($1::bytea[]) ORDER BY id FOR UPDATE"
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
                self._clock = _Clock(_begin(self._writer)[0])
                _roll_back(self._writer)
            self._presence = Presence(self._connector, engine_id)
        except BaseException:
            discard(self._writer)
            raise

    # --- the port -----------------------------------------------------------------------------------
    def now(self) -> int:
        """The server's clock, carried on by ours for a second at a time. It is asked for all the time, and
        must not fail when the server does."""
        if self._clock.age() > _CLOCK_KEEPS:
            try:
                with self.reading() as q:
                    self._clock = _Clock(int(q.rows(f"SELECT {_CLOCK}")[0][0]))
            except Refused:
                self._clock = _Clock(self._clock.now())
        return self._clock.now()

    def begin(self) -> _PostgresTransaction:
        # Nothing has been said yet in this transaction, so a connection that died since the last one (a
        # restart of the server, a failover) is replaced without anybody noticing.
        failpoint("postgres.begin.before")
        is_fresh = False
        while True:
            writer = self._writer
            if writer is None or is_lost(writer):
                discard(writer)
                self._writer = None
                if self._is_closed:
                    raise StoreUnavailable(f"{self.address} has been closed")
                writer = self._writer = self._connector.open(WRITER)
                is_fresh = True
            try:
                with translated(self.address):
                    now, xid = _begin(writer)
                self._clock = _Clock(now)
                failpoint("postgres.begin.after")
                return _PostgresTransaction(writer, now, self.address, partial(self._settle, xid))
            except StoreUnavailable:
                if is_fresh or not is_lost(writer):
                    raise

    def _settle(self, xid: str) -> None:
        """Wait until a transaction whose connection was lost has ended one way or the other. Before that
        nobody can say whether it happened: its rows are invisible but may yet appear."""
        deadline = time.monotonic() + _SETTLE
        while time.monotonic() < deadline and not self._is_closed:
            try:
                with self.reading() as q:
                    if q.rows("SELECT pg_xact_status(?::text::xid8)", (xid,)) != [("in progress",)]:
                        return
            except StoreUnavailable:
                pass
            except psycopg.Error:
                return  # another server took over, and it does not know this transaction
            time.sleep(0.02)

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
                self._give_back(reader)
        finally:
            self._reader_slots.release()

    def _give_back(self, reader: _PostgresQueries) -> None:
        with self._reader_lock:
            if not self._is_closed:
                self._readers.append(reader)
            else:
                reader.close()

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
    """Each question is a read of its own, so one whose connection died is simply asked again."""

    dialect = PostgresDialect()

    def __init__(self, connect: Callable[[], Connection], address: str) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._address = address
        #: inside `consistent`: another connection would be another moment
        self._is_bound = False

    @contextmanager
    def consistent(self) -> Iterator[None]:
        self._ask("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())
        self._is_bound = True
        try:
            yield
        finally:
            self._is_bound = False
            try:
                if self._connection is not None and not is_lost(self._connection):
                    self._connection.execute("COMMIT")
            except psycopg.Error:
                self.close()

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._ask(_numbered(sql), bindable(params)).fetchall()

    def next_ticket(self) -> int:
        return int(self.rows("SELECT last_value + CASE WHEN is_called THEN 1 ELSE 0 END FROM tickets")[0][0])

    def _ask(self, sql: str, params: Sequence[Any]) -> psycopg.Cursor[TupleRow]:
        is_fresh = self._is_bound
        while True:
            connection = self._connection
            if connection is None or (is_lost(connection) and not self._is_bound):
                discard(connection)
                connection = self._connection = self._connect()
                is_fresh = True
            try:
                with translated(self._address):
                    return connection.execute(sql, params, binary=True)
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
    def __init__(self, connection: Connection, now: int, address: str, settle: Callable[[], None]) -> None:
        self.now = now
        self._settle = settle
        self._connection = connection
        self._address = address
        #: version of every execution locked here
        self._versions: dict[str, int] = {}
        #: what `_secure` has locked
        self._secured: set[int] = set()
        #: (tenant, id)
        self._entities: set[tuple[str, str]] = set()

    def lock(self, known: Mapping[str, int]) -> dict[str, Locked | None]:
        if not known:
            return {}
        with translated(self._address):
            return self._lock(known)

    def _lock(self, known: Mapping[str, int]) -> dict[str, Locked | None]:
        result: dict[str, Locked | None] = dict.fromkeys(known)
        self._versions |= dict.fromkeys(known, 0)
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
                    f"{self._address}: execution {id} is at {version}, but this engine has seen"
                    f" {known[id]}: the database was set back (a restore, or a failover that lost commits);"
                    " restart every engine"
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
            self._secure(keys)
            return shared_rows(self._rows, self._asked, keys)

    def _secure(self, keys: Sequence[Key]) -> None:
        """Nobody else decides about these rows before we have committed, nor makes one that does not exist yet.
        Everybody takes what has a name first, and entities after it."""
        wanted = sorted({advisory_key(key) for key in keys if isinstance(key, LockKey | SensorKey)} - self._secured)
        if wanted:
            with self._patience(not self._entities and (not self._secured or wanted[0] > max(self._secured))):
                self._rows(SECURE, [bigints(wanted)])
            self._secured.update(wanted)
        entities = sorted(entities_to_lock(self._rows, keys) - self._entities)
        if entities:
            with self._patience(not self._entities or entities[0] > max(self._entities)):
                for tenant in sorted({tenant for tenant, _ in entities}):
                    self._rows(LOCK_ENTITIES, [tenant, texts([id for owner, id in entities if owner == tenant])])
            self._entities.update(entities)

    @contextmanager
    def _patience(self, is_in_order: bool) -> Iterator[None]:
        """What is wanted out of order is waited for only a moment: its owner may be waiting for us."""
        if not is_in_order:
            self._rows(PATIENCE, [_IMPATIENT])
        try:
            yield
        except psycopg.errors.LockNotAvailable as error:
            raise Conflict(f"{self._address}: {error}") from error
        if not is_in_order:
            self._rows(PATIENCE, [LOCK_TIMEOUT])

    def commit(self, batch: Batch) -> None:
        try:
            with translated(self._address):
                # All statements leave together and are answered together: one round trip.
                with self._connection.pipeline():
                    checks = write(self._send, batch, self.now, self._versions)
                for check in checks:
                    check()
        except BaseException:
            # COMMIT was not sent, so it has not happened; the locks go now, not when somebody calls abort.
            self.abort()
            raise
        self._commit()

    def _commit(self) -> None:
        """From here to the answer a lost connection leaves the outcome open."""
        failpoint("postgres.commit.before")
        try:
            with translated(self._address):
                cursor = self._connection.execute(_COMMIT)
                cursor.nextset()
        except Exception as error:
            if is_lost(self._connection):
                self._settle()
                raise CommitUnknown(f"{self._address}: the connection was lost during COMMIT: {error}") from error
            # An answer came, and it was no: the transaction is rolled back.
            self.abort()
            raise
        except BaseException:
            # Interrupted between question and answer: nobody can use this connection any more.
            discard(self._connection)
            raise
        assert cursor.statusmessage == "COMMIT", cursor.statusmessage
        failpoint("postgres.commit.after")

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

    def _asked(self, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._rows(_numbered(sql), bindable(params))

    def _send(self, sql: str, params: Sequence[Any]) -> psycopg.Cursor[TupleRow]:
        return self._connection.execute(sql, params, prepare=True)


def _roll_back(connection: Connection) -> None:
    if connection.info.transaction_status != TransactionStatus.IDLE:
        connection.execute("ROLLBACK")


def _begin(connection: Connection) -> tuple[int, str]:
    """The time, and the number by which the server knows this transaction."""
    _roll_back(connection)  # of a transaction its caller forgot
    cursor = connection.execute(f"BEGIN; SELECT {_CLOCK}, pg_current_xact_id()::text")
    cursor.nextset()
    found = cursor.fetchone()
    assert found is not None
    return int(found[0]), found[1]


class _Clock:
    """One reading of the server's clock."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._taken = time.monotonic()

    def age(self) -> float:
        return time.monotonic() - self._taken

    def now(self) -> int:
        return self._reading + int(self.age() * 1_000_000)


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
    failpoint("postgres.migrate.before")
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
            fill(
                migration.number,
                lambda sql: connection.execute(sql, binary=True).fetchall(),
                lambda rows: write_terms(connection.execute, rows),
            )
            connection.execute(
                f"INSERT INTO migrations VALUES ($1, $2, {_CLOCK})", [migration.number, migration.checksum]
            )
            failpoint("postgres.migrate.written")
    failpoint("postgres.migrate.after")
