"""The embedded store: one SQLite file, one writing connection in one thread, many readers.

Acknowledged means fsynced: WAL with `synchronous=FULL`, every pragma read back. One engine owns the file,
held by a lock on a side file that the kernel drops when the process dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from holdfast.core.errors import (
    Conflict,
    Refused,
    StoreDamaged,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
    SyncFailed,
    UnsafeStore,
)
from holdfast.core.ids import to_key
from holdfast.core.reads import EntityKey, Key, TicketKey
from holdfast.failpoints import failpoint

from .address import sync_folder
from .file_systems import file_system, is_network
from .filling import fill
from .migrate import pending
from .queries import Queries, bindable, storable
from .records import Batch, HistoryRow, Locked
from .sqlite_entities import SqliteDialect, write_terms
from .sqlite_write import write

log = logging.getLogger("holdfast.store")

#: The first release without the WAL-reset corruption bug.
MIN_SQLITE = (3, 51, 3)


#: SQLite's file systems write less than 128 KiB at a time
_PIECE = 1 << 16


def sqlite_version() -> tuple[int, ...]:
    return tuple(int(x) for x in apsw.sqlite_lib_version().split("."))


@contextmanager
def translated(address: str) -> Iterator[None]:
    """SQLite's errors as ours; anything unknown passes."""
    try:
        yield
    except apsw.ConstraintError as error:
        if _extended(error) not in (apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_UNIQUE):
            raise
        raise Conflict(f"{address}: {error}") from error
    except apsw.Error as error:
        meant = _meaning(address, error)
        if meant is None:
            raise
        raise meant from error


def _meaning(address: str, error: apsw.Error) -> Refused | None:
    if _extended(error) in _SYNCING:
        return SyncFailed(
            f"{address}: the disk did not confirm what was written ({error}); the engine has stopped. Check the disk,"
            " then start it again: what was acknowledged is safe, and whether the last requests were kept shows then"
        )
    if _is_for_want_of_space(address, error):
        return StoreFull(f"{address}: no space left ({error}); free some; the engine goes on by itself")
    match error:
        case apsw.ReadOnlyError():
            return StoreReadOnly(f"{address} cannot be written: {error}")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{address} is held by another program: {error}")
        case apsw.CantOpenError() if _is_read_only(address):
            return StoreReadOnly(f"{address} is on a disk that cannot be written: {error}")
        case apsw.CantOpenError() | apsw.PermissionsError():
            return StoreUnavailable(f"{address} cannot be opened: {error}; check the folder's permissions")
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreDamaged(f"{address} is not a sound SQLite file: {error}; restore a backup")
        case apsw.IOError():
            return StoreUnavailable(f"{address}: input/output error: {error}")
    return None


def _is_for_want_of_space(address: str, error: apsw.Error) -> bool:
    """SQLite says so, or could not write, or could not make a file where there is no room for one."""
    if isinstance(error, apsw.FullError) or "ENOSPC" in str(error):
        return True
    if isinstance(error, apsw.IOError):
        return _extended(error) not in _READING and _is_full(address, 1 << 20)
    return isinstance(error, apsw.CantOpenError) and _is_full(address, 64 << 10)


#: input/output errors after which the system may show what is not on the disk; and those that no free space would cure
_SYNCING = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)
_READING = (apsw.SQLITE_IOERR_READ, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)


def _extended(error: apsw.Error) -> int:
    return int(getattr(error, "extendedresult", 0))


def _is_full(address: str, least: int) -> bool:
    """Whether the file system has less than `least` bytes left, or no more files to give."""
    with suppress(OSError):
        stat = os.statvfs(_folder(address))
        return stat.f_bavail * stat.f_frsize < least or (stat.f_files > 0 and stat.f_favail == 0)
    return False


def _is_read_only(address: str) -> bool:
    with suppress(OSError):
        return bool(os.statvfs(_folder(address)).f_flag & os.ST_RDONLY)
    return False


def _folder(address: str) -> Path:
    return Path(address.removeprefix("sqlite:///")).absolute().parent


