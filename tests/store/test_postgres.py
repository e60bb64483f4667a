"""PostgreSQL alone: several engines on one database, each with connections of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast.core.errors import Conflict, PayloadTooLarge, StoreDamaged, StoreReadOnly, UnsafeStore
from holdfast.core.model import LogLine
from holdfast.core.rows import JobRow, LogRow
from holdfast.store import postgres_connect, postgres_presence
from holdfast.store.migrate import migrations
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import TABLES
from holdfast.store.records import Batch, EngineRow, Locked
from tests.services.postgres import Postgres

from .rows import T0, an_id, header, history, put, start

A, B = an_id(1), an_id(2)
Open = Callable[..., PostgresStore]


def database(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


# --- several engines on one execution -----------------------------------------------------------------
def test_a_stale_engine_catches_up_by_reading_only_what_is_newer(open_pg: Open) -> None:
    one, two = open_pg(), open_pg()
    start(one, A)
    put(one, Batch(headers=[header(A, 2, logs=4, snapshot=2)], history=history(A, 2), parts=[(A, "head", b"h")]))
    put(one, Batch(headers=[header(A, 3, logs=5, snapshot=2)], history=history(A, 3)))
    transaction = two.begin()
    assert transaction.lock({A: 1}) == {A: Locked(3, b"\x03" * 16, 2, 5, history(A, 2) + history(A, 3), {})}
    transaction.commit(Batch(headers=[header(A, 4, logs=5, snapshot=2)], history=history(A, 4)))


def test_whoever_comes_second_waits_and_then_sees_what_the_first_wrote(open_pg: Open) -> None:
    one, two = open_pg(), open_pg()
    start(one, A)
    first = one.begin()
    first.lock({A: 1})
    second = two.begin()
    answer: list[dict[str, Locked | None]] = []
    waiting = threading.Thread(target=lambda: answer.append(second.lock({A: 1})))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    first.commit(Batch(headers=[header(A, 2)], history=history(A, 2)))
    waiting.join(5)
    assert answer == [{A: Locked(2, b"\x02" * 16, 0, 0, history(A, 2), {})}]
    second.commit(Batch(headers=[header(A, 3)], history=history(A, 3)))
    with two.reading() as q:
        assert [row.seq for row in q.history(A)] == [1, 2, 3]


def test_locks_taken_in_opposite_order_do_not_deadlock(open_pg: Open) -> None:
    ids = [an_id(n) for n in range(20)]
    stores = [open_pg(), open_pg()]
    start(stores[0], *ids)

    def work(store: PostgresStore, order: list[str]) -> None:
        for _ in range(40):
            transaction = store.begin()
            locked = transaction.lock(dict.fromkeys(order, 0))
            transaction.commit(Batch(headers=[
                header(id, found.version + 1) for id, found in locked.items() if found
            ]))  # fmt: skip

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, stores[0], ids), pool.submit(work, stores[1], ids[::-1])]:
            done.result()
    with stores[0].reading() as q:
        assert {h.version for h in q.headers("default")} == {81}


def test_shared_rows_written_in_opposite_order_do_not_deadlock(open_pg: Open) -> None:
    names = [f"engine-{n}" for n in range(50)]
    stores = [open_pg(), open_pg()]

    def work(store: PostgresStore, order: list[str]) -> None:
        for beat in range(40):
            put(store, Batch(engines=[EngineRow(name, "n", 1, beat) for name in order],
                             definitions=[(name.encode(), b"d") for name in order]))  # fmt: skip

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, stores[0], names), pool.submit(work, stores[1], names[::-1])]:
            done.result()


def test_two_engines_start_the_same_execution_and_one_wins(open_pg: Open) -> None:
    stores = [open_pg() for _ in range(4)]
    barrier = threading.Barrier(4)

    def begin(store: PostgresStore) -> bool:
        barrier.wait()
        try:
            start(store, A, B)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(begin, stores)) == [False, False, False, True]


def test_log_lines_written_without_an_event_are_not_overwritten_by_who_missed_them(open_pg: Open) -> None:
    one, two = open_pg(), open_pg()
    start(one, A)
    lines = [LogRow(A, n, T0, LogLine("late")) for n in (1, 2)]
    put(one, Batch(headers=[header(A, 1, logs=2, is_new=False)], logs=lines), {A: 1})
    transaction = two.begin()
    assert transaction.lock({A: 1}) == {}
    with pytest.raises(Conflict):
        transaction.commit(Batch(headers=[header(A, 2, logs=0)], history=history(A, 2)))
    again = two.begin()
    assert again.lock({A: 0})[A] == Locked(1, b"\x01" * 16, 0, 2, history(A, 1), {})
    again.commit(Batch(headers=[header(A, 2, logs=2)], history=history(A, 2)))


def test_a_snapshot_is_never_declared_older_than_it_is(open_pg: Open) -> None:
    one, two = open_pg(), open_pg()
    start(one, A)
    put(one, Batch(headers=[header(A, 1, snapshot=1, is_new=False)], parts=[(A, "head", b"1")]), {A: 1})
    with pytest.raises(Conflict):
        put(two, Batch(headers=[header(A, 2, snapshot=-1)]))
    put(two, Batch(headers=[header(A, 2, snapshot=0)], parts_gone=[A]))  # dropped: that is allowed


def test_a_database_that_was_set_back_is_not_written_to(open_pg: Open) -> None:
    store = open_pg()
    start(store, A)
    transaction = store.begin()
    with pytest.raises(StoreDamaged, match="set back"):
        transaction.lock({A: 7})
    transaction.abort()


def test_an_execution_that_is_gone_is_none_even_for_who_knew_it(open_pg: Open) -> None:
    transaction = open_pg().begin()
    assert transaction.lock({A: 5}) == {A: None}
    with pytest.raises(Conflict):
        transaction.commit(Batch(headers=[header(A, 6)]))


# --- opening ------------------------------------------------------------------------------------------
def test_engines_that_open_an_empty_database_together_agree(open_pg: Open) -> None:
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda n: open_pg(f"e-{n}"), range(8)))
    start(stores[0], A)
    with stores[7].reading() as q:
        assert q.rows("SELECT count(*) FROM migrations")[0][0] == len(migrations("postgres"))
        assert q.header("default", A) is not None


def test_tables_stay_out_of_the_way_of_others(pg_dsn: str, open_pg: Open) -> None:
    with psycopg.connect(pg_dsn) as session:
        session.execute("CREATE TABLE jobs (mine int); CREATE TABLE migrations (id int)")
    start(open_pg(), A)
    with psycopg.connect(pg_dsn) as session:
        found = session.execute("SELECT schemaname, count(*) FROM pg_tables"
                                " WHERE schemaname IN ('public', 'holdfast') GROUP BY 1 ORDER BY 1")  # fmt: skip
        assert found.fetchall() == [("holdfast", len(TABLES) + 1), ("public", 2)]


def test_a_user_who_may_only_read_and_write_rows_is_enough_once_migrated(pg_dsn: str, open_pg: Open) -> None:
    open_pg()
    role = f"app_{os.getpid()}"
    with psycopg.connect(pg_dsn) as session:
        session.execute(
            f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA holdfast TO {role};"
            f" GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO {role}"
        )
    store = open_pg("e-1", psycopg.conninfo.make_conninfo(pg_dsn, user=role))
    start(store, A)
    put(store, Batch(headers=[header(A, 2)], jobs=[JobRow(A, 1, "q", "b", T0)], jobs_gone=[(A, 2)]))
    store.close()
    with psycopg.connect(pg_dsn) as session:
        session.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_server_that_does_not_sync_is_refused() -> None:
    with Postgres({"fsync": "off"}) as server, pytest.raises(UnsafeStore, match="fsync"):
        PostgresStore(server.create_database("unsafe"))


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ("synchronous_commit = off", UnsafeStore),
        ("default_transaction_read_only = on", StoreReadOnly),
    ],
)
def test_a_database_that_would_lose_or_refuse_writes_is_refused(
    postgres: Postgres, pg_dsn: str, setting: str, error: type[Exception]
) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as session:
        session.execute(f"ALTER DATABASE {database(pg_dsn)} SET {setting}")
    with pytest.raises(error):
        PostgresStore(pg_dsn)


def test_a_database_that_is_not_utf8_is_refused(postgres: Postgres) -> None:
    name = f"latin_{os.getpid()}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")
    try:
        with pytest.raises(UnsafeStore, match="UTF8"):
            PostgresStore(postgres.dsn(name))
    finally:
        postgres.drop_database(name)


def test_an_old_server_is_refused(pg_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_connect, "MIN_SERVER", 1000)
    with pytest.raises(UnsafeStore, match="1000"):
        PostgresStore(pg_dsn)


def test_writes_refused_by_the_server_later_on(pg_dsn: str, open_pg: Open) -> None:
    store = open_pg()
    start(store, A)
    transaction = store.begin()
    transaction.lock({A: 1})
    assert store._writer is not None
    store._writer.execute("SET transaction_read_only = on")
    with pytest.raises(StoreReadOnly):
        transaction.commit(Batch(headers=[header(A, 2)]))
    put(store, Batch(headers=[header(A, 2)]))


def test_a_key_too_long_for_an_index_is_a_refusal_and_no_crash(open_pg: Open) -> None:
    store = open_pg()
    with pytest.raises(PayloadTooLarge):
        put(store, Batch(meta={os.urandom(5000).hex(): b"1"}))
    put(store, Batch(meta={"short": b"1"}))


def test_statements_of_the_committer_go_by_index_however_young_the_tables(open_pg: Open, pg_dsn: str) -> None:
    store = open_pg()
    for n in range(20):
        start(store, an_id(n))
        put(store, Batch(headers=[header(an_id(n), 2)], jobs=[JobRow(an_id(n), 1, "q", "b", T0)]))
        put(store, Batch(jobs_gone=[(an_id(n), 1)]))
    time.sleep(1.1)  # statistics are handed in once a second
    store.close()
    with psycopg.connect(pg_dsn, autocommit=True) as session:
        wait_until(lambda: session.execute("SELECT sum(n_tup_ins) FROM pg_stat_user_tables").fetchone() != (0,))
        scans = session.execute(
            "SELECT relname, seq_tup_read FROM pg_stat_user_tables"
            " WHERE relname IN ('executions', 'jobs', 'history') AND seq_tup_read > 0"
        ).fetchall()
    assert scans == []


# --- who is alive -------------------------------------------------------------------------------------
CHILD = """
import sys, time
from holdfast.store import postgres_connect
from holdfast.store.postgres import PostgresStore
from holdfast.store.records import Batch, EngineRow
# Its rows are free when it is dead, not because it stood still for too long.
postgres_connect._SESSION["idle_in_transaction_session_timeout"] = "0"
store = PostgresStore(sys.argv[1], engine_id="child")
store.begin().commit(Batch(engines=[EngineRow("child", "child", 1, 1)]))
held = store.begin()
held.lock({sys.argv[2]: 1})
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def child(pg_dsn: str, open_pg: Open) -> Iterator[subprocess.Popen[str]]:
    """Another engine, in the middle of a transaction on A."""
    start(open_pg(), A)
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, pg_dsn, A],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(holdfast.__path__[0]).parent)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_killed_engine_is_seen_to_be_dead_and_holds_nothing(child: subprocess.Popen[str], open_pg: Open) -> None:
    store = open_pg("mine")
    put(store, Batch(engines=[EngineRow("mine", "m", 2, 2), EngineRow("never-was", "n", 3, 3)]))
    assert store.living_engines() == ["child", "mine"]
    child.kill()
    wait_until(lambda: store.living_engines() == ["mine"])
    put(store, Batch(headers=[header(A, 2)]))  # its row locks are gone, too, or this would be refused


