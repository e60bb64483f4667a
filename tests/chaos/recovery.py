"""How long until everything moves again: an engine is killed with many executions half done.

A figure, measured on whatever else the machine is doing; the limit stands beside it and is no test. What is asserted
is that every execution does move, and that verify is clean.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.core import events as e
from holdfast.core.codec import unpack_events
from holdfast.core.ids import from_key
from holdfast.engine.verify import verify
from holdfast.store.address import open_reading, open_store
from holdfast.store.port import Store
from holdfast.store.queries import Queries
from tests.acceptance.processes import end_all, spawn_module
from tests.services.postgres import Postgres

from .mover import STEPS
from .report import Progress, Report

SECOND = 1_000_000
#: p99 of the time until an execution has moved again, seconds; from the design's budgets
LIMIT = 5.0
#: seconds after which what has not moved is taken to be stuck
STUCK = 60.0
#: what is written about a job when its worker is given up: true, but no step further
_GIVEN_UP = (e.JobRescheduled, e.JobReleased, e.JobStarted)


def campaign(executions: int, seed: int, progress: Progress) -> Report:
    report = Report("recovery", {"executions half done": executions, "limit for p99, s": LIMIT})
    with tempfile.TemporaryDirectory(prefix="holdfast-recovery-") as name:
        folder = Path(name)
        address = f"sqlite:///{folder}/holdfast.db"
        _measure("sqlite, restarted", folder, address, executions, report, progress)
    with Postgres() as server:
        for what, others in (("postgres, restarted", ()), ("postgres, taken over", ("other",))):
            with tempfile.TemporaryDirectory(prefix="holdfast-recovery-") as name:
                dsn = server.create_database(what.split()[-1])
                _measure(what, Path(name), dsn, executions, report, progress, others)
    return report


def _measure(
    what: str,
    folder: Path,
    address: str,
    executions: int,
    report: Report,
    progress: Progress,
    others: tuple[str, ...] = (),
) -> None:
    """Kill it half way. Where there is no other engine, start it again, cold, under the same name."""

    def start(name: str, *more: str) -> subprocess.Popen[str]:
        return spawn_module("tests.chaos.mover", folder, address, name, *more)

    try:
        for other in others:
            start(other)
        engine = start("engine", str(executions))
        store = open_reading(address)
        # One in five has no jobs but timers.
        _until(store, lambda queries: _jobs_done(queries) >= executions * STEPS * 4 // 5 // 2, 120)
        engine.send_signal(signal.SIGKILL)
        killed = time.time_ns() // 1000
        engine.wait()
        if address.startswith("sqlite"):
            store.close()
            store = open_reading(address)
        with store.reading() as queries:
            open_ones = {key for key in _keys(queries) if not _is_ended(queries, key)}
        began = time.time_ns() // 1000
        if not others:
            start("engine")
        progress(f"{what}: {len(open_ones)} of {executions} were open when the engine was killed")
        moved: dict[bytes, int] = {}

        def all_moved(queries: Queries) -> bool:
            time.sleep(1)  # looking costs what is being measured; rows say when they were written
            query = "SELECT execution, at, body FROM history WHERE at > ? ORDER BY at"
            for key, at, body in queries.rows(query, (killed,)):
                if bytes(key) not in moved and not all(isinstance(event, _GIVEN_UP) for event in unpack_events(body)):
                    moved[bytes(key)] = at
            return moved.keys() >= open_ones

        _until(store, all_moved, STUCK)
        store.close()
    finally:
        end_all()
    moved = {key: at for key, at in moved.items() if key in open_ones}
    stuck = len(open_ones) - len(moved)
    since = began if not others else killed
    delays = sorted((at - since) / SECOND for at in moved.values())
    report.figures[what] = {
        "open when killed": len(open_ones),
        "moved again": len(moved),
        "p50, s": _quantile(delays, 0.50),
        "p99, s": _quantile(delays, 0.99),
        "longest, s": delays[-1] if delays else None,
        "within the limit": bool(delays) and _quantile(delays, 0.99) < LIMIT,
    }
    if stuck:
        report.violations.append(f"{what}: {stuck} executions had not moved after {STUCK:g} s")
    if len(open_ones) < executions // 2:
        report.violations.append(f"{what}: only {len(open_ones)} were open when the engine was killed")
    whole = open_store(address)
    report.violations += [f"{what}: verify: {finding}" for finding in verify(whole).findings[:5]]
    whole.close()


def _until(store: Store, condition: Callable[[Queries], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with store.reading() as queries:
            if condition(queries):
                return
        time.sleep(0.05)


def _jobs_done(queries: Queries) -> int:
    return int(queries.rows("SELECT coalesce(sum(jobs_done), 0) FROM executions")[0][0])


def _keys(queries: Queries) -> list[bytes]:
    found: list[bytes] = []
    while keys := queries.ids(found[-1] if found else b"", 500):
        found += keys
    return found


def _is_ended(queries: Queries, key: bytes) -> bool:
    header = queries.header("default", from_key(key))
    return header is not None and header.status.is_ended


def _quantile(values: list[float], q: float) -> float:
    return values[min(len(values) - 1, int(len(values) * q))] if values else float("nan")
