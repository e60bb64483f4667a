"""What a parcel tells a worker: version, kind, entity as the inventory has it, fence, and the job it is about."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core.folding import fold
from holdfast.core.inventory import EntityChange, EntityRow
from holdfast.core.model import Actor, Effect, JobKind, JobSpec, Mode
from holdfast.core.reads import EntityKey, Missing
from holdfast.core.requests import CompleteJob, FailJob
from holdfast.core.state import State, open_state
from holdfast.engine.committer import Committer
from holdfast.engine.dispatch import Dispatch, Session
from holdfast.engine.exchanges import Exchanges
from holdfast.engine.items import Ask
from holdfast.engine.turn import Turn
from holdfast.language import canonical, digest, program_from_bytes
from holdfast.transport.messages import Exchange, Forward, Hello, Outcome, Parcel

DEFINITION = {"name": "w", "steps": [{"block": "up", "id": "s"}]}
ID = "0" * 31 + "1"
SWITCH = EntityRow("sw1", "device", "Switch 1", {"site": "ams1"}, parent="rack", groups=("core",), facts={"os": "x"})


def state_of(*more: e.Event) -> State:
    """An execution that holds `sw1` under fence 41 and did something to it."""
    spec = JobSpec("up", "1.2.0", run_on="device", has_verify=True, has_rollback=True)
    return fold(open_state(ID), 1_000, [
        e.ExecutionStarted("default", "w", 0, digest(canonical(DEFINITION)), None, Actor(), {}),
        e.BlocksPinned((spec,)),
        e.EntitiesFound(("sw1",), ("device",), (Mode.X,)),
        e.EntitiesLocked(41, 41),
        e.JobScheduled(1, 1, 0, 0, {"image": "v2"}, entity="sw1"),
        e.JobStarted(1, 1, "w"),
        *more,
    ])  # fmt: skip


def parcel(state: State, job: int, rows: dict[Any, Any]) -> Parcel:
    committer = Committer(program_from_bytes, Dispatch(), is_shared=False, token=lambda *key: "/".join(map(str, key)))
    turn = Turn(committer, [], 2_000)
    turn.reads.begin_turn(turn.rows, turn.states)
    turn.reads.adopt(state.definition, program_from_bytes(canonical(DEFINITION)))
    turn.reads.learn(rows)
    return turn._parcel(state, state.jobs[job], Session("w", "w.1", 1))


KNOWN = {EntityKey("default", "sw1"): SWITCH}


def test_a_job_on_an_entity_is_told_about_it() -> None:
    made = parcel(state_of(), 1, KNOWN)
    assert (made.block, made.version, made.kind, made.entity, made.fence) == ("up", "1.2.0", "EXECUTE", "sw1", 41)
    assert made.context == {
        "type": "device", "name": "Switch 1", "parent": "rack", "groups": ["core"], "labels": {"site": "ams1"},
        "facts": {"os": "x"},
    }  # fmt: skip
    assert made.forward is None
    assert made.input == {"image": "v2"}


def test_the_entity_is_read_when_the_parcel_is_made() -> None:
    with pytest.raises(Missing) as caught:
        parcel(state_of(), 1, {})
    assert caught.value.keys == (EntityKey("default", "sw1"),)
    assert parcel(state_of(), 1, {EntityKey("default", "sw1"): None}).context == {}


def test_a_rollback_is_told_what_the_run_returned() -> None:
    state = state_of(
        e.JobSucceeded(1, 1, {"was": "v1"}, Effect.DONE),
        e.JobScheduled(2, 1, 0, 0, {"image": "v2"}, entity="sw1", kind=JobKind.ROLLBACK, about=1),
    )
    made = parcel(state, 2, KNOWN)
    assert (made.kind, made.fence) == ("ROLLBACK", 41)
    assert made.forward == Forward(1, 1, "DONE", {"was": "v1"})
    assert made.idempotency_key != parcel(state_of(), 1, KNOWN).idempotency_key
    assert made.idempotency_key.endswith("/rollback/1")


def test_a_verify_is_told_that_nothing_is_known() -> None:
    state = state_of(e.JobScheduled(2, 1, 0, 0, {"image": "v2"}, entity="sw1", kind=JobKind.VERIFY, about=1))
    made = parcel(state, 2, KNOWN)
    assert (made.kind, made.forward) == ("VERIFY", Forward(1, 1, "UNKNOWN"))


# --- changes of the inventory, from a worker --------------------------------------------------------------
def request_of(changes: list[EntityChange]) -> Any:
    exchanges = Exchanges(Dispatch(), engine="e", lease=30_000_000, beat=10_000_000, is_shared=False)

    def reply(value: Any, error: Exception | None) -> None:
        assert error is None

    exchanges.hello(Hello("w", "w.1"), 0, is_local=True, before=None, claims=(), stopping=(), reply=reply)
    outcome = Outcome(ID, 1, 1, value="done", changes=changes)
    [ask] = exchanges.exchange(Exchange("w.1", 1, [outcome]), 0, reply)
    assert isinstance(ask, Ask)
    return ask.request


def test_changes_go_on_with_the_result() -> None:
    changes = [EntityChange("sw1", facts={"os": "y"}), EntityChange("sw2", "delete")]
    request = request_of(changes)
    assert isinstance(request, CompleteJob)
    assert (request.result, request.changes) == ("done", tuple(changes))


def test_too_many_or_too_long_changes_fail_the_job_once_and_for_all() -> None:
    for changes, said in (
        ([EntityChange("e")] * 1001, "1001 changes of the inventory; the limit is 1000"),
        ([EntityChange("e", facts={"x": "x" * 65_536})], "the limit is 65536"),
        ([EntityChange("e", facts={"x": "x" * 60_000})] * 40, "the limit is 2097152"),
    ):
        request = request_of(changes)
        assert isinstance(request, FailJob)
        assert request.is_permanent
        assert (request.failure.kind, request.failure.code) == ("result-too-large", "HF0701")
        assert said in request.failure.message
    assert isinstance(request_of([EntityChange("e")] * 1000), CompleteJob)
