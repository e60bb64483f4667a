"""`python -m tests.chaos [CAMPAIGN …]`: crash campaigns against real processes; all of them if none is named.

Exits with 1 if anything was violated. What each does stands in docs/how-to/chaos-testing.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

from .report import Report

#: name → module, and what its `campaign` is told
CAMPAIGNS: dict[str, tuple[str, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "kills": (
        "tests.chaos.kills",
        lambda o: {"seed": o.seed, "kills": o.kills, "minutes": o.minutes, "progress": _line},
    ),
    "boundaries": ("tests.chaos.boundaries", lambda o: {"progress": _line}),
    "postgres": (
        "tests.chaos.postgres",
        lambda o: {"seed": o.seed, "executions": o.executions, "minutes": o.minutes, "progress": _line},
    ),
    "recovery": (
        "tests.chaos.recovery",
        lambda o: {"seed": o.seed, "executions": o.half_done, "progress": _line},
    ),
    "power": ("tests.chaos.power", lambda o: {"seed": o.seed, "images": o.images, "progress": _Tally(500)}),
    "disk": ("tests.chaos.disk", lambda o: {"upto": o.calls, "stride": o.stride, "progress": _Tally(25)}),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=", ".join(CAMPAIGNS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin nothing new after that")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--executions", type=int, default=2000, help="under a PostgreSQL that goes away")
    parser.add_argument("--half-done", type=int, default=1000, help="executions that have to move again")
    parser.add_argument("--images", type=int, default=5000, help="power cuts")
    parser.add_argument("--calls", type=int, default=250, help="calls of the disk that may fail")
    parser.add_argument("--stride", type=int, default=4, help="every so many of them")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    options = parser.parse_args()
    # What a store says that is being broken on purpose is no news.
    logging.disable(logging.CRITICAL)
    if unknown := [name for name in options.campaigns if name not in CAMPAIGNS]:
        parser.error(f"there is no campaign {unknown[0]}; there are {', '.join(CAMPAIGNS)}")
    reports: list[Report] = []
    for name in options.campaigns or CAMPAIGNS:
        module, arguments = CAMPAIGNS[name]
        print(f"{name}, seed {options.seed}", file=sys.stderr, flush=True)
        campaign = importlib.import_module(module).campaign
        report = campaign(**arguments(options))
        reports.append(report)
        if options.output == "text":
            print(report.text(), flush=True)
    if options.output == "json":
        print(json.dumps([report.as_dict() for report in reports], indent=2))
    return 0 if all(report.ok for report in reports) else 1


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Tally:
    """Says now and then how far a campaign of many small trials has come."""

    def __init__(self, every: int) -> None:
        self._every = every

    def __call__(self, done: int, violations: int) -> None:
        if done % self._every == 0:
            _line(f"  {done:,} done, {violations} violations")


if __name__ == "__main__":
    sys.exit(main())