def test_an_engine_without_a_name_is_not_counted(open_pg: Open) -> None:
    store = open_pg()
    put(store, Batch(engines=[EngineRow("e", "e", 1, 1)]))
    assert store.living_engines() == []


def test_an_engine_whose_connection_is_cut_is_soon_alive_again(postgres: Postgres, open_pg: Open, pg_dsn: str) -> None:
    one, two = open_pg("one"), open_pg("two")
    put(one, Batch(engines=[EngineRow("one", "n", 1, 1), EngineRow("two", "n", 1, 1)]))
    postgres.kill_backends(database(pg_dsn))
    wait_until(lambda: two.living_engines() == ["one", "two"], 5)


# --- hints --------------------------------------------------------------------------------------------
def test_a_hint_reaches_the_others_and_not_oneself(open_pg: Open) -> None:
    one, two, three = open_pg("one"), open_pg("two"), open_pg()
    heard: dict[str, threading.Event] = {name: threading.Event() for name in ("one", "two", "three")}
    for name, store in (("one", one), ("two", two), ("three", three)):
        store.on_hint(heard[name].set)
    assert heard["three"].wait(5)  # it has just begun to listen, and may have missed something
    heard["three"].clear()
    one.hint()
    assert heard["two"].wait(5)
    assert heard["three"].wait(5)
    assert not heard["one"].wait(0.1)
    three.hint()
    assert heard["one"].wait(5)


