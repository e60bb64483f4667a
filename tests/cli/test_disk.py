"""Disks that are full or read-only: a store that cannot be written is neither damaged nor a bug."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import StoreDamaged, StoreFull, StoreReadOnly, StoreUnavailable
from holdfast.store.address import open_reading
from holdfast.store.sqlite import SqliteStore, owner_of
from holdfast.store.sqlite_reading import ReadingStore
from tests.store.conftest import SmallDisk

from .support import Background, holdfast, until

HI = "name: hi\nsteps: [return hi]\n"


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path_factory.mktemp("disk") / "small", "4m")
    (disk.path / "hi.yaml").write_text(HI)
    yield disk
    disk.unmount()


def fill(folder: Path) -> Path:
    """Not a byte more fits."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return path


def codes(*arguments: str, cwd: Path) -> tuple[int, str]:
    done = holdfast(*arguments, cwd=cwd)
    assert "bug" not in done.err, done
    assert "HF0509" not in done.err + done.out, done
    return done.code, done.err


def test_a_read_only_folder_without_a_store(disk: SmallDisk) -> None:
    disk.make_read_only()
    for command in (["run", "hi.yaml"], ["up"]):
        code, said = codes(*command, cwd=disk.path)
        assert code == 1
        assert "error[HF0503]: .holdfast cannot be made: Read-only file system" in said


def test_a_store_in_a_folder_that_cannot_be_made(disk: SmallDisk, tmp_path: Path) -> None:
    disk.make_read_only()
    (tmp_path / "hi.yaml").write_text(HI)
    for command in (["run", "hi.yaml"], ["up"]):
        code, said = codes(*command, "--store", str(disk.path / "new" / "h.db"), cwd=tmp_path)
        assert code == 1
        assert "error[HF0503]: the folder for sqlite:///" in said
        assert "new/h.db cannot be made: Read-only file system" in said


def test_a_full_folder_without_a_store(disk: SmallDisk) -> None:
    fill(disk.path)
    for command in (["run", "hi.yaml"], ["up"]):
        code, said = codes(*command, cwd=disk.path)
        assert code == 1
        assert "error[HF0502]" in said


@pytest.mark.parametrize("is_full", [True, False])
def test_a_store_at_rest_is_read_where_nothing_can_be_written(disk: SmallDisk, is_full: bool) -> None:
    assert holdfast("run", "hi.yaml", cwd=disk.path).code == 0
    if is_full:
        fill(disk.path)
    else:
        disk.make_read_only()
    assert len(holdfast("ps", "-o", "json", cwd=disk.path).json) == 1
    assert codes("verify", cwd=disk.path)[0] == 0
    checks = {check["name"]: check for check in holdfast("doctor", "-o", "json", cwd=disk.path).json["checks"]}
    assert checks["store"]["state"] == "ok", checks
    assert "1 executions" in checks["store"]["text"]


def test_a_journal_is_not_passed_over(disk: SmallDisk, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "h.db")
    for name in ("h.db", "h.db-wal"):  # as a crash leaves them
        shutil.copy(tmp_path / name, disk.path / name)
    store.close()
    assert (disk.path / "h.db-wal").stat().st_size
    filler = fill(disk.path)
    with pytest.raises(StoreFull):
        ReadingStore(disk.path / "h.db")
    filler.unlink()
    ReadingStore(disk.path / "h.db").close()
    for left in disk.path.glob("h.db-shm"):
        left.unlink()
    disk.make_read_only()
    with pytest.raises((StoreReadOnly, StoreUnavailable)):
        ReadingStore(disk.path / "h.db")


def test_an_owner_is_not_passed_over(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = disk.path / "h.db"
    SqliteStore(path).close()
    fill(disk.path)
    monkeypatch.setattr("holdfast.store.sqlite_reading.owner_of", lambda path: "process 7")
    with pytest.raises(StoreFull):
        ReadingStore(path)
    monkeypatch.undo()
    store = ReadingStore(path)
    monkeypatch.setattr("holdfast.store.sqlite_reading.owner_of", lambda path: "process 7")
    with pytest.raises(StoreUnavailable, match="ask again"), store.reading() as queries:
        queries.count("executions")
    store.close()


def test_what_is_damaged_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database at all, and long enough to be looked at as one" * 20)
    apsw.Connection(str(tmp_path / "other.db")).execute("CREATE TABLE x (y)")
    for name in ("text.db", "other.db"):
        with pytest.raises(StoreDamaged):
            open_reading(str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        open_reading(str(tmp_path / "none.db"))


def test_the_lock_tells_who_owns_a_store(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    assert owner_of(path) == ""
    store = SqliteStore(path)
    assert owner_of(path) == f"process {os.getpid()}"
    reader = ReadingStore(path)
    assert reader.owner() == f"process {os.getpid()}"
    store.close()
    assert reader.owner() == ""
    reader.close()


def test_a_run_whose_disk_is_full_says_so_and_goes_on(disk: SmallDisk) -> None:
    (disk.path / "long.yaml").write_text("name: long\nsteps: [shell sleep 4, shell echo x, return done]\n")
    with Background("run", "long.yaml", cwd=disk.path) as run:
        id = until(lambda: holdfast("ps", "-s", "open", "-o", "json", cwd=disk.path).json)[0]["id"]
        (disk.path / ".holdfast" / "server.json").unlink(missing_ok=True)
        filler = fill(disk.path)
        why = holdfast("why", id, cwd=disk.path)
        assert why.code == 0, why
        assert "no engine is running" not in " ".join(why.out.lower().split())
        assert f"process {run.process.pid} has the store open" in " ".join(why.out.lower().split())
        assert run.process.stderr is not None
        said = ""
        while "waiting: " not in said:
            line = run.process.stderr.readline()
            assert line, said
            said += line
        assert "no space left" in said
        filler.unlink()
        done = run.end()
    assert (done.code, done.out) == (0, "done\n"), done
    assert "the store is well again" in done.err
