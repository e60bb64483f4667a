"""The reaper: which attempts nobody will answer for any more. Pure; the shell reads and submits.

A worker is given up when its lease runs out, when a newer incarnation of its name registers, or when the
engine process it lived in is certainly dead. An attempt is given up when its time is over although its
worker is alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.core.requests import LoseJob
from holdfast.core.rows import JobRow
from holdfast.store.records import EngineRow, WorkerRow

from .dispatch import Session
from .patience import OFFLINE


class Loss(msgspec.Struct, frozen=True):
    execution: str
    request: LoseJob


def lost(row: JobRow, why: str) -> Loss:
    return Loss(row.execution, LoseJob(row.job, row.attempt, "worker-lost", why))


class Missed:
    """Engines that were not seen alive, and since when. One look proves nothing: a connection may just be
    being made again. Certain is who was missing in every look for a while."""

    #: µs
    PATIENCE = 2_000_000

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def look(self, engines: Iterable[EngineRow], living: list[str] | None, own: str, now: int) -> list[str]:
        """Engines that are certainly dead."""
        if living is None:
            self._since.clear()
            return []
        alive = {own, *living}
        missing = [engine.id for engine in engines if engine.id not in alive]
        self._since = {id: self._since.get(id, now) for id in missing}
        return [id for id, since in self._since.items() if now - since >= self.PATIENCE]

    def forget(self) -> None:
        """The store was away: nobody could be seen."""
        self._since.clear()


def given_up(
    now: int, workers: Iterable[WorkerRow], sessions: Mapping[str, Session], dead: Iterable[str], since: int
) -> list[tuple[WorkerRow, str]]:
    """Workers nobody should wait for, and why. `since`: when this engine began to look; before that nobody
    could reach it, so silence is counted from there."""
    gone_engines = set(dead)
    found = []
    for worker in workers:
        if worker.incarnation in sessions:
            continue
        if worker.engine and worker.engine in gone_engines:
            found.append((worker, f"worker {worker.name} went down with its engine"))
        elif worker.state == OFFLINE:
            found.append((worker, f"worker {worker.name} left"))
        elif max(worker.seen_at, since) + worker.lease < now:
            silence = (now - worker.seen_at) // 1_000_000
            found.append((worker, f"worker {worker.name} has been silent for {silence} s"))
    return found


def overdue(session: Session, now: int) -> list[Loss]:
    """Attempts of a living worker whose time is over."""
    return [
        Loss(
            execution,
            LoseJob(
                job,
                held.attempt,
                "timeout",
                f"worker {session.name} gave no answer within {(now - held.since) // 1_000_000} s"
                + ("" if held.timeout else " and shows no sign of life of it"),
                details=held.details,
            ),
        )
        for (execution, job), held in session.held.items()
        if held.deadline <= now
    ]
