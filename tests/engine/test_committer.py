"""One commit for many requests: what rides together, what is refused alone, what a failed commit leaves."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core.codec import unpack_events
from holdfast.core.errors import (
    Conflict,
    DuplicateExecution,
    ForgedToken,
    KeyReused,
    StoreUnavailable,
    UnknownExecution,
)
from holdfast.core.model import BlobRef, JobStatus, Status
from holdfast.core.requests import CancelExecution, ClaimJob, CompleteJob, FireTimer, SendSignal
from holdfast.engine.items import Publish, PublishAll, silent, spill
from holdfast.engine.verify import verify
from holdfast.engine.wishes import Existing
from holdfast.engine.writing import SNAPSHOT_EVERY
from holdfast.language import canonical, digest
from holdfast.store.port import Store
from tests.engine.driver import Hand, execution_id
from tests.store.conftest import Backend

THREE = {"name": "three", "steps": ["test.noop", "test.noop", "test.noop"]}


def clean(store: Store) -> None:
    report = verify(store)
    assert report.is_clean, report.findings


def run_to_end(hand: Hand, n: int) -> int:
    """Answer every parcel until the execution has ended; the number of turns that took."""
    turns = 0
    while parcels := hand.parcels():
        asks = []
        for parcel in parcels:
            hand.finish((parcel.execution, parcel.job))
            asks.append(hand.ask(n, CompleteJob(parcel.job, parcel.attempt, parcel.input)))
        hand.turn([*asks])
        turns += 1
    return turns


def test_the_next_claim_rides_in_the_commit_of_the_previous_result(store: Store) -> None:
    hand = Hand(store, slots=4)
    hand.turn([hand.start(1, THREE)])
    assert run_to_end(hand, 1) == 3, "ten steps would be ten commits and the start"
    assert len(hand.history(1)) == 4
    clean(store)


def test_without_a_worker_the_job_waits_in_the_queue(store: Store) -> None:
    hand = Hand(store)
    hand.turn([hand.start(1, THREE)])
    with store.reading() as queries:
        assert [(row.job, row.incarnation) for row in queries.ready()] == [(1, "")]
    clean(store)


def test_requests_of_many_executions_share_one_commit(store: Store) -> None:
    hand = Hand(store, slots=100)
    before = hand.committer.counters.commits
    hand.turn([hand.start(n, THREE) for n in range(1, 65)])
    assert hand.committer.counters.commits == before + 1
    assert len(hand.parcels()) == 64
    clean(store)


def test_one_refusal_does_not_touch_its_neighbours(store: Store) -> None:
    hand = Hand(store)
    hand.turn([hand.start(1, THREE), hand.ask(9, CancelExecution()), hand.start(2, THREE)])
    assert [type(error) for _, error in hand.answers] == [type(None), UnknownExecution, type(None)]
    assert hand.history(1)
    assert hand.history(2)


def test_a_commit_that_fails_leaves_nothing_in_memory_or_in_the_store(store: Store) -> None:
    hand = Hand(store, slots=4)
    hand.turn([hand.start(1, THREE)])
    (parcel,) = hand.parcels()
    done = hand.ask(1, CompleteJob(1, parcel.attempt, "x"))
    hand.answers.clear()
    hand.turn([done], fail=StoreUnavailable("gone"))
    assert not hand.answers, "nobody is answered before the commit"
    assert not hand.parcels()
    assert execution_id(1) not in hand.committer.cache
    assert hand.session.planned == 0
    hand.finish((execution_id(1), 1))
    hand.turn([done])
    assert run_to_end(hand, 1) == 2
    clean(store)


def test_an_idempotency_key_starts_one_execution_even_within_a_batch(store: Store) -> None:
    hand = Hand(store)
    hand.turn([hand.start(1, THREE, key="k"), hand.start(2, THREE, key="k")])
    assert hand.answers[1][0] == Existing(execution_id(1))
    hand.turn([hand.start(3, THREE, key="k")])
    assert hand.last()[0] == Existing(execution_id(1))
    hand.turn([hand.start(4, {"name": "other", "steps": ["test.noop"]}, key="k")])
    assert isinstance(hand.last()[1], KeyReused)
    with store.reading() as queries:
        assert queries.count("executions") == 1


def test_a_used_id_is_refused(store: Store) -> None:
    hand = Hand(store)
    hand.turn([hand.start(1, THREE)])
    hand.committer.cache.clear()
    again = hand.start(1, THREE)
    with pytest.raises(Conflict):
        hand.turn([again])
    again.tries = 1
    hand.turn([again])
    assert isinstance(hand.last()[1], DuplicateExecution)


def test_long_values_live_in_blobs_and_come_back_whole(store: Store) -> None:
    hand = Hand(store, slots=4)
    definition = {
        "name": "long",
        "inputs": {"text": "string"},
        "steps": [{"id": "a", "block": "test.noop", "input": {"value": "${text}"}}, "return ${steps.a.output.value}"],
    }
    text = "x" * 5000
    hand.turn([hand.start(1, definition, {"text": text})])
    (parcel,) = hand.parcels()
    assert parcel.input == {"value": text}
    started = unpack_events(hand.history(1)[0].body)[0]
    assert isinstance(started, e.ExecutionStarted)
    assert isinstance(started.input, BlobRef)
    hand.finish((execution_id(1), 1))
    done = hand.ask(1, None)
    done.request = CompleteJob(1, 1, spill(done, {"value": text}))
    hand.committer.cache.clear()
    hand.turn([done])
    with store.reading() as queries:
        header = queries.header("default", execution_id(1))
        assert header is not None
        assert header.status is Status.COMPLETED
    clean(store)


def test_snapshots_are_taken_and_restored_and_dropped_at_the_end(store: Store) -> None:
    hand = Hand(store, slots=4)
    steps = 80
    hand.turn([hand.start(1, {"name": "long", "steps": ["test.noop"] * steps})])
    snapshots = 0
    for _ in range(steps - 1):
        (parcel,) = hand.parcels()
        hand.finish((parcel.execution, parcel.job))
        if parcel.job % 7 == 0:
            hand.committer.cache.clear()
        hand.turn([hand.ask(1, CompleteJob(parcel.job, parcel.attempt, parcel.job))])
        with store.reading() as queries:
            header = queries.header("default", execution_id(1))
            assert header is not None
            snapshots = max(snapshots, header.snapshot)
    assert snapshots >= SNAPSHOT_EVERY
    clean(store)
    assert run_to_end(hand, 1) == 1
    with store.reading() as queries:
        assert queries.parts(execution_id(1)) == {}
    clean(store)


def test_publishing_the_same_definition_again_makes_no_new_version(store: Store) -> None:
    hand = Hand(store)

    def publish(definition: dict[str, Any]) -> Any:
        data = canonical(definition)
        item = Publish("default", "w", digest(data), data, "me", lambda v, error: hand.answers.append((v, error)))
        hand.turn([item])
        return hand.last()[0]

    assert publish(THREE) == (1, True)
    assert publish(THREE) == (1, False)
    assert publish({"name": "w", "steps": ["test.noop"]}) == (2, True)


def test_definitions_that_belong_together_are_one_commit(store: Store) -> None:
    hand = Hand(store)

    def publish(*definitions: dict[str, Any]) -> Any:
        items = [Publish("default", each["name"], digest(each), canonical(each), "me", silent) for each in definitions]
        hand.turn([PublishAll(items, lambda value, error: hand.answers.append((value, error)))])
        return hand.last()[0]

    def named(name: str, step: str) -> dict[str, Any]:
        return {"name": name, "steps": [step]}

    before = hand.committer.counters.commits
    assert publish(named("a", "log 1"), named("b", "log 1"), named("a", "log 2")) == [(1, True), (1, True), (2, True)]
    assert hand.committer.counters.commits == before + 1
    assert publish(named("a", "log 2"), named("b", "log 3")) == [(2, False), (2, True)]
    with store.reading() as queries:
        assert {(row.name, row.version) for row in queries.published("default", "")} == {("a", 2), ("b", 2)}


def test_a_claim_that_lost_its_job_gives_the_slot_back(store: Store) -> None:
    hand = Hand(store, slots=4)
    hand.turn([hand.start(1, THREE)])
    hand.session.planned += 1
    late = hand.ask(1, ClaimJob(1, "w", "inc"))
    late.session = "inc"
    hand.turn([late])
    assert "Lost" in repr(hand.last()[0])


def test_a_token_of_another_attempt_is_refused(store: Store) -> None:
    hand = Hand(store, slots=4)
    hand.turn([hand.start(1, THREE)])
    forged = hand.ask(1, CompleteJob(1, 1, "x"))
    forged.token = "made up"
    hand.turn([forged])
    assert isinstance(hand.last()[1], ForgedToken)
    good = hand.ask(1, CompleteJob(1, 1, "x"))
    good.token = f"{execution_id(1)}/0/1/1"
    hand.turn([good])
    assert hand.last()[1] is None


def test_cancel_tells_the_worker_that_has_the_job(store: Store) -> None:
    hand = Hand(store, slots=4)
    hand.turn([hand.start(1, THREE)])
    hand.turn([hand.ask(1, CancelExecution("enough"))])
    assert [(notice.job, notice.reason) for notice in hand.session.cancels] == [(1, "enough")]


def test_results_of_one_execution_in_one_batch_make_one_history_row(store: Store) -> None:
    hand = Hand(store, slots=100)
    hand.turn([hand.start(1, {"name": "wide", "steps": [{"parallel": ["test.noop"] * 20}]})])
    assert run_to_end(hand, 1) == 1
    assert len(hand.history(1)) == 2
    clean(store)


def test_both_stores_give_the_same_history_byte_for_byte(tmp_path: Any, pg_dsn: str) -> None:
    def play(backend: Backend) -> list[list[tuple[int, int, bytes, bytes]]]:
        hand = Hand(backend.open(), slots=3)
        wide = {"name": "wide", "steps": [{"parallel": ["test.noop"] * 5}, "let x = 1", "sleep 1h"]}
        hand.turn([hand.start(1, THREE), hand.start(2, wide), hand.start(3, {"name": "no", "steps": ["no.block"]})])
        hand.turn([hand.ask(2, SendSignal("hello", {"n": 1}))])
        while parcels := hand.parcels():
            asks = []
            for parcel in parcels:
                hand.finish((parcel.execution, parcel.job))
                asks.append(
                    hand.ask(int(parcel.execution[:20], 16), CompleteJob(parcel.job, parcel.attempt, parcel.job))
                )
            claims = []
            for (execution, job), session in hand.dispatch.match():
                claim = hand.ask(int(execution[:20], 16), ClaimJob(job, session.name, session.incarnation))
                claim.session = session.incarnation
                claims.append(claim)
            hand.turn([*asks, *claims])
        hand.turn([hand.ask(2, CancelExecution("enough"))])
        clean(hand.store)
        histories = [[(row.seq, row.at, row.body, row.digest) for row in hand.history(n)] for n in (1, 2, 3)]
        backend.close()
        return histories

    assert play(Backend("sqlite", str(tmp_path / "x.db"))) == play(Backend("postgres", pg_dsn))


def test_two_engines_on_one_store_see_each_other(pg_dsn: str) -> None:
    backend = Backend("postgres", pg_dsn)
    one, two = Hand(backend.open(), slots=4), Hand(backend.open())
    one.turn([one.start(1, THREE)])
    (parcel,) = one.parcels()
    two.turn([two.ask(1, SendSignal("from-two", 1))])
    one.turn([one.ask(1, CompleteJob(1, parcel.attempt, "x"))])
    assert one.last()[1] is None
    two.turn([two.ask(1, SendSignal("from-two", 2))])
    state = two.committer.cache[execution_id(1)].state
    assert [value for _, value in state.signals] == [1, 2]
    assert state.jobs[2].status is JobStatus.STARTED
    clean(backend.open())
    backend.close()


def test_who_sleeps_costs_no_memory_and_wakes_all_the_same(store: Store) -> None:
    hand = Hand(store, slots=4)
    hand.turn([hand.start(1, {"name": "nap", "steps": ["sleep 1h", "test.noop"]})])
    hand.turn([hand.start(2, {"name": "wink", "steps": ["sleep 1s", "test.noop"]})])
    hand.turn([hand.start(3, THREE)])
    assert execution_id(1) not in hand.committer.cache
    assert {execution_id(2), execution_id(3)} <= set(hand.committer.cache)
    hand.now += 3600 * 1_000_000
    hand.turn([hand.ask(1, FireTimer(1))])
    assert [parcel.execution for parcel in hand.parcels()].count(execution_id(1)) == 1
    assert execution_id(1) in hand.committer.cache
    clean(store)


def test_an_answer_says_whether_work_was_left_in_a_queue(store: Store) -> None:
    hand = Hand(store)
    hand.turn([hand.start(1, THREE)])
    header, _ = hand.answers[-1]
    assert header.is_queued
    other = Hand(store, slots=4)
    other.turn([other.start(2, THREE)])
    header, _ = other.answers[-1]
    assert not header.is_queued
