"""The service itself: it starts, it is as durable as in production, and it leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.services.postgres import Postgres


def test_each_test_gets_an_empty_database(pg_dsn: str) -> None:
    with psycopg.connect(pg_dsn) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert tables == (0,)


def test_durability_is_stock(pg_dsn: str) -> None:
    with psycopg.connect(pg_dsn) as connection:
        values = {
            name: connection.execute(f"SHOW {name}").fetchone()
            for name in ("fsync", "full_page_writes", "synchronous_commit", "max_connections")
        }
    assert values == {
        "fsync": ("on",),
        "full_page_writes": ("on",),
        "synchronous_commit": ("on",),
        "max_connections": ("200",),
    }


def test_committed_rows_survive_an_immediate_stop(postgres: Postgres, pg_dsn: str) -> None:
    with psycopg.connect(pg_dsn) as committed:
        committed.execute("CREATE TABLE kept (n int)")
        committed.execute("INSERT INTO kept SELECT generate_series(1, 1000)")
    uncommitted = psycopg.connect(pg_dsn)
    uncommitted.execute("INSERT INTO kept VALUES (1001)")

    postgres.stop("immediate")
    assert not postgres.is_running
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(pg_dsn)
    postgres.start()

    with pytest.raises(psycopg.OperationalError):
        uncommitted.execute("SELECT 1")
    uncommitted.close()
    with psycopg.connect(pg_dsn) as connection:
        assert connection.execute("SELECT count(*), max(n) FROM kept").fetchone() == (1000, 1000)


def test_kill_backends_cuts_only_the_database_named(postgres: Postgres, pg_dsn: str) -> None:
    other = psycopg.connect(postgres.dsn())
    mine = psycopg.connect(pg_dsn)
    name = mine.info.dbname

    assert postgres.kill_backends(name) == 1

    with pytest.raises(psycopg.OperationalError):
        mine.execute("SELECT 1")
    assert other.execute("SELECT 1").fetchone() == (1,)
    mine.close()
    other.close()


def test_nothing_outlives_a_killed_test_run() -> None:
    program = (
        "import sys, time; from tests.services.postgres import Postgres;"
        "server = Postgres(); print(server.dsn(), flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert owner.stdout is not None
    dsn = owner.stdout.readline().strip()
    directory = Path(str(psycopg.conninfo.conninfo_to_dict(dsn)["host"]))
    psycopg.connect(dsn).close()

    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()

    deadline = time.monotonic() + 20
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not directory.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