def test_many_hints_become_few(open_pg: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = open_pg("one"), open_pg("two")
    heard: list[int] = []
    two.on_hint(lambda: heard.append(len(heard)))
    for said in range(1, 4):
        if said == 3:
            monkeypatch.setattr(postgres_presence, "EVERY", 60)
        one.hint()  # too soon after the one before it: kept back, not lost
        wait_until(lambda: len(heard) == said)  # noqa: B023
    for _ in range(500):
        one.hint()
    time.sleep(0.2)
    assert len(heard) == 3, "those that come too soon wait together"


def test_hints_come_back_after_the_connection_was_cut(postgres: Postgres, open_pg: Open, pg_dsn: str) -> None:
    one, two = open_pg("one"), open_pg("two")
    heard = threading.Event()
    two.on_hint(heard.set)
    postgres.kill_backends(database(pg_dsn))
    assert heard.wait(5)  # what was said meanwhile is unknown, so it is told to look

    def is_heard() -> bool:
        heard.clear()
        one.hint()
        return heard.wait(0.2)

    wait_until(is_heard)


def test_a_callback_that_fails_does_not_end_the_listening(open_pg: Open, caplog: pytest.LogCaptureFixture) -> None:
    one, two = open_pg("one"), open_pg("two")
    calls: list[int] = []

    def callback() -> None:
        calls.append(1)
        raise ValueError("broken")

    two.on_hint(callback)
    for n in range(1, 4):
        one.hint()
        wait_until(lambda n=n: len(calls) >= n)  # type: ignore[misc]
    assert "broken" in caplog.text
