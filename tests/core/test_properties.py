"""Whatever happens in whatever order: live equals rebuilt, rows follow from events, promises hold."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.codec import pack_events, unpack_events
from holdfast.core.decide import decide
from holdfast.core.errors import Refused
from holdfast.core.folding import fold
from holdfast.core.ledger import residue
from holdfast.core.model import Effect, Failure, JobStatus, Status
from holdfast.core.rows import GRACE, AgendaRow, JobRow, transit
from holdfast.core.rows import Rows as Follows
from holdfast.core.snapshot import canonical, encode, restore
from holdfast.core.state import open_state
from tests.core.scripted import ID, SPECS, Rows, Scripted

steps = st.one_of(
    st.tuples(st.just("job"), st.integers(0, 2)),
    st.tuples(st.just("nap"), st.integers(0, 50)),
    st.just(("turn",)),
)
branches = st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=3)
effects = st.sampled_from([None, Effect.NONE, Effect.DONE])
jobs = st.integers(1, 6)
attempts = st.integers(1, 3)
boom = Failure("block-error", "boom")
values = st.integers(-(2**63), 2**63)
asked = st.one_of(
    st.builds(r.ClaimJob, jobs, st.just("w"), st.just("i")),
    st.builds(r.CompleteJob, jobs, attempts, values, effects),
    st.builds(r.FailJob, jobs, attempts, st.just(boom), effects, st.booleans(), st.booleans()),
    st.builds(r.LoseJob, jobs, attempts, st.sampled_from(["worker-lost", "timeout"]), st.just("x"), st.booleans()),
    st.builds(r.FireTimer, st.integers(1, 4)),
    st.builds(r.ReleaseJob, jobs, attempts),
    st.builds(r.TakeTurn, st.integers(1, 3)),
    st.builds(r.SendSignal, st.just("s"), values, st.sampled_from(["", "k"])),
    st.builds(r.CancelExecution),
)


class Tables:
    """The queue and the agenda as a store would hold them."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobRow] = {}
        self.agenda: dict[str, AgendaRow] = {}

    def write(self, rows: Follows) -> None:
        self.jobs |= {id: row for (_, id), row in rows.jobs.items() if row is not None}
        self.agenda |= {item: row for (_, item), row in rows.agenda.items() if row is not None}
        for (_, id), row in rows.jobs.items():
            if row is None:
                self.jobs.pop(id, None)
        for (_, item), due in rows.agenda.items():
            if due is None:
                self.agenda.pop(item, None)


def play(shape: list[list[Any]], requests: list[Any]) -> tuple[Any, Tables, list[tuple[int, list[e.Event]]]]:
    rows = Rows(Scripted(*shape))
    state, tables = open_state(ID), Tables()
    history: list[tuple[int, list[e.Event]]] = []
    for n, request in enumerate([r.StartExecution(ID, definition=b"d" * 16), *requests]):
        try:
            decided = decide(state, request, n * 10, rows)
        except Refused:
            continue
        assert isinstance(decided, list)
        if decided:
            follows = Follows()
            transit(state, n * 10, decided, follows)
            tables.write(follows)
            history.append((state.at, decided))
    return state, tables, history


@settings(max_examples=400)
@given(branches, st.lists(asked, max_size=40))
def test_rebuilt_equals_live_and_snapshots_equal_both(shape: list[list[Any]], requests: list[Any]) -> None:
    state, _, history = play(shape, requests)
    rebuilt = open_state(ID)
    for at, events in history:
        fold(rebuilt, at, unpack_events(pack_events(events)))
    assert canonical(rebuilt) == canonical(state)
    assert canonical(restore(encode(state))) == canonical(state)


@settings(max_examples=400)
@given(branches, st.lists(asked, max_size=40))
def test_every_scheduled_job_is_in_exactly_one_place(shape: list[list[Any]], requests: list[Any]) -> None:
    state, tables, _ = play(shape, requests)
    queued = {job.id for job in state.jobs.values() if job.status in (JobStatus.SENT, JobStatus.STARTED)}
    backing_off = {f"job/{job.id}" for job in state.jobs.values() if job.status is JobStatus.RESCHEDULED}
    timers = {f"timer/{timer}" for timer in state.timers}
    turn = {f"turn/{state.turn}"} if state.is_turn_open and not state.status.is_ended else set()
    assert set(tables.jobs) == queued
    stopping = {GRACE} & set(tables.agenda) if state.status is Status.CANCELLING else set()
    assert set(tables.agenda) == backing_off | timers | turn | stopping


@settings(max_examples=400)
@given(branches, st.lists(asked, max_size=40))
def test_a_plain_job_starts_twice_only_if_the_first_had_no_effect(shape: list[list[Any]], requests: list[Any]) -> None:
    _, _, history = play(shape, requests)
    specs: dict[int, int] = {}
    effective: dict[int, int] = {}
    for _, events in history:
        for event in events:
            match event:
                case e.JobScheduled():
                    specs[event.job] = event.spec
                case e.JobStarted() if not SPECS[specs[event.job]].may_repeat:
                    effective[event.job] = effective.get(event.job, 0) + 1
                    assert effective[event.job] == 1
                case e.JobReleased(undelivered=True):
                    effective[event.job] = 0
                case e.JobRescheduled(effect=Effect.NONE):
                    effective[event.job] = 0
                case _:
                    pass


@settings(max_examples=400)
@given(branches, st.lists(asked, max_size=40))
def test_safe_is_never_said_while_something_may_remain(shape: list[list[Any]], requests: list[Any]) -> None:
    state, _, history = play(shape, requests)
    if not state.status.is_ended or state.status is Status.COMPLETED:
        return
    assert state.residue == residue(state.ledger)
    assert (state.status is Status.FAILED_UNSAFE) <= bool(state.residue)
    touched = set()
    specs: dict[int, int] = {}
    for _, events in history:
        for event in events:
            match event:
                case e.JobScheduled():
                    specs[event.job] = event.spec
                case e.JobSucceeded(effect=effect) | e.JobFailed(effect=effect) | e.JobCancelled(effect=effect):
                    if effect is not Effect.NONE:
                        touched.add(event.job)
                case e.JobRescheduled(effect=Effect.UNKNOWN):
                    touched.add(event.job)
                case _:
                    pass
    assert touched <= set(state.residue)


@settings(max_examples=200)
@given(branches, st.lists(asked, max_size=60))
def test_dirty_parts_are_all_that_changed(shape: list[list[Any]], requests: list[Any]) -> None:
    """Snapshots written from dirty parts only, now and then, restore to the live state."""
    rows = Rows(Scripted(*shape))
    state = open_state(ID)
    stored: dict[str, bytes] = {}
    for n, request in enumerate([r.StartExecution(ID, definition=b"d" * 16), *requests]):
        try:
            decided = decide(state, request, n * 10, rows)
        except Refused:
            continue
        assert isinstance(decided, list)
        if decided:
            fold(state, n * 10, decided)
        if n % 3 == 0:
            for part, data in encode(state, state.dirty).items():
                stored[part] = data
                if not data:
                    del stored[part]
            state.dirty.clear()
            assert canonical(restore(stored)) == canonical(state)
