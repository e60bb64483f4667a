"""From rows to figures: medians, ratios with their spread, and the limits they are held against.

A ratio is taken within each round, between rows that were measured minutes apart, and then the median over the
rounds. `python -m bench.report FILE` prints the tables of a results file; `--page PAGE` writes them into a page.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
#: How far the machine's own speed may differ between two rows that are compared, before the figure says so.
ALIKE = 1.5


@dataclass(frozen=True)
class Pick:
    """The value of one round: the best among the rows that fit."""

    peers: tuple[str, ...]
    workloads: tuple[str, ...]
    field: str
    #: with equal rows, the one with the most of this (the widest fan-out)
    widest: str = ""
    where: tuple[tuple[str, Any], ...] = ()
    is_least: bool = False

    def row(self, rows: Iterable[Row], round: int) -> Row | None:
        found = [
            row
            for row in rows
            if row["peer"] in self.peers
            and row["workload"] in self.workloads
            and row.get("round", round) in (round, 0)
            and self.field in row
            and all(row.get(name) == value for name, value in self.where)
        ]
        if not found:
            return None
        if self.widest:
            most = max(row[self.widest] for row in found)
            found = [row for row in found if row[self.widest] == most]
        best = min if self.is_least else max
        chosen: Row = best(found, key=lambda row: row[self.field])
        return chosen

    def why_not(self, rows: Iterable[Row]) -> str:
        reasons = [
            str(row["not_measured"])
            for row in rows
            if row["peer"] in self.peers and row["workload"] in self.workloads and "not_measured" in row
        ]
        return reasons[0] if reasons else "not part of this run"


@dataclass(frozen=True)
class Figure:
    text: str
    value: Pick
    limit: float
    #: "at least" or "at most"
    sense: str
    over: Pick | None = None
    form: str = "{:.1f} ×"
    note: Callable[[list[Row]], str] | None = None


def _pick(peers: str, workloads: str, field: str = "steps_per_s", **more: Any) -> Pick:
    return Pick(tuple(peers.split()), tuple(workloads.split()), field, **more)


SQLITE, POSTGRES, HTTP = "holdfast-embedded-sqlite", "holdfast-embedded-postgres", "holdfast-http-sqlite"
DBOS = "dbos-sqlite-wal dbos-postgres"
PEERS = f"{DBOS} restate temporal-dev-file"
W2 = _pick(SQLITE, "W2")


def _cores(rows: list[Row]) -> str:
    found = [row for row in rows if row["peer"] == "holdfast-2-engines-postgres" and "cores" in row]
    if not found:
        return ""
    row = found[-1]
    used = row["cores_used_by_engines"] + row["cores_used_by_database"]
    return f"two engines and the database used {used:.1f} of {row['cores']} cores"


AT_LEAST, AT_MOST = "at least", "at most"
FIGURES: tuple[Figure, ...] = (
    Figure("W2 embedded on SQLite, of the group-commit ceiling", W2, 0.20, AT_LEAST,
           _pick("limits", "group_commit_W2", where=(("store", "sqlite-FULL"),)), "{:.1%}"),
    Figure("W2 embedded on SQLite, over DBOS on SQLite at its best", W2, 30, AT_LEAST,
           _pick("dbos-sqlite-wal", "W2 W2-threads")),
    Figure("W2 embedded on SQLite, over Restate", W2, 8, AT_LEAST, _pick("restate", "W2")),
    Figure("W1 embedded on SQLite, over DBOS at its best", _pick(SQLITE, "W1"), 15, AT_LEAST,
           _pick(DBOS, "W1 W1-threads")),
    Figure("W1 embedded on SQLite, over the best peer", _pick(SQLITE, "W1"), 7, AT_LEAST,
           _pick(PEERS, "W1 W1-threads")),
    Figure("W3 embedded on SQLite, over Restate", _pick(SQLITE, "W3", widest="steps"), 10, AT_LEAST,
           _pick("restate", "W3", widest="steps")),
    Figure("W4 embedded on SQLite, p50", _pick(SQLITE, "W4", "p50_ms"), 3, AT_MOST, form="{:.2f} ms"),
    Figure("W2 embedded on PostgreSQL, over DBOS on PostgreSQL at its best", _pick(POSTGRES, "W2"), 20, AT_LEAST,
           _pick("dbos-postgres", "W2 W2-threads")),
    Figure("W2, worker process over HTTP, client beside the engine, of embedded",
           _pick("holdfast-inside-sqlite", "W2"), 0.5, AT_LEAST, W2, "{:.0%}"),
    Figure("W2, worker and client in one process over HTTP, of embedded", _pick(HTTP, "W2"), 0.5, AT_LEAST, W2,
           "{:.0%}"),
    Figure("the same with the public client on 64 threads", _pick(f"{HTTP}-threads", "W2"), 0.5, AT_LEAST, W2,
           "{:.0%}"),
    Figure("W2, worker and client in one process over HTTP, over Temporal's dev server", _pick(HTTP, "W2"), 50,
           AT_LEAST, _pick("temporal-dev-file", "W2")),
    Figure("W2 of two engines on PostgreSQL, over one", _pick("holdfast-2-engines-postgres", "W2"), 1.5, AT_LEAST,
           _pick("holdfast-1-engine-postgres", "W2"), "{:.2f} ×", _cores),
    Figure("W5 embedded on SQLite, of Restate's time", _pick(SQLITE, "W5", "recovery_s"), 0.5, AT_MOST,
           _pick("restate", "W5", "recovery_s", is_least=True), "{:.2f} ×"),
    Figure("W5 embedded on SQLite, steps missing", _pick(SQLITE, "W5", "steps_missing"), 0, AT_MOST, form="{:.0f}"),
    Figure("W5 embedded on PostgreSQL, steps missing", _pick(POSTGRES, "W5", "steps_missing"), 0, AT_MOST,
           form="{:.0f}"),
    Figure("recovery of half-done executions on SQLite, p99 until moving again",
           _pick(SQLITE, "recovery", "moving_p99_s"), 5, AT_MOST, form="{:.2f} s"),
    Figure("recovery of half-done executions on PostgreSQL, p99 until moving again",
           _pick(POSTGRES, "recovery", "moving_p99_s"), 5, AT_MOST, form="{:.2f} s"),
    Figure("CPU of a step late in a long execution, over early", _pick(SQLITE, "marginal-steps", "ratio"), 1.2,
           AT_MOST, form="{:.2f} ×"),
    Figure("CPU of an item in a fan-out ten times as wide", _pick(SQLITE, "marginal-items", "ratio"), 1.2, AT_MOST,
           form="{:.2f} ×"),
    Figure("CPU of an item of a `foreach` ten times as long, the worst of six",
           _pick(SQLITE, "marginal-foreach", "ratio"), 1.3, AT_MOST, form="{:.2f} ×"),
    Figure("CPU of a job with 10,000 entities over that with 1,000, the worst of five",
           _pick(SQLITE, "marginal-entities", "ratio"), 1.3, AT_MOST, form="{:.2f} ×"),
    Figure("memory at most, with 10,000 entities", _pick(SQLITE, "marginal-entities", "peak_mb"), 500, AT_MOST,
           form="{:.0f} MB"),
    Figure("locks on 10,000 entities in one commit, longest gap of another execution",
           _pick(SQLITE, "entity-stall", "stall_ms"), 250, AT_MOST, form="{:.0f} ms"),
    Figure("locks on 10,000 entities in one commit on PostgreSQL, longest gap of another execution",
           _pick(POSTGRES, "entity-stall", "stall_ms"), 250, AT_MOST, form="{:.0f} ms"),
    Figure("read per grant with 1,000 others waiting elsewhere, over 10", _pick(SQLITE, "entity-grants", "ratio"), 1,
           AT_MOST, form="{:.2f} ×"),
    Figure("read per grant on PostgreSQL with 1,000 others waiting elsewhere, over 10",
           _pick(POSTGRES, "entity-grants", "ratio"), 1, AT_MOST, form="{:.2f} ×"),
    Figure("commits of 10,000 internal steps", _pick(SQLITE, "internal-steps", "commits"), 20, AT_MOST, form="{:.0f}"),
    Figure("CPU of reading and checking 500 steps", _pick("holdfast", "check-500", "cpu_ms"), 150, AT_MOST,
           form="{:.0f} ms"),
    Figure("bytes on disk per step", _pick(SQLITE, "W6-storage", "bytes_per_step"), 150, AT_MOST, form="{:.0f} B"),
    Figure("memory per execution asleep", _pick(SQLITE, "W6-memory", "bytes_per_execution"), 2000, AT_MOST,
           form="{:.0f} B"),
    Figure("memory of an idle `holdfast up`", _pick("holdfast-up-sqlite", "W6-idle", "idle_mb"), 60, AT_MOST,
           form="{:.1f} MB"),
)  # fmt: skip


def judge(rows: list[Row], rounds: int) -> list[dict[str, Any]]:
    """One entry per figure: value, least and most over the rounds, limit, and whether it is met or by how much not."""
    return [_judge_one(figure, rows, rounds) for figure in FIGURES]


def _judge_one(figure: Figure, rows: list[Row], rounds: int) -> dict[str, Any]:
    values: list[float] = []
    is_noisy = False
    absent = ""
    for round in range(1, rounds + 1):
        ours = figure.value.row(rows, round)
        if ours is None:
            absent = absent or figure.value.why_not(rows)
            continue
        value = float(ours[figure.value.field])
        if figure.over is not None:
            theirs = figure.over.row(rows, round)
            if theirs is None:
                absent = absent or f"{' '.join(figure.over.peers)}: {figure.over.why_not(rows)}"
                continue
            if not theirs[figure.over.field]:
                absent = "measured as zero"
                continue
            value /= float(theirs[figure.over.field])
            is_noisy = is_noisy or not _alike(ours, theirs)
        values.append(value)
    entry: dict[str, Any] = {"figure": figure.text, "sense": figure.sense, "limit": figure.limit, "form": figure.form}
    if not values:
        return {**entry, "verdict": f"not measured: {absent}"}
    middle = statistics.median(values)
    is_met = middle >= figure.limit if figure.sense == "at least" else middle <= figure.limit
    entry |= {
        "value": middle,
        "least": min(values),
        "most": max(values),
        "rounds": len(values),
        "is_met": is_met and not is_noisy,
        "is_noisy": is_noisy,
    }
    verdict = "met" if is_met else f"missed{_distance(figure, middle)}"
    # No verdict, for or against us, from a ratio that says more about the machine than about the two.
    notes = [f"undecided: the machine was not equally fast for both (it would be {verdict})" if is_noisy else verdict]
    if figure.note is not None and (text := figure.note(rows)):
        notes.append(text)
    return {**entry, "verdict": "; ".join(notes)}


def _distance(figure: Figure, value: float) -> str:
    low, high = sorted((value, figure.limit))
    return f" by {high / low:.2f} ×" if low > 0 else ""


def _alike(one: Row, other: Row) -> bool:
    for name in ("cal_kops", "cal_fsync"):
        if one.get(name) and other.get(name):
            low, high = sorted((one[name], other[name]))
            if high / low > ALIKE * (1 if name == "cal_kops" else 2):
                return False
    return True


# --- tables -----------------------------------------------------------------------------------------
def figures_table(figures: list[dict[str, Any]]) -> list[str]:
    lines = ["| figure | measured | least – most | limit | |", "|---|---|---|---|---|"]
    for entry in figures:
        shown, form = "–", entry["form"]
        spread = "–"
        if "value" in entry:
            shown = form.format(entry["value"])
            if entry["rounds"] > 1:
                spread = f"{form.format(entry['least'])} – {form.format(entry['most'])}"
        sign = "≥" if entry["sense"] == "at least" else "≤"
        lines.append(
            f"| {entry['figure']} | {shown} | {spread} | {sign} {form.format(entry['limit'])} | {entry['verdict']} |"
        )
    return lines


def rows_table(rows: list[Row]) -> list[str]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        size = str(row["steps"]) if row["workload"] in ("W3", "growth") and "steps" in row else ""
        groups.setdefault((row["workload"], row["peer"], size, str(row.get("store", ""))), []).append(row)
    lines = ["| workload | who | measured | least – most | CPU per step |", "|---|---|---|---|---|"]
    for (workload, peer, size, store), found in sorted(groups.items(), key=_order):
        who = f"{peer} ({store})" if store else peer
        name = f"{workload}, {size} steps" if size else workload
        reasons = [str(row["not_measured"]) for row in found if "not_measured" in row]
        measured = [row for row in found if "not_measured" not in row]
        if not measured:
            lines.append(f"| {name} | {who} | not measured: {reasons[0]} | – | – |")
            continue
        lines.append(f"| {name} | {who} | {_shown(measured)} |")
    return lines


def _order(item: tuple[tuple[str, ...], list[Row]]) -> tuple[Any, ...]:
    workload, peer, size, store = item[0]
    return workload.lower(), int(size or 0), not peer.startswith("holdfast"), peer, store


#: what a row is about, most telling first
_TELLING = (
    ("steps_per_s", "{:,.0f} steps/s"),
    ("workflows_per_s", "{:,.0f} workflows/s"),
    ("recovery_s", "{:.2f} s"),
    ("bytes_per_step", "{:.0f} B per step"),
    ("stall_ms", "{:.0f} ms at most between two commits of another execution"),
    ("ratio", "{:.2f} ×"),
    ("open_mb", "{:.0f} MB"),
    ("idle_mb", "{:.1f} MB"),
)


def _shown(rows: list[Row]) -> str:
    first = rows[0]
    # Some print a rate with their latencies: that of one at a time is no throughput.
    telling = (("p50_ms", "p50 {:.2f} ms"),) if first["workload"].endswith("W4") else _TELLING
    # A workflow without steps makes none per second.
    field, form = next(
        (pair for pair in telling if first.get(pair[0]) or (pair[0] in first and "steps_per_s" not in first)), ("", "")
    )
    if not field:
        return "– | – | –"
    values = [float(row[field]) for row in rows if field in row]
    shown = form.format(statistics.median(values))
    if "steps_missing" in first:
        repeated = statistics.median(row["steps_repeated"] for row in rows)
        shown += f", {max(row['steps_missing'] for row in rows)} missing, {repeated:.0f} repeated"
    if "open_workflows" in first:
        shown += f" with {first['open_workflows']:,} asleep, {first['idle_mb']:.0f} MB before"
    spread = f"{form.format(min(values))} – {form.format(max(values))}" if len(values) > 1 else "–"
    # The system counts CPU in hundredths of a second: too coarse for a short run.
    cpu = [float(row["cpu_ms_per_step"]) for row in rows if row.get("cpu_ms_per_step", 0) * row.get("steps", 0) >= 200]
    return f"{shown} | {spread} | {f'{statistics.median(cpu):.3f} ms' if cpu else '–'}"


def tables(results: dict[str, Any]) -> str:
    machine = results["machine"]
    about = ", ".join(f"{name} {value}" for name, value in machine.items())
    rounds = f"{results['rounds']} round{'s' if results['rounds'] > 1 else ''}"
    small = ", at small sizes, only to see that everything works" if results["sizes"] == "small" else ""
    what = f"Measured on {results['date']}, {rounds}{small}. {about}."
    figures, rows = figures_table(results["figures"]), rows_table(results["rows"])
    parts = [what, *_speed(results["rows"]), "", *figures, "", "Every row, medians over the rounds:", "", *rows]
    return "\n".join(parts) + "\n"


def _speed(rows: list[Row]) -> list[str]:
    """How steady the machine was: what is above can be no steadier."""
    loops = [row["cal_kops"] / 1e3 for row in rows if row.get("cal_kops")]
    syncs = [row["cal_fsync"] for row in rows if row.get("cal_fsync")]
    if not loops or not syncs:
        return []
    return [
        f"Beside the rows, an empty loop made {min(loops):.0f} to {max(loops):.0f} million turns per second (median"
        f" {statistics.median(loops):.0f}), and the disk {min(syncs):,.0f} to {max(syncs):,.0f} syncs per second"
        f" (median {statistics.median(syncs):,.0f})."
    ]


# --- the page ---------------------------------------------------------------------------------------
_HEAD = "<!-- results: {}; written by `python -m bench.report --page` -->"
_BLOCK = re.compile(_HEAD.format(r"(?P<name>[\w.-]+)") + r".*?<!-- end -->", re.DOTALL)


def with_tables(page: str, name: str = "") -> str:
    """The page with the tables of its results file, or of another one."""
    found = _BLOCK.search(page)
    if found is None:
        raise SystemExit("the page has no place for results")
    name = name or found["name"]
    shown = tables(json.loads((RESULTS / name).read_text()))
    return page[: found.start()] + f"{_HEAD.format(name)}\n\n{shown}\n<!-- end -->" + page[found.end() :]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("results", nargs="?", default="", help="a file of bench/results")
    parser.add_argument("--page", default="", help="write the tables into this page instead")
    options = parser.parse_args()
    if options.page:
        page = Path(options.page)
        for path in RESULTS.glob("*.json"):
            # The rows are what was measured; what they are held against may have changed since.
            results = json.loads(path.read_text())
            results["figures"] = judge(results["rows"], results["rounds"])
            path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        page.write_text(with_tables(page.read_text(), Path(options.results).name if options.results else ""))
        return
    print(tables(json.loads(Path(options.results).read_text())))


if __name__ == "__main__":
    main()
