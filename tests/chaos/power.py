"""Power loss: what a disk may hold after the power went at any moment, and what Holdfast makes of it.

`python -m tests.chaos.power --images 5000` traces whole engines at work, builds images of their disk at moments of
their lives, and opens each with the real store. The model: what was synced is there; of everything since, any subset
is there, whole or in sectors. Not modelled: a disk that says synced and lies.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Literal

import apsw

from holdfast.core.errors import Refused
from holdfast.core.ids import from_key
from holdfast.engine.verify import verify
from holdfast.store.sqlite import SqliteStore

from .load import ChaosStore, Life, Said, feed, small_snapshots
from .report import Report
from .vfs import Change, Disk, Fault, failure

#: images taken from one traced run
PER_TRACE = 100
#: of so many images one is booted, and its executions run to their end
BOOT_EVERY = 50
DATABASE = "holdfast.db"
Progress = Callable[[int, int], None]


# --- what the disk holds ----------------------------------------------------------------------------
class Platter:
    """A disk as its log says: what is certain, and what is still on its way."""

    def __init__(self, log: list[Change], seed: int, *, survives: float = 0.3) -> None:
        self._log = log
        self._rng = random.Random(seed)
        #: share of what had arrived all the same when a sync failed
        self._survives = survives
        self.position = 0
        self.files: dict[int, bytearray] = {}
        self.pending: dict[int, list[Change]] = {}
        self.names: dict[str, int] = {}
        self.renamed: list[Change] = []

    def advance(self, position: int) -> None:
        for change in self._log[self.position : position]:
            match change.kind:
                case "write" | "size":
                    self.pending.setdefault(change.file, []).append(change)
                case "sync":
                    for waiting in self.pending.pop(change.file, ()):
                        _apply(self.files.setdefault(change.file, bytearray()), waiting)
                case "lost-sync":
                    # Some of it had arrived; the rest is forgotten for good unless it is written again.
                    for waiting in self.pending.pop(change.file, ()):
                        if self._rng.random() < self._survives:
                            _apply(self.files.setdefault(change.file, bytearray()), waiting)
                case "create" | "delete":
                    self.renamed.append(change)
                case "folder-sync":
                    _rename(self.names, self.renamed)
                    self.renamed = []
                    for gone in set(self.pending) - set(self.names.values()):
                        del self.pending[gone]
        self.position = position

    def image(self, rng: random.Random) -> dict[str, bytes]:
        """One of the things this disk may hold if the power goes now."""
        names = dict(self.names)
        likely = rng.choice((0.0, 0.5, 1.0))
        _rename(names, [change for change in self.renamed if rng.random() < likely])
        sector = rng.choice((512, 4096))
        return {name: self._file(number, sector, rng) for name, number in names.items()}

    def certain(self) -> dict[str, bytes]:
        """Only what is certain."""
        return {name: bytes(self.files.get(number, b"")) for name, number in self.names.items()}

    def _file(self, number: int, sector: int, rng: random.Random) -> bytes:
        content = bytearray(self.files.get(number, b""))
        pending = self.pending.get(number, [])
        # Each file has its own luck: a database that is all there beside a journal that is not, and the reverse.
        likely, torn = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0)), rng.choice((0.0, 0.2, 1.0))
        if rng.random() < 0.2:
            pending, likely = pending[: rng.randint(0, len(pending))], 1.0
        grown = rng.random() < 0.3
        for change in pending:
            if change.kind == "write" and rng.random() < torn:
                for piece in _sectors(change, sector):
                    if rng.random() < likely:
                        _apply(content, piece)
            elif rng.random() < likely:
                _apply(content, change)
            elif grown and change.kind == "write":
                # The file grew, its content never came.
                content.extend(bytes(max(0, change.at + len(change.data) - len(content))))
        return bytes(content)


def _apply(content: bytearray, change: Change) -> None:
    if len(content) < change.at:
        content.extend(bytes(change.at - len(content)))
    if change.kind == "size":
        del content[change.at :]
    else:
        content[change.at : change.at + len(change.data)] = change.data


def _sectors(change: Change, size: int) -> Iterator[Change]:
    at, end = change.at, change.at + len(change.data)
    while at < end:
        upto = min(end, (at // size + 1) * size)
        yield change._replace(at=at, data=change.data[at - change.at : upto - change.at])
        at = upto


def _rename(names: dict[str, int], changes: list[Change]) -> None:
    for change in changes:
        if change.kind == "create":
            names[change.name] = change.file
        elif names.get(change.name) == change.file:
            del names[change.name]


# --- lives to be cut short --------------------------------------------------------------------------
@dataclass
class Trace:
    log: list[Change]
    said: Said
    #: execution → seq → digest, at the very end; every image holds a beginning of it
    truth: dict[str, dict[int, bytes]]
    #: the log when the first store was open
    migrated: int


def failing_sync(number: int) -> Fault:
    """The so-manyth sync from now on fails; the ones after it succeed, as they do."""
    numbers = count(1)

    def fault(verb: str, name: str, size: int) -> None:
        if verb == "sync" and next(numbers) == number:
            raise failure(apsw.SQLITE_IOERR_FSYNC)

    return fault


def trace(
    folder: Path, seed: int, synchronous: str = "FULL", *, loses_a_sync: bool = False, is_trusting: bool = False
) -> Trace:
    """Three lives on one disk: the first ends in a crash (if asked, after a sync that failed), the second in good
    order, and so does the third."""
    rng = random.Random(seed)
    disk = Disk()
    said = Said(disk.log)
    path = folder / DATABASE
    pages = rng.choice((8, 20, 60, 200))

    def store() -> ChaosStore:
        return ChaosStore(path, disk, synchronous=synchronous, pages=pages, is_trusting=is_trusting)

    size = rng.choice((3, 6, 6, 12))
    first = store()
    migrated = len(disk.log)
    life = Life(first, said).open()
    if loses_a_sync:
        disk.fault = failing_sync(rng.randint(1, 8))
    feed(life, rng, size)
    if loses_a_sync:
        life.wait_for(lambda: not life.engine.is_alive, 0.3)
    life.crash()
    disk.fault = None
    life = Life(store(), said).open()
    feed(life, rng, size, size)
    assert life.finish(), "the executions of a traced life did not end"
    life.close()
    life = Life(store(), said).open()
    feed(life, rng, 2, 2 * size)
    life.close()
    truth = _histories(path)
    disk.close()
    return Trace(disk.log, said, truth, migrated)


def _histories(path: Path) -> dict[str, dict[int, bytes]]:
    store = SqliteStore(path)
    try:
        return read_histories(store)
    finally:
        store.close()


def read_histories(store: SqliteStore) -> dict[str, dict[int, bytes]]:
    found: dict[str, dict[int, bytes]] = {}
    with store.reading() as queries:
        for execution, seq, digest in queries.rows("SELECT execution, seq, digest FROM history ORDER BY 1, 2"):
            found.setdefault(from_key(execution), {})[seq] = digest
    return found


def moments(trace: Trace, count: int, rng: random.Random) -> list[int]:
    """When the power goes: half of the time anywhere, half of the time where it hurts."""
    last = len(trace.log)
    delicate = [mark.at for mark in trace.said.marks]
    for position, change in enumerate(trace.log):
        if change.kind not in ("write", "sync") or (change.kind == "write" and not change.at):
            delicate += [position - 1, position, position + 1, position + 2]
        elif change.kind == "sync":
            delicate.append(position)
    some = [rng.randint(0, last) for _ in range(count - count // 2)]
    some += [min(last, max(0, rng.choice(delicate))) for _ in range(count // 2)]
    return sorted(some)


# --- judging ----------------------------------------------------------------------------------------
Kind = Literal["corrupt", "lost", "changed"]


class Judge:
    """Opens images of one trace, in the order of their moments."""

    def __init__(self, trace: Trace, folder: Path) -> None:
        self._trace = trace
        self._folder = folder
        #: what had been said by now
        self._versions: dict[str, tuple[int, bytes]] = {}
        self._marks = iter(trace.said.marks)
        self._next = next(self._marks, None)
        #: rows that were verified before; the same rows give the same answer
        self._clean: set[bytes] = set()
        self.verified = 0

    def expect(self, position: int) -> None:
        while self._next is not None and self._next.at <= position:
            mark = self._next
            if mark.version > self._versions.get(mark.execution, (0, b""))[0]:
                self._versions[mark.execution] = (mark.version, mark.digest)
            self._next = next(self._marks, None)

    def judge(self, position: int) -> list[tuple[Kind, str]]:
        try:
            store = SqliteStore(self._folder / DATABASE)
        except Refused as refused:
            return [("corrupt", f"cannot be opened: {refused.code} {refused.message}")]
        try:
            return [*self._look(store, position)]
        except Refused as refused:
            return [("corrupt", f"cannot be read: {refused.code} {refused.message}")]
        finally:
            store.close()

    def _look(self, store: SqliteStore, position: int) -> Iterator[tuple[Kind, str]]:
        with store.reading() as queries:
            sound = queries.rows("PRAGMA integrity_check")
            if sound != [("ok",)]:
                yield "corrupt", f"integrity_check: {sound[:3]}"
                return
            keys = {key: from_key(execution) for key, execution in queries.rows("SELECT key, execution FROM starts")}
            published = set(queries.rows("SELECT name, version FROM workflows"))
        histories = read_histories(store)
        for id, rows in histories.items():
            # A history only ever grows: what an image holds is the beginning of what came to be.
            if list(rows.items()) != list(self._trace.truth.get(id, {}).items())[: len(rows)]:
                yield "changed", f"the history of {id} is not the beginning of what it became"
        for id, (version, digest) in self._versions.items():
            if histories.get(id, {}).get(version) != digest:
                yield "lost", f"{id} was acknowledged at version {version}, there is {max(histories.get(id, {0: 0}))}"
        for at, key, execution in self._trace.said.keys:
            if at <= position and keys.get(key) != execution:
                yield "lost", f"the idempotency key {key} of {execution}"
        for at, name, number in self._trace.said.published:
            if at <= position and (name, number) not in published:
                yield "lost", f"version {number} of workflow {name}"
        content = _fingerprint(store)
        if content not in self._clean:
            self.verified += 1
            findings = verify(store).findings
            if not findings:
                self._clean.add(content)
            for finding in findings:
                yield "corrupt", f"{finding.invariant} {finding.execution}: {finding.text}"

    def boot(self, position: int) -> list[str]:
        """Start an engine on the image and let everything run to its end."""
        said = Said([])
        life = Life(ChaosStore(self._folder / DATABASE), said).open()
        try:
            has_ended = life.finish()
        finally:
            life.close()
        wrong = [] if has_ended else ["an execution did not end after the power came back"]
        runs = self._trace.said.plain_runs(position) + said.plain_runs(0)
        wrong += [f"{key} may run once and began {times} times" for key, times in runs.items() if times > 1]
        store = SqliteStore(self._folder / DATABASE)
        wrong += [f"after a boot: {finding}" for finding in verify(store).findings]
        store.close()
        return wrong


def _fingerprint(store: SqliteStore) -> bytes:
    """Of every row of every table."""
    digest = blake2b(digest_size=16)
    with store.reading() as queries:
        for (table,) in queries.rows("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1"):
            digest.update(repr((table, sorted(map(repr, queries.rows(f"SELECT * FROM {table}"))))).encode())
    return digest.digest()


# --- the campaign -----------------------------------------------------------------------------------
def phase(platter: Platter, trace: Trace) -> str:
    """What was going on."""
    if platter.position < trace.migrated:
        return "first migration"
    waiting = [change for changes in platter.pending.values() for change in changes]
    journal = {change.file for change in trace.log if change.kind == "create" and change.name.endswith("-wal")}
    if any(change.kind == "delete" for change in platter.renamed):
        return "journal deleted"
    if any(change.kind == "size" and change.file in journal for change in waiting):
        return "journal truncated"
    if any(change.file not in journal for change in waiting):
        return "checkpoint"
    if any(change.at == 0 and change.file in journal for change in waiting):
        return "journal begun again"
    return "commit" if waiting else "rest"


def scratch() -> Path:
    """Images are many and short-lived: they are built in memory where the system offers that."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="holdfast-power-", dir=memory if memory.is_dir() else None))


