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


class Loss(msgspec.Struct, frozen=True):
    execution: str
    request: LoseJob


class Verdict(msgspec.Struct):
    losses: list[Loss] = []
    #: rows to mark offline
    offline: list[WorkerRow] = []
    engines_gone: list[str] = []


def dead_engines(engines: Iterable[EngineRow], living: list[str] | None, own: str) -> list[str]:
    """Engines whose process is certainly gone. Without certainty nobody is dead."""
    if living is None:
        return []
    alive = {own, *living}
    return [engine.id for engine in engines if engine.id not in alive]


def reap(
    now: int,
    workers: Iterable[WorkerRow],
    claims: Iterable[JobRow],
    sessions: Mapping[str, Session],
    dead: Iterable[str],
    since: int,
    orphans_after: int,
) -> Verdict:
    """`since`: when this engine began to look; before that nobody could reach it, so silence is counted
    from there. Claims whose worker has no row at all are given up once `orphans_after` is past."""
    verdict = Verdict(engines_gone=list(dead))
    gone_engines = set(verdict.engines_gone)
    alive: dict[str, WorkerRow] = {}
    given_up: dict[str, str] = {}
    for worker in workers:
        why = ""
        if worker.incarnation in sessions:
            pass
        elif worker.engine and worker.engine in gone_engines:
            why = f"worker {worker.name} went down with its engine"
        elif worker.state == "offline":
            why = f"worker {worker.name} left"
        elif max(worker.seen_at, since) + worker.lease < now:
            why = f"worker {worker.name} has been silent for {(now - worker.seen_at) // 1_000_000} s"
        if why:
            given_up[worker.incarnation] = why
            if worker.state != "offline":
                worker.state = "offline"
                verdict.offline.append(worker)
        else:
            alive[worker.incarnation] = worker
    for claim in claims:
        if claim.incarnation in alive or claim.incarnation in sessions:
            continue
        why = given_up.get(claim.incarnation, "")
        if not why:
            # A newer incarnation took the row of this one's worker.
            if orphans_after + 2_000_000 > now:
                continue
            why = "its worker was replaced by a newer incarnation"
        verdict.losses.append(Loss(claim.execution, LoseJob(claim.job, claim.attempt, "worker-lost", why)))
    return verdict


def overdue(session: Session, now: int) -> list[Loss]:
    """Attempts of a living worker whose time is over."""
    return [
        Loss(
            execution,
            LoseJob(
                job,
                held.attempt,
                "timeout",
                f"worker {session.name} gave no answer within {(now - held.since) // 1_000_000} s",
            ),
        )
        for (execution, job), held in session.held.items()
        if held.deadline <= now
    ]
