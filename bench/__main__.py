"""`python -m bench`: Holdfast alone, about a minute. `--peers`: everything, alternately with the peers.

Every unit is a fresh process. In each round every unit runs once, and the order turns from round to round, so that
no one always runs on the warm machine. What cannot be measured is a row that says why.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.services.postgres import Postgres, ServiceUnavailable

from . import peers as peering
from .measure import calibrate, data_folder
from .plan import FULL, SMALL, Unit, holdfast_units, peer_units
from .report import RESULTS, ROOT, Row, judge, tables

#: seconds after which a unit is given up
LIMIT = 300.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Runner:
    def __init__(self, units: list[Unit], rounds: int, postgres: Postgres | str) -> None:
        self.units = units
        self.rounds = rounds
        #: or why there is none
        self.postgres = postgres
        self.rows: list[Row] = []
        self._took: dict[str, float] = {}

    def run(self, on_row: Any) -> None:
        plan: list[tuple[int, Unit]] = []
        alternating = [unit for unit in self.units if not unit.is_once]
        for round in range(self.rounds):
            turn = round * len(alternating) // max(1, self.rounds)
            plan += [(round + 1, unit) for unit in alternating[turn:] + alternating[:turn]]
        plan += [(0, unit) for unit in self.units if unit.is_once]
        for number, (round, unit) in enumerate(plan):
            left = sum(self._took.get(after.name, after.guess) for _, after in plan[number:] if not after.missing)
            where = f"round {round}/{self.rounds}" if round else "once"
            say(f"[{number + 1}/{len(plan)}, {where}, about {left / 60:.0f} min left] {unit.name}")
            began = time.monotonic()
            for row in self._measured(unit):
                row["round"] = round
                self.rows.append(row)
                on_row(row)
            if not unit.missing:
                self._took[unit.name] = time.monotonic() - began

    def _measured(self, unit: Unit) -> list[Row]:
        """The rows of one unit; those that it owes say why they are not there."""
        rows: list[Row] = []
        reason = unit.missing
        if not reason and unit.needs_postgres and isinstance(self.postgres, str):
            reason = self.postgres
        if not reason:
            kops, syncs = calibrate()
            rows, reason = self._process(unit)
            for row in rows:
                # Not all peers say how fast the machine was.
                row.setdefault("cal_kops", round(kops, 3))
                row.setdefault("cal_fsync", round(syncs, 3))
        there = {(row["peer"], row["workload"]) for row in rows}
        for peer, workload in unit.rows:
            if (peer, workload) not in there:
                rows.append({"peer": peer, "workload": workload, "not_measured": reason or "it printed no such row"})
        return rows

    def _process(self, unit: Unit) -> tuple[list[Row], str]:
        folder = data_folder().absolute()
        # A unit measures once per call: rounds are the repeats.
        env = {**os.environ, "BENCH_REPEAT": "1", "BENCH_DIR": str(folder), "PYTHONPATH": str(ROOT), **unit.env}
        env.pop("BENCH_SERVER_PIDS", None)
        with ExitStack() as stack:
            work = tempfile.mkdtemp(prefix="unit-", dir=folder)
            stack.callback(shutil.rmtree, work, ignore_errors=True)
            fill = {"{work}": work}
            if unit.needs_postgres:
                assert isinstance(self.postgres, Postgres)
                name = f"bench_{uuid.uuid4().hex[:12]}"
                self.postgres.create_database(name)
                stack.callback(self.postgres.drop_database, name)
                fill["{postgres}"] = self.postgres.url(name)
                env["BENCH_SERVER_PIDS"] = str(self.postgres.pid)
            command = [fill.get(part, part) for part in unit.command]
            try:
                done = subprocess.run(
                    command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
                )
            except subprocess.TimeoutExpired as late:
                return _rows(late.stdout), f"not done after {LIMIT:.0f} s"
        reason = ""
        if done.returncode != 0:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            reason = f"it ended with {done.returncode}: {_plain(said[-1] if said else 'no reason given')}"
            say(f"  {reason}")
        return _rows(done.stdout), reason


def _rows(output: str | bytes | None) -> list[Row]:
    text = output.decode() if isinstance(output, bytes) else output or ""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            if "peer" in row:
                found.append(row)
    return found


def _plain(text: str) -> str:
    """Without paths of this machine."""
    return re.sub(r"(?<![\w.])/[\w./+-]+", "…", text)[:200]


def machine(postgres: Postgres | str) -> dict[str, Any]:
    """What a reader has to know about it; no names."""
    import apsw

    model = ""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        model = found[1].strip() if found else ""
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    said = {
        "CPU": model or platform.machine(),
        "cores": os.cpu_count(),
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "Python": platform.python_version(),
        "SQLite": apsw.sqlite_lib_version(),
    }
    if not isinstance(postgres, str):
        import psycopg

        with psycopg.connect(postgres.dsn()) as connection:
            said["PostgreSQL"] = connection.info.parameter_status("server_version")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", help="only these, such as `entities`; the same as --only")
    parser.add_argument("--peers", "--full", action="store_true", dest="peers", help="everything, beside the peers")
    parser.add_argument("--rounds", type=int, default=0, help="how often all are measured (3 with peers, else 1)")
    parser.add_argument("--only", action="append", default=[], metavar="WORKLOAD", help="such as w2; may be repeated")
    parser.add_argument("--small", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("-o", "--output", choices=("table", "lines", "json"), default="table")
    parser.add_argument(
        "--results", default="", metavar="FILE", help="where to keep them; with --peers by default here"
    )
    options = parser.parse_args()
    only = frozenset(word.lower() for words in [*options.workloads, *options.only] for word in words.split(","))
    rounds = options.rounds or (3 if options.peers else 1)
    sizes = SMALL if options.small else FULL
    os.environ.setdefault("BENCH_DIR", str(ROOT / ".cache" / "bench"))
    data_folder().mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        postgres: Postgres | str
        try:
            postgres = stack.enter_context(Postgres())
        except ServiceUnavailable as error:
            postgres = f"PostgreSQL cannot be had: {str(error).splitlines()[0]}"
        units = holdfast_units(sizes, only, is_quick=not options.peers)
        if options.peers:
            found: dict[str, peering.Peer | peering.Missing] = {}
            for name in peering.PACKAGES:
                try:
                    found[name] = peering.set_up(name, say)
                except peering.Missing as missing:
                    found[name] = missing
                    say(f"{name} is not measured: {missing}")
            units = _mixed(units, peer_units(sizes, only, found))
        runner = Runner(units, rounds, postgres)
        runner.run((lambda row: print(json.dumps(row), flush=True)) if options.output == "lines" else lambda row: None)
        results: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d"),
            "rounds": rounds,
            "sizes": "small" if options.small else "full",
            "machine": machine(postgres),
            "versions": peering.versions() if options.peers else {},
            "figures": judge(runner.rows, rounds),
            "rows": runner.rows,
        }
    path = Path(options.results) if options.results else RESULTS / default_name(results) if options.peers else None
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        say(f"kept in {path.name}")
    if options.output == "json":
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif options.output == "table":
        if not options.peers:
            results["figures"] = [entry for entry in results["figures"] if "value" in entry]
        print(tables(results))


def _mixed(ours: list[Unit], theirs: list[Unit]) -> list[Unit]:
    """One of ours, one of theirs: what is compared lies close together."""
    mixed: list[Unit] = []
    for number in range(max(len(ours), len(theirs))):
        mixed += ours[number : number + 1] + theirs[number : number + 1]
    return mixed


def default_name(results: dict[str, Any]) -> str:
    words = re.findall(r"[A-Za-z0-9]+", str(results["machine"]["CPU"]))
    chosen = [word.lower() for word in words if word.lower() not in ("r", "tm", "cpu", "processor")][:3]
    return f"{results['date']}-{results['machine']['cores']}cores-{'-'.join(chosen)}.json"


if __name__ == "__main__":
    main()
