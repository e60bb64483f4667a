"""`store`: a test that asks for it runs on every backend."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

from holdfast.store.port import Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore


class Backend:
    """One database, which may be opened again and looked into behind the store's back."""

    def __init__(self, kind: str, place: str) -> None:
        self.kind = kind
        self.place = place
        self._opened: list[Store] = []

    def open(self, engine_id: str = "") -> Store:
        store: Store
        if self.kind == "sqlite":
            store = SqliteStore(self.place)
        else:
            store = PostgresStore(self.place, engine_id=engine_id)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()
        self._opened.clear()

    def execute(self, sql: str) -> None:
        if self.kind == "sqlite":
            connection = apsw.Connection(self.place)
            connection.execute(sql)
            connection.close()
        else:
            with psycopg.connect(self.place, options="-csearch_path=holdfast") as session:
                session.execute(sql.encode())


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    place = str(tmp_path / "holdfast.db") if request.param == "sqlite" else request.getfixturevalue("pg_dsn")
    backend = Backend(request.param, place)
    yield backend
    backend.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.open()


@pytest.fixture
def open_pg(pg_dsn: str) -> Iterator[Callable[..., PostgresStore]]:
    """Opens stores on one database; all of them are closed afterwards."""
    opened: list[PostgresStore] = []

    def open_one(engine_id: str = "", dsn: str = pg_dsn) -> PostgresStore:
        opened.append(PostgresStore(dsn, engine_id=engine_id))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


class SmallDisk:
    """A file system of a few megabytes."""

    def __init__(self, path: Path, size: str) -> None:
        self.path = path
        path.mkdir()
        self._mount("-t", "tmpfs", "-o", f"size={size},mode=0777", "tmpfs")

    def make_read_only(self) -> None:
        self._mount("-o", "remount,ro")

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def _mount(self, *arguments: str) -> None:
        done = subprocess.run(["mount", *arguments, str(self.path)], capture_output=True, text=True, check=False)
        if done.returncode:
            reason = f"no right to mount a small disk here: {done.stderr.strip()}"
            # A machine of one's own may forbid mounting; where the build is judged, nothing is left out silently.
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path_factory.mktemp("disk") / "small", "4m")
    yield disk
    disk.unmount()
