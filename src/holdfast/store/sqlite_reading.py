"""A SQLite store that is only read: beside its engine, without its lock, without creating or migrating anything.

`holdfast ps`, `show` or `verify` must neither wait for the owner of a file nor keep one from starting. They
must also work where nothing can be written: on a full disk, on one that is mounted read-only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from holdfast.core.errors import Refused, StoreDamaged, StoreFull, StoreReadOnly, StoreUnavailable, StoreVersion

from .migrate import pending
from .port import Transaction
from .queries import Queries
from .sqlite import SqliteQueries, owner_of, translated

#: seconds for an engine that has the file open to finish its tables
BEING_MADE = 5.0


class ReadingStore:
    """The reading half of the port, over one SQLite file."""

    kind = "sqlite"
    is_shared = False

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.address = f"sqlite:///{path}"
        #: nothing was written when we opened it, and we read as if that remained so
        self._is_still = False
        try:
            self._connection = self._open()
        except (StoreFull, StoreReadOnly, StoreUnavailable) as refused:
            # A journal in WAL mode needs a -shm file even for reading. Without a journal there is nothing to share.
            is_busy = isinstance(refused.__cause__, (apsw.BusyError, apsw.LockedError))
            if is_busy or not self._is_at_rest():
                raise
            self._is_still = True
            try:
                self._connection = self._open()
            except StoreUnavailable:
                raise refused from None

    def _open(self) -> apsw.Connection:
        with translated(self.address):
            connection = self._connect()
            try:
                # The last one to leave would tidy up the journal; that is the engine's business.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.set_busy_timeout(5000)
                connection.execute("PRAGMA query_only = 1; PRAGMA wal_autocheckpoint = 0")
                self._check(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def _connect(self) -> apsw.Connection:
        if self._is_still:
            return apsw.Connection(
                f"file:{quote(str(self.path))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            )
        try:
            return apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.CantOpenError:
            return apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)

    def _is_at_rest(self) -> bool:
        """Nobody writes it, and everything that was written is in the file itself."""
        with suppress(FileNotFoundError):
            if self.path.with_name(self.path.name + "-wal").stat().st_size:
                return False
        return not self.owner()

    def _check(self, connection: apsw.Connection) -> None:
        """Whether its tables are those we know. Somebody may be making them in this very moment."""
        deadline = time.monotonic() + BEING_MADE
        while True:
            try:
                found: Any = connection.execute("SELECT number, checksum FROM migrations").fetchall()
                waiting = pending("sqlite", dict(found), self.address)
            except apsw.SQLError as error:
                refused: Refused = StoreDamaged(f"{self.address} is no store of Holdfast: {error}")
            else:
                if not waiting:
                    return
                refused = StoreVersion(
                    f"{self.address} was written by an older Holdfast ({len(waiting)} migrations behind);"
                    " start an engine on it once: `holdfast up`"
                )
            if time.monotonic() > deadline or not self.owner():
                raise refused
            time.sleep(0.05)

    def owner(self) -> str:
        """Who has the store open for writing; empty if nobody has."""
        return owner_of(self.path)

    def now(self) -> int:
        return time.time_ns() // 1000

    @contextmanager
    def reading(self) -> Iterator[Queries]:
        try:
            with translated(self.address):
                yield SqliteQueries(self._connection)
        finally:
            if self._is_still and not self._is_at_rest():
                raise StoreUnavailable(f"{self.address}: an engine began to write it meanwhile; ask again")

    def begin(self) -> Transaction:
        raise AssertionError("this store is only read")

    def living_engines(self) -> list[str] | None:
        return None

    def hint(self) -> None:
        """There is nothing to tell."""

    def on_hint(self, callback: Callable[[], None]) -> None:
        """There is nobody to hear from."""

    def close(self) -> None:
        self._connection.close()
