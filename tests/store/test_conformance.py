"""What every store does. A backend is right if it passes this, and nothing else defines it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from holdfast.core.entity_locks import Contention, EntityClaim
from holdfast.core.errors import Conflict, StoreUnavailable, StoreVersion
from holdfast.core.inventory import EntityChange, EntityRow, Flag
from holdfast.core.locks import Claim, LockRow
from holdfast.core.model import BlockOffer, Level, LogLine, Mode, Status
from holdfast.core.reads import (
    BlobKey,
    BlockKey,
    ChangesKey,
    ContentionKey,
    DefinitionKey,
    EntityKey,
    HistoryKey,
    LockKey,
    Published,
    SensorKey,
    StartKey,
    WorkflowKey,
)
from holdfast.core.requests import FireTimer
from holdfast.core.rows import AgendaRow, ClaimRow, EntityClaims, JobRow, LogRow, SensorChange
from holdfast.core.sensors import SensorRow, Watched
from holdfast.store.port import Store
from holdfast.store.queries import TABLES
from holdfast.store.records import (
    Batch,
    EngineRow,
    Locked,
    PublishedRow,
    StartRow,
    TokenRow,
    WorkerRow,
)

from .conftest import Backend
from .rows import T0, an_id, header, history, put, start

A, B, C = an_id(1), an_id(2), an_id(3)


def worker(name: str, **changes: object) -> WorkerRow:
    fields: dict[str, object] = {
        "name": name, "incarnation": f"{name}-1", "engine": "e1", "host": "h", "pid": 7, "slots": 4,
        "queues": ["default", "slow"], "blocks": [], "registered_at": T0, "seen_at": T0, "lease": 30_000_000,
        "state": "online",
    }  # fmt: skip
    return WorkerRow(**{**fields, **changes})  # type: ignore[arg-type]


# --- every table --------------------------------------------------------------------------------------
def test_every_table_gives_back_what_was_put_in(store: Store) -> None:
    whole = Batch(
        headers=[header(A, status=Status.BLOCKED_WAITING, summary=b"\x00\xff" * 40)],
        history=history(A, 1),
        jobs=[JobRow(A, 1, "default", "shell", T0, 2, "w-1", 5)],
        agenda=[AgendaRow(A, "timer/1", T0 + 5, FireTimer(1))],
        logs=[LogRow(A, 1, T0, LogLine("hällo\nworld", Level.WARNING, "step one", 4))],
        blobs=[(A, b"\x01" * 16, b"\x00blob\xff")],
        parts=[(A, "head", b"\x00head")],
        beats=[(A, 1, 2, b"\x01")],
        definitions=[(b"\x02" * 16, b"steps: []")],
        published=[PublishedRow("default", "deploy", 3, b"\x02" * 16, T0, "alice")],
        starts=[StartRow("default", "key-1", A, b"content", T0)],
        blocks=[BlockOffer("shell", "2.0.0", pure=True, parameters={"type": "object"})],
        workers=[worker("w")],
        engines=[EngineRow("e1", "first", T0, T0 + 1, "http://127.0.0.1:3030")],
        tokens=[TokenRow("t1", b"\x00hash", "default", "ci", "operator", T0, 0, True)],
        meta={"server-key": b"\x00\x01"},
        locks=[("default", "web", "a", 2, 3)],
        claims=[ClaimRow("default", "web", "a", Claim(2, A, 4, (4, 1), T0), 2)],
        sensors=[SensorChange("default", "web", "sensor", "x", [1, None], 3, T0, A)],
        sensor_waits=[("default", "web", "sensor", "x", A, 4)],
        entities=[("default", EntityRow("web", "device", "Web", {}, T0, T0))],
        entity_claims=[EntityClaims("default", A, 7, 1, 8, T0, "", ("web",), (Mode.S,))],
        flags=[("default", Flag("web", A, "suspect", "left", T0))],
        changes=[(A, 3, EntityChange("web", facts={"x": 1}))],
    )
    put(store, whole)
    with store.reading() as q:
        found = q.header("default", A)
        assert found == header(A, status=Status.BLOCKED_WAITING, summary=b"\x00\xff" * 40, is_new=False)
        assert q.history(A) == whole.history
        assert q.jobs_of(A) == whole.jobs
        assert q.agenda_of(A) == whole.agenda
        assert q.logs(A) == whole.logs
        assert q.blob(A, b"\x01" * 16) == b"\x00blob\xff"
        assert q.parts(A) == {"head": b"\x00head"}
        assert q.beat(A, 1) == (2, 1)
        assert q.definition(b"\x02" * 16) == b"steps: []"
        assert q.published("default") == q.published("default", "deploy") == whole.published
        assert q.start("default", "key-1") == whole.starts[0]
        assert q.blocks() == whole.blocks
        assert q.workers() == whole.workers
        assert q.engines() == whole.engines
        assert q.tokens() == [q.token("t1")] == whole.tokens
        assert q.meta("server-key") == b"\x00\x01"
        assert q.shared(LockKey("default", "web", "a")) == LockRow(2, 3, whole.claims[0].claim)
        assert q.shared(SensorKey("default", "web", "sensor", "x")) == Watched(SensorRow([1, None], 3, T0), ((A, 4),))
        assert q.shared(EntityKey("default", "web")) == whole.entities[0][1]
        claim = EntityClaim("web", A, Mode.S, 7, 1, 8, T0)
        assert q.shared(ContentionKey("default", ("web",))) == Contention((), (claim,), (whole.flags[0][1],))
        assert q.shared(ChangesKey(A)) == (whole.changes[0][2],)
        assert {table: q.count(table) for table in TABLES} == dict.fromkeys(TABLES, 1)
        assert q.orphans() == []


def test_what_is_not_there_is_none(store: Store) -> None:
    with store.reading() as q:
        assert q.header("default", A) is None
        assert q.history(A) == q.jobs_of(A) == q.agenda_of(A) == q.logs(A) == q.ready() == []
        assert q.blob(A, b"x" * 16) is q.definition(b"x") is q.start("default", "k") is q.token("t") is None
        assert q.meta("m") is q.next_due() is None
        assert q.parts(A) == q.status_counts("default") == {}


def test_rows_of_one_kind_replace_each_other_by_key(store: Store) -> None:
    put(store, Batch(workers=[worker("w")], engines=[EngineRow("e1", "n", 1, 1)], meta={"k": b"1"},
                     tokens=[TokenRow("t", b"h", "default", "n", "admin", 1, 0)]))  # fmt: skip
    put(store, Batch(workers=[worker("w", pid=8), worker("w", pid=9)], engines=[EngineRow("e1", "n", 1, 2)],
                     meta={"k": b"2"}, tokens=[TokenRow("t", b"h", "default", "n", "admin", 1, 0, True)]))  # fmt: skip
    with store.reading() as q:
        assert [w.pid for w in q.workers()] == [9]
        assert [e.seen_at for e in q.engines()] == [2]
        assert q.meta("k") == b"2"
        assert [t.is_revoked for t in q.tokens()] == [True]
    put(store, Batch(engines_gone=["e1", "e2"], tokens_gone=["t", "never"]))
    with store.reading() as q:
        assert q.engines() == q.tokens() == []


def test_expired_tokens_are_told_from_the_others(store: Store) -> None:
    given = [TokenRow(f"t{at}", b"h", "default", "n", "viewer", 1, at) for at in (0, 7, 8, 9)]
    put(store, Batch(tokens=given))
    with store.reading() as q:
        assert q.expired_tokens(9) == ["t7", "t8"]
        assert q.expired_tokens(9, 1) == ["t7"]


def test_a_worker_without_queues_has_none(store: Store) -> None:
    put(store, Batch(workers=[worker("w", queues=[], blocks=["b"])]))
    with store.reading() as q:
        assert (q.workers()[0].queues, q.workers()[0].blocks) == ([], ["b"])


# --- lock and commit ----------------------------------------------------------------------------------
def test_lock_names_only_what_the_caller_must_look_at(store: Store) -> None:
    start(store, A, B)
    transaction = store.begin()
    answer = transaction.lock({A: 1, B: 0, C: 0})
    transaction.abort()
    assert answer == {B: Locked(1, b"\x01" * 16, 0, 0, history(B, 1), {}), C: None}


def test_lock_without_knowledge_brings_the_whole_history(store: Store) -> None:
    rows = history(A, 1, 3, 4)
    put(store, Batch(headers=[header(A, logs=2)], history=rows[:1]))
    put(store, Batch(headers=[header(A, 3, logs=2)], history=rows[1:2]), {A: 1})
    put(store, Batch(headers=[header(A, 4, logs=5)], history=rows[2:]), {A: 3})
    transaction = store.begin()
    assert transaction.lock({A: 0}) == {A: Locked(4, b"\x04" * 16, 0, 5, rows, {})}
    transaction.abort()


def test_lock_brings_the_snapshot_and_only_what_came_after(store: Store) -> None:
    rows = history(A, 1, 2, 3)
    put(store, Batch(headers=[header(A)], history=rows[:1]))
    put(store, Batch(headers=[header(A, 2, snapshot=2)], history=rows[1:2], parts=[(A, "head", b"h2")]))
    put(store, Batch(headers=[header(A, 3, snapshot=2)], history=rows[2:]))
    transaction = store.begin()
    locked = transaction.lock({A: 0})[A]
    transaction.abort()
    assert locked == Locked(3, b"\x03" * 16, 2, 0, rows[2:], {"head": b"h2"})


def test_lock_of_nothing_is_nothing(store: Store) -> None:
    transaction = store.begin()
    assert transaction.lock({}) == {}
    transaction.abort()


def test_an_update_changes_what_a_step_changes_and_nothing_else(store: Store) -> None:
    start(store, A, B)
    changed = header(
        A, 2, status=Status.COMPLETED, snapshot=2, logs=7, run=2, updated_at=T0 + 9, started_at=T0 + 8,
        ended_at=T0 + 9, jobs_done=5, jobs_total=6, summary=b"new",
    )  # fmt: skip
    put(store, Batch(headers=[changed], history=history(A, 2)))
    with store.reading() as q:
        assert q.header("default", A) == changed
        assert q.header("default", B) == header(B, is_new=False)
        assert q.status_counts("default") == {Status.COMPLETED: 1, Status.RUNNING: 1}


def test_an_execution_that_was_not_locked_cannot_be_changed(store: Store) -> None:
    start(store, A)
    transaction = store.begin()
    with pytest.raises(AssertionError, match="locked"):
        transaction.commit(Batch(headers=[header(A, 2)]))
    with store.reading() as q:
        assert q.header("default", A) == header(A, is_new=False)


def test_a_change_to_what_is_not_there_is_a_conflict(store: Store) -> None:
    start(store, A)
    with pytest.raises(Conflict):
        put(store, Batch(headers=[header(A, 2), header(B, 2)], history=history(A, 2)), {A: 1, B: 0})
    with store.reading() as q:
        assert q.header("default", A) == header(A, is_new=False)
        assert len(q.history(A)) == 1


@pytest.mark.parametrize(
    "twice",
    [
        Batch(headers=[header(A)]),
        Batch(history=history(A, 1)),
        Batch(starts=[StartRow("default", "key", A, b"other", T0)]),
        Batch(published=[PublishedRow("default", "deploy", 1, b"e" * 16, T0, "bob")]),
        Batch(logs=[LogRow(A, 1, T0, LogLine("again"))]),
    ],
    ids=["execution", "history", "idempotency key", "workflow version", "log line"],
)
def test_a_key_used_twice_is_a_conflict_and_the_whole_batch_is_void(store: Store, twice: Batch) -> None:
    put(store, Batch(
        headers=[header(A)], history=history(A, 1), starts=[StartRow("default", "key", A, b"content", T0)],
        published=[PublishedRow("default", "deploy", 1, b"d" * 16, T0, "alice")],
        logs=[LogRow(A, 1, T0, LogLine("once"))],
    ))  # fmt: skip
    twice.jobs = [JobRow(B, 1, "default", "shell", T0)]
    twice.blobs = [(B, b"x" * 16, b"data")]
    twice.agenda_gone = [(A, "timer/1")]
    twice.workers = [worker("w")]
    twice.meta = {"seen": b"1"}
    twice.headers = [*twice.headers, header(B)]
    with pytest.raises(Conflict):
        put(store, twice, {})
    with store.reading() as q:
        assert q.ready() == q.workers() == []
        assert q.meta("seen") is q.header("default", B) is q.blob(B, b"x" * 16) is None
        assert q.start("default", "key") == StartRow("default", "key", A, b"content", T0)
    start(store, B)  # and the store goes on


def test_the_same_key_belongs_to_each_tenant_apart(store: Store) -> None:
    rows = [StartRow("one", "key", A, b"1", T0), StartRow("two", "key", B, b"2", T0)]
    put(store, Batch(headers=[header(A, tenant="one"), header(B, tenant="two")], starts=rows))
    with store.reading() as q:
        assert [q.start("one", "key"), q.start("two", "key"), q.start("three", "key")] == [*rows, None]
        assert q.header("two", A) is None
        assert q.find("two", A) == []


def test_abort_writes_nothing_and_a_forgotten_transaction_blocks_nobody(store: Store) -> None:
    start(store, A)
    aborted = store.begin()
    aborted.lock({A: 1})
    aborted.abort()
    aborted.abort()
    forgotten = store.begin()
    forgotten.lock({A: 1})
    put(store, Batch(headers=[header(A, 2)], history=history(A, 2)))
    with store.reading() as q:
        assert [row.seq for row in q.history(A)] == [1, 2]


def test_an_empty_batch_is_fine(store: Store) -> None:
    put(store, Batch())


def test_a_large_batch(store: Store) -> None:
    ids = [an_id(n) for n in range(700)]
    start(store, *ids)
    put(store, Batch(headers=[header(id, 2) for id in ids], history=[r for id in ids for r in history(id, 2)],
                     jobs=[JobRow(id, 1, "q", "b", T0) for id in ids]))  # fmt: skip
    with store.reading() as q:
        assert q.count("history") == 1400
        assert {h.version for h in q.headers("default", limit=1000)} == {2}
    transaction = store.begin()
    locked = transaction.lock(dict.fromkeys(ids, 0))
    transaction.abort()
    assert all(found is not None and [r.seq for r in found.rows] == [1, 2] for found in locked.values())


# --- reads inside a transaction -----------------------------------------------------------------------
def test_read_answers_every_key(store: Store) -> None:
    old = put(store, Batch(
        headers=[header(A), header(C)],
        history=[*history(A, 1), *history(C, 1)],
        blobs=[(A, b"1" * 16, b"blob")],
        definitions=[(b"d" * 16, b"def"), (b"e" * 16, b"fed")],
        published=[PublishedRow("default", "w", n, bytes([n]) * 16, T0, "a") for n in (1, 2, 10)],
        blocks=[BlockOffer("shell", "1.10.0"), BlockOffer("shell", "1.9.0")],
        starts=[StartRow("default", "k", A, b"c", T0)],
    ))  # fmt: skip
    while store.now() <= old:
        time.sleep(0.001)
    put(store, Batch(blocks=[BlockOffer("shell", "0.1.0", description="the latest")]))
    wanted = {
        HistoryKey(A): history(A, 1),
        HistoryKey(B): [],
        HistoryKey(C): history(C, 1),
        BlobKey(A, b"1" * 16): b"blob",
        BlobKey(A, b"2" * 16): None,
        BlobKey(B, b"1" * 16): None,
        DefinitionKey(b"d" * 16): b"def",
        DefinitionKey(b"e" * 16): b"fed",
        DefinitionKey(b"f" * 16): None,
        WorkflowKey("default", "w"): Published(10, b"\x0a" * 16),
        WorkflowKey("default", "w", 2): Published(2, b"\x02" * 16),
        WorkflowKey("default", "w", 3): None,
        WorkflowKey("other", "w"): None,
        BlockKey("shell"): (
            BlockOffer("shell", "1.10.0"),
            BlockOffer("shell", "1.9.0"),
            BlockOffer("shell", "0.1.0", description="the latest"),
        ),
        BlockKey("http"): (),
        StartKey("default", "k"): StartRow("default", "k", A, b"c", T0),
        StartKey("other", "k"): None,
    }
    transaction = store.begin()
    assert transaction.read(list(wanted)) == wanted
    assert transaction.read([]) == {}
    transaction.abort()
    with store.reading() as q:
        assert {key: q.shared(key) for key in wanted} == wanted
        assert [offer.version for offer in q.blocks()] == ["1.10.0", "1.9.0", "0.1.0"]


# --- text ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "kept"),
    [("a\0b", "a\ufffdb"), ("a\ud800b", "a\ufffdb"), ("ünï \U0001f600", "ünï \U0001f600"), ("\0", "\ufffd")],
)
def test_text_no_store_can_keep_is_replaced_alike(store: Store, given: str, kept: str) -> None:
    put(store, Batch(
        headers=[header(A, tenant=given, workflow=given)],
        jobs=[JobRow(A, 1, given, given, T0, 1, f"w{given}")],
        agenda=[AgendaRow(A, given, T0, FireTimer(1))],
        logs=[LogRow(A, 1, T0, LogLine(given, Level.INFO, given))],
        parts=[(A, given, b"1")],
        published=[PublishedRow(given, given, 1, b"d" * 16, T0, given)],
        starts=[StartRow(given, given, A, b"c", T0)],
        workers=[worker(given, host=given)],
        engines=[EngineRow(given, given, 1, 1, given)],
        tokens=[TokenRow(given, b"h", given, given, given, 1, 0)],
        meta={given: b"1"},
    ))  # fmt: skip
    for text in (given, kept):
        transaction = store.begin()
        assert transaction.read([StartKey(text, text), WorkflowKey(text, text)]) == {
            StartKey(text, text): StartRow(text, text, A, b"c", T0),
            WorkflowKey(text, text): Published(1, b"d" * 16),
        }
        transaction.abort()
        with store.reading() as q:
            found = q.header(text, A)
            assert found is not None
            assert (found.tenant, found.workflow) == (kept, kept)
            assert q.start(text, text) == StartRow(text, text, A, b"c", T0)
            assert q.meta(text) == b"1"
            assert q.token(text) == TokenRow(kept, b"h", kept, kept, kept, 1, 0)
            assert q.claimed(f"w{text}") == [JobRow(A, 1, kept, kept, T0, 1, f"w{kept}")]
    with store.reading() as q:
        assert q.logs(A)[0].line == LogLine(kept, Level.INFO, kept)
        assert q.engines() == [EngineRow(kept, kept, 1, 1, kept)]
        assert q.parts(A) == {kept: b"1"}
    put(store, Batch(agenda_gone=[(A, given)], parts=[(A, given, b"")], engines_gone=[given]))
    with store.reading() as q:
        assert q.agenda_of(A) == q.engines() == []
        assert q.parts(A) == {}


# --- time, readers, opening and closing ---------------------------------------------------------------
def test_time_is_one_reading_per_transaction_and_goes_on(store: Store) -> None:
    before = store.now()
    transaction = store.begin()
    now = transaction.now
    time.sleep(0.01)
    assert transaction.now == now
    transaction.abort()
    later = store.begin()
    assert later.now >= now + 10_000
    later.abort()
    assert abs(store.now() - later.now) < 1_000_000
    assert abs(time.time_ns() // 1000 - before) < 5_000_000


def test_readers_see_only_what_is_committed(store: Store) -> None:
    start(store, A)
    transaction = store.begin()
    transaction.lock({A: 1})
    with store.reading() as q:
        assert len(q.history(A)) == 1
    transaction.commit(Batch(headers=[header(A, 2)], history=history(A, 2)))
    with store.reading() as q:
        assert len(q.history(A)) == 2


def test_a_consistent_read_is_of_one_moment(store: Store) -> None:
    start(store, A)
    with store.reading() as q:
        with q.consistent():
            assert len(q.history(A)) == 1
            put(store, Batch(headers=[header(A, 2)], history=history(A, 2)))
            found = q.header("default", A)
            assert found is not None
            assert (found.version, len(q.history(A))) == (1, 1)
        assert len(q.history(A)) == 2
        with pytest.raises(ZeroDivisionError), q.consistent():
            raise ZeroDivisionError
        assert len(q.history(A)) == 2


def test_many_threads_read_while_one_writes(store: Store) -> None:
    start(store, A)
    stop = threading.Event()
    problems: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                with store.reading() as q:
                    rows = q.history(A)
                    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for version in range(2, 60):
        put(store, Batch(headers=[header(A, version)], history=history(A, version)))
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []


def test_what_was_committed_is_there_after_opening_again(backend: Backend) -> None:
    store = backend.open()
    start(store, A)
    backend.close()
    with backend.open().reading() as q:
        assert q.header("default", A) == header(A, is_new=False)


def test_hints_never_fail(store: Store) -> None:
    store.on_hint(lambda: None)
    store.hint()
    store.close()
    store.hint()


def test_close_leaves_nothing_open(backend: Backend) -> None:
    backend.open("e-0").close()  # whatever is made once per process
    threads, files = threading.active_count(), _open_files()
    store = backend.open("e-1")
    start(store, A)
    store.on_hint(lambda: None)
    with store.reading() as one, store.reading() as two:
        assert one.count("executions") == two.count("executions") == 1
        store.begin().lock({A: 1})
        store.close()
    assert (threading.active_count(), _open_files()) == (threads, files)
    with pytest.raises(StoreUnavailable), store.reading():
        pass


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_store_of_a_newer_holdfast_is_refused(backend: Backend) -> None:
    backend.open()
    backend.close()
    backend.execute("INSERT INTO migrations VALUES (99, 'x', 0)")
    with pytest.raises(StoreVersion, match="newer"):
        backend.open()


def test_a_migration_that_was_changed_afterwards_is_refused(backend: Backend) -> None:
    backend.open()
    backend.close()
    backend.execute("UPDATE migrations SET checksum = 'x' WHERE number = 1")
    with pytest.raises(StoreVersion, match="differs"):
        backend.open()
    backend.close()