def unwritable(what: str, error: OSError) -> Refused:
    """What the system says when a file or folder of a store cannot be made, as a refusal."""
    text = f"{what}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(text)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnly(text)
    return StoreUnavailable(text)


def _flock(fd: int, patience: float = 0.1) -> bool:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            # It may only have been somebody who asked whether there is an owner (`owner_of`).
            if time.monotonic() > deadline:
                return False
        time.sleep(0.01)


def lock_file(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def owner_of(path: Path) -> str:
    """Who has the store of that file open for writing, e.g. `process 7`; empty if nobody has."""
    try:
        fd = os.open(lock_file(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError:
        return "another user"  # perhaps; it cannot be ruled out
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.read(fd, 100).decode(errors="replace").strip() or "another process"
    finally:
        os.close(fd)
    return ""


class SqliteStore:
    kind = "sqlite"
    is_shared = False
    #: pages in the journal from which on they are brought into the database
    checkpoint_after = 4000

    def __init__(self, path: str | Path, *, allow_network: bool = False, vfs: str | None = None) -> None:
        self.path = Path(path).absolute()  # readers are opened later, and the process may move
        self.address = f"sqlite:///{path}"
        self._readers: list[SqliteQueries] = []
        self._reader_lock = threading.Lock()
        self._is_closed = False
        #: a sync has failed: nothing may be built upon what the system shows since
        self._failed: SyncFailed | None = None
        self._vfs = vfs
        if sqlite_version() < MIN_SQLITE:
            raise UnsafeStore(
                f"SQLite {apsw.sqlite_lib_version()} can corrupt a WAL file; Holdfast needs"
                f" {'.'.join(map(str, MIN_SQLITE))} or newer: upgrade the package apsw"
            )
        try:
            self._make_folder()
        except OSError as error:
            raise unwritable(f"the folder for {self.address} cannot be made", error) from error
        kind = file_system(self.path.resolve().parent)
        if is_network(kind) and not allow_network:
            raise UnsafeStore(
                f"{self.path} is on a network file system ({kind}), where SQLite's locks are not reliable;"
                " use a local disk, or PostgreSQL"
            )
        self._lock_fd = self._own()
        try:
            with translated(self.address):
                self._rewrite_journal()
                self._writer = self._open_writer()
                try:
                    self._migrate()
                except BaseException:
                    self._writer.close()
                    raise
        except BaseException:
            os.close(self._lock_fd)
            raise

    # --- opening ------------------------------------------------------------------------------------
    def _make_folder(self) -> None:
        folder = self.path.parent
        new = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        # SQLite has the names in its folder kept, but not the name of the folder itself.
        for path in new:
            sync_folder(path.parent)

    def _own(self) -> int:
        side = lock_file(self.path)
        try:
            fd = os.open(side, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StoreFull(f"{self.address}: no space left on the device") from error
            raise StoreReadOnly(f"{side} cannot be written: {error.strerror}") from error
        if not _flock(fd):
            owner = os.read(fd, 100).decode(errors="replace").strip() or "another process"
            os.close(fd)
            raise StoreLocked(f"{self.path} is in use by {owner}; talk to it over its API, or stop it first")
        # Only for the message to whoever comes second, so a full disk is no reason to stop here.
        with suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()}\n".encode(), 0)
        return fd

    def _rewrite_journal(self) -> None:
        """Write once more what a life that ended badly left in the journal. If a sync had failed then, the system
        may show pages that it never brought to disk and no longer means to; a commit on top of them would be
        acknowledged, and gone with them. Written again and synced, they are there. The same bytes: a power cut
        here changes nothing."""
        path = self.path.resolve()
        journal = path.with_name(path.name + "-wal")
        if not (journal.exists() and journal.stat().st_size):
            return
        file = apsw.VFSFile(self._vfs or "", str(journal), [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0])
        try:
            size = file.xFileSize()
            for at in range(0, size, _PIECE):
                file.xWrite(file.xRead(min(_PIECE, size - at), at), at)
            file.xSync(apsw.SQLITE_SYNC_NORMAL)
        finally:
            file.xClose()

    def _open_writer(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), vfs=self._vfs)
        try:
            self._make_safe(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_safe(self, connection: apsw.Connection) -> None:
        connection.set_busy_timeout(5000)
        wanted = {
            "journal_mode": "wal",
            "synchronous": 2,
            "foreign_keys": 1,
            "wal_autocheckpoint": 0,  # `_checkpoint` does it: SQLite's own would keep a failure to itself
            "journal_size_limit": 16 << 20,
            "cache_size": -32000,
            "temp_store": 2,
        }
        for name, value in wanted.items():
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
            got = connection.execute(f"PRAGMA {name}").fetchall()[0][0]
            if got != value:
                raise UnsafeStore(
                    f"{self.address}: PRAGMA {name} is {got!r} although {value!r} was asked for;"
                    " this file system or build cannot keep the promise of durability"
                )
        connection.set_wal_hook(self._checkpoint)

    def _checkpoint(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """After a commit, which stands whatever happens here."""
        if pages >= self.checkpoint_after:
            failpoint("sqlite.journal.before")
            try:
                with translated(self.address):
                    connection.wal_checkpoint(name)
            except SyncFailed as failed:
                self._fail(failed)
            except (Refused, apsw.Error) as error:
                log.warning("the journal could not be brought into the database: %s", error)
            failpoint("sqlite.journal.after")
        return apsw.SQLITE_OK

    def _fail(self, failed: SyncFailed) -> None:
        self._failed = failed

    def _migrate(self) -> None:
        run = self._writer.execute
        run("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, checksum TEXT, at INTEGER)")
        applied: dict[int, str] = dict(_rows(run("SELECT number, checksum FROM migrations")))
        for migration in pending("sqlite", applied, self.address):
            failpoint("sqlite.migrate.before")
            with self._writer:
                run(migration.sql)
                fill(migration.number, lambda sql: _rows(run(sql)), lambda rows: write_terms(self._writer, rows))
                run(
                    "INSERT INTO migrations VALUES (?, ?, ?)",
                    (migration.number, migration.checksum, self.now()),
                )
                failpoint("sqlite.migrate.written")
            failpoint("sqlite.migrate.after")

    # --- the port -----------------------------------------------------------------------------------
    def now(self) -> int:
        return time.time_ns() // 1000

    def begin(self) -> _SqliteTransaction:
        if self._failed is not None:
            raise self._failed
        return _SqliteTransaction(self._writer, self.now(), self.address, self._fail)

    @contextmanager
    def reading(self) -> Iterator[Queries]:
        with self._reader_lock:
            if self._is_closed:
                raise StoreUnavailable(f"{self.address} has been closed")
            reader = self._readers.pop() if self._readers else None
        with translated(self.address):
            if reader is None:
                reader = SqliteQueries(self._open_reader())
            try:
                yield reader
            finally:
                self._give_back(reader)

    def _give_back(self, reader: SqliteQueries) -> None:
        with self._reader_lock:
            if not self._is_closed:
                self._readers.append(reader)
            else:
                reader.connection.close()

    def _open_reader(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=self._vfs)
        connection.set_busy_timeout(5000)
        # Only the writer brings the journal into the database, also where a reader is the last to leave.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("PRAGMA query_only = 1; PRAGMA wal_autocheckpoint = 0")
        return connection

    def living_engines(self) -> list[str] | None:
        # Whoever holds the file lock is alive, and that is us: every engine before us is dead.
        return []

    def hint(self) -> None:
        """There is nobody to tell."""

    def on_hint(self, callback: Callable[[], None]) -> None:
        """There is nobody to hear from."""

    def close(self) -> None:
        with self._reader_lock:
            if self._is_closed:
                return  # the number of our lock's file may already be somebody else's
            self._is_closed = True
            for reader in self._readers:
                reader.connection.close()
            self._readers.clear()
        failpoint("sqlite.checkpoint.before")
        try:
            if self._failed is None:
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            is_safe = self._failed is None
        except apsw.Error:
            is_safe = False
        failpoint("sqlite.checkpoint.after")
        # Closing would try once more, and delete the journal if the second try seems to succeed.
        self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, not is_safe)
        self._writer.close()
        os.close(self._lock_fd)


class SqliteQueries(Queries):
    dialect = SqliteDialect()

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return _rows(self.connection.execute(sql, bindable(params)))

    def next_ticket(self) -> int:
        return int(self.rows("SELECT last FROM tickets")[0][0]) + 1

    @contextmanager
    def consistent(self) -> Iterator[None]:
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("COMMIT")


def _rows(cursor: apsw.Cursor) -> list[tuple[Any, ...]]:
    return cursor.fetchall()


class _SqliteTransaction:
    def __init__(self, connection: apsw.Connection, now: int, address: str, fail: Callable[[SyncFailed], None]) -> None:
        self.now = now
        self._fail = fail
        self._connection = connection
        self._queries = SqliteQueries(connection)
        self._address = address
        #: version of every execution locked here
        self._versions: dict[str, int] = {}
        #: the last number given here; it counts as given once it is committed
        self._ticket = 0

    def lock(self, known: Mapping[str, int]) -> dict[str, Locked | None]:
        """One engine, one writer: what the engine knows is what there is; only the unknown is read."""
        self._versions |= known
        with translated(self._address):
            found = {id: self._load(id) for id, version in known.items() if not version}
        self._versions |= {id: locked.version for id, locked in found.items() if locked}
        return found

    def _load(self, id: str) -> Locked | None:
        key = to_key(id)
        found = self._queries.rows("SELECT version, digest, snapshot, logs FROM executions WHERE id = ?", (key,))
        if not found:
            return None
        version, digest, snapshot, logs = found[0]
        rows = self._queries.rows(
            "SELECT seq, at, body, digest FROM history WHERE execution = ? AND seq > ? ORDER BY seq",
            (key, snapshot),
        )
        return Locked(
            version, digest, snapshot, logs,
            [HistoryRow(id, seq, at, body, chained) for seq, at, body, chained in rows],
            self._queries.parts(id) if snapshot else {},
        )  # fmt: skip

    def read(self, keys: Sequence[Key]) -> dict[Key, Any]:
        with translated(self._address):
            queries = self._queries
            found: dict[Key, Any] = {}
            # Of entities hundreds are asked for at once, one for every parcel.
            by_tenant: dict[str, list[str]] = {}
            for key in keys:
                if type(key) is EntityKey:
                    by_tenant.setdefault(key.tenant, []).append(key.id)
                else:
                    found[key] = self._give() if type(key) is TicketKey else queries.shared(key)
            for tenant, ids in by_tenant.items():
                rows = queries.entities_by_id(tenant, ids)
                found.update((EntityKey(tenant, id), rows.get(storable(id))) for id in ids)
            return found

    def _give(self) -> int:
        self._ticket = self._ticket + 1 if self._ticket else self._queries.next_ticket()
        return self._ticket

    def commit(self, batch: Batch) -> None:
        connection = self._connection
        try:
            with translated(self._address):
                try:
                    failpoint("sqlite.begin.before")
                    connection.execute("BEGIN IMMEDIATE")
                    failpoint("sqlite.begin.after")
                    write(connection, batch, self.now, self._versions)
                    if self._ticket:
                        connection.execute("UPDATE tickets SET last=?", (self._ticket,))
                    failpoint("sqlite.commit.before")
                    connection.execute("COMMIT")
                except BaseException:
                    # SQLite rolls back by itself on some errors (no space, I/O); on the others we do.
                    if connection.in_transaction:
                        with suppress(apsw.Error):
                            connection.execute("ROLLBACK")
                    raise
        except SyncFailed as failed:
            self._fail(failed)
            raise
        failpoint("sqlite.commit.after")

    def abort(self) -> None:
        """Nothing was written yet: the transaction begins with the commit."""
