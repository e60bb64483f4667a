"""`python -m tests.chaos [CAMPAIGN …]`: crash campaigns against real processes; all of them if none is named.

Exits with 1 if anything was violated. What each does stands in docs/how-to/chaos-testing.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any

from .report import Report

#: name → module, and what its `campaign` is told besides seed and progress
CAMPAIGNS: dict[str, tuple[str, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "kills": ("tests.chaos.kills", lambda o: {"kills": o.kills, "minutes": o.minutes}),
    "postgres": ("tests.chaos.postgres", lambda o: {"executions": o.executions, "minutes": o.minutes}),
    "recovery": ("tests.chaos.recovery", lambda o: {"executions": o.half_done}),
    "power": ("tests.chaos.power", lambda o: {"images": o.images}),
    "disk": ("tests.chaos.disk", lambda o: {}),
}
# The last two have a home of their own; without it the others still run.
CAMPAIGNS = {name: entry for name, entry in CAMPAIGNS.items() if importlib.util.find_spec(entry[0])}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=", ".join(CAMPAIGNS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin nothing new after that")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--executions", type=int, default=2000, help="under a PostgreSQL that goes away")
    parser.add_argument("--half-done", type=int, default=1000, help="executions that have to move again")
    parser.add_argument("--images", type=int, default=1500, help="power cuts")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    options = parser.parse_args()
    if unknown := [name for name in options.campaigns if name not in CAMPAIGNS]:
        parser.error(f"there is no campaign {unknown[0]}; there are {', '.join(CAMPAIGNS)}")
    reports: list[Report] = []
    for name in options.campaigns or CAMPAIGNS:
        module, arguments = CAMPAIGNS[name]
        print(f"{name}, seed {options.seed}", file=sys.stderr, flush=True)
        campaign = importlib.import_module(module).campaign
        report = campaign(seed=options.seed, progress=_progress, **arguments(options))
        reports.append(report)
        if options.output == "text":
            print(report.text(), flush=True)
    if options.output == "json":
        print(json.dumps([report.as_dict() for report in reports], indent=2))
    return 0 if all(report.ok for report in reports) else 1


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
