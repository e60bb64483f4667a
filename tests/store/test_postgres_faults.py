"""PostgreSQL alone: what is left, and what is said, when server, connection or disk give way."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from itertools import count
from pathlib import Path

import psycopg
import pytest

from holdfast.core.errors import StoreFull, StoreUnavailable
from holdfast.core.ids import to_key
from holdfast.core.reads import BlockKey
from holdfast.store import postgres_connect
from holdfast.store.port import CommitUnknown
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import Queries
from holdfast.store.records import Batch
from tests.services.postgres import Postgres

from .conftest import SmallDisk
from .rows import an_id, header, history, put, start

A, B = an_id(1), an_id(2)
Open = Callable[..., PostgresStore]


def database(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])


def version_of(store: PostgresStore, id: str = A) -> int:
    with store.reading() as q:
        found = q.header("default", id)
    return found.version if found else 0


# --- the connection goes ------------------------------------------------------------------------------
@pytest.mark.parametrize("moment", ["begin", "lock", "read", "commit"])
def test_a_connection_cut_before_commit_means_that_nothing_happened(
    postgres: Postgres, pg_dsn: str, open_pg: Open, moment: str
) -> None:
    store = open_pg("e-1")
    start(store, A)
    if moment == "begin":
        postgres.kill_backends(database(pg_dsn))
        put(store, Batch(headers=[header(A, 2)]))  # nobody notices
        assert version_of(store) == 2
        return
    transaction = store.begin()
    if moment != "lock":
        transaction.lock({A: 1})
    postgres.kill_backends(database(pg_dsn))
    verb: dict[str, Callable[[], object]] = {
        "lock": lambda: transaction.lock({A: 1}),
        "read": lambda: transaction.read([BlockKey("shell")]),
        "commit": lambda: transaction.commit(Batch(headers=[header(A, 2)], history=history(A, 2))),
    }
    with pytest.raises(StoreUnavailable):
        verb[moment]()
    transaction.abort()
    assert version_of(store) == 1
    put(store, Batch(headers=[header(A, 2)], history=history(A, 2)))
    assert version_of(store) == 2


class Clock:
    """Stands in for `time` where connections are opened: moved only by whoever sleeps."""

    def __init__(self) -> None:
        self.slept = 0.0
        self.naps = 0

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.naps += 1
        assert self.naps < 1000, "it goes on for ever"


def test_a_stopped_server_is_unavailable_and_a_started_one_is_there_again(
    postgres: Postgres, open_pg: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_pg("e-1")
    start(store, A)
    before = store.now()
    postgres.stop("immediate")
    try:
        with monkeypatch.context() as patch:
            for call in (store.begin, lambda: version_of(store)):
                clock = Clock()
                patch.setattr(postgres_connect, "time", clock)
                with pytest.raises(StoreUnavailable):
                    call()
                assert clock.slept == pytest.approx(postgres_connect.PATIENCE), "so long it hopes, and no longer"
        time.sleep(1.1)
        assert store.now() > before + 1_000_000  # the clock goes on
    finally:
        postgres.start()
    assert version_of(store) == 1
    put(store, Batch(headers=[header(A, 2)]))
    assert version_of(store) == 2


def test_a_server_that_is_back_within_a_second_is_not_missed(postgres: Postgres, open_pg: Open) -> None:
    store = open_pg()
    start(store, A)
    postgres.stop("fast")
    starting = threading.Timer(0.1, postgres.start)
    starting.start()
    deadline = time.monotonic() + 20
    while True:  # a slow machine may need longer than the second that one call waits
        try:
            put(store, Batch(headers=[header(A, 2)]))
            break
        except StoreUnavailable:
            assert time.monotonic() < deadline
    starting.join()
    assert version_of(store) == 2


def test_a_reader_does_not_notice_that_its_connection_was_cut(postgres: Postgres, pg_dsn: str, open_pg: Open) -> None:
    store = open_pg()
    start(store, A)
    with store.reading() as q:
        assert q.count("executions") == 1
        postgres.kill_backends(database(pg_dsn))
        assert q.count("executions") == 1
        with q.consistent():
            assert q.count("executions") == 1
            postgres.kill_backends(database(pg_dsn))
            with pytest.raises(StoreUnavailable):  # another connection would be another moment
                q.count("executions")
        assert q.count("executions") == 1


def test_an_engine_that_stands_still_in_the_middle_loses_its_locks(
    open_pg: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres_connect._SESSION, "idle_in_transaction_session_timeout", "300ms")
    stopped, other = open_pg(), open_pg()
    start(other, A)
    transaction = stopped.begin()
    transaction.lock({A: 1})
    put(other, Batch(headers=[header(A, 2)], history=history(A, 2)))  # waits for those 300 ms
    with pytest.raises(StoreUnavailable):
        transaction.commit(Batch(headers=[header(A, 2)], history=history(A, 2)))
    put(stopped, Batch(headers=[header(A, 3)], history=history(A, 3)))


def test_rows_that_stay_locked_are_not_waited_for_for_ever(
    pg_dsn: str, open_pg: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres_connect._SESSION, "lock_timeout", "200ms")
    store = open_pg()
    start(store, A)
    with psycopg.connect(pg_dsn) as somebody:
        somebody.execute("SELECT 1 FROM holdfast.executions WHERE id = %s FOR UPDATE", [to_key(A)])
        transaction = store.begin()
        with pytest.raises(StoreUnavailable, match="locked"):
            transaction.lock({A: 1})
        transaction.abort()
        somebody.rollback()
    put(store, Batch(headers=[header(A, 2)]))


# --- the connection goes during COMMIT ----------------------------------------------------------------
class Wire:
    """Stands between store and server and cuts the store off at its COMMIT: before the server hears it, or
    before the store hears the answer. In the second case the server's end stays open, as it does when a
    network breaks."""

    def __init__(self, directory: Path, server: str, dsn: str) -> None:
        self.cut = ""  # "before" or "after"
        self.dsn = dsn
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / ".s.PGSQL.5432"))
        self._listener.listen()
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                store, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                self._sockets += [store, server]
                server.connect(self._server)
                for pair in ((store, server, True), (server, store, False)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_asking: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if self.cut and is_asking and b"; COMMIT" in data:
                    moment, self.cut = self.cut, ""
                    if moment == "after":
                        target.sendall(data)
                    source.shutdown(socket.SHUT_RDWR)
                    if moment == "before":
                        target.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(data)
        if is_asking:
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture
def wire(pg_dsn: str) -> Iterator[Wire]:
    directory = Path("/tmp") / f"hfw-{os.getpid()}-{time.monotonic_ns() % 10**9}"  # a socket's path is short
    directory.mkdir()
    parameters = psycopg.conninfo.conninfo_to_dict(pg_dsn)
    dsn = psycopg.conninfo.make_conninfo(pg_dsn, host=str(directory))
    wire = Wire(directory, f"{parameters['host']}/.s.PGSQL.5432", dsn)
    yield wire
    wire.close()
    (directory / ".s.PGSQL.5432").unlink()
    directory.rmdir()


@pytest.mark.parametrize(("moment", "version"), [("before", 1), ("after", 2)])
def test_a_connection_lost_during_commit_leaves_the_outcome_open(
    wire: Wire, open_pg: Open, moment: str, version: int
) -> None:
    store = open_pg("e-1", wire.dsn)
    start(store, A)
    wire.cut = moment
    with pytest.raises(CommitUnknown):
        put(store, Batch(headers=[header(A, 2)], history=history(A, 2)))
    assert wire.cut == ""
    assert version_of(store) == version
    with store.reading() as q:
        assert len(q.history(A)) == version
    put(store, Batch(headers=[header(A, 3)], history=history(A, 3)), {A: version})


def test_the_outcome_is_not_reported_unknown_while_it_is_still_open(
    wire: Wire, open_pg: Open, pg_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is still committing (say, it waits for its standby) when the connection goes. Asked too
    early it would deny a commit that happens a moment later."""
    store = open_pg("e-1", wire.dsn)
    start(store, A)
    with psycopg.connect(pg_dsn) as session:
        session.execute(
            "CREATE FUNCTION holdfast.slow() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_advisory_xact_lock(1, 1); RETURN NULL; END $$;"
            " CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON holdfast.history"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION holdfast.slow()"
        )
    wire.cut = "after"
    asked = threading.Semaphore(0)
    reading = store.reading

    def spy() -> AbstractContextManager[Queries]:
        asked.release()
        return reading()

    with psycopg.connect(pg_dsn) as standby, ThreadPoolExecutor(1) as pool:
        standby.execute("SELECT pg_advisory_lock(1, 1)")
        monkeypatch.setattr(store, "reading", spy)
        writing = pool.submit(put, store, Batch(headers=[header(A, 2)], history=history(A, 2)))
        for _ in range(3):  # it asks what became of it, is told that this is open, and asks again
            assert asked.acquire(timeout=20)
        assert not writing.done()
        standby.execute("SELECT pg_advisory_unlock(1, 1)")
        with pytest.raises(CommitUnknown):
            writing.result(20)
    assert version_of(store) == 2


