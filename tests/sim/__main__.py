"""`python -m tests.sim --seeds N [--first S]`: run seeds, print what was reached, stop at the first violation."""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter

from .invariants import check_end
from .world import FAULTS, World


def run_seed(seed: int) -> tuple[World, dict[str, int]]:
    world = World(seed)
    world.run()
    return world, check_end(world)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    hits: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    began = time.perf_counter()
    for seed in range(options.first, options.first + options.seeds):
        try:
            world, ended = run_seed(seed)
        except BaseException:
            print(f"violation at seed {seed}: python -m tests.sim --first {seed} --seeds 1")
            raise
        hits.update(world.hit)
        ends.update(ended)
    seconds = time.perf_counter() - began
    print(f"{options.seeds} schedules in {seconds:.1f} s ({options.seeds / seconds:.0f} per second), no violation")
    for name in (*FAULTS, "cancel"):
        print(f"  {name:22} {hits[name]:8}")
    for name, count in sorted(ends.items()):
        print(f"  ended {name:16} {count:8}")


if __name__ == "__main__":
    main()
