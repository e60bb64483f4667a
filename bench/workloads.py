"""The workloads, in the words of the peers' benches: 64 executions in flight, blocks neither pure nor idempotent."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

from holdfast.embedded import Embedded
from holdfast.engine.engine import new_execution_id
from holdfast.store.records import Header

IN_FLIGHT = 64


def sequence(steps: int) -> dict[str, Any]:
    return {"name": f"sequence-{steps}", "steps": ["test.noop"] * steps}


def wide(width: int) -> dict[str, Any]:
    return {"name": f"wide-{width}", "steps": [{"parallel": ["test.noop"] * width}]}


def run_many(holdfast: Embedded, definition: dict[str, Any], count: int, in_flight: int = IN_FLIGHT) -> float:
    """Seconds until `count` executions have completed, `in_flight` at a time."""
    room = threading.Semaphore(in_flight)
    everything = threading.Event()
    ended = 0

    def start_one() -> None:
        id = new_execution_id()

        def moved(header: Header | None) -> None:
            nonlocal ended
            if header is not None and header.status.is_ended:
                assert header.status.name == "COMPLETED", header.status.name
                unwatch()
                ended += 1
                room.release()
                if ended == count:
                    everything.set()

        unwatch = holdfast.engine.watch(id, moved)
        holdfast.service.submit_start(holdfast.actor, definition=definition, id=id, reply=_must)

    began = time.perf_counter()
    for _ in range(count):
        room.acquire()
        start_one()
    everything.wait()
    return time.perf_counter() - began


def _must(value: Any, error: Exception | None) -> None:
    if error is not None:
        raise error


def throughput(
    holdfast: Embedded, definition: dict[str, Any], count: int, steps: int, repeat: int = 3
) -> dict[str, Any]:
    """Workflows and steps per second (median), CPU per step, items per commit."""
    run_many(holdfast, definition, max(1, count // 10))
    counters = holdfast.engine.committer.counters
    seconds, cpu = [], []
    commits, items = counters.commits, counters.items
    for _ in range(repeat):
        used = time.process_time()
        seconds.append(run_many(holdfast, definition, count))
        cpu.append(time.process_time() - used)
    middle = statistics.median(seconds)
    return {
        "workflows_per_s": round(count / middle),
        "steps_per_s": round(count * steps / middle),
        "steps_per_s_min": round(count * steps / max(seconds)),
        "steps_per_s_max": round(count * steps / min(seconds)),
        "cpu_us_per_step": round(statistics.median(cpu) / (count * steps) * 1e6, 1),
        "items_per_commit": round((counters.items - items) / max(1, counters.commits - commits), 1),
    }


def latency(holdfast: Embedded, count: int) -> dict[str, Any]:
    """Start to result of a one-step workflow on an idle engine."""
    samples = []
    for _ in range(count):
        began = time.perf_counter()
        holdfast.run(sequence(1))
        samples.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.005)
    samples.sort()
    return {"p50_ms": round(samples[count // 2], 2), "p99_ms": round(samples[int(count * 0.99)], 2)}