def campaign(
    images: int,
    seed: int,
    progress: Progress | None = None,
    *,
    synchronous: str = "FULL",
    boot_every: int = BOOT_EVERY,
    is_trusting: bool = False,
) -> Report:
    """So many images; `progress` hears how many are done, and how many violations there are."""
    report = Report("power")
    counts: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    began = time.monotonic()
    folder = scratch()
    done = 0
    try:
        while done < images:
            run = seed * 1_000_003 + done
            with small_snapshots():
                (folder / "life").mkdir()
                # Every third life has a sync that fails; those that are to show what trust leads to, all have.
                loses = is_trusting or counts["traces"] % 3 == 2
                traced = trace(folder / "life", run, synchronous, loses_a_sync=loses, is_trusting=is_trusting)
                shutil.rmtree(folder / "life")
                counts["traces"] += 1
                counts["changes"] += len(traced.log)
                counts["acknowledged"] += len(traced.said.marks)
                counts["failed"] += sum(change.kind == "lost-sync" for change in traced.log)
                done += _images(traced, run, min(PER_TRACE, images - done), folder, done, boot_every,
                                report, counts, phases, progress)  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    report.figures = {
        "synchronous": synchronous, "seed": seed, "images": done, "corrupt": counts["corrupt"], "lost": counts["lost"],
        "changed": counts["changed"], "booted": counts["booted"], "boots with trouble": counts["boots with trouble"],
        "traces": counts["traces"], "changes traced": counts["changes"], "acknowledgements": counts["acknowledged"],
        "syncs that failed": counts["failed"],
        "different states verified": counts["verified"], "moments": dict(phases.most_common()),
        "seconds": round(seconds, 1), "images per second": round(done / seconds, 1),
    }  # fmt: skip
    return report


