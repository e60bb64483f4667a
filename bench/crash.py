"""W5: `kill -9` when half of the side effects are in, start again, and see when everything is done and how often.

`bench.victim` is the engine that is killed, and the one that takes over. What happened is told by a file outside: one
line per side effect, with its time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from holdfast.cli import serverfile
from holdfast.client import Client

from .measure import Row, calibrate, data_folder, emit, percentile
from .topologies import ROOT, start_server, start_worker, until
from .victim import OPEN
from .workloads import touching

#: seconds after the last effect in which late repeats are still counted, as in the peers' benches
SETTLE = 8.0
#: seconds until half of the effects are in, at most
PATIENCE = 120.0


class Effects:
    """The file outside: first time of each effect, and how often it happened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self._read = 0

    def look(self) -> None:
        """Read what was added, whole lines only."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        for line in data.decode().splitlines():
            key, at = line.split()
            self.first.setdefault(key, float(at))
            self.counts[key] += 1

    @property
    def executions(self) -> Counter[str]:
        """Distinct effects of each execution."""
        return Counter(key.partition(".")[0] for key in self.counts)


class Life(Protocol):
    """An engine with its worker that is fed, killed, started again and drained."""

    def feed(self, count: int, steps: int, idempotent: bool) -> None:
        """Start so many executions; returns when all are acknowledged."""

    def kill(self) -> None: ...
    def resume(self) -> None: ...

    def ended(self) -> dict[str, int]:
        """Waits until everything has ended; how many, by status."""


class OneProcess:
    def __init__(self, folder: Path, store: str) -> None:
        self._folder = folder
        self._store = store
        self._child: subprocess.Popen[str] | None = None

    def feed(self, count: int, steps: int, idempotent: bool) -> None:
        self._spawn("feed", str(count), str(steps), str(int(idempotent)))
        self._said()

    def kill(self) -> None:
        if self._child is not None:
            assert self._child.stdout is not None
            self._child.kill()
            self._child.wait()
            self._child.stdout.close()

    def resume(self) -> None:
        self._spawn("drain")

    def ended(self) -> dict[str, int]:
        counts: dict[str, int] = self._said()
        return counts

    def _spawn(self, *more: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.victim", str(self._folder), self._store, *more],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def _said(self) -> Any:
        assert self._child is not None
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError("the engine ended by itself")
        return json.loads(line)


class TwoProcesses:
    """`holdfast up --no-worker` and `holdfast worker`; both are killed. The worker has the same name in both lives:
    so the engine knows that the first is dead, and does not wait for its lease to end."""

    def __init__(self, folder: Path, store: str) -> None:
        self._folder = folder
        self._store = store
        self._processes: list[subprocess.Popen[bytes]] = []

    def feed(self, count: int, steps: int, idempotent: bool) -> None:
        self.resume()
        until(lambda: any(block.name == "bench.touch" for block in self._client.blocks()), "the worker does not come")
        name = self._client.publish(touching(steps, idempotent=idempotent)).name
        given = {"path": str(self._folder / "effects")}
        with ThreadPoolExecutor(16) as pool:
            for _ in pool.map(lambda _: self._client.start(workflow=name, input=given), range(count)):
                pass

    def kill(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes = []

    def resume(self) -> None:
        self._processes = [start_server(self._folder, self._store, "--no-worker")]
        found = serverfile.read(self._folder)
        assert found is not None
        self._client = Client(found.address, found.token)
        self._processes.append(start_worker(self._folder, found.address, found.token, "--name", "bench-worker"))

    def ended(self) -> dict[str, int]:
        names = tuple(status.name for status in OPEN)
        while self._client.executions(statuses=names, limit=1):
            time.sleep(0.05)
        return dict(Counter(view.status for view in self._client.executions(limit=1_000_000)))


def recover(
    topology: str, workload: str, postgres: str, count: int, steps: int, *, idempotent: bool = True, settle: float
) -> Row:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data_folder().absolute()) as name:
        folder = Path(name)
        store = postgres or f"sqlite:///{folder}/bench.db"
        life: Life = (TwoProcesses if topology.startswith("http") else OneProcess)(folder, store)
        effects = Effects(folder / "effects")
        total = count * steps
        try:
            life.feed(count, steps, idempotent)
            _until_effects(effects, total // 2)
            life.kill()
            effects.look()
            done_at_kill, before = len(effects.counts), effects.executions
            restarted = time.time()
            life.resume()
            ended = life.ended()
            time.sleep(settle)
            effects.look()
        finally:
            life.kill()
        again: dict[str, float] = {}
        for key, at in effects.first.items():
            id = key.partition(".")[0]
            if at >= restarted:
                again[id] = min(at, again.get(id, at))
        moving = [at - restarted for at in again.values()] or [0.0]
        last = max(effects.first.values(), default=restarted)
        kops, syncs = calibrate()
        return emit(
            f"holdfast-{topology}", workload, workflows=count, steps=total, done_at_kill=done_at_kill,
            half_done=sum(0 < done < steps for done in before.values()), recovery_s=max(0.0, last - restarted),
            moving_p50_s=percentile(moving, 0.5), moving_p99_s=percentile(moving, 0.99),
            steps_missing=total - len(effects.counts), steps_repeated=sum(n > 1 for n in effects.counts.values()),
            ended=ended, blocks="idempotent" if idempotent else "neither pure nor idempotent",
            cal_kops=kops, cal_fsync=syncs,
        )  # fmt: skip


def _until_effects(effects: Effects, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(effects.counts) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {len(effects.counts)} of {count} side effects within {PATIENCE:.0f} s")
        time.sleep(0.005)
        effects.look()
