"""The benches run, print what they promise, and calculate right. No test here says how fast anything is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import peers, plan, report
from bench.__main__ import Runner, default_name
from bench.crash import Effects
from bench.measure import percentile
from bench.plan import Unit

ROOT = Path(__file__).parents[1]
TINY = (
    "--n",
    "30",
    "--fan",
    "20",
    "--samples",
    "3",
    "--crash",
    "20",
    "--long",
    "200",
    "--stored",
    "200",
    "--open",
    "50",
)
RATES = {"peer", "workload", "workflows", "steps", "workflows_per_s", "steps_per_s", "steps_per_s_min",
         "steps_per_s_max", "cpu_ms_per_step", "repeat", "cal_kops", "cal_fsync"}  # fmt: skip


def run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    env = {**os.environ, "BENCH_REPEAT": "1", "BENCH_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "bench.holdfast", *TINY, *arguments],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- the workloads ----------------------------------------------------------------------------------
@pytest.mark.parametrize("more", [["embedded-sqlite"], ["http-sqlite"], ["http-sqlite", "--client", "threads"],
                                  ["inside-sqlite"]], ids=" ".join)  # fmt: skip
def test_throughput_and_latency_on_sqlite(tmp_path: Path, more: list[str]) -> None:
    rows = run(tmp_path, "--topology", *more, "w1", "w2", "w3", "w4")
    _check_rates(rows)


@pytest.mark.parametrize("topology", ["embedded-postgres", "http-postgres"])
def test_throughput_and_latency_on_postgres(tmp_path: Path, pg_dsn: str, topology: str) -> None:
    rows = run(tmp_path, "--topology", topology, "--postgres", pg_dsn, "w1", "w2", "w3", "w4")
    _check_rates(rows)


def _check_rates(rows: list[dict[str, Any]]) -> None:
    assert [row["workload"] for row in rows] == ["W1", "W2", "W3", "W3", "W4"]
    assert [(row["workflows"], row["steps"]) for row in rows[:4]] == [(30, 30), (64, 640), (1, 2), (1, 20)]
    for row in rows[:4]:
        assert row.keys() >= RATES
        assert row["steps_per_s"] > 0
        assert row["cal_kops"] > 0
        assert row["cal_fsync"] > 0
    assert rows[4].keys() >= {"n", "p50_ms", "p99_ms"}
    assert rows[4]["n"] == 3


def test_growth(tmp_path: Path) -> None:
    assert [row["steps"] for row in run(tmp_path, "growth")] == [10, 100, 1000]


@pytest.mark.parametrize("topology", ["embedded-sqlite", "http-sqlite"])
@pytest.mark.parametrize("workload", ["w5", "recovery"])
def test_nothing_is_missing_after_a_crash(tmp_path: Path, workload: str, topology: str) -> None:
    (row,) = run(tmp_path, "--topology", topology, workload)
    assert row["peer"] == f"holdfast-{topology}"
    assert row["workflows"] == 20
    assert row["steps_missing"] == 0
    assert row["ended"] == {"COMPLETED": 20}
    assert row["done_at_kill"] >= row["steps"] // 2
    assert row.keys() >= {"recovery_s", "moving_p50_s", "moving_p99_s", "half_done", "steps_repeated"}


def test_blocks_that_may_not_be_repeated_are_not(tmp_path: Path) -> None:
    (row,) = run(tmp_path, "w5plain")
    assert row["steps_repeated"] == 0
    assert sum(row["ended"].values()) == 20
    assert row["ended"].keys() <= {"COMPLETED", "FAILED_UNSAFE"}


@pytest.mark.parametrize(("workload", "peer"), [("engines", "1-engine"), ("engines2", "2-engines")])
def test_engines_on_one_postgres(tmp_path: Path, pg_dsn: str, workload: str, peer: str) -> None:
    (row,) = run(tmp_path, "--topology", "embedded-postgres", "--postgres", pg_dsn, workload)
    assert (row["peer"], row["workflows"]) == (f"holdfast-{peer}-postgres", 64)
    assert row.keys() >= RATES | {"cores_used_by_engines", "cores_used_by_database"}


def test_depth(tmp_path: Path) -> None:
    steps, items, stored, asleep, *idle = run(tmp_path, "marginal", "storage", "asleep", "idle")
    assert (steps["early"], steps["late"]) == ([2, 22], [180, 200])
    assert (items["narrow"], items["broad"]) == (20, 200)
    assert steps["ratio"] > 0
    assert items["ratio"] > 0
    assert stored["bytes_per_step"] > 0
    assert asleep["open_workflows"] == 50
    assert asleep["open_mb"] >= 10
    assert [row["peer"] for row in idle] == ["holdfast-up-sqlite", "holdfast-up-and-worker-sqlite"]
    for row, processes in zip(idle, (1, 2), strict=True):
        assert len(row["each_mb"]) == processes
        assert row["processes"] == processes + len(row["children_mb"])


def test_loops(tmp_path: Path) -> None:
    *loops, internal, small, large = run(tmp_path, "loops")
    assert [(row["body"], row["concurrency"]) for row in loops] == [
        (body, lanes) for body in ("let", "block") for lanes in (1, 50, "all")
    ]
    assert all((row["few"], row["many"]) == (20, 200) and row["ratio"] > 0 for row in loops)
    assert (internal["steps"], internal["commits"]) == (200, 1)
    assert [row["workload"] for row in (small, large)] == ["check-500", "check-4000"]
    assert small["cpu_ms"] > 0


FLEETS = ["barrier", "lanes", "hooks", "tolerated", "rollback"]


def _check_entities(rows: list[dict[str, Any]], store: str) -> None:
    *fleets, stall, grants = rows
    assert [row["kind"] for row in fleets] == FLEETS
    assert {row["peer"] for row in rows} == {f"holdfast-embedded-{store}"}
    assert all((row["few"], row["many"]) == (20, 200) and row["ratio"] > 0 for row in fleets)
    # A job per entity and step; of the rollback one that looks at what failed, and one for each that is undone.
    assert [row["jobs"] for row in fleets] == [600, 600, 600, 200, 400 + 1 + 400]
    assert stall["entities"] == 200
    assert stall["stall_ms"] >= stall["gap_ms"] > 0
    assert (grants["few"], grants["many"]) == (10, 20)
    assert grants["reads_few"] > 0


def test_entities(tmp_path: Path) -> None:
    _check_entities(run(tmp_path, "entities"), "sqlite")


def test_entities_on_postgres(tmp_path: Path, pg_dsn: str) -> None:
    _check_entities(run(tmp_path, "--topology", "embedded-postgres", "--postgres", pg_dsn, "entities"), "postgres")


def test_whoever_names_a_workload_gets_it() -> None:
    units = plan.holdfast_units(plan.SMALL, frozenset(["entities"]), is_quick=True)
    assert {workload for unit in units for _, workload in unit.rows} == {
        "marginal-entities", "entity-stall", "entity-grants"
    }  # fmt: skip
    quick = plan.holdfast_units(plan.SMALL, frozenset(["w1"]), is_quick=True)
    assert {workload for unit in quick for _, workload in unit.rows} == {"W1"}


def test_depth_on_postgres(tmp_path: Path, pg_dsn: str) -> None:
    rows = run(tmp_path, "--topology", "embedded-postgres", "--postgres", pg_dsn, "storage")
    assert [row["peer"] for row in rows] == ["holdfast-embedded-postgres"]
    assert rows[0]["bytes_per_step"] > 0


def test_the_noop_is_neither_pure_nor_idempotent() -> None:
    from bench.workloads import NOOP
    from holdfast.blocks import Registry

    offers = {offer.name: offer for offer in Registry().offers()}
    assert not offers[NOOP].pure
    assert not offers[NOOP].idempotent


# --- the runner -------------------------------------------------------------------------------------
def test_what_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCH_DIR", str(tmp_path))
    good = [sys.executable, "-c", 'print(\'{"peer": "a", "workload": "W1", "steps_per_s": 5}\')']
    bad = [sys.executable, "-c", "import sys; sys.exit('no such thing in /usr/lib/x')"]
    runner = Runner(
        [
            Unit("good", good, (("a", "W1"), ("a", "W2")), 1),
            Unit("bad", bad, (("b", "W1"),), 1),
            Unit("absent", [], (("c", "W1"),), 1, missing="npm is not installed"),
            Unit("no database", good, (("d", "W1"),), 1, needs_postgres=True),
        ],
        1,
        "there is no PostgreSQL",
    )
    runner.run(lambda row: None)
    said = {(row["peer"], row["workload"]): row.get("not_measured") for row in runner.rows}
    assert said == {
        ("a", "W1"): None,
        ("a", "W2"): "it printed no such row",
        ("b", "W1"): "it ended with 1: no such thing in …",
        ("c", "W1"): "npm is not installed",
        ("d", "W1"): "there is no PostgreSQL",
    }


def test_order_turns_with_the_rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    units = [Unit(name, [], ((name, "W1"),), 1, missing="x") for name in "abc"]
    units.append(Unit("once", [], (("once", "W1"),), 1, missing="x", is_once=True))
    runner = Runner(units, 3, "")
    runner.run(lambda row: None)
    assert [row["peer"] for row in runner.rows] == [*"abc", *"bca", *"cab", "once"]
    assert [row["round"] for row in runner.rows] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 0]


def test_a_missing_peer_is_a_unit_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCH_PEERS", str(tmp_path))
    with pytest.raises(peers.Missing, match="BENCH_PEERS"):
        peers.set_up("dbos", lambda text: None)
    absent: dict[str, Any] = {name: peers.Missing(f"no {name}") for name in peers.PACKAGES}
    units = plan.peer_units(plan.SMALL, frozenset(), absent)
    assert {unit.missing for unit in units} == {"no dbos", "no restate", "no temporal", "no limits"}
    assert all(unit.rows for unit in units)


def test_only_leaves_out_the_rest() -> None:
    absent: dict[str, Any] = {name: peers.Missing("") for name in peers.PACKAGES}
    only = frozenset(["w5"])
    units = plan.holdfast_units(plan.SMALL, only, is_quick=False) + plan.peer_units(plan.SMALL, only, absent)
    assert {workload for unit in units for _, workload in unit.rows} == {"W5", "W5-plain"}


def test_the_name_of_a_results_file_names_no_machine() -> None:
    results = {"date": "2030-01-02", "machine": {"CPU": "Acme(R) Zap(TM) CPU 9000 @ 2GHz", "cores": 2}}
    assert default_name(results) == "2030-01-02-2cores-acme-zap-9000.json"


# --- the arithmetic ---------------------------------------------------------------------------------
def row(peer: str, workload: str, round: int, rate: float, **more: Any) -> dict[str, Any]:
    return {"peer": peer, "workload": workload, "round": round, "steps_per_s": rate, "steps": 1000, **more}


def figure(rows: list[dict[str, Any]], text: str, rounds: int = 3) -> dict[str, Any]:
    return next(entry for entry in report.judge(rows, rounds) if entry["figure"] == text)


def test_ratios_are_taken_within_a_round() -> None:
    rows = [row(report.SQLITE, "W2", n, rate) for n, rate in ((1, 1000), (2, 900), (3, 400))]
    rows += [row("restate", "W2", n, rate) for n, rate in ((1, 100), (2, 150), (3, 25))]
    entry = figure(rows, "W2 embedded on SQLite, over Restate")
    # 10, 6 and 16: neither the ratio of the medians (9) nor of the means (8.4).
    assert (entry["value"], entry["least"], entry["most"]) == (10, 6, 16)
    assert entry["verdict"] == "met"


def test_a_limit_that_is_missed_says_by_how_much() -> None:
    rows = [row(report.SQLITE, "W2", 1, 1000), row("restate", "W2", 1, 250)]
    entry = figure(rows, "W2 embedded on SQLite, over Restate", 1)
    assert not entry["is_met"]
    assert entry["verdict"] == "missed by 2.00 ×"
    rows = [{"peer": report.SQLITE, "workload": "W4", "round": 1, "p50_ms": 4.5}]
    assert figure(rows, "W4 embedded on SQLite, p50", 1)["verdict"] == "missed by 1.50 ×"


def test_the_best_of_a_peer_counts() -> None:
    rows = [row(report.SQLITE, "W1", 1, 1000), row("dbos-sqlite-wal", "W1", 1, 10), row("dbos-postgres", "W1", 1, 20),
            row("dbos-sqlite-wal", "W1-threads", 1, 50), row("restate", "W1", 1, 100)]  # fmt: skip
    assert figure(rows, "W1 embedded on SQLite, over DBOS at its best", 1)["value"] == 20
    assert figure(rows, "W1 embedded on SQLite, over the best peer", 1)["value"] == 10


def test_the_widest_fan_out_counts() -> None:
    rows = [row(who, "W3", 1, rate, steps=steps)
            for who, rate, steps in ((report.SQLITE, 900, 100), (report.SQLITE, 500, 1000),
                                     ("restate", 400, 100), ("restate", 50, 1000))]  # fmt: skip
    assert figure(rows, "W3 embedded on SQLite, over Restate", 1)["value"] == 10


def test_an_absent_peer_is_not_measured_and_says_why() -> None:
    rows = [
        row(report.SQLITE, "W2", 1, 1000),
        {"peer": "restate", "workload": "W2", "round": 1, "not_measured": "no npm"},
    ]
    entry = figure(rows, "W2 embedded on SQLite, over Restate", 1)
    assert entry["verdict"] == "not measured: restate: no npm"
    assert "value" not in entry
    assert any("not measured: no npm" in line for line in report.rows_table(rows))


def test_rows_of_an_uneven_machine_are_marked() -> None:
    rows = [row(report.SQLITE, "W2", 1, 1000, cal_kops=100.0), row("restate", "W2", 1, 100, cal_kops=60.0)]
    entry = figure(rows, "W2 embedded on SQLite, over Restate", 1)
    assert entry["verdict"] == "undecided: the machine was not equally fast for both (it would be met)"
    assert not entry["is_met"]
    rows[1]["cal_kops"] = 90.0
    assert figure(rows, "W2 embedded on SQLite, over Restate", 1)["verdict"] == "met"


def test_rows_are_shown_as_medians_with_their_spread() -> None:
    rows = [row("restate", "W2", n, rate, cpu_ms_per_step=2.0) for n, rate in ((1, 900.4), (2, 1200.0), (3, 1000.0))]
    rows += [
        row("temporal-dev-file", "W4", 1, 9.0, p50_ms=100.0),
        row("temporal-dev-file", "W0", 1, 0, workflows_per_s=45.0),
    ]
    rows += [{"peer": "restate", "workload": "W5", "round": n, "recovery_s": 0.0, "steps_missing": missing,
              "steps_repeated": 3} for n, missing in ((1, 0), (2, 0), (3, 2))]  # fmt: skip
    shown = report.rows_table(rows)[2:]
    assert shown == [
        "| W0 | temporal-dev-file | 45 workflows/s | – | – |",
        "| W2 | restate | 1,000 steps/s | 900 steps/s – 1,200 steps/s | 2.000 ms |",
        "| W4 | temporal-dev-file | p50 100.00 ms | – | – |",
        "| W5 | restate | 0.00 s, 2 missing, 3 repeated | 0.00 s – 0.00 s | – |",
    ]


def test_once_measured_rows_count_in_every_round() -> None:
    rows = [{"peer": report.SQLITE, "workload": "W6-storage", "round": 0, "bytes_per_step": 149.0}]
    assert figure(rows, "bytes on disk per step")["is_met"]


def test_percentiles_are_by_nearest_rank() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7], 0.99) == 7


def test_effects_are_read_as_they_grow(tmp_path: Path) -> None:
    effects = Effects(tmp_path / "effects")
    effects.look()
    effects.path.write_text("a.0 1.5\na.1 1.6\nb.0 1.7\na.0 2.5\nb.")
    effects.look()
    assert (effects.first["a.0"], effects.counts["a.0"], effects.executions) == (1.5, 2, {"a": 2, "b": 1})
    with effects.path.open("a") as file:
        file.write("1 3.0\n")
    effects.look()
    assert effects.executions == {"a": 2, "b": 2}


# --- the page ---------------------------------------------------------------------------------------
def test_the_page_shows_its_results_file() -> None:
    page = (ROOT / "docs" / "reference" / "benchmarks.md").read_text()
    assert page == report.with_tables(page), "run `python -m bench.report --page docs/reference/benchmarks.md`"


def test_results_name_no_machine() -> None:
    files = sorted(report.RESULTS.glob("*.json"))
    assert files
    for path in files:
        text = path.read_text()
        assert not [word for word in ("work", "root", "home", "tmp") if f"/{word}/" in text], path.name
        assert "localhost" not in text, path.name
        results = json.loads(text)
        assert results["figures"] == report.judge(results["rows"], results["rounds"]), path.name