def test_a_backend_that_dies_in_commit_leaves_the_outcome_open(open_pg: Open, pg_dsn: str) -> None:
    store = open_pg("e-1")
    start(store, A)
    with psycopg.connect(pg_dsn) as session:
        session.execute(
            "CREATE FUNCTION holdfast.die() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); RETURN NULL; END $$;"
            " CREATE CONSTRAINT TRIGGER die AFTER INSERT ON holdfast.history"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION holdfast.die()"
        )
    with pytest.raises(CommitUnknown):
        put(store, Batch(headers=[header(A, 2)], history=history(A, 2)))
    assert version_of(store) == 1
    put(store, Batch(headers=[header(A, 2)]))


def test_a_no_from_the_server_at_commit_is_a_no(open_pg: Open, pg_dsn: str) -> None:
    store = open_pg()
    start(store, A)
    with psycopg.connect(pg_dsn) as session:
        session.execute(
            "CREATE FUNCTION holdfast.full() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$;"
            " CREATE CONSTRAINT TRIGGER full_disk AFTER INSERT ON holdfast.history"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION holdfast.full()"
        )
    with pytest.raises(StoreFull):
        put(store, Batch(headers=[header(A, 2)], history=history(A, 2)))
    assert version_of(store) == 1


def test_acknowledged_commits_survive_a_crash_of_the_server(postgres: Postgres, open_pg: Open) -> None:
    store = open_pg("e-1")
    start(store, A)
    acknowledged = [1]
    crash = threading.Timer(0.3, lambda: (postgres.stop("immediate"), postgres.start()))
    crash.start()
    deadline = time.monotonic() + 30
    survived = 0
    while survived < 20 and time.monotonic() < deadline:
        version = acknowledged[-1] + 1
        try:
            put(store, Batch(headers=[header(A, version)], history=history(A, version)), {A: version - 1})
        except StoreUnavailable:
            continue
        except CommitUnknown:
            while not (found := _try_version(store)):
                assert time.monotonic() < deadline
            if found < version:
                continue
        acknowledged.append(version)
        survived += not crash.is_alive()
    crash.join()
    assert survived == 20
    with store.reading() as q:
        assert [row.seq for row in q.history(A, limit=100_000)] == acknowledged


