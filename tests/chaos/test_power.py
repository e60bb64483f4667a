"""Power loss in short: nothing acknowledged is lost, and the judges can see. `tests.chaos.power` does it at length."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import SyncFailed
from holdfast.store.records import Batch
from tests.store.rows import an_id, header, history, put, start

from .load import ChaosStore
from .power import DATABASE, Platter, campaign, failing_sync, moments, trace
from .vfs import Change, Disk

A = an_id(1)


# --- images -----------------------------------------------------------------------------------------
def test_nothing_acknowledged_is_lost_when_the_power_goes() -> None:
    report = campaign(500, seed=7)
    assert report.violations == []
    figures = report.figures
    assert figures["images"] == 500
    assert figures["booted"] == 10
    # A pass means something only where the rare moments were met.
    met = figures["moments"]
    assert isinstance(met, dict)
    for moment in ("first migration", "commit", "checkpoint", "journal begun again", "journal truncated"):
        assert met[moment] > 0, figures


def test_the_judges_see_what_synchronous_normal_loses() -> None:
    figures = campaign(150, seed=8, synchronous="NORMAL").figures
    assert isinstance(figures["lost"], int)
    assert figures["lost"] > 0, figures


def test_the_judges_see_what_synchronous_off_destroys() -> None:
    figures = campaign(100, seed=9, synchronous="OFF").figures
    assert isinstance(figures["corrupt"], int)
    assert figures["corrupt"] > 0, figures


# --- a sync that failed -----------------------------------------------------------------------------
def versions(store: ChaosStore) -> list[int]:
    with store.reading() as queries:
        return [row.seq for row in queries.history(A)]


@pytest.mark.parametrize("is_trusting", [False, True])
def test_a_commit_on_top_of_a_failed_sync_is_not_lost_with_it(tmp_path: Path, is_trusting: bool) -> None:
    """The system forgets what it could not sync, goes on showing it, and syncs what comes after. `is_trusting` is the
    store without its precaution: then the last commit is acknowledged, and gone."""
    disk = Disk()
    (tmp_path / "life").mkdir()
    store = ChaosStore(tmp_path / "life" / DATABASE, disk)
    start(store, A)
    disk.fault = failing_sync(1)
    with pytest.raises(SyncFailed):
        put(store, Batch(headers=[header(A, 2)], history=history(A, 2)))
    disk.fault = None
    with pytest.raises(SyncFailed):
        store.begin()  # no second try, although the disk would say yes now
    store.close()
    store = ChaosStore(tmp_path / "life" / DATABASE, disk, is_trusting=is_trusting)
    assert versions(store) == [1, 2]  # shown from memory
    put(store, Batch(headers=[header(A, 3)], history=history(A, 3)))
    platter = Platter(disk.log, 0, survives=0.0)
    platter.advance(len(disk.log))
    store.crash()
    disk.close()
    (tmp_path / "image").mkdir()
    for name, content in platter.certain().items():
        (tmp_path / "image" / name).write_bytes(content)
    store = ChaosStore(tmp_path / "image" / DATABASE)
    assert versions(store) == ([1] if is_trusting else [1, 2, 3])
    store.close()


def test_a_failed_sync_of_a_checkpoint_is_heard(tmp_path: Path) -> None:
    disk = Disk()
    store = ChaosStore(tmp_path / DATABASE, disk, pages=1)
    start(store, A)

    def fault(verb: str, name: str, size: int) -> None:
        if verb == "sync" and name == DATABASE:
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)

    disk.fault = fault
    put(store, Batch(headers=[header(A, 2)], history=history(A, 2)))  # in the journal, and synced there
    with pytest.raises(SyncFailed):
        store.begin()
    disk.fault = None
    before = len(disk.log)
    store.close()
    assert disk.log[before:] == []  # nothing is tried again
    store = ChaosStore(tmp_path / DATABASE, disk)
    assert versions(store) == [1, 2]
    store.close()
    disk.close()


def test_a_journal_that_cannot_be_checkpointed_at_the_end_is_kept(tmp_path: Path) -> None:
    disk = Disk()
    store = ChaosStore(tmp_path / DATABASE, disk)
    start(store, A)
    disk.fault = failing_sync(2)  # of the database: the journal itself comes first
    store.close()
    disk.fault = None
    assert (tmp_path / f"{DATABASE}-wal").stat().st_size > 0
    store = ChaosStore(tmp_path / DATABASE, disk)
    assert versions(store) == [1]
    store.close()
    disk.close()


# --- the model --------------------------------------------------------------------------------------
def test_what_was_synced_is_in_every_image_and_the_rest_in_some() -> None:
    log = [
        Change("create", 1, "a"),
        Change("write", 1, "", 0, b"x" * 8192),
        Change("sync", 1),
        Change("folder-sync", 0),
        Change("write", 1, "", 4096, b"y" * 8192),
        Change("size", 1, "", 100),
        Change("create", 2, "b"),
    ]
    platter = Platter(log, 0)
    platter.advance(len(log))
    rng = random.Random(1)
    images = [platter.image(rng) for _ in range(300)]
    assert all(image["a"][:100] == b"x" * 100 for image in images)
    assert {len(image["a"]) for image in images} >= {100, 8192, 12288}
    assert {"b" in image for image in images} == {True, False}
    torn = [image["a"] for image in images if len(image["a"]) == 12288 and b"x" in image["a"][4096:8192]]
    assert any(b"y" in content[4096:8192] for content in torn)


def test_a_trace_tells_of_checkpoints_and_of_the_end_of_journals(tmp_path: Path) -> None:
    traced = trace(tmp_path, 4)
    kinds = {change.kind for change in traced.log}
    assert kinds == {"write", "size", "sync", "create", "delete", "folder-sync"}
    assert traced.said.marks
    # Everything that was ever said is true at the end.
    for mark in traced.said.marks:
        assert traced.truth[mark.execution][mark.version] == mark.digest
    cuts = moments(traced, 100, random.Random(0))
    assert cuts == sorted(cuts)
    assert cuts[-1] <= len(traced.log)