def _images(
    traced: Trace, run: int, count: int, folder: Path, done: int, boot_every: int,
    report: Report, counts: Counter[str], phases: Counter[str], progress: Progress | None,
) -> int:  # fmt: skip
    rng = random.Random(run)
    platter = Platter(traced.log, run)
    place = folder / "image"
    judge = Judge(traced, place)
    for number, position in enumerate(moments(traced, count, rng)):
        platter.advance(position)
        judge.expect(position)
        phases[phase(platter, traced)] += 1
        place.mkdir()
        for name, content in platter.image(rng).items():
            (place / name).write_bytes(content)
        found = judge.judge(position)
        for kind in {kind for kind, _ in found}:
            counts[kind] += 1
        wrong = [f"{kind}: {text}" for kind, text in found[:3]]
        if not found and (done + number) % boot_every == 0:
            counts["booted"] += 1
            wrong = judge.boot(position)
            counts["boots with trouble"] += bool(wrong)
        report.violations += [f"run {run}, power lost at {position} of {len(traced.log)}: {text}" for text in wrong]
        shutil.rmtree(place)
        if progress is not None:
            progress(done + number + 1, len(report.violations))
    counts["verified"] += judge.verified
    return count


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.power", description=__doc__)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--synchronous", choices=("FULL", "NORMAL", "OFF"), default="FULL")
    parser.add_argument("--trusting", action="store_true", help="trust what a failed sync left behind (a self-test)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()

    def progress(done: int, violations: int) -> None:
        if done % 100 == 0 or done == given.images:
            print(f"{done}/{given.images} images, {violations} violations", file=sys.stderr, flush=True)

    report = campaign(given.images, given.seed, progress, synchronous=given.synchronous, is_trusting=given.trusting)
    if given.output == "json":
        shown = {"name": report.name, "ok": report.ok, "figures": report.figures, "violations": report.violations[:50]}
        print(json.dumps(shown, indent=2))
    else:
        for name, value in report.figures.items():
            print(f"{name:28} {value}")
        for line in report.violations[:20]:
            print(line)
    sys.exit(0 if report.ok else 1)


if __name__ == "__main__":
    main()
