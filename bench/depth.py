"""What a step costs in CPU late in a long execution, on disk, and in memory while it waits. Embedded on SQLite."""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import apsw
import psutil

from holdfast.cli import serverfile
from holdfast.embedded import Embedded

from . import blocks
from .clients import Inside, Threads
from .measure import IN_FLIGHT, calibrate, data_folder, emit, tree_pss
from .topologies import MODULES, SLOTS, end, opened, serving, start_worker, until
from .workloads import asleep, sequence, wide

#: seconds without work before memory is looked at
REST = 3.0


def marginal_steps(repeat: int, steps: int = 10_000) -> None:
    """Process CPU per step inside one execution: in its last tenth against the tenth after its first hundredth."""
    early, late = (steps // 100, steps // 100 + steps // 10), (steps - steps // 10, steps)
    ratios, costs = [], []
    for _ in range(repeat):
        blocks.cpu_at.clear()
        with opened("embedded-sqlite") as subject:
            subject.client.run_many(sequence(steps + max(1, steps // 100), "bench.count"), 1, 1)
        at = blocks.cpu_at
        first = (at[early[1]] - at[early[0]]) / (early[1] - early[0])
        last = (at[late[1]] - at[late[0]]) / (late[1] - late[0])
        ratios.append(last / first)
        costs.append((first * 1e3, last * 1e3))
    kops, syncs = calibrate()
    emit(
        "holdfast-embedded-sqlite", "marginal-steps", early=list(early), late=list(late), repeat=repeat,
        cpu_ms_per_step_early=statistics.median(c[0] for c in costs),
        cpu_ms_per_step_late=statistics.median(c[1] for c in costs),
        ratio=statistics.median(ratios), ratio_min=min(ratios), ratio_max=max(ratios), cal_kops=kops, cal_fsync=syncs,
    )  # fmt: skip


def marginal_items(repeat: int, narrow: int = 1_000) -> None:
    """Process CPU per item of a fan-out, ten times as broad against narrow; both programs compiled before."""
    broad = narrow * 10
    ratios, costs = [], []
    for _ in range(repeat):
        with opened("embedded-sqlite") as subject:
            client = subject.client

            def cost(width: int, runs: int, client: Inside = client) -> float:  # type: ignore[assignment]
                client.publish(wide(width))
                used = time.process_time()
                for _ in range(runs):
                    client.run_one(wide(width))
                return (time.process_time() - used) / (width * runs)

            cost(narrow, 2)
            cost(broad, 1)
            # As many items on both sides, so that both meet as many checkpoints.
            first, last = cost(narrow, broad // narrow), cost(broad, 1)
        ratios.append(last / first)
        costs.append((first * 1e3, last * 1e3))
    kops, syncs = calibrate()
    emit(
        "holdfast-embedded-sqlite", "marginal-items", narrow=narrow, broad=broad, repeat=repeat,
        cpu_ms_per_item_narrow=statistics.median(c[0] for c in costs),
        cpu_ms_per_item_broad=statistics.median(c[1] for c in costs),
        ratio=statistics.median(ratios), ratio_min=min(ratios), ratio_max=max(ratios), cal_kops=kops, cal_fsync=syncs,
    )  # fmt: skip


def storage(steps: int, postgres: str = "") -> None:
    """Bytes per step of ten-step executions, engine closed; SQLite: the WAL checkpointed and truncated, PostgreSQL:
    the database's growth since before the engine made its tables, indexes included."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data_folder().absolute()) as name:
        path = Path(name) / "bench.db"
        before = _postgres_bytes(postgres) if postgres else 0
        with Embedded(
            postgres or f"sqlite:///{path}", folder=Path(name), slots=SLOTS, processes=0, modules=MODULES
        ) as holdfast:
            Inside(holdfast).run_many(sequence(10), max(1, steps // 10), IN_FLIGHT)
        if postgres:
            used = _postgres_bytes(postgres) - before
            emit(
                "holdfast-embedded-postgres", "W6-storage", steps=steps, bytes_per_step=used / steps,
                bytes_by_table=_postgres_tables(postgres, steps),
            )  # fmt: skip
            return
        connection = apsw.Connection(str(path))
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()
        emit(
            "holdfast-embedded-sqlite", "W6-storage", steps=steps, bytes_per_step=path.stat().st_size / steps,
            **_tables(path, steps),
        )  # fmt: skip


def _postgres_bytes(address: str) -> int:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("checkpoint")
        found = connection.execute("select pg_database_size(current_database())").fetchone()
    assert found is not None
    return int(found[0])


def _postgres_tables(address: str, steps: int) -> dict[str, float]:
    import psycopg

    with psycopg.connect(address) as connection:
        found = connection.execute(
            "select relname, pg_total_relation_size(relid) from pg_stat_user_tables order by 2 desc limit 8"
        ).fetchall()
    return {str(name): round(int(size) / steps, 2) for name, size in found}


def _tables(path: Path, steps: int) -> dict[str, dict[str, float]]:
    """Where the bytes are."""
    connection = apsw.Connection(str(path))
    try:
        found = connection.execute("select name, sum(pgsize) from dbstat group by 1 order by 2 desc limit 8").fetchall()
    except apsw.SQLError:
        return {}  # this SQLite was built without it
    finally:
        connection.close()
    return {"bytes_by_table": {str(name): round(int(str(size)) / steps, 2) for name, size in found}}


def memory_asleep(count: int, rest: float, postgres: str = "") -> None:
    """PSS of this process (engine and worker; not the database's) before, and with `count` executions asleep for an
    hour."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data_folder().absolute()) as name:
        peer = "holdfast-embedded-postgres" if postgres else "holdfast-embedded-sqlite"
        store = postgres or f"sqlite:///{name}/bench.db"
        with Embedded(store, folder=Path(name), slots=SLOTS, processes=0, modules=MODULES) as holdfast:
            client = Inside(holdfast)
            # What is paid once (caches of statements, programs, pages) is paid before.
            client.run_many(sequence(1), 500, IN_FLIGHT)
            workflow = client.publish(asleep())
            _settle(rest)
            before = tree_pss([os.getpid()])
            began = time.perf_counter()
            left = count
            while left:
                batch = min(left, 500)
                _start(holdfast, workflow, batch)
                left -= batch
            took = time.perf_counter() - began
            _settle(rest)
            after = tree_pss([os.getpid()])
        emit(
            peer, "W6-memory", idle_mb=before / 1e6, open_workflows=count, open_mb=after / 1e6,
            start_s=took, bytes_per_execution=(after - before) / count,
        )  # fmt: skip


def _start(holdfast: Embedded, workflow: str, count: int) -> None:
    replies: list[Exception | None] = []
    for _ in range(count):
        holdfast.service.submit_start(
            holdfast.actor, workflow=workflow, reply=lambda value, error: replies.append(error)
        )
    while len(replies) < count:
        time.sleep(0.005)
    for error in replies:
        if error is not None:
            raise error


def _settle(rest: float) -> None:
    time.sleep(rest)
    gc.collect()
    time.sleep(0.5)


def _has_worker(client: Threads) -> bool:
    return bool(client.client.blocks())


def memory_idle(rest: float) -> None:
    """PSS of `holdfast up` as a user starts it (engine, API, worker, and its warm processes if it has any), after a
    first execution; and of `holdfast up --no-worker` together with a `holdfast worker`."""
    for peer, is_apart in (("holdfast-up-sqlite", False), ("holdfast-up-and-worker-sqlite", True)):
        with tempfile.TemporaryDirectory(prefix="bench-", dir=data_folder().absolute()) as name:
            folder = Path(name)
            more = ["--no-worker"] if is_apart else []
            with ExitStack() as stack:
                processes = [stack.enter_context(serving(folder, f"sqlite:///{folder}/bench.db", *more))]
                found = serverfile.read(folder)
                assert found is not None
                client = Threads(found.address, found.token)
                if is_apart:
                    processes.append(start_worker(folder, found.address, found.token))
                    stack.callback(end, processes[1])
                    until(partial(_has_worker, client), "the worker does not come")
                client.run_one(sequence(1))
                time.sleep(rest)
                pids = [process.pid for process in processes]
                children = [child for pid in pids for child in psutil.Process(pid).children(recursive=True)]
                emit(
                    peer, "W6-idle", idle_mb=tree_pss(pids) / 1e6, processes=len(pids) + len(children),
                    each_mb=[round(psutil.Process(pid).memory_full_info().pss / 1e6, 1) for pid in pids],
                    children_mb=[round(child.memory_full_info().pss / 1e6, 1) for child in children],
                )  # fmt: skip
