"""What a run consists of: units, each a fresh process that prints rows. Sizes are chosen so that a whole run with
three rounds takes twenty minutes or so on two cores; the peers are slow, so theirs are small."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from .peers import Missing, Peer

#: (peer, workload) of the rows that a unit prints
Rows = tuple[tuple[str, str], ...]


@dataclass
class Unit:
    name: str
    #: with {postgres} where the address of an empty database goes, {work} for a scratch folder
    command: list[str]
    #: what it will print; a row that does not come is reported as not measured
    rows: Rows
    #: seconds, a first guess
    guess: float
    needs_postgres: bool = False
    #: measured once, not in every round: repeats inside, or does not compare with anything
    is_once: bool = False
    #: why it cannot run
    missing: str = ""
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    n: int
    n_http: int
    n_postgres: int
    fan: int
    crash: int
    n_dbos: int
    n_restate: int
    n_temporal: int
    long: int
    stored: int
    asleep: int
    samples: int


FULL = Sizes(
    n=9000, n_http=4500, n_postgres=6000, fan=1000, crash=1000, n_dbos=400, n_restate=1500, n_temporal=150, long=10_000,
    stored=100_000, asleep=10_000, samples=300,
)  # fmt: skip
SMALL = Sizes(
    n=900, n_http=450, n_postgres=600, fan=200, crash=100, n_dbos=100, n_restate=200, n_temporal=40, long=1000,
    stored=5000, asleep=1000, samples=60,
)  # fmt: skip

_NAMES = {"w1": "W1", "w2": "W2", "w3": "W3", "w4": "W4", "w5": "W5", "w1sync": "W1-threads", "w2sync": "W2-threads",
          "w5plain": "W5-plain", "storage": "W6-storage", "asleep": "W6-memory", "mem": "W6-memory", "idle": "W6-idle",
          "growth": "growth", "recovery": "recovery"}  # fmt: skip


#: in a minute or so
_QUICK = frozenset(("w1", "w2", "w3", "w4"))


def _kept(workloads: str, only: frozenset[str]) -> list[str]:
    return [w for w in workloads.split() if not only or w.removesuffix("sync").removesuffix("plain") in only]


def holdfast_units(sizes: Sizes, only: frozenset[str], *, is_quick: bool) -> list[Unit]:
    units: list[Unit] = []

    def add(
        name: str, topology: str, workloads: str, guess: float, *more: str, n: int = 0, peer: str = "",
        once: bool = False, rows: Rows = (),
    ) -> None:  # fmt: skip
        kept = _kept(workloads, only)
        if not kept:
            return
        command = [sys.executable, "-m", "bench.holdfast", "--topology", topology, "--n", str(n or sizes.n)]
        command += ["--fan", str(sizes.fan), "--crash", str(sizes.crash), "--long", str(sizes.long)]
        command += ["--stored", str(sizes.stored), "--open", str(sizes.asleep), "--samples", str(sizes.samples), *more]
        on_postgres = "postgres" in topology
        if on_postgres:
            command += ["--postgres", "{postgres}"]
        who = peer or f"holdfast-{topology}"
        expected = rows or tuple((who, _NAMES[w]) for w in kept)
        units.append(Unit(f"{name} {' '.join(kept)}", [*command, *kept], expected, guess, on_postgres, once))

    # Whoever names a workload means it, however long it takes.
    is_quick = is_quick and not only - _QUICK
    growth = "" if is_quick else " growth"
    add("holdfast embedded sqlite", "embedded-sqlite", "w1 w2 w3 w4" + growth, 12)
    add("holdfast embedded postgres", "embedded-postgres", "w1 w2 w3 w4" + growth, 12, n=sizes.n_postgres)
    add("holdfast http sqlite", "http-sqlite", "w1 w2 w3 w4" + growth, 20, n=sizes.n_http)
    add("holdfast worker over http", "inside-sqlite", "w1 w2", 8, n=sizes.n_http)
    if is_quick:
        return units
    add("holdfast http sqlite, public client", "http-sqlite", "w1 w2", 18, "--client", "threads", n=sizes.n_http,
        peer="holdfast-http-sqlite-threads")  # fmt: skip
    add("holdfast http postgres", "http-postgres", "w1 w2 w4", 25, n=sizes.n_http // 2)
    for count in (1, 2):
        many = "s" if count > 1 else ""
        add(f"holdfast {count} engine{many}", "embedded-postgres", f"engines{count if many else ''}", 8,
            n=sizes.n_postgres, rows=((f"holdfast-{count}-engine{many}-postgres", "W2"),))  # fmt: skip
    for store in ("sqlite", "postgres"):
        # One by one: what an engine left in the database would be recovered by the next.
        add(f"holdfast {store}", f"embedded-{store}", "w5", 14)
        add(f"holdfast {store}", f"embedded-{store}", "recovery", 9)
    add("holdfast http sqlite", "http-sqlite", "w5", 16)
    add("holdfast sqlite", "embedded-sqlite", "w5plain", 6, once=True)
    marginal = tuple(("holdfast-embedded-sqlite", f"marginal-{what}") for what in ("steps", "items"))
    add("holdfast depth", "embedded-sqlite", "marginal", 45, once=True, rows=marginal)
    loops = tuple((f"holdfast{where}", what) for where, what in (
        ("-embedded-sqlite", "marginal-foreach"), ("-embedded-sqlite", "internal-steps"),
        ("", "check-500"), ("", "check-4000")))  # fmt: skip
    add("holdfast loops", "embedded-sqlite", "loops", 90, once=True, rows=loops)
    for store, guess in (("sqlite", 90), ("postgres", 120)):
        here = f"holdfast-embedded-{store}"
        fleets = tuple((here, what) for what in ("marginal-entities", "entity-stall", "entity-grants"))
        add(f"holdfast entities {store}", f"embedded-{store}", "entities", guess, once=True, rows=fleets)
    for store in ("sqlite", "postgres"):
        for workload in ("storage", "asleep"):
            add(f"holdfast depth {store}", f"embedded-{store}", workload, 15, once=True)
    idle = tuple((f"holdfast-up{worker}-sqlite", "W6-idle") for worker in ("", "-and-worker"))
    add("holdfast idle", "embedded-sqlite", "idle", 12, once=True, rows=idle)
    return units


def peer_units(sizes: Sizes, only: frozenset[str], peers: dict[str, Peer | Missing]) -> list[Unit]:
    units: list[Unit] = []

    def add(
        name: str, who: str, arguments: list[str], rows: Rows, guess: float, *, pg: bool = False, once: bool = False
    ) -> None:  # fmt: skip
        found = peers[who]
        unit = Unit(name, [], rows, guess, pg, once)
        if isinstance(found, Missing):
            unit.missing = str(found)
        else:
            unit.command = found.command("limits.py" if who == "limits" else f"{who}_bench.py", *arguments)
        units.append(unit)

    if not only or only & {"w1", "w2", "w3", "w4"}:
        rows = tuple(("limits", f"group_commit_{w}") for w in ("W1", "W2", "W3", "W4"))
        add("limits group", "limits", ["group", "--dir", "{work}", "--pg", "{postgres}"], rows, 20, pg=True)
    for backend, workloads in (("sqlite-wal", "w1 w2 w3 w4 w1sync w2sync"), ("postgres", "w1 w2 w3 w4 w1sync w2sync")):
        kept = _kept(workloads, only)
        if kept:
            more = ["--pg", "{postgres}"] if backend == "postgres" else []
            add(f"dbos {backend} {' '.join(kept)}", "dbos",
                ["--backend", backend, "--n", str(sizes.n_dbos), "--fan", str(sizes.fan), *more, *kept],
                tuple((f"dbos-{backend}", _NAMES[w]) for w in kept), 25, pg=backend == "postgres")  # fmt: skip
    restate = peers["restate"]
    server = [] if isinstance(restate, Missing) else ["--server", str(restate.binary)]
    sized = [
        "--n",
        str(sizes.n_restate),
        "--fan",
        str(sizes.fan),
        "--crash-n",
        str(sizes.crash),
        "--open",
        str(sizes.asleep),
    ]
    for workloads, guess, once in (("w1 w2 w3 w4 growth", 20, False), ("w5", 25, False), ("mem", 30, True)):
        kept = _kept(workloads, only)
        if kept:
            add(f"restate {' '.join(kept)}", "restate", [*server, *sized, *kept],
                tuple(("restate", _NAMES[w]) for w in kept), guess, once=once)  # fmt: skip
    if not only or only & {"w1", "w2", "w4"}:
        temporal = peers["temporal"]
        binary = "" if isinstance(temporal, Missing) else str(temporal.binary)
        add("temporal dev server, file, wal", "temporal",
            ["--temporal", binary, "--work", "{work}", "--modes", "file", "--pragma", "journal_mode=wal", "--lat", "50",
             "--n0", "10", "--n1", str(sizes.n_temporal), "--n10", str(max(64, sizes.n_temporal // 2))],
            tuple(("temporal-dev-file", w) for w in ("W1", "W2", "W4")), 30)  # fmt: skip
    return units
