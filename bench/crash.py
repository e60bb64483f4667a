"""W5: `kill -9` when half of the side effects are in, start again, and see when everything is done and how often.

`python -m bench.crash FOLDER STORE feed|drain …` is the engine that is killed, and the one that takes over. What
happened is told by a file outside: one line per side effect, with its time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast.core.model import Status
from holdfast.embedded import Embedded

from .measure import Row, calibrate, data_folder, emit, percentile
from .topologies import MODULES, ROOT
from .workloads import touching

OPEN = tuple(status for status in Status if not status.is_ended)
#: seconds after the last effect in which late repeats are still counted, as in the peers' benches
SETTLE = 8.0
#: seconds after which a recovery has failed
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


def recover(
    peer: str, workload: str, postgres: str, count: int, steps: int, *, idempotent: bool = True, settle: float
) -> Row:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data_folder().absolute()) as name:
        folder = Path(name)
        store = postgres or f"sqlite:///{folder}/bench.db"
        effects = Effects(folder / "effects")
        total = count * steps
        child = _spawn(folder, store, "feed", str(count), str(steps), str(int(idempotent)))
        try:
            _expect(child, "fed")
            began = time.monotonic()
            while len(effects.counts) < total // 2 and time.monotonic() - began < PATIENCE:
                time.sleep(0.005)
                effects.look()
        finally:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
        effects.look()
        done_at_kill = len(effects.counts)
        before = effects.executions
        restarted = time.time()
        child = _spawn(folder, store, "drain")
        try:
            while len(effects.counts) < total and child.poll() is None and time.time() - restarted < PATIENCE:
                time.sleep(0.005)
                effects.look()
            last = max(effects.first.values(), default=restarted)
            ended: dict[str, int] = _expect(child, "")
            time.sleep(settle)
            effects.look()
        finally:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
        again: dict[str, float] = {}
        for key, at in effects.first.items():
            id = key.partition(".")[0]
            if at >= restarted:
                again[id] = min(at - restarted, again.get(id, at))
        moving = list(again.values()) or [0.0]
        kops, syncs = calibrate()
        return emit(
            peer, workload, workflows=count, steps=total, done_at_kill=done_at_kill,
            half_done=sum(0 < done < steps for done in before.values()), recovery_s=max(0.0, last - restarted),
            moving_p50_s=percentile(moving, 0.5), moving_p99_s=percentile(moving, 0.99),
            steps_missing=total - len(effects.counts), steps_repeated=sum(n > 1 for n in effects.counts.values()),
            ended=ended, blocks="idempotent" if idempotent else "neither pure nor idempotent",
            cal_kops=kops, cal_fsync=syncs,
        )  # fmt: skip


def _spawn(folder: Path, store: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.crash", str(folder), store, *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def _expect(child: subprocess.Popen[str], key: str) -> Any:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise RuntimeError("the engine ended before it was killed")
    said = json.loads(line)
    return said[key] if key else said


def main() -> None:
    folder, store, what = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    # With the default number of slots: so many attempts may be cut off.
    with Embedded(store, folder=folder, processes=0, modules=MODULES) as holdfast:
        service, actor = holdfast.service, holdfast.actor
        if what == "feed":
            count, steps, idempotent = (int(text) for text in sys.argv[4:7])
            name = service.publish(actor, touching(steps, idempotent=bool(idempotent))).name
            replies: list[Exception | None] = []
            for _ in range(count):
                service.submit_start(
                    actor,
                    workflow=name,
                    input={"path": str(folder / "effects")},
                    reply=lambda value, error: replies.append(error),
                )
            while len(replies) < count:
                time.sleep(0.002)
            refused = [str(error) for error in replies if error is not None]
            if refused:
                raise RuntimeError(refused[0])
            print(json.dumps({"fed": count}), flush=True)
            time.sleep(600)
        while service.executions(actor, statuses=OPEN, limit=1):
            time.sleep(0.05)
        print(json.dumps(_ended(holdfast)), flush=True)


def _ended(holdfast: Embedded) -> dict[str, int]:
    counts: Counter[str] = Counter()
    before = ""
    while page := holdfast.service.executions(holdfast.actor, before=before, limit=500):
        counts.update(view.status for view in page)
        before = page[-1].id
    return dict(counts)


if __name__ == "__main__":
    main()
