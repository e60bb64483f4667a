"""`python -m bench.holdfast --topology embedded-sqlite w1 w2 w3 w4 growth`: one fresh process, JSON lines."""

from __future__ import annotations

import argparse
import time
from typing import Any

from . import crash, depth, engines, entities, loops
from .measure import IN_FLIGHT, REPEAT, latency, throughput
from .topologies import TOPOLOGIES, Subject, opened
from .workloads import STEPS_IN_CRASH, sequence, wide

#: those that share one engine
SHARED = ("w1", "w2", "w3", "w4", "growth")


def counters(subject: Subject) -> dict[str, Any]:
    holdfast = subject.holdfast
    if holdfast is None:
        return dict(subject.notes)
    counted = holdfast.engine.committer.counters
    return {**subject.notes, "items_per_commit": counted.items / max(1, counted.commits)}


def run(subject: Subject, workload: str, options: argparse.Namespace) -> None:
    client, peer = subject.client, subject.peer

    def measured(name: str, definition: dict[str, Any], count: int, steps: int, repeat: int = REPEAT) -> None:
        throughput(
            peer, name, lambda: client.run_many(definition, count, min(IN_FLIGHT, count)), count, count * steps,
            pids=subject.pids, repeat=repeat, extra=lambda: counters(subject),
        )  # fmt: skip

    match workload:
        case "w1":
            client.run_many(sequence(1), max(IN_FLIGHT, options.n // 10), IN_FLIGHT)
            measured("W1", sequence(1), options.n, 1)
        case "w2":
            n = max(64, options.n // 3)
            client.run_many(sequence(10), max(IN_FLIGHT, n // 10), IN_FLIGHT)
            measured("W2", sequence(10), n, 10)
        case "w3":
            for width in (options.fan // 10, options.fan):
                client.run_one(wide(width))
                measured("W3", wide(width), 1, width)
        case "w4":
            samples = []
            client.run_one(sequence(1))
            for _ in range(options.samples):
                began = time.perf_counter()
                client.run_one(sequence(1))
                samples.append(time.perf_counter() - began)
                time.sleep(0.005)
            latency(peer, "W4", samples, **subject.notes)
        case "growth":
            for steps in (10, 100, 1000):
                measured("growth", sequence(steps), 1, steps, repeat=1)
        case _:
            raise SystemExit(f"there is no workload {workload}")


def apart(workload: str, options: argparse.Namespace) -> bool:
    """Those that open and close engines of their own; False if it is none of them."""
    topology, url = options.topology, options.postgres
    match workload:
        case "w5":
            crash.recover(topology, "W5", url, options.crash, STEPS_IN_CRASH, settle=options.settle)
        case "w5plain":
            crash.recover(
                topology, "W5-plain", url, options.crash, STEPS_IN_CRASH, idempotent=False, settle=options.settle / 4
            )
        case "recovery":
            crash.recover(topology, "recovery", url, options.crash, 10, settle=options.settle / 4)
        case "engines":
            engines.together(1, url, max(64, options.n // 3))
        case "engines2":
            engines.together(2, url, max(64, options.n // 3))
        case "marginal":
            depth.marginal_steps(3, options.long)
            depth.marginal_items(3, options.fan)
        case "loops":
            loops.marginal_foreach(3, options.fan)
            loops.internal(options.long)
            loops.checking()
        case "entities":
            entities.fleets(topology, url, options.fan)
            entities.grants(topology, url, options.fan)
        case "storage":
            depth.storage(options.stored, url)
        case "asleep":
            depth.memory_asleep(options.open, options.rest, url)
        case "idle":
            depth.memory_idle(options.rest)
        case _:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.holdfast", description=__doc__)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--topology", default="embedded-sqlite", choices=TOPOLOGIES)
    parser.add_argument("--postgres", default="", help="address of an empty database")
    parser.add_argument("--client", default="thin", choices=("thin", "threads"), help="over HTTP: which client")
    parser.add_argument("--n", type=int, default=6000, help="one-step executions per run; a third of it for ten steps")
    parser.add_argument("--fan", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--crash", type=int, default=1000, help="executions under way when the engine is killed")
    parser.add_argument("--settle", type=float, default=crash.SETTLE, help="seconds for late repeats after a crash")
    parser.add_argument("--rest", type=float, default=depth.REST, help="seconds of rest before memory is looked at")
    parser.add_argument("--long", type=int, default=10_000, help="steps of the one long execution")
    parser.add_argument("--stored", type=int, default=100_000, help="steps whose bytes are counted")
    parser.add_argument("--open", type=int, default=10_000, help="executions asleep")
    options = parser.parse_args()
    # Each opens engines of its own, and SQLite knows one owner: so they come after the others' has closed.
    together = [workload for workload in options.workloads if workload in SHARED]
    if together:
        with opened(options.topology, options.postgres, options.client) as subject:
            for workload in together:
                run(subject, workload, options)
    for workload in options.workloads:
        if workload not in SHARED and not apart(workload, options):
            raise SystemExit(f"there is no workload {workload}")


if __name__ == "__main__":
    main()
