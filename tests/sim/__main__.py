"""`python -m tests.sim`: run schedules, reproduce one, shrink one, or plant bugs and see that they are found."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from .base import Violation
from .bugs import BUGS, plant, table
from .campaign import campaign, paranoid, quiet, run_seed
from .shrink import report, shrink


def commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        return done.stdout.strip() or "unknown"
    except OSError:
        return "unknown"


def digests(first: int, count: int) -> list[str]:
    return [f"{seed} {run_seed(seed).trace.hexdigest()}" for seed in range(first, first + count)]


def twice(first: int, count: int) -> int:
    """The same seeds in two processes that hash differently: every trace must be the same."""
    command = [sys.executable, "-m", "tests.sim", "--digests", str(count), "--first", str(first)]
    found = []
    for hashing in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hashing}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        found.append(done.stdout.split("\n")[:-1])
    differing = [a for a, b in zip(*found, strict=True) if a != b]
    print(f"{count} seeds twice, in processes with different hash seeds: {count - len(differing)} traces equal")
    for line in differing[:10]:
        print(f"  differs: seed {line.split()[0]}")
    return 1 if differing or len(found[0]) != count else 0


def one(seed: int, only: tuple[int, ...] | None, *, is_shrinking: bool, lines: int) -> int:
    if is_shrinking:
        found = shrink(seed)
        if found is None:
            print(f"seed {seed}: nothing is violated, so there is nothing to shrink")
            return 0
        only = tuple(found[0])
    text = report(seed, only, commit(), lines)
    print(text)
    return 0 if "nothing is violated" in text else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=0.0, help="so long instead of so many")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--seed", type=int, help="run this one and say what it violates")
    parser.add_argument("--only", help="with --seed: only these of its faults (3,7 or none)")
    parser.add_argument("--shrink", action="store_true", help="with --seed: find the fewest faults that do it")
    parser.add_argument("--lines", type=int, default=60, help="with --seed: lines of the trace to show")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant this bug first")
    parser.add_argument("--bugs", nargs="*", metavar="NAME", help="plant bugs one by one (all by default)")
    parser.add_argument("--twice", type=int, metavar="N", help="run N seeds in two processes, compare traces")
    parser.add_argument("--digests", type=int, metavar="N", help="print the traces' digests of N seeds")
    parser.add_argument("--paranoid", type=int, metavar="N", help="run N seeds with copied rows and doubled decisions")
    options = parser.parse_args()
    quiet()
    if options.paranoid:
        for seed in range(options.first, options.first + options.paranoid):
            paranoid(seed)
        print(f"{options.paranoid} seeds: no row changed after its commit, every decision the same twice")
        return 0
    if options.digests:
        print("\n".join(digests(options.first, options.digests)))
        return 0
    if options.twice:
        return twice(options.first, options.twice)
    if options.bugs is not None:
        return table(options.bugs or list(BUGS), options.first)
    with plant(options.bug):
        if options.seed is not None:
            only = None if options.only is None else tuple(int(n) for n in options.only.split(",") if n.isdigit())
            return one(options.seed, only, is_shrinking=options.shrink, lines=options.lines)
        try:
            count = 1 << 40 if options.seconds else options.seeds
            summary = campaign(options.first, count, jobs=options.jobs, seconds=options.seconds)
        except Violation as violation:
            print(f"seed {violation.seed}, commit {commit()}, step {violation.step}: {violation}")
            print(f"shrink it: python -m tests.sim --seed {violation.seed} --shrink")
            return 1
    print(json.dumps(summary.plain(), indent=2) if options.output == "json" else summary.text())
    return 1 if summary.emptiness() else 0


if __name__ == "__main__":
    sys.exit(main())
