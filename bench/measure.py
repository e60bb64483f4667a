"""Rows: one JSON line per measurement, in the fields that the peers' benches print.

Every throughput row says how fast a plain Python loop and a 4 KiB fdatasync were next to it (`cal_kops`,
`cal_fsync`): rows whose `cal_*` differ were not measured on the same machine, whatever its name.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

IN_FLIGHT = int(os.environ.get("BENCH_IN_FLIGHT", "64"))
REPEAT = int(os.environ.get("BENCH_REPEAT", "3"))

Row = dict[str, Any]


def data_folder() -> Path:
    """On the disk that is measured: never a RAM disk by accident."""
    return Path(os.environ.get("BENCH_DIR") or ".")


def emit(peer: str, workload: str, **fields: Any) -> Row:
    row: Row = {"peer": peer, "workload": workload}
    row |= {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}
    print(json.dumps(row), flush=True)
    return row


def percentile(samples: Iterable[float], share: float) -> float:
    """Nearest rank: the smallest sample that at least `share` of them do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def calibrate(seconds: float = 0.15) -> tuple[float, float]:
    """Thousands of turns of an empty loop per second, and fdatasyncs of 4 KiB per second."""
    turns, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(1000):
            turns += 1
    kops = turns / (time.perf_counter() - began) / 1e3
    syncs = 0
    with tempfile.NamedTemporaryFile(dir=data_folder()) as file:
        os.write(file.fileno(), b"\0" * 65536)
        os.fsync(file.fileno())
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            os.pwrite(file.fileno(), b"\1" * 4096, 0)
            os.fdatasync(file.fileno())
            syncs += 1
        per_second = syncs / (time.perf_counter() - began)
    return kops, per_second


def _tree(pids: Iterable[int]) -> dict[int, psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            found[pid] = process
            found |= {child.pid: child for child in process.children(recursive=True)}
        except psutil.Error:
            continue
    return found


def tree_cpu(pids: Sequence[int]) -> float:
    """User and system seconds of these processes and their children."""
    total = 0.0
    for process in _tree(pids).values():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def tree_pss(pids: Sequence[int]) -> int:
    """Bytes of memory of these processes and their children, shared pages counted once (PSS)."""
    total = 0
    for process in _tree(pids).values():
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def throughput(
    peer: str,
    workload: str,
    run: Callable[[], float],
    workflows: int,
    steps: int,
    *,
    pids: Sequence[int],
    repeat: int = REPEAT,
    extra: Callable[[], dict[str, Any]] = dict,
) -> Row:
    """`run` makes `workflows` workflows of `steps` steps in all happen and says how many seconds it took."""
    seconds: list[float] = []
    cpu: list[float] = []
    cals: list[tuple[float, float]] = []
    for _ in range(repeat):
        cals.append(calibrate())
        used = tree_cpu(pids)
        seconds.append(run())
        cpu.append(tree_cpu(pids) - used)
    middle = statistics.median(seconds)
    return emit(
        peer,
        workload,
        workflows=workflows,
        steps=steps,
        workflows_per_s=workflows / middle,
        steps_per_s=steps / middle,
        steps_per_s_min=steps / max(seconds),
        steps_per_s_max=steps / min(seconds),
        cpu_ms_per_step=statistics.median(cpu) / steps * 1e3,
        repeat=repeat,
        cal_kops=statistics.median(cal[0] for cal in cals),
        cal_fsync=statistics.median(cal[1] for cal in cals),
        **extra(),
    )


def latency(peer: str, workload: str, samples: Sequence[float], **extra: Any) -> Row:
    kops, syncs = calibrate()
    return emit(
        peer,
        workload,
        n=len(samples),
        p50_ms=statistics.median(samples) * 1e3,
        p99_ms=percentile(samples, 0.99) * 1e3,
        cal_kops=kops,
        cal_fsync=syncs,
        **extra,
    )