def _try_version(store: PostgresStore) -> int:
    with suppress(StoreUnavailable):
        return version_of(store)
    return 0


# --- the disk -----------------------------------------------------------------------------------------
def test_a_full_disk_acknowledges_nothing_and_loses_nothing(postgres: Postgres, small_disk: SmallDisk) -> None:
    server = os.stat(Path(psycopg.conninfo.conninfo_to_dict(postgres.dsn())["host"]) / "data")  # type: ignore[arg-type]
    space = small_disk.path / "space"
    space.mkdir()
    os.chown(space, server.st_uid, server.st_gid)
    for folder in (small_disk.path, *small_disk.path.parents):
        if folder.stat().st_mode & 0o055 != 0o055 and "pytest" in str(folder):
            folder.chmod(0o755)  # pytest's own folders are closed to the server's account
    with psycopg.connect(postgres.dsn(), autocommit=True) as session:
        session.execute(f"CREATE TABLESPACE tiny LOCATION '{space}'")
    try:
        dsn = postgres.create_database("full_disk")
        store = PostgresStore(dsn)
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute("ALTER TABLE holdfast.blobs SET TABLESPACE tiny")
        start(store, A)
        kept = count()

        def fill() -> None:
            while True:
                n = next(kept)
                blob = (A, n.to_bytes(16, "big"), os.urandom(200_000))
                put(store, Batch(headers=[header(an_id(n + 10))], blobs=[blob]))

        with pytest.raises(StoreFull, match="space"):
            fill()
        acknowledged = next(kept) - 1
        assert acknowledged > 3
        with store.reading() as q:
            assert q.count("blobs") == acknowledged
            assert q.count("executions") == acknowledged + 1
        start(store, B)  # the other tables have room
        store.close()
        postgres.drop_database("full_disk")
    finally:
        with psycopg.connect(postgres.dsn(), autocommit=True) as session:
            session.execute("DROP TABLESPACE tiny")
