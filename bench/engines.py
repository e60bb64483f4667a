"""Several engine processes on one PostgreSQL, each with a worker and a client of its own, all beginning at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holdfast.embedded import Embedded

from .clients import Inside
from .measure import Row, calibrate, data_folder, emit, tree_cpu
from .topologies import MODULES, ROOT, SLOTS, server_pids
from .workloads import sequence

STEPS = 10
#: in all, however many engines share it
IN_FLIGHT = 128


def together(engines: int, postgres: str, count: int) -> Row:
    """W2 with `count` executions, spread over the engines. Says how busy the machine was, database included."""
    share = count // engines
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data_folder().absolute()) as name:
        children = [_spawn(name, postgres, share, IN_FLIGHT // engines) for _ in range(engines)]
        try:
            for child in children:
                _read(child)
            cal = calibrate()
            ours, theirs = [child.pid for child in children], server_pids()
            cpu = tree_cpu(ours), tree_cpu(theirs)
            began = time.perf_counter()
            for child in children:
                assert child.stdin is not None
                child.stdin.write("go\n")
                child.stdin.flush()
            for child in children:
                _read(child)
            seconds = time.perf_counter() - began
            used = tree_cpu(ours) - cpu[0], tree_cpu(theirs) - cpu[1]
        finally:
            for child in children:
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.close()
                child.wait(30)
                child.stdout.close()
    steps = share * engines * STEPS
    return emit(
        f"holdfast-{engines}-engine{'s' if engines > 1 else ''}-postgres", "W2", workflows=share * engines, steps=steps,
        workflows_per_s=share * engines / seconds, steps_per_s=steps / seconds, steps_per_s_min=steps / seconds,
        steps_per_s_max=steps / seconds, cpu_ms_per_step=sum(used) / steps * 1e3, repeat=1, cal_kops=cal[0],
        cal_fsync=cal[1], engines=engines, in_flight=IN_FLIGHT, cores=os.cpu_count(),
        cores_used_by_engines=used[0] / seconds, cores_used_by_database=used[1] / seconds,
    )  # fmt: skip


def _spawn(folder: str, postgres: str, count: int, in_flight: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.engines", folder, postgres, str(count), str(in_flight)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def _read(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    if not child.stdout.readline():
        raise RuntimeError("an engine ended early")


def main() -> None:
    folder, postgres, count, in_flight = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with Embedded(postgres, folder=Path(folder), slots=SLOTS, processes=0, modules=MODULES) as holdfast:
        client = Inside(holdfast)
        client.run_many(sequence(STEPS), max(1, min(in_flight, count // 4)), in_flight)
        print(json.dumps("ready"), flush=True)
        sys.stdin.readline()
        print(json.dumps(client.run_many(sequence(STEPS), count, in_flight)), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
