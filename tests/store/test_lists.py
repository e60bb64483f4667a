"""What every store answers when asked: which rows, and in which order. Part of the conformance suite."""

from __future__ import annotations

import os

import pytest

from holdfast.core.codec import chain
from holdfast.core.ids import to_key
from holdfast.core.model import Level, LogLine, Status
from holdfast.core.requests import FireTimer, ReleaseJob, TakeTurn
from holdfast.core.rows import AgendaRow, JobRow, LogRow
from holdfast.store.port import Store
from holdfast.store.records import Batch, PublishedRow

from .rows import T0, an_id, header, history, put, start

A, B, C = an_id(1), an_id(2), an_id(3)


# --- history ------------------------------------------------------------------------------------------
def test_history_is_in_order_chained_and_paged(store: Store) -> None:
    rows = history(A, *range(1, 30), 130, 260)
    put(store, Batch(headers=[header(A)], history=[rows[2], rows[0], rows[1], *rows[3:]]))
    with store.reading() as q:
        paged, after = [], 0
        while page := q.history(A, after, 4):
            paged += page
            after = page[-1].seq
    assert paged == rows
    digest = b""
    for row in paged:
        digest = chain(digest, row.seq, row.at, row.body)
        assert row.digest == digest


# --- lists --------------------------------------------------------------------------------------------
def test_headers_come_newest_first_in_pages_that_neither_skip_nor_repeat(store: Store) -> None:
    ids = [an_id(n) for n in range(25)]
    start(store, *reversed(ids))
    put(store, Batch(headers=[header(an_id(n), tenant="other") for n in range(100, 103)]))
    with store.reading() as q:
        listed, before = [], ""
        while page := q.headers("default", before=before, limit=4):
            listed += [h.id for h in page]
            before = page[-1].id
            if len(listed) == 8:
                start(store, an_id(50))  # newer than the first page: does not disturb
        assert listed == ids[::-1]
        assert [h.id for h in q.headers("other")] == [an_id(102), an_id(101), an_id(100)]


def test_headers_of_many_at_once(store: Store) -> None:
    ids = [an_id(n) for n in range(450)]
    start(store, *ids[:-1])
    with store.reading() as q:
        found = q.headers_of(ids)
        assert found[ids[7]] == q.header("default", ids[7])
        assert set(found) == set(ids[:-1])
        assert q.headers_of([]) == {}


def test_headers_by_status_and_workflow(store: Store) -> None:
    put(store, Batch(headers=[
        header(A, status=Status.COMPLETED), header(B, workflow="other"), header(C, status=Status.FAILED_SAFE),
    ]))  # fmt: skip
    with store.reading() as q:
        ended = q.headers("default", statuses=[Status.COMPLETED, Status.FAILED_SAFE])
        assert [h.id for h in ended] == [C, A]
        assert [h.id for h in q.headers("default", workflow="other")] == [B]
        assert q.headers("default", workflow="other", statuses=[Status.COMPLETED]) == []


def test_keys_for_scanners_come_in_order_and_in_pages(store: Store) -> None:
    ids = [an_id(n) for n in range(7)]
    start(store, *ids[::-1])
    with store.reading() as q:
        first = q.ids(limit=4)
        assert first + q.ids(first[-1], 4) == [to_key(id) for id in ids]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 19, 20, 21, 31, 32])
def test_an_execution_is_found_by_the_beginning_of_its_id(store: Store, length: int) -> None:
    ids = [an_id(n) for n in range(300)]
    start(store, *ids)
    prefix = ids[17][:length]
    with store.reading() as q:
        wanted = [id for id in reversed(ids) if id.startswith(prefix)]
        assert wanted
        assert q.find("default", prefix, limit=300) == wanted
        assert q.find("default", prefix, limit=1) == wanted[:1]
        assert q.find("other", prefix) == []


def test_a_prefix_nobody_has_or_nobody_can_have_finds_nothing(store: Store) -> None:
    start(store, A)
    with store.reading() as q:
        assert q.find("default", "ffffffffff") == []
        assert q.find("default", "deploy") == []
        assert q.find("default", "%") == []
        assert q.find("default", "") == [A]


# --- work ---------------------------------------------------------------------------------------------
def test_ready_jobs_come_longest_waiting_first(store: Store) -> None:
    jobs = [
        JobRow(A, 1, "default", "shell", T0 + 5),
        JobRow(B, 2, "default", "shell", T0 + 1),
        JobRow(B, 1, "slow", "http", T0 + 1),
        JobRow(C, 1, "default", "shell", T0, 1, "w-1"),
    ]
    put(store, Batch(jobs=jobs))
    with store.reading() as q:
        assert q.ready() == [jobs[2], jobs[1], jobs[0]]
        assert q.ready(limit=1) == [jobs[2]]
        assert q.claimed() == q.claimed("w-1") == [jobs[3]]
        assert q.claimed("w-2") == []
        assert q.queue_depths() == [("default", "shell", 2, 1, T0 + 1), ("slow", "http", 1, 0, T0 + 1)]


