"""Disks that fail, in short: no wrong acknowledgement, a code for every refusal, and everything ends in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import BadConfiguration, StoreUnavailable, SyncFailed
from holdfast.embedded import server_key
from holdfast.engine import rounds
from holdfast.engine.items import future_reply
from tests.cli.support import ROOT, Background, holdfast, server_of
from tests.store.conftest import SmallDisk, small_disk

from .disk import ILLS, Ill, campaign
from .load import ACTOR, ChaosStore, Life, Said
from .power import DATABASE, failing_sync
from .vfs import Disk, failure

__all__ = ["small_disk"]


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.close()


@pytest.fixture
def life(disk: Disk, tmp_path: Path) -> Iterator[Life]:
    life = Life(ChaosStore(tmp_path / DATABASE, disk), Said(disk.log))
    yield life
    disk.fault = None
    if life.engine.is_alive:  # the test has failed
        life.crash()


@pytest.mark.parametrize("ill", ILLS, ids=lambda ill: ill.name.replace(" ", "-"))
def test_whatever_the_disk_does(ill: Ill) -> None:
    # Lives differ in length; a stride that no period of a life divides meets all kinds of calls.
    report = campaign(180, 7 if ill.verb == "sync" else 37, ills=[ill])
    assert report.violations == []
    assert isinstance(struck := report.figures["struck"], int)
    assert struck > 0


def test_an_engine_stops_at_a_sync_that_fails_and_says_why(life: Life, disk: Disk) -> None:
    life.open()
    disk.fault = failing_sync(1)
    with pytest.raises(SyncFailed, match="did not confirm"):
        life.service.start(ACTOR, definition={"name": "a", "steps": ["return 1"]})
    disk.fault = None
    assert life.wait_for(lambda: not life.engine.is_alive)
    assert "did not confirm" in life.engine.trouble
    assert isinstance(life.engine.fatal, SyncFailed)
    with pytest.raises(SyncFailed):
        life.service.start(ACTOR, definition={"name": "a", "steps": ["return 1"]})
    # Workers hear it too, at once.
    future, reply = future_reply()
    life.engine.goodbye("nobody", reply)
    with pytest.raises(SyncFailed):
        future.result(30)
    assert life.service.health().status == "reading only"
    life.crash()


def test_what_was_due_on_a_full_disk_happens_when_there_is_room(
    life: Life, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a reason to, nobody looks at the agenda again while this test runs.
    monkeypatch.setattr(rounds, "HORIZON", 3600 * rounds.SECOND)
    life.open()
    id = life.service.start(ACTOR, definition={"name": "a", "steps": ["sleep 100ms", "return 1"]}).id

    def full(verb: str, name: str, size: int) -> None:
        if verb == "write":
            raise failure(apsw.SQLITE_FULL)

    disk.fault = full
    assert life.wait_for(lambda: "no space" in life.engine.trouble)
    disk.fault = None
    assert life.service.wait(ACTOR, id, 60).status == "COMPLETED"
    life.close()


def test_nobody_waits_unanswered_for_an_engine_that_waits_for_its_disk(life: Life, disk: Disk) -> None:
    def unreadable(verb: str, name: str, size: int) -> None:
        if verb in ("read", "open"):
            raise failure(apsw.SQLITE_IOERR_READ)

    disk.fault = unreadable
    life.store.forget_readers()
    life.engine.start()
    with pytest.raises(StoreUnavailable, match="input/output error"):
        life.service.start(ACTOR, definition={"name": "a", "steps": ["return 1"]})
    disk.fault = None
    life.worker.start_in_thread()
    assert life.service.start(ACTOR, definition={"name": "a", "steps": ["return 1"]}).status == "COMPLETED"
    life.close()


def test_holdfast_up_ends_when_the_disk_does_not_confirm(tmp_path: Path) -> None:
    (tmp_path / "hi.yaml").write_text("name: hi\nsteps: [return hi]\n")
    module = str(ROOT / "tests" / "chaos" / "failing_disk.py")
    path = f"{ROOT / 'src'}:{ROOT}"
    with Background("up", "--port", "0", "-m", module, cwd=tmp_path, PYTHONPATH=path) as server:
        server_of(tmp_path)
        assert holdfast("run", "hi.yaml", cwd=tmp_path).code == 0
        (tmp_path / "the-disk-fails").touch()
        refused = holdfast("run", "hi.yaml", cwd=tmp_path)
        assert "HF0510" in refused.err, refused
        ended = server.end()
    assert ended.code == 1
    assert "error[HF0510]" in ended.err
    assert "bug" not in ended.err
    (tmp_path / "the-disk-fails").unlink()
    assert holdfast("run", "hi.yaml", cwd=tmp_path).code == 0
    assert holdfast("verify", cwd=tmp_path).code == 0


# --- the key beside the store -----------------------------------------------------------------------
def test_a_full_disk_leaves_no_half_key(small_disk: SmallDisk) -> None:
    filler = small_disk.path / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    with pytest.raises(OSError, match="space"):
        server_key(small_disk.path, {})
    assert [path.name for path in small_disk.path.iterdir()] == ["filler"]
    filler.unlink()
    key = server_key(small_disk.path, {})
    assert server_key(small_disk.path, {}) == key
    assert [path.name for path in small_disk.path.iterdir()] == ["key"]
    assert (small_disk.path / "key").stat().st_mode & 0o777 == 0o600


def test_an_empty_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n")
    with pytest.raises(BadConfiguration, match="holds no key"):
        server_key(tmp_path, {})


# --- other programs ---------------------------------------------------------------------------------
def test_another_program_that_holds_the_file_is_waited_for(life: Life, disk: Disk) -> None:
    life.open()
    other = apsw.Connection(str(life.store.path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another program"):
        life.service.start(ACTOR, definition={"name": "a", "steps": ["return 1"]})
    assert "another program" in life.engine.trouble
    other.execute("ROLLBACK")
    other.close()
    assert life.wait_for(lambda: not life.engine.trouble)
    assert life.service.start(ACTOR, definition={"name": "a", "steps": ["return 1"]}).status == "COMPLETED"
    life.close()
