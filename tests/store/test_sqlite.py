"""SQLite alone: one owner, a sound file on a sound disk, and what happens when they are not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import failpoints
from holdfast.core.errors import (
    StoreDamaged,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeStore,
)
from holdfast.store import sqlite
from holdfast.store.file_systems import file_system, is_network
from holdfast.store.records import Batch
from holdfast.store.sqlite import SqliteStore, owner_of
from holdfast.store.sqlite_reading import ReadingStore

from .conftest import SmallDisk
from .rows import an_id, header, history, put, start

A = an_id(1)


def run_child(program: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(holdfast.__path__[0]).parent)},
    )


# --- one owner ----------------------------------------------------------------------------------------
def test_a_second_owner_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "h.db")
    with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
        SqliteStore(tmp_path / "h.db")
    store.close()
    SqliteStore(tmp_path / "h.db").close()


def test_the_lock_dies_with_its_owner(tmp_path: Path) -> None:
    program = (
        "import sys, time; from holdfast.store.sqlite import SqliteStore; store = SqliteStore(sys.argv[1]);"
        "print('ready', flush=True); time.sleep(600)"
    )
    owner = run_child(program, tmp_path / "h.db")
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    with pytest.raises(StoreLocked, match=f"process {owner.pid}"):
        SqliteStore(tmp_path / "h.db")
    owner.kill()
    owner.wait()
    owner.stdout.close()
    SqliteStore(tmp_path / "h.db").close()


def test_a_store_that_could_not_be_opened_leaves_no_lock_behind(tmp_path: Path) -> None:
    (tmp_path / "h.db").write_bytes(b"this is no database, although it is long enough to look" * 100)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(StoreDamaged):
        SqliteStore(tmp_path / "h.db")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    (tmp_path / "h.db").unlink()
    SqliteStore(tmp_path / "h.db").close()


def test_closing_twice_closes_nobody_elses_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "h.db")
    store.close()
    with (tmp_path / "other").open("w") as other:
        store.close()
        other.write("still open")


def test_every_engine_before_us_is_dead(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "h.db")
    assert store.living_engines() == []
    store.close()


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.store.rows import *; from holdfast.store.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1]); start(store, an_id(1)); version = 1\n"
        "while True:\n"
        "    version += 1\n"
        "    put(store, Batch(headers=[header(an_id(1), version)], history=history(an_id(1), version)))\n"
        "    print(version, flush=True)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "h.db")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": f"{Path(holdfast.__path__[0]).parent}:."},
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(0.3)
    child.kill()
    last = int(child.stdout.read().split()[-1])
    child.wait()
    child.stdout.close()
    store = SqliteStore(tmp_path / "h.db")
    with store.reading() as q:
        seqs = [row.seq for row in q.history(A, limit=1_000_000)]
        found = q.header("default", A)
    store.close()
    assert seqs == list(range(1, len(seqs) + 1))
    assert found is not None
    assert found.version == len(seqs)
    assert last <= len(seqs) <= last + 1  # the one on its way may have arrived


# --- durability -----------------------------------------------------------------------------------------
def test_every_promise_is_set_and_read_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "h.db")
    with store.reading() as q:
        assert q.rows("PRAGMA journal_mode") == [("wal",)]
        assert q.rows("PRAGMA query_only") == [(1,)]
    writer = store._writer
    assert writer.execute("PRAGMA synchronous").fetchall() == [(2,)]
    assert writer.execute("PRAGMA foreign_keys").fetchall() == [(1,)]
    store.close()


def test_a_file_system_that_cannot_do_wal_is_refused(tmp_path: Path) -> None:
    class WithoutSharedMemory(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("without-shm", "unix-none")  # has no shared memory, so no WAL

    vfs = WithoutSharedMemory()
    with pytest.raises(UnsafeStore, match="journal_mode"):
        SqliteStore(tmp_path / "h.db", vfs="without-shm")
    vfs.unregister()


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")
    with pytest.raises(UnsafeStore, match=r"3\.40\.1.*3\.51\.3"):
        SqliteStore(tmp_path / "h.db")
    assert list(tmp_path.iterdir()) == []


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/team rw shared:2 - nfs4 server:/team rw
31 22 0:41 / /mnt/with\040blank rw - cifs //server/share rw
32 30 8:2 / /mnt/team/local rw - xfs /dev/sdb1 rw
33 22 0:42 / /mnt/Büro rw - fuse.sshfs you@host:/ rw
34 22 0:43 / /mnt/usb rw - fuseblk /dev/sdc1 rw
35 22 0:44 / /over rw - ext4 /dev/sdd1 rw
36 35 0:45 / /over rw - 9p host rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/srv/h.db", "ext4", False),
        ("/mnt/team", "nfs4", True),
        ("/mnt/team/a/b", "nfs4", True),
        ("/mnt/teamwork", "ext4", False),
        ("/mnt/team/local/x", "xfs", False),
        ("/mnt/with blank/x", "cifs", True),
        ("/mnt/Büro/x", "fuse.sshfs", True),
        ("/mnt/usb/x", "fuseblk", False),
        ("/over/x", "9p", True),
    ],
)
def test_the_file_system_is_read_from_the_mount_table(path: str, kind: str, network: bool) -> None:
    assert file_system(Path(path), MOUNTS.strip()) == kind
    assert is_network(kind) is network


def test_a_network_file_system_is_refused_unless_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "file_system", lambda path: "nfs4")
    with pytest.raises(UnsafeStore, match="nfs4"):
        SqliteStore(tmp_path / "h.db")
    SqliteStore(tmp_path / "h.db", allow_network=True).close()


def test_a_link_to_a_network_file_system_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "h.db").symlink_to(tmp_path / "far" / "h.db")
    monkeypatch.setattr(sqlite, "file_system", lambda path: "nfs4" if path.name == "far" else "ext4")
    with pytest.raises(UnsafeStore, match="nfs4"):
        SqliteStore(tmp_path / "near" / "h.db")


def test_the_path_holds_when_the_process_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("sub/h.db")
    assert store.address == "sqlite:///sub/h.db"
    monkeypatch.chdir("/")
    start(store, A)
    with store.reading() as q:
        assert q.count("executions") == 1
    store.close()


# --- the disk -----------------------------------------------------------------------------------------
def test_a_disk_that_is_mounted_read_only(small_disk: SmallDisk) -> None:
    SqliteStore(small_disk.path / "h.db").close()
    small_disk.make_read_only()
    with pytest.raises(StoreReadOnly):
        SqliteStore(small_disk.path / "h.db")
    with pytest.raises(StoreReadOnly, match=r"the folder for .*h\.db cannot be made: Read-only file system"):
        SqliteStore(small_disk.path / "new" / "h.db")


def test_a_folder_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot be made: Not a directory"):
        SqliteStore(tmp_path / "file" / "new" / "h.db")


def test_a_file_that_turns_read_only_under_an_open_store(small_disk: SmallDisk) -> None:
    store = SqliteStore(small_disk.path / "h.db")
    start(store, A)
    store._writer.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreReadOnly):
        put(store, Batch(headers=[header(A, 2)]))
    store._writer.execute("PRAGMA query_only = 0")
    put(store, Batch(headers=[header(A, 2)]))
    store.close()


def fill(store: SqliteStore) -> int:
    """Commit until there is no more room; how many were acknowledged."""
    kept = 0
    try:
        while True:
            blob = (an_id(kept), b"x" * 16, os.urandom(20_000))
            put(store, Batch(headers=[header(an_id(kept))], blobs=[blob]))
            kept += 1
    except StoreFull:
        return kept


def is_intact(store: SqliteStore, kept: int) -> bool:
    with store.reading() as q:
        counts = q.count("executions"), q.count("blobs")
        sound = q.rows("PRAGMA integrity_check")
    return counts == (kept, kept) and sound == [("ok",)]


def test_a_full_disk_acknowledges_nothing_and_loses_nothing(small_disk: SmallDisk) -> None:
    store = SqliteStore(small_disk.path / "h.db")
    kept = fill(store)
    assert kept > 10
    assert is_intact(store, kept)
    with pytest.raises(StoreFull):  # and again, not something else
        put(store, Batch(headers=[header(an_id(20_000))], blobs=[(A, b"y" * 16, os.urandom(500_000))]))
    assert is_intact(store, kept)
    store.close()
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk.path)], check=True)
    store = SqliteStore(small_disk.path / "h.db")
    assert is_intact(store, kept)
    start(store, an_id(30_000))
    store.close()


def test_room_made_on_a_full_disk_is_used_without_a_restart(small_disk: SmallDisk) -> None:
    store = SqliteStore(small_disk.path / "h.db")
    kept = fill(store)
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk.path)], check=True)
    put(store, Batch(headers=[header(an_id(kept + 1))], blobs=[(an_id(kept + 1), b"x" * 16, b"fits")]))
    assert is_intact(store, kept + 1)
    store.close()


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """The same without a disk of its own: for machines where mounting is not allowed."""
    store = SqliteStore(tmp_path / "h.db")
    store._writer.execute("PRAGMA max_page_count = 200").fetchall()
    kept = fill(store)
    assert is_intact(store, kept)
    store._writer.execute("PRAGMA max_page_count = 20000").fetchall()
    start(store, an_id(30_000))
    store.close()


def test_a_disk_with_no_room_for_anything(small_disk: SmallDisk) -> None:
    ballast = os.open(small_disk.path / "ballast", os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(ballast, b"\0" * 65536)
    os.close(ballast)
    with pytest.raises(StoreFull):
        SqliteStore(small_disk.path / "h.db")
    (small_disk.path / "ballast").unlink()
    SqliteStore(small_disk.path / "h.db").close()


def test_history_survives_a_conflict_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "h.db")
    start(store, A)
    with pytest.raises(Exception, match="UNIQUE"):
        put(store, Batch(headers=[header(A, 2)], history=[*history(A, 2), *history(A, 2)]))
    assert not store._writer.in_transaction
    put(store, Batch(headers=[header(A, 2)], history=history(A, 2)))
    store.close()


def test_a_store_that_is_being_made_is_waited_for(tmp_path: Path) -> None:
    """It is neither damaged nor of an older version."""
    made: list[SqliteStore] = []
    failpoints.arm("sqlite.migrate.before:pause=0.5")
    try:
        maker = threading.Thread(target=lambda: made.append(SqliteStore(tmp_path / "s.db")))
        maker.start()
        while not owner_of(tmp_path / "s.db") or not (tmp_path / "s.db").exists():
            time.sleep(0.005)
        reading = ReadingStore(tmp_path / "s.db")
        with reading.reading() as queries:
            assert queries.headers("default") == []
        reading.close()
        maker.join()
    finally:
        failpoints.arm("")
        for store in made:
            store.close()
