"""Disks that fail: at the so-manyth call, once or for good, and what a whole engine makes of it.

`python -m tests.chaos.disk --upto 200 --stride 1` walks through every kind of failure. Whatever the disk does, nobody
is told that something was kept which is not there after a restart; every refusal has a code; and when the disk is well
again, everything goes on: by itself, or after a restart where the engine says that it has stopped.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import apsw

from holdfast.core.errors import Refused, ServerUnreachable, SyncFailed
from holdfast.engine.verify import verify
from holdfast.store.sqlite import SqliteStore

from .load import ChaosStore, Life, Said, feed, small_snapshots
from .power import DATABASE, read_histories, scratch
from .report import Report
from .vfs import Disk, failure

log = logging.getLogger("tests.chaos")
Progress = Callable[[int, int], None]
EXECUTIONS = 4


@dataclass(frozen=True)
class Ill:
    """A way to fail."""

    name: str
    verb: str
    code: int
    #: only so many bytes of a write arrive
    arrives: int | None = None


ILLS = (
    Ill("write error", "write", apsw.SQLITE_IOERR_WRITE),
    Ill("sync error", "sync", apsw.SQLITE_IOERR_FSYNC),
    Ill("read error", "read", apsw.SQLITE_IOERR_READ),
    Ill("no space", "write", apsw.SQLITE_FULL),
    Ill("short write", "write", apsw.SQLITE_FULL, arrives=100),
    Ill("truncate error", "size", apsw.SQLITE_IOERR_TRUNCATE),
    Ill("delete error", "delete", apsw.SQLITE_IOERR_DELETE),
    Ill("cannot open", "open", apsw.SQLITE_CANTOPEN),
    Ill("busy", "lock", apsw.SQLITE_BUSY),
)
#: what a caller may be told when the disk is ill: away, full, read-only, stopped, or stopping
CODES = {"HF0501", "HF0502", "HF0503", "HF0510", "HF0703"}


class Sickness:
    """Fails at call number `number` of its verb; if it `stays`, at every one from then on."""

    def __init__(self, ill: Ill, number: int, stays: bool) -> None:
        self.ill = ill
        self.number = number
        self.stays = stays
        self.calls = 0
        self.struck = 0

    def __call__(self, verb: str, name: str, size: int) -> int | None:
        if verb != self.ill.verb:
            return None
        self.calls += 1
        if self.calls < self.number or (self.struck and not self.stays):
            return None
        self.struck += 1
        if self.ill.arrives is not None:
            return min(self.ill.arrives, max(0, size - 1))
        raise failure(self.ill.code)


class Trial:
    """One engine, one sickness."""

    def __init__(self, folder: Path, ill: Ill, number: int, stays: bool) -> None:
        self.path = folder / DATABASE
        self.ill = ill
        self.disk = Disk()
        self.sickness = Sickness(ill, number, stays)
        self.said = Said(self.disk.log)
        self.rng = random.Random(number)
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        self.disk.fault = self.sickness
        life = self._opened()
        if life is not None:
            self._live(life)
        self.disk.fault = None
        self.seen["struck"] += bool(self.sickness.struck)
        self._restart()
        self.disk.close()
        strange = set(self.said.refused) - CODES
        if strange:
            self.wrong.append(f"a caller was told {strange}")
        self.seen.update({f"refused {code}": times for code, times in self.said.refused.items()})

    def _store(self) -> ChaosStore:
        return ChaosStore(self.path, self.disk, pages=12)

    def _opened(self) -> Life | None:
        try:
            store = self._store()
        except Refused as refused:
            self.said.refused[refused.code] += 1
            self.seen["could not open"] += 1
            return None
        try:
            life = Life(store, self.said)
        except Refused as refused:
            self.said.refused[refused.code] += 1
            store.close()
            return None
        try:
            return life.open(2.0)
        except ServerUnreachable:
            # The engine waits for the disk, and the worker for the engine; both go on by themselves.
            self.seen["opened late"] += 1
            return life

    def _live(self, life: Life) -> None:
        feed(life, self.rng, EXECUTIONS)
        if not life.wait_for(life.is_answered):
            self.wrong.append("somebody was never answered")
        fatal = life.engine.fatal
        if self.ill.verb == "sync" and self.sickness.struck:
            # It may have been the sync of a checkpoint; the next commit is refused then.
            life.publish("short")
            life.wait_for(lambda: not life.engine.is_alive, 5)
            fatal = life.engine.fatal
            if not isinstance(fatal, SyncFailed) or life.engine.trouble != fatal.message:
                self.wrong.append(f"a sync failed and the engine goes on: {fatal!r} {life.engine.trouble!r}")
        elif fatal is not None:
            self.wrong.append(f"the engine has stopped: {fatal!r}")
        if fatal is None:
            # The disk is well again. Nothing is restarted.
            self.disk.fault = None
            self.seen["went on by itself"] += bool(self.sickness.struck)
            life.wait_for(lambda: not life.engine.trouble, 10)
            if not life.finish():
                self.wrong.append(f"executions did not end by themselves; trouble: {life.engine.trouble!r}")
            if life.engine.trouble:
                self.wrong.append(f"still in trouble: {life.engine.trouble}")
            life.close()
        else:
            self.seen["stopped"] += 1
            life.crash()

    def _restart(self) -> None:
        store = self._store()
        self._check(store, "after a restart")
        life = Life(store, self.said).open()
        feed(life, self.rng, 1, 100)
        if not life.finish():
            self.wrong.append("executions did not end after a restart")
        life.close()
        store_again = SqliteStore(self.path)
        self._check(store_again, "at the end")
        store_again.close()
        for key, times in self.said.plain_runs(len(self.disk.log)).items():
            if times > 1:
                self.wrong.append(f"{key} may run once and began {times} times")

    def _check(self, store: SqliteStore, when: str) -> None:
        self.wrong += [f"{when}: {finding}" for finding in verify(store).findings]
        with store.reading() as queries:
            if (sound := queries.rows("PRAGMA integrity_check")) != [("ok",)]:
                self.wrong.append(f"{when}: integrity_check: {sound}")
        histories = read_histories(store)
        for mark in self.said.marks:
            if histories.get(mark.execution, {}).get(mark.version) != mark.digest:
                self.wrong.append(f"{when}: {mark.execution} was acknowledged at {mark.version} and is not there")


def campaign(
    upto: int, stride: int, progress: Progress | None = None, *, ills: Iterable[Ill] = ILLS, first: int = 1
) -> Report:
    """Every ill at every `stride`th call up to `upto`, once and for good. Ends with a kind of failure as soon as a
    life is too short to come to the call."""
    report = Report("disk")
    seen: Counter[str] = Counter()
    by_ill: Counter[str] = Counter()
    began = time.monotonic()
    folder = scratch()
    done = 0
    try:
        with small_snapshots():
            for ill in ills:
                for stays in (False, True):
                    for number in range(first, upto + 1, stride):
                        place = folder / "disk"
                        place.mkdir()
                        trial = Trial(place, ill, number, stays)
                        trial.run()
                        shutil.rmtree(place)
                        done += 1
                        seen += trial.seen
                        by_ill[ill.name] += trial.seen["struck"]
                        what = f"{ill.name} at call {number}, {'for good' if stays else 'once'}"
                        for text in trial.wrong[:5]:
                            log.error("%s: %s", what, text)
                            report.violations.append(f"{what}: {text}")
                        if progress is not None:
                            progress(done, len(report.violations))
                        if not trial.sickness.struck:
                            break
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.figures = {
        "trials": done, **dict(sorted(seen.items())), "struck, by kind": dict(by_ill),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.disk", description=__doc__)
    parser.add_argument("--upto", type=int, default=200)
    parser.add_argument("--stride", type=int, default=7)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", default="", help="one kind of failure, by name")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()

    def progress(done: int, violations: int) -> None:
        if done % 10 == 0:
            print(f"{done} trials, {violations} violations", file=sys.stderr, flush=True)

    ills = [ill for ill in ILLS if given.only in ("", ill.name)]
    report = campaign(given.upto, given.stride, progress, ills=ills, first=given.first)
    if given.output == "json":
        shown = {"name": report.name, "ok": report.ok, "figures": report.figures, "violations": report.violations[:50]}
        print(json.dumps(shown, indent=2))
    else:
        for name, value in report.figures.items():
            print(f"{name:28} {value}")
        for line in report.violations[:30]:
            print(line)
    sys.exit(0 if report.ok else 1)


if __name__ == "__main__":
    main()
