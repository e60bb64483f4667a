"""Two engines under load on a PostgreSQL that goes away: stopped hard, its sessions ended, a backend killed; and
an engine that is stopped for longer than its lease and then goes on as if nothing had been.

Nothing may be lost, doubled or stuck, and the engines have to come through it by themselves.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import psycopg

from holdfast.engine.verify import verify
from holdfast.store.address import open_store
from tests.acceptance.victim import ENOUGH, OPEN
from tests.acceptance.workload import ACTOR, FIGURES, examine
from tests.services.postgres import Postgres

from .forks import Child, Forks
from .kills import tail
from .report import Progress, Report

#: starts per second of each engine, in bursts
PACE, BURST = 25.0, 50
#: of the engines' workers, seconds; see tests/acceptance/victim.py
LEASE = 4.0
#: seconds between two looks at who holds claims and is silent, and some more; see `Rounds._sweep`
SWEEP = 18.0
#: seconds everything gets to end once nothing is broken any more
END = 120.0
#: seconds to wait for the first commit after the server is back, before it is given up as a figure
PATIENCE = 20.0
#: seconds between two attacks on sessions
_CUT = (0.1, 1.0)


PAUSED, PAUSED_QUIET = "engine paused among other faults", "engine paused beyond its lease"


class Nemesis:
    """What breaks, and when. `calm`: seconds between two stops of the server; `down`: how long it stays away."""

    def __init__(
        self,
        server: Postgres,
        dsn: str,
        engines: dict[str, Child],
        chance: Random,
        calm: tuple[float, float],
        down: tuple[float, float],
        *,
        is_patient: bool,
    ) -> None:
        self.done: Counter[str] = Counter()
        #: seconds from the server's first answer to the first commit after it
        self.returns: list[float] = []
        self._server = server
        self._dsn = dsn
        self._engines = engines
        self._chance = chance
        self._calm = calm
        self._down = down
        self._is_patient = is_patient
        self._paused: Child | None = None
        now = time.monotonic()
        self._next_stop = now + chance.uniform(*calm)
        self._next_cut = now + chance.uniform(*_CUT)
        self._next_pause = now + chance.uniform(1, 10)
        self._resume = 0.0
        #: nothing else is broken until then
        self.quiet_until = 0.0

    def step(self) -> None:
        now = time.monotonic()
        if self._paused is not None and now >= self._resume:
            self.heal()
        if now < self.quiet_until:
            pass
        elif now >= self._next_stop:
            self._stop()
            self._next_stop = time.monotonic() + self._chance.uniform(*self._calm)
        elif now >= self._next_cut:
            self._cut()
            self._next_cut = time.monotonic() + self._chance.uniform(*_CUT)
        elif now >= self._next_pause and self._paused is None:
            self._paused = self._engines[self._chance.choice(sorted(self._engines))]
            self._paused.kill(signal.SIGSTOP)
            self._resume = now + LEASE + self._chance.uniform(1, 4)
            # While the store is in trouble nobody is taken for dead. So every other pause, the first among them, is
            # the only thing that happens, and long enough for the other engine to give up what the paused one holds.
            if self._is_patient and self.done[PAUSED_QUIET] <= self.done[PAUSED]:
                self._resume = self.quiet_until = now + LEASE + SWEEP
                self.done[PAUSED_QUIET] += 1
            else:
                self.done[PAUSED] += 1
            self._next_pause = self._resume + self._chance.uniform(5, 15)
        time.sleep(0.02)

    def heal(self) -> None:
        if self._paused is not None:
            self._paused.kill(signal.SIGCONT)
            self._paused = None

    def _stop(self) -> None:
        self._server.stop("immediate")
        self.done["server stopped hard"] += 1
        time.sleep(self._chance.uniform(*self._down))
        self._server.start()
        self._first_commit()

    def _first_commit(self) -> None:
        began = time.monotonic()
        while time.monotonic() < began + PATIENCE:
            try:
                with psycopg.connect(self._dsn, autocommit=True) as session:
                    found = session.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000000").fetchone()
                    assert found is not None
                    query = "SELECT 1 FROM holdfast.history WHERE at > %s LIMIT 1"
                    while time.monotonic() < began + PATIENCE:
                        if session.execute(query, (int(found[0]),)).fetchone():
                            self.returns.append(time.monotonic() - began)
                            return
                        time.sleep(0.01)
            except psycopg.OperationalError:
                time.sleep(0.01)

    def _cut(self) -> None:
        """End some sessions of the engines, politely or not."""
        try:
            with psycopg.connect(self._server.dsn(), autocommit=True) as session:
                found = session.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'holdfast %' AND datname = 'chaos'"
                ).fetchall()
                pids = [pid for (pid,) in found]
                if pids and self._chance.random() < 0.1:
                    # The server takes a backend that was killed for damaged memory, and restarts itself.
                    os.kill(self._chance.choice(pids), signal.SIGKILL)
                    self.done["backend killed"] += 1
                    return
                for pid in self._chance.sample(pids, min(len(pids), self._chance.randint(1, 3))):
                    session.execute("SELECT pg_terminate_backend(%s)", (pid,))
                    self.done["session ended"] += 1
        except (psycopg.OperationalError, ProcessLookupError):
            pass  # it is recovering, or that session had just ended


def campaign(
    executions: int,
    seed: int,
    progress: Progress,
    minutes: float = 60.0,
    *,
    calm: tuple[float, float] = (5.0, 20.0),
    down: tuple[float, float] = (0.0, 5.0),
    stops: int = 0,
    pauses: int = 1,
) -> Report:
    """Until so many executions are acknowledged, and the server was stopped at least `stops` times: without a word,
    once for every 200 executions. And until an engine was paused at least `pauses` times with nothing else broken."""
    stops = stops or max(2, executions // 200)
    report = Report("postgres")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    began = time.monotonic()
    chance = Random(seed)
    with Forks() as forks, Postgres() as server:
        dsn = server.create_database("chaos")
        feed = ("--pace", str(PACE), "--burst", str(BURST), "--mix", "slow,slow-repeatable,plain,repeatable")
        engines = {name: forks.start("victim", folder, [str(folder), dsn, name, *feed]) for name in ("one", "two")}
        for name, child in engines.items():
            if not child.until_ready():
                report.violations.append(f"engine {name} did not come up: {tail(child)}")
        nemesis = Nemesis(server, dsn, engines, chance, calm, down, is_patient=pauses > 0)
        shown = 0.0
        while time.monotonic() < began + minutes * 60 and report.ok:
            nemesis.step()
            fed = _lines(folder / "acks")
            report.violations += _dead(engines)
            has_stopped = nemesis.done["server stopped hard"] >= stops
            has_paused = nemesis.done[PAUSED_QUIET] >= pauses and time.monotonic() > nemesis.quiet_until
            if fed >= executions and has_stopped and has_paused:
                break
            if time.monotonic() > shown + 5:
                shown = time.monotonic()
                progress(f"{shown - began:6.0f} s  {fed:6} acknowledged  {dict(nemesis.done)}")
        nemesis.heal()
        (folder / ENOUGH).touch()
        _settle(server, dsn, report)
        report.violations += _dead(engines)
        # After the judgement that they came through by themselves: nothing may change while it is compared.
        for child in engines.values():
            child.kill()
            child.wait(20)
        _judge(dsn, folder, report)
    returns = sorted(nemesis.returns)
    report.figures |= dict(sorted(nemesis.done.items()))
    report.figures |= {
        "accepts to first commit, median s": statistics.median(returns) if returns else None,
        "accepts to first commit, longest s": returns[-1] if returns else None,
        "seconds": round(time.monotonic() - began, 1),
    }
    if report.figures["acknowledged"] < executions:
        report.violations.append(f"only {report.figures['acknowledged']} of {executions} were acknowledged in time")
    if nemesis.done["server stopped hard"] < stops:
        report.violations.append(f"the server was stopped {nemesis.done['server stopped hard']} times, not {stops}")
    if pauses and not report.figures["unknown"] + report.figures["repeated steps"]:
        report.violations.append("no pause caught a job half way: the campaign shows nothing")
    if report.ok:
        shutil.rmtree(folder)
    else:
        report.figures["kept in"] = str(folder)
    return report


def _dead(engines: dict[str, Child]) -> list[str]:
    return [
        f"engine {name} ended by itself, with {child.returncode}: {tail(child)}"
        for name, child in engines.items()
        if child.returncode is not None
    ]


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _settle(server: Postgres, dsn: str, report: Report) -> None:
    """Until nothing is open any more, without anybody's help."""
    server.start()
    began = time.monotonic()
    store = open_store(dsn)
    try:
        is_quiet = 0
        while time.monotonic() < began + END:
            with store.reading() as queries:
                found = queries.headers(ACTOR.tenant, statuses=OPEN, limit=1)
            # Twice: a start that was accepted may still be on its way.
            is_quiet = 0 if found else is_quiet + 1
            if is_quiet >= 10:
                break
            time.sleep(0.1)
        report.figures["everything ended after, s"] = round(time.monotonic() - began, 1)
    finally:
        store.close()


def _judge(dsn: str, folder: Path, report: Report) -> None:
    store = open_store(dsn)
    try:
        report.violations += [f"verify: {finding}" for finding in verify(store).findings]
        seen, violations = examine(store, folder)
    finally:
        store.close()
    report.violations += violations
    report.figures |= {name: seen[name] for name in FIGURES}
    if not seen["completed"]:
        report.violations.append("nothing was completed: the campaign shows nothing")
