"""kill -9 of real processes: at every failpoint by name and at random moments, under load, again and again.

A cell is one store with many lives on it, each ended by a kill; then a last life lets everything end, and the store
is compared with what was acknowledged and with what the blocks left outside. Cells stay small, so that looking
at everything costs less than making it.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from holdfast.engine.verify import verify
from holdfast.failpoints import NAMES
from holdfast.store.address import open_store
from tests.acceptance.processes import free_port
from tests.acceptance.workload import CHILD_KILLED, FIGURES, examine
from tests.services.postgres import Postgres

from . import plan
from .forks import Child, Forks
from .report import Progress, Report
from .rest import RestFeeder

#: seconds an armed process gets to reach its failpoint
PATIENCE = 10.0
#: seconds everything gets to end after the last kill of a cell
END = 90.0
#: kills between two looks at the store; most restarts find it as the crash left it
LOOK_EVERY = 4
#: seconds; the lease of a victim's workers is 4
BEYOND_LEASE = 6.0
MIX = "repeatable,plain,threaded,threaded-repeatable"
ISOLATED = "isolated,repeatable,isolated-repeatable,plain"


class Tally:
    """What the cells of a campaign have seen together."""

    def __init__(self) -> None:
        self.kills = 0
        self.hits: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.violations: list[str] = []

    def killed(self, kind: str, name: str = "") -> None:
        self.kills += 1
        self.kinds[kind] += 1
        if name:
            self.hits[name] += 1


class Cell:
    """One store. `life` is one life on it, from start to kill; `end` judges."""

    def __init__(self, forks: Forks, tally: Tally, folder: Path, chance: Random, address: str = "") -> None:
        self.forks = forks
        self.tally = tally
        self.folder = folder
        self.chance = chance
        self.address = address or f"sqlite:///{folder}/holdfast.db"
        self.kills = 0
        self.program = "victim"

    def start(self, spec: str = "", *more: str, name: str = "victim") -> Child:
        return self.forks.start(self.program, self.folder, [str(self.folder), self.address, name, *more], spec)

    def life(self, spec: str = "", *more: str) -> None:
        """One life under load, ended at a failpoint or at a random moment."""
        mix = ISOLATED if plan.needs_processes(spec) or self.chance.random() < 0.08 else MIX
        if not self.death(self.start(spec, "--cap", "120", "--mix", mix, *more), spec):
            # Fewer commits than hoped for: it is there the first time that counts.
            self.death(self.start(first(spec), "--cap", "120", "--mix", mix, *more), first(spec))
        self.look()

    def death(self, child: Child, spec: str) -> bool:
        """Whether it died as it was meant to."""
        is_hit = True
        name = spec.split(":")[0]
        if not spec:
            if self.chance.random() < 0.8:
                self.ready(child)
            time.sleep(self.chance.uniform(0.0, 0.3))
            self.strike(child, "random")
        elif name in plan.CHILD:
            deadline = time.monotonic() + PATIENCE
            while name not in child.failpoints() and child.returncode is None and time.monotonic() < deadline:
                time.sleep(0.02)
            if name in child.failpoints():
                self.tally.killed("child process", name)
                time.sleep(self.chance.uniform(0.0, 0.2))
            self.strike(child, "random")
        elif child.wait(PATIENCE) is None:
            self.strike(child, "missed")
            is_hit = False
        elif name in child.failpoints() and child.returncode == -9:
            self.tally.killed("failpoint", name)
        else:
            self.violation(f"armed with {spec} it ended with {child.returncode}: {tail(child)}")
        child.close()
        self.kills += 1
        return is_hit

    def strike(self, child: Child, kind: str) -> None:
        """kill -9 from outside."""
        if child.returncode is not None:
            self.violation(f"it ended by itself, with {child.returncode}: {tail(child)}")
            return
        child.kill()
        if child.wait(20) != -9:
            self.violation(f"kill -9 was answered with {child.returncode}")
        self.tally.killed(kind)

    def ready(self, child: Child) -> None:
        if not child.until_ready():
            self.violation(f"it did not come up: {tail(child)}")

    def look(self) -> None:
        if self.kills % LOOK_EVERY == 0:
            self.verified()

    def verified(self) -> None:
        store = open_store(self.address)
        try:
            self.tally.seen["verified"] += 1
            for finding in verify(store).findings[:5]:
                self.violation(f"verify: {finding}")
        finally:
            store.close()

    def end(self, *more: str, name: str = "victim") -> None:
        """Let everything end, then compare."""
        last = self.start("", "--drain", *more, name=name)
        if last.wait(END) != 0:
            self.violation(f"not everything had ended after {END:g} s (code {last.returncode}): {tail(last)}")
            last.kill()
            last.wait(20)
        last.close()
        self.verified()
        store = open_store(self.address)
        try:
            seen, violations = examine(store, self.folder, CHILD_KILLED)
        finally:
            store.close()
        self.tally.seen += seen
        for text in violations:
            self.violation(text)

    def violation(self, text: str) -> None:
        self.tally.violations.append(f"{self.folder.name}: {text}")


def first(spec: str) -> str:
    """Killed there the first time."""
    return f"{spec.split(':')[0]}:hit=1:kill"


def tail(child: Child) -> str:
    return " / ".join(child.errors.read_text(errors="replace").splitlines()[-3:])


# --- cells ------------------------------------------------------------------------------------------
def embedded(cell: Cell, names: Sequence[str], random: int = 0) -> None:
    """Engine and worker in one process, on SQLite."""
    for spec in _born(cell, names, random, plan.BIRTH):
        cell.life(spec, *(("--leave",) if spec.split(":")[0] in plan.LEAVING else ()))
    cell.end()


def served(cell: Cell, names: Sequence[str], random: int = 0) -> None:
    """Engine and worker in processes of their own, over HTTP, fed over HTTP; the one or the other dies. With
    random kills some workers come back under a new name (then only the lease tells that the old one is gone), and
    one is stopped for longer than its lease and goes on while another has its jobs."""
    port = free_port()
    serve = ("--serve", str(port), "--idle")
    turns = [("worker" if name.startswith("worker.") else "engine", plan.armed(name, cell.chance)) for name in names]
    turns += [(cell.chance.choice(["engine", "worker"]), "") for _ in range(random)]
    cell.chance.shuffle(turns)

    def start_worker(spec: str = "", name: str = "remote") -> Child:
        return cell.forks.start("labourer", cell.folder, [str(cell.folder), str(port), name], spec)

    engine = cell.start("", *serve)
    cell.ready(engine)
    worker = start_worker()
    with RestFeeder(cell.folder, port) as feeder:
        for number, (who, spec) in enumerate(turns):
            feeder.until_fed(10)
            if who == "engine":
                cell.strike(engine, "random")
                engine.close()
                engine = cell.start(spec, *serve)
                cell.death(engine, spec)
                cell.look()
                engine = cell.start("", *serve)
                cell.ready(engine)
            else:
                cell.strike(worker, "random")
                worker.close()
                worker = start_worker(spec)
                cell.death(worker, spec)
                worker = start_worker("", f"remote-{number}" if random and number % 4 == 0 else "remote")
        if random:
            worker.kill(signal.SIGSTOP)
            other = start_worker("", "other")
            time.sleep(BEYOND_LEASE)
            worker.kill(signal.SIGCONT)
            feeder.until_fed(10)
            cell.tally.kinds["paused worker (not killed)"] += 1
            cell.strike(other, "random")
            other.close()
    cell.strike(engine, "random")
    engine.close()
    cell.end("--serve", str(port))
    cell.strike(worker, "random")
    worker.close()


def shared(cell: Cell, names: Sequence[str], random: int = 0) -> None:
    """Two engines on one PostgreSQL, one of them killed; at the end the other one too."""
    later = _born(cell, names, random, plan.BIRTH_SHARED)
    steady = cell.start("", "--cap", str(60 * len(later)), "--pace", "60", "--mix", MIX, name="steady")
    cell.ready(steady)
    for spec in later:
        cell.life(spec)
    cell.strike(steady, "random")
    steady.close()
    cell.end(name="last")


def _born(cell: Cell, names: Sequence[str], random: int, birth: Sequence[str]) -> list[str]:
    """Lives that die while the store is being made; returns what the later ones are armed with."""
    specs = [plan.armed(name, cell.chance) for name in names] + [""] * random
    first_ones, later = plan.in_order(specs, birth)
    for spec in first_ones:
        cell.life(spec)
    cell.chance.shuffle(later)
    return later


# --- the campaign -----------------------------------------------------------------------------------
class Arena:
    """Where cells are made: a fork server, a folder, and a PostgreSQL if one is wanted."""

    def __init__(self, forks: Forks, root: Path, seed: int) -> None:
        self.forks = forks
        self.root = root
        self.seed = seed
        self.tally = Tally()
        self._number = 0
        self._postgres: Postgres | None = None

    def cell(self, kind: str) -> Cell:
        self._number += 1
        folder = self.root / f"{kind}-{self._number}"
        folder.mkdir()
        chance = Random(f"{self.seed}/{folder.name}")
        address = ""
        if kind == "shared":
            self._postgres = self._postgres or Postgres()
            address = self._postgres.create_database(f"chaos_{self._number}")
        return Cell(self.forks, self.tally, folder, chance, address)

    def run(self, kind: str, names: Sequence[str], random: int = 0, program: str = "victim") -> None:
        """One cell from beginning to end. Its folder is kept if it showed something."""
        before = len(self.tally.violations)
        cell = self.cell(kind)
        cell.program = program
        PLAYS[kind](cell, names, random)
        if len(self.tally.violations) == before:
            shutil.rmtree(cell.folder)

    def close(self) -> None:
        if self._postgres is not None:
            self._postgres.close()


@contextmanager
def arena(root: Path, seed: int) -> Iterator[Arena]:
    with Forks() as forks:
        made = Arena(forks, root, seed)
        try:
            yield made
        finally:
            made.close()


PLAYS = {"embedded": embedded, "served": served, "shared": shared}
#: every failpoint once: kind of cell, names to be killed at
ROUND: Sequence[tuple[str, Sequence[str]]] = (
    ("embedded", plan.BIRTH + plan.WORKING[:16]),
    ("embedded", plan.WORKING[16:]),
    ("embedded", plan.CHILD + plan.LEAVING),
    ("served", plan.SERVING + plan.SERVED_TOO),
    ("shared", plan.BIRTH_SHARED + plan.SHARED + plan.SHARED_TOO),
)
#: and then, over and over: names of which so many are chosen, and kills at random moments
RANDOM: Sequence[tuple[str, Sequence[str], int, int]] = (
    ("embedded", plan.BIRTH + plan.WORKING, 8, 32),
    ("embedded", plan.WORKING + plan.LEAVING, 8, 32),
    ("embedded", plan.WORKING + plan.CHILD, 8, 32),
    ("served", plan.SERVING + plan.SERVED_TOO, 5, 8),
    ("shared", plan.BIRTH_SHARED + plan.SHARED + plan.SHARED_TOO, 5, 16),
)


def _cells(seed: int) -> Iterator[tuple[str, Sequence[str], int]]:
    """Kind, names and number of random kills of every cell there will be."""
    chance = Random(seed)
    for kind, names in ROUND:
        yield kind, names, 0
    while True:
        for kind, names, count, random in RANDOM:
            yield kind, chance.choices(names, k=count), random


def campaign(kills: int, seed: int, progress: Progress, minutes: float = 60.0) -> Report:
    """At least so many kills at random moments, and one at every failpoint. The time limit ends it between two
    cells."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-kills-"))
    began = time.monotonic()
    with arena(root, seed) as made:
        tally = made.tally
        for number, (kind, names, random) in enumerate(_cells(seed), 1):
            made.run(kind, names, random)
            seconds = time.monotonic() - began
            progress(
                f"{seconds:6.0f} s  {tally.kills:5} kills  {tally.seen['acknowledged']:7} acknowledged"
                f"  {len(tally.violations)} violations  ({kind})"
            )
            if number >= len(ROUND) and (tally.kinds["random"] >= kills or seconds > minutes * 60):
                break
    report = summary(tally)
    if tally.kinds["random"] < kills:
        report.violations.append(f"only {tally.kinds['random']} of {kills} kills at random moments within the time")
    report.figures["seconds"] = round(time.monotonic() - began, 1)
    if report.ok:
        shutil.rmtree(root)
    else:
        report.figures["kept in"] = str(root)
    return report


def summary(tally: Tally) -> Report:
    seen = tally.seen
    figures = {
        "kills": tally.kills,
        **{f"kills: {kind}": count for kind, count in sorted(tally.kinds.items())},
        **{name: seen[name] for name in FIGURES},
        "verified": seen["verified"],
        "kills per failpoint": {name: tally.hits[name] for name in NAMES},
    }
    violations = list(tally.violations)
    violations += [f"no process was killed at {name}" for name in NAMES if not tally.hits[name]]
    if seen["completed"] * 4 < seen["acknowledged"] or not seen["completed"]:
        violations.append("too little was completed for the campaign to show anything")
    if seen["unknown"] == 0:
        violations.append("no crash caught a job half way: the campaign shows nothing")
    return Report("kills", figures, violations)
