"""The archive: what a line holds, and that reading takes each execution and run once."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from holdfast.core import events as e
from holdfast.core.codec import chain, pack
from holdfast.core.errors import BadArchive
from holdfast.core.model import BlobRef, Status, blob_digest
from holdfast.core.views import ExecutionView, Progress, Summary
from holdfast.engine import archive
from holdfast.engine.archive import Line
from holdfast.store.port import Store
from holdfast.store.records import Batch, HistoryRow
from tests.store.rows import T0, an_id, header, put

A, B = an_id(1), an_id(2)


def line(id: str, run: int = 1, events: int = 1, archived_at: int = T0, ended_at: int = T0) -> Line:
    view = ExecutionView(
        id, "w", 0, "COMPLETED", True, None, Progress(0, 0), None, None, [], {}, "me", run, events, T0, T0, ended_at, T0
    )
    facts = [{"seq": n + 1, "at": T0, "type": "Thing"} for n in range(events)]
    return Line(id=id, run=run, tenant="default", archived_at=archived_at, execution=view, events=facts, logs=[])


def test_each_execution_and_run_is_read_once_and_as_it_was_last(tmp_path: Path) -> None:
    archive.write(tmp_path, [line(A, ended_at=T0 + 5), line(B)], T0)
    archive.write(tmp_path, [line(A, archived_at=T0 + 1, ended_at=T0 + 5)], T0 + 1)  # a crash came between
    archive.write(tmp_path, [line(A, run=2, events=3, archived_at=T0 + 2, ended_at=T0 + 9)], T0 + 2)  # a restored copy
    found = archive.heads(tmp_path)
    assert [(head.id, head.run, head.archived_at) for head, _ in found] == [(B, 1, T0), (A, 1, T0 + 1), (A, 2, T0 + 2)]
    assert sorted((one.id, one.run, len(one.events)) for one in archive.lines(tmp_path, found)) == sorted(
        [(B, 1, 1), (A, 1, 1), (A, 2, 3)]
    )
    assert [(head.id, head.run) for head, _ in archive.find(tmp_path, A[:9].upper())] == [(A, 2)]
    assert archive.find(tmp_path, "ffffffff") == []


def test_files_lie_in_a_folder_per_day_and_are_their_owners_alone(tmp_path: Path) -> None:
    path = archive.write(tmp_path / "deep" / "archive", [line(A)], T0)
    assert path.parent.name == "2025-06-15"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert gzip.decompress(path.read_bytes()).count(b"\n") == 1
    assert list(path.parent.iterdir()) == [path]


def test_what_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = archive.write(tmp_path, [line(A)], T0)
    (path.parent / "later.jsonl.gz.part").write_bytes(b"half")
    assert len(archive.heads(tmp_path)) == 1


@pytest.mark.parametrize(
    "damage",
    [b"", b"no gzip", gzip.compress(b"no json\n"), gzip.compress(b'{"id": 3}\n')],
    ids=["empty", "no gzip", "no JSON", "no execution"],
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes) -> None:
    path = archive.write(tmp_path, [line(A)], T0)
    path.write_bytes(damage or path.read_bytes()[:-12])
    with pytest.raises(BadArchive, match=path.name) as caught:
        archive.heads(tmp_path)
    assert caught.value.code == "HF0511"


def test_there_is_no_archive_where_no_folder_is(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match=r"retention\.archive"):
        archive.heads(tmp_path / "nowhere")


def test_an_error_while_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    def lines() -> list[Line]:
        raise KeyError("in the middle")

    with pytest.raises(KeyError):
        archive.write(tmp_path, (one for _ in [1] for one in lines()), T0)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_values_stand_in_their_place_unless_they_are_too_long_together(store: Store) -> None:
    inner = [pack(letter * 1_200_000) for letter in "ab"]
    refs = [BlobRef(blob_digest(data), len(data)) for data in inner]
    outer = pack(refs)
    whole = BlobRef(blob_digest(outer), len(outer))
    first = e.ExecutionCompleted({"one": refs[0]})
    second = e.ExecutionCompleted(whole)
    bodies, rows, digest = [pack([first]), pack([second])], [], b""
    for seq, body in enumerate(bodies, 1):
        digest = chain(digest, seq, T0, body)
        rows.append(HistoryRow(A, seq, T0, body, digest))
    one = header(A, 2, status=Status.COMPLETED, ended_at=T0, summary=pack(Summary()), is_new=True)
    blobs = [(A, blob_digest(data), data) for data in (*inner, outer)]
    put(store, Batch(headers=[one], history=rows, blobs=blobs))
    with store.reading() as queries:
        found = archive.line_of(queries, one, T0)
    assert found.events[0]["output"] == {"one": "a" * 1_200_000}
    assert found.events[1]["output"] == {"$blob": whole.digest.hex(), "size": len(outer)}
    assert found.blobs.keys() == {whole.digest.hex(), *(ref.digest.hex() for ref in refs)}
    assert found.blobs[refs[1].digest.hex()] == "b" * 1_200_000
    assert found.blobs[whole.digest.hex()] == [{"$blob": ref.digest.hex(), "size": ref.size} for ref in refs]
