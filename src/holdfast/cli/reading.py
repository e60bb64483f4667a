"""A store that is only read: beside its engine, without its lock, and without creating or migrating anything.

`holdfast ps`, `show` or `verify` must neither wait for the owner of a SQLite file nor keep one from starting.
PostgreSQL has no owner, so there the store itself serves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from holdfast.core.errors import StoreDamaged, StoreUnavailable, StoreVersion
from holdfast.store.address import open_store
from holdfast.store.migrate import pending
from holdfast.store.port import Store, Transaction
from holdfast.store.queries import Queries, bindable

from .settings import sqlite_path


class ReadingStore:
    """The reading half of the port, over one SQLite file."""

    kind = "sqlite"
    is_shared = False

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.address = f"sqlite:///{path}"
        self._connection = self._open()
        try:
            self._check()
        except BaseException:
            self._connection.close()
            raise

    def _open(self) -> apsw.Connection:
        try:
            try:
                connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            except apsw.CantOpenError:
                connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
            # The last one to leave would tidy up the journal; that is the engine's business.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_busy_timeout(5000)
            connection.execute("PRAGMA query_only = 1; PRAGMA wal_autocheckpoint = 0")
            return connection
        except apsw.NotADBError as error:
            raise StoreDamaged(f"{self.address} is not a sound SQLite file: {error}") from error
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.address} cannot be opened: {error}") from error

    def _check(self) -> None:
        try:
            found: Any = self._connection.execute("SELECT number, checksum FROM migrations").fetchall()
            applied: dict[int, str] = dict(found)
        except apsw.NotADBError as error:
            raise StoreDamaged(f"{self.address} is not a sound SQLite file: {error}") from error
        except apsw.Error as error:
            raise StoreDamaged(f"{self.address} is no store of Holdfast: {error}") from error
        if waiting := pending("sqlite", applied, self.address):
            raise StoreVersion(
                f"{self.address} was written by an older Holdfast ({len(waiting)} migrations behind);"
                " start an engine on it once: `holdfast up`"
            )

    def now(self) -> int:
        return time.time_ns() // 1000

    @contextmanager
    def reading(self) -> Iterator[Queries]:
        try:
            yield _Queries(self._connection)
        except apsw.CorruptError as error:
            raise StoreDamaged(f"{self.address} is damaged: {error}; restore a backup") from error
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.address} cannot be read: {error}") from error

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


class _Queries(Queries):
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, bindable(params)).fetchall()

    @contextmanager
    def consistent(self) -> Iterator[None]:
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("COMMIT")


def open_reading(address: str) -> Store:
    """The store for reading; `FileNotFoundError` where a SQLite file does not exist yet."""
    path = sqlite_path(address)
    if path is None:
        return open_store(address)
    if not path.exists():
        raise FileNotFoundError(path)
    return ReadingStore(path)
