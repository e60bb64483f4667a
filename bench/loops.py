"""What internal steps and loops cost: CPU per item of a long `foreach` over that of a short one, and commits."""

from __future__ import annotations

import statistics
import time
from typing import Any

from . import language
from .measure import calibrate, emit
from .topologies import opened
from .workloads import NOOP

PEER = "holdfast-embedded-sqlite"
BODIES = {"let": "let x = ${item}", "block": NOOP}
LANES = (1, 50, "all")


def over(items: int, body: str, concurrency: int | str) -> dict[str, Any]:
    loop = {"step": "foreach item in ${hosts}", "concurrency": concurrency, "steps": [BODIES[body]]}
    hosts = [f"host-{number}.example.net" for number in range(items)]
    return {
        "name": f"each-{body}-{concurrency}-{items}",
        "inputs": {"hosts": {"type": "list", "default": hosts}},
        "steps": [loop],
    }


def marginal_foreach(repeat: int, few: int = 1_000) -> None:
    """Process CPU per item over a list of texts, ten times as long against short: with an internal step and with a
    block as its body, one at a time, fifty, and all at once."""
    many = few * 10
    for body in BODIES:
        for concurrency in LANES:
            ratios, costs = [], []
            for _ in range(repeat):
                with opened("embedded-sqlite") as subject:
                    short, long = over(few, body, concurrency), over(many, body, concurrency)

                    def cost(definition: dict[str, Any], runs: int, client: Any = subject.client) -> float:
                        used = time.process_time()
                        for _ in range(runs):
                            client.run_one(definition)
                        return time.process_time() - used

                    cost(short, 1)  # both are compiled before
                    subject.client.publish(long)
                    first, last = cost(short, many // few) / many, cost(long, 1) / many
                ratios.append(last / first)
                costs.append((first * 1e3, last * 1e3))
            kops, syncs = calibrate()
            emit(
                PEER, "marginal-foreach", body=body, concurrency=concurrency, few=few, many=many, repeat=repeat,
                cpu_ms_per_item_few=statistics.median(c[0] for c in costs),
                cpu_ms_per_item_many=statistics.median(c[1] for c in costs),
                ratio=statistics.median(ratios), ratio_min=min(ratios), ratio_max=max(ratios),
                cal_kops=kops, cal_fsync=syncs,
            )  # fmt: skip


def internal(steps: int) -> None:
    """Commits of one execution of so many `let`, from its start to its end."""
    with opened("embedded-sqlite") as subject:
        assert subject.holdfast is not None
        counters = subject.holdfast.engine.committer.counters
        definition = {"name": "internal", "steps": ["let x = 1"] * steps}
        subject.client.publish(definition)
        before, used = counters.commits, time.process_time()
        subject.client.run_one(definition)
        commits, used = counters.commits - before, time.process_time() - used
    emit(PEER, "internal-steps", steps=steps, commits=commits, cpu_us_per_step=used / steps * 1e6)


def checking() -> None:
    """CPU of reading and checking a definition that uses the whole language."""
    for steps in (500, 4000):
        text = language.definition(steps)
        emit("holdfast", f"check-{steps}", steps=steps, bytes=len(text), cpu_ms=language.check_ms(text))
