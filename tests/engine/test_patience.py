"""Silence: of a worker, until people see it; of an attempt, until it is given up. The clock is held."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.blocks import Context, Registry, block
from holdfast.core.rows import JobRow
from holdfast.embedded import Embedded
from holdfast.engine.dispatch import Dispatch, Held, Session
from holdfast.engine.exchanges import Exchanges
from holdfast.engine.items import Put
from holdfast.engine.patience import OFFLINE, SILENT, TIMEOUT_GRACE, Patience, is_taking, state_to_keep, worker_state
from holdfast.engine.reaper import given_up, overdue
from holdfast.store.records import WorkerRow
from holdfast.transport.local import LocalLink
from holdfast.transport.messages import Beat, Exchange, Hello
from holdfast.worker import Worker

SECOND = 1_000_000
MINUTE = 60 * SECOND
LEASE = 30 * SECOND
SHORT = Patience(unreachable=2 * MINUTE, offline=6 * MINUTE, stuck=12 * MINUTE)


def row(state: str = "online", seen_at: int = 0) -> WorkerRow:
    return WorkerRow("w", "w.1", "", "h", 1, 4, ["default"], ["b:1.0.0"], 0, seen_at, LEASE, state)


def nobody(value: Any, error: Exception | None) -> None:
    assert error is None


def exchanges(patience: Patience = SHORT) -> Exchanges:
    return Exchanges(Dispatch(), engine="e", lease=LEASE, beat=10 * SECOND, is_shared=False, patience=patience)


def attached(made: Exchanges, now: int = 0, claims: tuple[JobRow, ...] = ()) -> Session:
    made.hello(Hello("w", "w.1"), now, is_local=False, before=None, claims=claims, stopping=(), reply=nobody)
    return made.dispatch.sessions["w.1"]


# --- workers --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("state", ["online", SILENT])
def test_a_silent_worker_is_unreachable_after_two_minutes_and_offline_after_six(state: str) -> None:
    shown = [
        worker_state(row(state), now, SHORT) for now in (0, 2 * MINUTE - 1, 2 * MINUTE, 6 * MINUTE - 1, 6 * MINUTE)
    ]
    assert shown == ["online", "online", "unreachable", "unreachable", "offline"]


def test_one_that_left_is_offline_at_once() -> None:
    assert worker_state(row(OFFLINE), 1, SHORT) == "offline"
    assert worker_state(row("draining"), 1, SHORT) == "draining"
    assert worker_state(row("draining"), 3 * MINUTE, SHORT) == "unreachable"


def test_jobs_are_given_only_within_the_lease() -> None:
    assert is_taking(row(), LEASE)
    assert not is_taking(row(), LEASE + 1)
    assert not is_taking(row("draining"), 1)
    assert not is_taking(row(SILENT), 1)


def test_the_row_of_a_worker_whose_lease_ran_out_says_when_it_was_last_heard_of() -> None:
    made = exchanges()
    session = attached(made, now=5 * SECOND)
    now = 5 * SECOND + LEASE + 1
    assert made.silent(now) == [session]
    [put] = [i for i in made.expire(session, row(seen_at=5 * SECOND), now) if isinstance(i, Put) and i.batch.workers]
    [kept] = put.batch.workers
    assert (kept.state, kept.seen_at) == (SILENT, 5 * SECOND)
    assert worker_state(kept, now, SHORT) == "online"
    assert not is_taking(kept, now)


def test_the_sweep_takes_a_silent_worker_offline_in_time_and_the_dead_at_once() -> None:
    for now, kept in ((MINUTE, SILENT), (6 * MINUTE - 1, SILENT), (6 * MINUTE, OFFLINE)):
        [(worker, why)] = given_up(now, [row()], {}, [], 0)
        assert "has been silent" in why
        assert state_to_keep(worker, now, False, SHORT) == kept
    assert state_to_keep(row(), 1, True, SHORT) == OFFLINE
    assert state_to_keep(row(OFFLINE), 1, False, SHORT) == OFFLINE


# --- attempts -------------------------------------------------------------------------------------------
def test_an_attempt_without_a_timeout_is_stuck_after_twelve_minutes_without_a_sign_of_life() -> None:
    made = exchanges()
    session = attached(made)
    session.held["x", 1] = Held(1, 0, 0, SHORT.deadline(0, 0))
    assert overdue(session, 12 * MINUTE - 1) == []
    [loss] = overdue(session, 12 * MINUTE)
    assert (loss.execution, loss.request.job, loss.request.attempt, loss.request.kind) == ("x", 1, 1, "timeout")
    assert "no answer within 720 s and shows no sign of life" in loss.request.message


def test_a_beat_of_the_attempt_extends_it_and_is_handed_on() -> None:
    made = exchanges()
    session = attached(made)
    session.held["x", 1] = Held(1, 0, 0, SHORT.deadline(0, 0))
    made.exchange(Exchange("w.1", 1, beats=[Beat("x", 1, 1, details={"at": 7})]), 11 * MINUTE, nobody)
    assert overdue(session, 23 * MINUTE - 1) == []
    [loss] = overdue(session, 23 * MINUTE)
    assert loss.request.details == {"at": 7}


def test_a_beat_of_another_attempt_extends_nothing() -> None:
    made = exchanges()
    session = attached(made)
    session.held["x", 1] = Held(2, 0, 0, SHORT.deadline(0, 0))
    made.exchange(Exchange("w.1", 1, beats=[Beat("x", 1, 1)]), 11 * MINUTE, nobody)
    assert len(overdue(session, 12 * MINUTE)) == 1


def test_a_timeout_of_its_own_goes_before_the_stuck_limit_and_no_beat_extends_it() -> None:
    made = exchanges()
    session = attached(made)
    deadline = SHORT.deadline(0, 20 * MINUTE)
    assert deadline == 20 * MINUTE + TIMEOUT_GRACE
    session.held["x", 1] = Held(1, 0, 20 * MINUTE, deadline)
    assert overdue(session, 19 * MINUTE) == []
    made.exchange(Exchange("w.1", 1, beats=[Beat("x", 1, 1)]), 19 * MINUTE, nobody)
    assert len(overdue(session, deadline)) == 1


def test_a_claim_met_again_after_a_restart_has_its_limits_too() -> None:
    now = 60 * MINUTE
    claims = (
        JobRow("long", 1, "default", "b", 0, 1, "w.1"),
        JobRow("over", 1, "default", "b", 0, 1, "w.1", MINUTE),
        JobRow("under-way", 1, "default", "b", 59 * MINUTE, 1, "w.1", 5 * MINUTE),
    )
    session = attached(exchanges(), now, claims)
    deadlines = {key[0]: held.deadline for key, held in session.held.items()}
    assert deadlines == {
        "long": now + 12 * MINUTE,
        "over": now + LEASE,
        "under-way": 64 * MINUTE + TIMEOUT_GRACE,
    }


# --- for real -------------------------------------------------------------------------------------------
def deaf(pure: bool) -> Registry:
    @block(name="deaf", pure=pure)
    async def deaf() -> str:
        # Neither beats nor listens: what a stuck one looks like from outside.
        for _ in range(200):
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                return "too late"
        return "never asked to stop"

    @block(name="busy")
    async def busy(ctx: Context) -> int:
        for n in range(45):
            ctx.heartbeat(n)
            await asyncio.sleep(0.1)
        return 45

    return Registry([deaf, busy], built_in=False)


@pytest.mark.parametrize("pure", [True, False])
def test_a_stuck_attempt_ends_by_what_may_have_happened_and_its_late_result_is_kept(tmp_path: Path, pure: bool) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with Embedded(url, with_worker=False, patience=Patience(stuck=SECOND // 2)) as holdfast:
        worker = Worker(LocalLink(holdfast.engine), deaf(pure), "w")
        worker.start_in_thread()
        view = holdfast.run({"name": "w", "steps": [{"block": "deaf"}]}, timeout=30)
        [job] = holdfast.service.jobs(holdfast.actor, view.id)
        if pure:
            assert (view.status, job.effect) == ("FAILED_SAFE", "NONE")
        else:
            assert (view.status, job.effect) == ("FAILED_UNSAFE", "UNKNOWN")
        assert job.error is not None
        worker.stop(5)
        kinds = [event["type"] for event in holdfast.service.events(holdfast.actor, view.id)]
        # Of one that changes nothing there is nothing to be evidence of.
        assert ("ResultRefused" in kinds) is not pure


def test_one_that_shows_life_is_not_stuck(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with Embedded(url, with_worker=False, patience=Patience(stuck=3 * SECOND)) as holdfast:
        worker = Worker(LocalLink(holdfast.engine), deaf(False), "w")
        worker.start_in_thread()
        view = holdfast.run({"name": "w", "steps": [{"block": "busy"}]}, timeout=30)
        assert (view.status, view.output) == ("COMPLETED", 45)
        worker.stop(5)
