"""kill -9 at every boundary of a commit: a workflow with everything in it, killed before and after each of its commits.

A cell is one kind of block on one kind of store and one side of the commit. Its executions are killed at the first
commit, at the second, and so on, until one gets to its end without having been killed; each then goes on in a second
life. With blocks that may repeat the output is that of an undisturbed run; with others it is that, or it stopped and
names the job that nobody knows about. Where the worker is a process of its own, which lives on, it can tell: then the
output is the same with any block.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from itertools import product
from pathlib import Path

from holdfast.core.model import Status
from holdfast.engine.rebuild import rebuild
from holdfast.engine.verify import verify
from holdfast.store.address import open_store
from tests.acceptance import thirty
from tests.acceptance.processes import free_port
from tests.acceptance.walker import witness
from tests.services.postgres import Postgres

from .forks import Child, Forks
from .report import Progress, Report

MOMENTS = ("engine.commit.before", "engine.commit.after")
#: seconds a life gets
PATIENCE = 60.0


class Cell:
    def __init__(
        self, forks: Forks, folder: Path, address: str, kind: str, moment: str, *, is_served: bool = False
    ) -> None:
        self.forks = forks
        self.folder = folder
        self.address = address
        self.kind = kind
        self.moment = moment
        self.port = free_port() if is_served else 0
        self._worker: Child | None = None
        self.seen: Counter[str] = Counter()
        self.violations: list[str] = []

    def run(self, first: int = 1, stride: int = 1) -> None:
        """Every `stride`th boundary, beginning with that one."""
        hit = first
        while self._boundary(hit):
            hit += stride

    def _boundary(self, hit: int) -> bool:
        """Whether there is such a boundary."""
        key = f"{self.moment.rpartition('.')[2]}-{hit}"
        is_there = self._life(key, f"{self.moment}:hit={hit}:kill")
        if is_there:
            self.seen["boundaries"] += 1
            self._verify(key)
            if self._life(key):
                self.violations.append(f"{self._where(key)}: killed, and nobody had asked for it")
        else:
            self.seen["undisturbed"] += 1
        self._judge(key, is_there)
        return is_there

    def _life(self, key: str, failpoint: str = "") -> bool:
        """Whether it was killed."""
        arguments = [str(self.folder), self.address, self.kind, key, *([str(self.port)] if self.port else [])]
        child = self.forks.start("walker", self.folder, arguments, failpoint)
        if self.port and self._worker is None and child.until_ready():
            labour = [str(self.folder), str(self.port), "remote"]
            self._worker = self.forks.start("labourer", self.folder, labour)
        code = child.wait(PATIENCE)
        if code is None:
            self.violations.append(f"{self._where(key)}: no end after {PATIENCE:g} s")
            child.kill()
            child.wait(20)
        elif code not in (0, -9):
            said = child.errors.read_text(errors="replace").splitlines()[-3:]
            self.violations.append(f"{self._where(key)}: ended with {code}: {' / '.join(said)}")
        child.close()
        return code == -9

    def _where(self, key: str) -> str:
        return f"{self.address.partition(':')[0]} {self.kind} {key}"

    def _verify(self, key: str) -> None:
        store = open_store(self.address)
        try:
            self.violations += [f"{self._where(key)}: verify: {finding}" for finding in verify(store).findings[:3]]
        finally:
            store.close()

    def _judge(self, key: str, was_killed: bool) -> None:
        store = open_store(self.address)
        try:
            with store.reading() as queries:
                started = queries.start("default", f"{self.kind}-{key}")
                if started is None:
                    self.violations.append(f"{self._where(key)}: was never started")
                    return
                state = rebuild(queries, started.execution)
        finally:
            store.close()
        ended, wrong = thirty.judge(state, witness(self.folder, key))
        if not was_killed and state.status is not Status.COMPLETED:
            wrong.append(f"undisturbed, it ended {state.status.name}: {state.failure}")
        ran = Counter(thirty.lines(witness(self.folder, key)))
        self.seen["repeated"] += sum(count - 1 for count in ran.values())
        self.seen[ended] += 1
        self.violations += [f"{self._where(key)}: {text}" for text in wrong]

    def end(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait(20)
            self._worker.close()
        self._verify("all")
        if self.port:
            if self.seen["unknown"]:
                self.violations.append(
                    f"{self._where('all')}: the worker lived, and {self.seen['unknown']} are unknown"
                )
        elif self.kind == "plain" and self.seen["boundaries"] > 20 and not self.seen["unknown"]:
            self.violations.append(f"{self._where('all')}: no kill caught a job half way")


#: kind of block, and whether the worker is a process of its own
CELLS = (("repeatable", False), ("plain", False), ("plain", True))


def campaign(progress: Progress, stride: int = 1) -> Report:
    """Both stores, both sides of every commit, each kind of cell."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-boundaries-"))
    began = time.monotonic()
    seen: Counter[str] = Counter()
    report = Report("boundaries")
    postgres = Postgres()
    try:
        with Forks() as forks:
            for store, (kind, is_served), moment in product(("sqlite", "postgres"), CELLS, MOMENTS):
                name = f"{store}_{kind}_{'served_' if is_served else ''}{moment.rpartition('.')[2]}"
                folder = root / name
                folder.mkdir()
                address = f"sqlite:///{folder}/holdfast.db" if store == "sqlite" else postgres.create_database(name)
                cell = Cell(forks, folder, address, kind, moment, is_served=is_served)
                cell.run(1, stride)
                cell.end()
                seen += cell.seen
                report.violations += cell.violations
                report.figures[f"boundaries: {name}"] = cell.seen["boundaries"]
                progress(
                    f"{time.monotonic() - began:6.0f} s  {name}: {cell.seen['boundaries']} boundaries,"
                    f" {cell.seen['completed']} completed, {cell.seen['unknown']} unknown,"
                    f" {len(cell.violations)} violations"
                )
    finally:
        postgres.close()
    report.figures |= {name: seen[name] for name in ("boundaries", "completed", "unknown", "repeated", "undisturbed")}
    report.figures["seconds"] = round(time.monotonic() - began, 1)
    if report.ok:
        shutil.rmtree(root)
    else:
        report.figures["kept in"] = str(root)
    return report