def test_a_claim_replaces_the_waiting_row_and_a_result_removes_it(store: Store) -> None:
    waiting, claimed = JobRow(A, 1, "q", "b", T0), JobRow(A, 1, "q", "b", T0 + 1, 1, "w-1", 60)
    put(store, Batch(jobs=[waiting]))
    put(store, Batch(jobs=[waiting, claimed]))  # the last one counts
    with store.reading() as q:
        assert q.ready() == []
        assert q.jobs_of(A) == [claimed]
    # Gone and there again in one batch: it is there.
    put(store, Batch(jobs_gone=[(A, 1), (A, 2)], jobs=[JobRow(A, 2, "q", "b", T0), waiting]))
    with store.reading() as q:
        assert q.jobs_of(A) == [waiting, JobRow(A, 2, "q", "b", T0)]
    put(store, Batch(jobs_gone=[(A, 1), (A, 2), (B, 9)]))
    with store.reading() as q:
        assert q.count("jobs") == 0


def test_the_agenda_gives_what_is_due_in_order(store: Store) -> None:
    rows = [
        AgendaRow(A, "timer/1", T0 + 30, FireTimer(1)),
        AgendaRow(B, "job/4", T0 + 10, ReleaseJob(4, 2)),
        AgendaRow(A, "turn/2", T0 + 10, TakeTurn(2)),
        AgendaRow(A, "timer/9", T0 + 99, FireTimer(9)),
    ]
    put(store, Batch(agenda=rows))
    with store.reading() as q:
        assert q.due(T0 + 30) == [rows[2], rows[1], rows[0]]
        assert q.due(T0 + 30, limit=1) == [rows[2]]
        assert q.due(T0 + 9) == []
        assert q.next_due() == T0 + 10
        assert q.agenda_of(A) == [rows[2], rows[0], rows[3]]
    put(store, Batch(agenda=[AgendaRow(B, "job/4", T0 + 50, ReleaseJob(4, 3))], agenda_gone=[(A, "turn/2")]))
    with store.reading() as q:
        assert q.due(T0 + 60) == [rows[0], AgendaRow(B, "job/4", T0 + 50, ReleaseJob(4, 3))]


def test_logs_are_paged_by_number(store: Store) -> None:
    lines = [LogRow(A, n, T0 + n, LogLine(f"line {n}", Level.INFO, "s", n)) for n in range(1, 8)]
    put(store, Batch(logs=lines[::-1]))
    with store.reading() as q:
        assert q.logs(A, 0, 3) + q.logs(A, 3, 3) + q.logs(A, 6, 3) == lines


# --- blobs and parts ----------------------------------------------------------------------------------
def test_blobs_are_kept_once_and_of_any_size(store: Store) -> None:
    data = os.urandom(2 << 20)
    put(store, Batch(blobs=[(A, b"1" * 16, data), (A, b"2" * 16, b""), (A, b"1" * 16, data)]))
    put(store, Batch(blobs=[(A, b"1" * 16, data), (B, b"1" * 16, data)]))
    with store.reading() as q:
        assert q.blob(A, b"1" * 16) == q.blob(B, b"1" * 16) == data
        assert q.blob(A, b"2" * 16) == b""
        assert q.count("blobs") == 3


def test_parts_are_replaced_deleted_one_by_one_and_dropped_together(store: Store) -> None:
    put(store, Batch(parts=[(A, "head", b"1"), (A, "lanes/0", b"1"), (A, "lanes/1", b"1"), (B, "head", b"1")]))
    put(store, Batch(parts=[(A, "head", b"2"), (A, "lanes/1", b""), (A, "never", b"")]))
    with store.reading() as q:
        assert q.parts(A) == {"head": b"2", "lanes/0": b"1"}
    put(store, Batch(parts_gone=[A], parts=[(A, "head", b"3")]))
    with store.reading() as q:
        assert q.parts(A) == {"head": b"3"}
        assert q.parts(B) == {"head": b"1"}


def test_published_versions(store: Store) -> None:
    rows = [PublishedRow("default", name, n, b"d" * 16, T0 + n, "a") for name in ("b", "B", "a") for n in (1, 2)]
    put(store, Batch(published=rows))
    with store.reading() as q:
        assert [(w.name, w.version) for w in q.published("default")] == [("B", 2), ("a", 2), ("b", 2)]
        assert [w.version for w in q.published("default", "b")] == [2, 1]
        assert q.published("other") == []


def test_orphans_are_found(store: Store) -> None:
    start(store, A)
    put(store, Batch(jobs=[JobRow(B, 1, "q", "b", T0)], blobs=[(A, b"1" * 16, b"x"), (C, b"1" * 16, b"x")]))
    with store.reading() as q:
        assert sorted(q.orphans()) == [("blobs", C), ("jobs", B)]
