"""A campaign: many seeds, what was reached in them, and whether that was enough to mean anything."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import holdfast.engine.turn as turn_module
from holdfast.core.codec import pack
from holdfast.core.model import Status
from holdfast.core.snapshot import canonical
from holdfast.core.state import State

from . import invariants, invariants_entities  # noqa: F401  fill the registries
from .base import Violation
from .faults import FAULTS
from .models import MODELS
from .plan import draw
from .world import World

#: paths that faults lead to, not all of them often; each must be seen in a campaign of MEANINGFUL seeds
RARE = (
    "acknowledged",
    "attempt cancelled",
    "cancel asked again",
    "decided again after a conflict",
    "effect looked at",
    "entities granted after waiting",
    "entities waited for",
    "entity taken away",
    "given up by word",
    "heartbeat with details",
    "inventory changed",
    "late result refused",
    "lock passed on",
    "lock waited for",
    "locks tied in a circle",
    "long value",
    "looked at while running",
    "message lost in a partition",
    "parcel sent again",
    "ran more than once",
    "rolled back by word",
    "signal asked again",
    "snapshot",
    "start asked again",
    "start found by its key",
    "success found out",
    "worker greets again",
    "worker moved",
    "worker superseded",
)
ENDS = ("CANCELLED", "COMPLETED", "FAILED_SAFE", "FAILED_UNSAFE", "FAILED_UNSAFE_ACK")
#: what the witness saw of executions on entities; of each there must be hundreds in a campaign of 10,000 schedules
SEEN = ("runs", "with effects", "with worker deaths", "with effects and worker deaths", "safe ends after effects",
        "unsafe ends")  # fmt: skip
UNDOS = ("NOT_COMPENSABLE", "ROLLBACK_FAILED", "SKIPPED_BELOW_FAILURE", "UNDONE")
#: share of client operations that must succeed
FLOOR = 0.95
#: seeds after which every fault and every rare path must have been seen
MEANINGFUL = 1000
#: worlds between two collections of garbage; collecting within a world costs a tenth of it
COLLECT_EVERY = 10


def run_seed(
    seed: int, only: tuple[int, ...] | None = None, *, is_paranoid: bool = False, trace: list[str] | None = None
) -> World:
    """One schedule. Raises what it violates, with where."""
    world = World(draw(seed, only), is_paranoid=is_paranoid, trace=trace)
    try:
        world.run()
    except Violation as violation:
        violation.seed, violation.step = seed, world.commits
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as bug:
        violation = Violation("BUG", f"{type(bug).__name__}: {bug}")
        violation.seed, violation.step = seed, world.commits
        raise violation from bug
    return world


def paranoid(seed: int) -> None:
    """The same world with rows that are copied when they are committed, and with every decision taken twice.
    Nothing may differ: rows are not changed afterwards (so sharing them is safe), and deciding is a function."""
    real = turn_module.decide

    def decide_twice(state: State, request: Any, now: int, reads: Any) -> Any:
        before = canonical(state)
        once, again = real(state, request, now, reads), real(state, request, now, reads)
        if pack(once) != pack(again) or canonical(state) != before:
            raise Violation("I-8", f"{request} was decided as {once}, and then as {again}")
        return once

    usual = run_seed(seed)
    turn_module.decide = decide_twice
    try:
        careful = run_seed(seed, is_paranoid=True)
    finally:
        turn_module.decide = real
    if careful.trace.digest() != usual.trace.digest():
        raise Violation("I-4", f"seed {seed}: with copied rows the world goes another way")
    if changed := careful.tables.changed_afterwards():
        raise Violation("I-3", f"seed {seed}: changed after it was committed: {changed[0]}")


@dataclass
class Summary:
    seeds: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    commits: int = 0
    virtual: float = 0.0
    hits: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    #: executions on entities, as the witness saw them, and what became of entries that were to be undone
    fleet: Counter[str] = field(default_factory=Counter)
    undos: Counter[str] = field(default_factory=Counter)
    sizes: dict[str, list[int]] = field(
        default_factory=lambda: {"engines": [], "executions": [], "transitions": [], "faults": []}
    )

    def add(self, world: World) -> None:
        self.seeds += 1
        self.commits += world.commits
        self.virtual += world.now / 1e6
        self.hits.update(world.hit)
        self.reached.update(world.reached)
        self.operations.update(world.operations)
        self.ends.update(shadow.state.status.name for shadow in world.shadows.values())
        self.models.update(shadow.state.workflow for shadow in world.shadows.values())
        self.undos.update(world.undos)
        for id, shadow in world.shadows.items():
            if shadow.state.subjects:
                self.fleet.update(_seen(world, id))
        for name, size in (
            ("engines", world.plan.engines),
            ("executions", len(world.shadows)),
            ("transitions", world.transitions),
            ("faults", world.faults),
        ):
            self.sizes[name].append(size)

    def merge(self, other: Summary) -> None:
        self.seeds += other.seeds
        self.cpu += other.cpu
        self.commits += other.commits
        self.virtual += other.virtual
        for name in ("hits", "reached", "operations", "ends", "models", "fleet", "undos"):
            getattr(self, name).update(getattr(other, name))
        for name, sizes in other.sizes.items():
            self.sizes[name] += sizes

    @property
    def success(self) -> float:
        """Client operations that succeeded. A refusal because an execution has ended is an answer, not a
        success; it counts as neither."""
        asked = sum(n for name, n in self.operations.items() if not name.endswith("refused"))
        return sum(n for name, n in self.operations.items() if name.endswith(" ok")) / max(1, asked)

    def spread(self, name: str) -> tuple[int, int, int]:
        """10th percentile, median, 90th percentile."""
        sizes = sorted(self.sizes[name]) or [0]
        return tuple(sizes[int(share * (len(sizes) - 1))] for share in (0.1, 0.5, 0.9))  # type: ignore[return-value]

    def emptiness(self) -> list[str]:
        """Why this run, although nothing was violated, proves too little."""
        found = []
        if self.success < FLOOR:
            found.append(f"only {self.success:.1%} of client operations succeeded; at least {FLOOR:.0%} must")
        for name, least in (("engines", 2), ("executions", 3), ("transitions", 30), ("faults", 3)):
            if self.seeds >= 100 and self.spread(name)[1] < least:
                found.append(f"the median schedule has {self.spread(name)[1]} {name}; it must have {least}")
        if self.seeds >= MEANINGFUL:
            found += [f"fault `{name}` never happened" for name in FAULTS if not self.hits[name]]
            found += [f"nothing ever reached `{path}`" for path in RARE if not self.reached[path]]
            found += [f"no execution ended {end}" for end in ENDS if not self.ends[end]]
            found += [f"model `{name}` never ran" for name in MODELS if not self.models[name]]
            for counts, names in ((self.fleet, SEEN), (self.undos, UNDOS)):
                # Hundreds in 10,000 schedules, and as large a share of fewer.
                found += [f"only {counts[name]} {name}" for name in names if counts[name] < self.seeds * 0.02]
        return found

    def plain(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "seconds": round(self.seconds, 2),
            "cpu-seconds": round(self.cpu, 2),
            "per-second": round(self.seeds / max(self.seconds, 1e-9), 1),
            "per-second-of-cpu": round(self.seeds / max(self.cpu, 1e-9), 1),
            "virtual-seconds": round(self.virtual),
            "commits": self.commits,
            "success": round(self.success, 4),
            "sizes": {name: dict(zip(("p10", "median", "p90"), self.spread(name), strict=True)) for name in self.sizes},
            "faults": dict(sorted(self.hits.items())),
            "reached": dict(sorted(self.reached.items())),
            "operations": dict(sorted(self.operations.items())),
            "ends": dict(sorted(self.ends.items())),
            "models": dict(sorted(self.models.items())),
            "on-entities": dict(sorted(self.fleet.items())),
            "undone": dict(sorted(self.undos.items())),
            "emptiness": self.emptiness(),
        }

    def text(self) -> str:
        lines = [
            f"{self.seeds} schedules in {self.seconds:.1f} s ({self.seeds / max(self.seconds, 1e-9):.0f} per second;"
            f" {self.seeds / max(self.cpu, 1e-9):.0f} per second of one core), no violation",
            f"{self.virtual:.0f} s of virtual time, {self.commits} commits,"
            f" {self.success:.2%} of client operations succeeded",
            "                          p10  median     p90",
        ]
        for name in self.sizes:
            low, middle, high = self.spread(name)
            lines.append(f"  {name:20} {low:7} {middle:7} {high:7}")
        for title, counts in (
            ("faults that happened", self.hits), ("paths reached", self.reached),
            ("client operations", self.operations), ("executions ended", self.ends), ("models", self.models),
            ("executions on entities, as the witness saw them", self.fleet),
            ("entries of the ledger after rollback", self.undos),
        ):  # fmt: skip
            lines.append(f"{title}:")
            lines += [f"  {name:32} {counts[name]:9}" for name in sorted(counts)]
        return "\n".join(lines + [f"TOO LITTLE: {why}" for why in self.emptiness()])


def _seen(world: World, id: str) -> list[str]:
    """What there is to say of one execution on entities."""
    shadow = world.shadows[id]
    status = shadow.state.status
    has_effects = bool(world.witness.ever_done_by(id))
    has_deaths = id in world.bereaved
    is_safe = status is Status.FAILED_SAFE or (status is Status.CANCELLED and not shadow.state.residue)
    is_unsafe = not is_safe and status not in (Status.COMPLETED, Status.COMPLETED_ACK)
    said = (("runs", True), ("with effects", has_effects), ("with worker deaths", has_deaths),
            ("with effects and worker deaths", has_effects and has_deaths),
            ("safe ends after effects", is_safe and has_effects), ("unsafe ends", is_unsafe))  # fmt: skip
    return [name for name, is_so in said if is_so]


def run_all(
    seeds: Iterable[int], *, seconds: float = 0.0, total: int = 0, least: int = 0, progress: bool = False
) -> Summary:
    """Until the seeds or the seconds are used up, but not before `least` of them."""
    summary = Summary()
    began, began_cpu, told = time.perf_counter(), time.process_time(), time.perf_counter()
    was_collecting = gc.isenabled()
    gc.collect()
    # What is there now stays; what a world leaves behind is young.
    gc.freeze()
    gc.disable()
    try:
        for seed in seeds:
            summary.add(run_seed(seed))
            now = time.perf_counter()
            if summary.seeds % COLLECT_EVERY == 0:
                gc.collect(0)
            if progress and now - told > 10:
                told = now
                rate = summary.seeds / (now - began)
                left = (total - summary.seeds) / rate if total else seconds - (now - began)
                print(
                    f"{summary.seeds} schedules, {rate:.0f} per second, {left:.0f} s to go", file=sys.stderr, flush=True
                )
            if seconds and now - began >= seconds and summary.seeds >= least:
                break
    finally:
        gc.unfreeze()
        if was_collecting:
            gc.enable()
    summary.seconds = time.perf_counter() - began
    summary.cpu = time.process_time() - began_cpu
    return summary


def _slice(arguments: tuple[int, int, int, int, float]) -> Summary | tuple[str, str, int, int]:
    first, count, jobs, index, seconds = arguments
    quiet()
    mine = range(first + index, first + count, jobs)
    try:
        return run_all(mine, seconds=seconds, total=len(mine), progress=index == 0)
    except Violation as violation:
        return violation.invariant, violation.text, violation.seed, violation.step


def campaign(first: int, count: int, *, jobs: int = 1, seconds: float = 0.0) -> Summary:
    if jobs == 1:
        return run_all(range(first, first + count), seconds=seconds, total=0 if seconds else count, progress=True)
    began = time.perf_counter()
    summary = Summary()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for result in pool.imap_unordered(_slice, [(first, count, jobs, index, seconds) for index in range(jobs)]):
            if not isinstance(result, Summary):
                violation = Violation(result[0], result[1])
                violation.seed, violation.step = result[2], result[3]
                raise violation
            summary.merge(result)
    summary.seconds = time.perf_counter() - began
    return summary


def quiet() -> None:
    """Faults make engines complain; that is not news here."""
    import logging

    logging.disable(logging.CRITICAL)
