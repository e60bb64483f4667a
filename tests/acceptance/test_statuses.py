"""Every edge of the status table, walked by a real engine: asked for over REST, read from the history.

`WALKED` says which test walks which edge, and every test shows the edges it is named for; an edge of the table that
nobody walks fails the build. Edges that no execution can take yet stand in `LATER` and `PASSED`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.codec import unpack_events
from holdfast.core.errors import EntityNeeded
from holdfast.core.events import PhasesPassed
from holdfast.core.folding import fold
from holdfast.core.lifecycle import EDGES, QUIET_START
from holdfast.core.model import Status as S
from holdfast.core.state import open_state
from holdfast.engine.verify import verify
from tests.api.support import House, house
from tests.cli.support import until

Pair = tuple[S, S]
STOPPED_HARDER = {S.FORCE_CANCELLING, S.KILLING}
#: Never where an execution rests: whatever happens there happens in the transition that leaves it.
ONLY_PASSED = {S.NEW, S.VALID, S.READY, S.RESOURCES_DISCOVERED, S.LOCKING, S.LOCKED}

#: Force-cancel and kill are verbs of a later version.
LATER = {(e.source, e.target) for e in EDGES if {e.source, e.target} & STOPPED_HARDER}
#: Nobody can ask for anything in between: `test_nothing_rests_where_it_only_passes`.
PASSED: set[Pair] = {
    *((status, S.CANCELLING) for status in ONLY_PASSED),
    (S.LOCKED, S.FAILED_SAFE),  # entities are looked at and locked in one read of the same rows
}

ENDS = (S.COMPLETED, S.FAILED_SAFE, S.FAILED_UNSAFE, S.CANCELLED)
ACKED = {end: S[f"{end.name}_ACK"] for end in ENDS}

WALKED: dict[str, tuple[Pair, ...]] = {
    "test_all_goes_well": (*pairwise(QUIET_START), (S.RUNNING, S.COMPLETED)),
    "test_what_is_not_valid_fails_at_once": ((S.NEW, S.FAILED_SAFE),),
    "test_a_gate_that_is_met": ((S.VALID, S.BLOCKED_WAITING), (S.BLOCKED_WAITING, S.READY)),
    "test_a_gate_that_is_refused": ((S.BLOCKED_WAITING, S.FAILED_SAFE),),
    "test_an_entity_that_nobody_knows": ((S.RESOURCE_DISCOVERY, S.FAILED_SAFE),),
    "test_locks_that_do_not_come_in_time": ((S.SCHEDULED, S.FAILED_SAFE),),
    "test_an_entity_that_is_gone": ((S.LOCKING, S.FAILED_SAFE),),
    "test_a_failure_that_left_nothing": ((S.RUNNING, S.ERROR), (S.ERROR, S.FAILED_SAFE)),
    "test_a_failure_that_left_something": ((S.ERROR, S.FAILED_UNSAFE),),
    "test_a_failure_that_is_undone": ((S.ERROR, S.ROLLBACK), (S.ROLLBACK, S.FAILED_SAFE)),
    "test_a_failure_that_cannot_be_undone": ((S.ROLLBACK, S.FAILED_UNSAFE),),
    "test_cancelled_and_undone": ((S.CANCELLING, S.ROLLBACK), (S.ROLLBACK, S.CANCELLED)),
    "test_cancelled_before_it_ran": (
        (S.BLOCKED_WAITING, S.CANCELLING), (S.RESOURCE_DISCOVERY, S.CANCELLING), (S.SCHEDULED, S.CANCELLING),
        (S.CANCELLING, S.CANCELLED),
    ),
    "test_cancelled_while_it_ran": ((S.RUNNING, S.CANCELLING),),
    "test_cancelled_while_it_waited_for_a_word": ((S.ERROR, S.CANCELLING),),
    "test_an_end_is_acknowledged": tuple(ACKED.items()),
    "test_it_goes_on_after_its_end": tuple(
        (end, to) for each in ENDS for end in (each, ACKED[each]) for to in (S.RUNNING, S.SCHEDULED)
    ),
    "test_going_on_waited_too_long_for_its_locks": ((S.SCHEDULED, S.FAILED_UNSAFE),),
    "test_going_on_found_its_entity_in_doubt": ((S.LOCKING, S.FAILED_UNSAFE),),
}  # fmt: skip


def test_every_edge_of_the_table_is_walked_by_a_test() -> None:
    edges = {(edge.source, edge.target) for edge in EDGES}
    walked = {pair for pairs in WALKED.values() for pair in pairs}
    named = {pair: f"{pair[0].name} -> {pair[1].name}" for pair in edges | walked | PASSED}
    assert sorted(named[pair] for pair in edges - walked - LATER - PASSED) == [], "no test walks these"
    assert sorted(named[pair] for pair in (walked | PASSED) - edges) == [], "not in the table"
    assert not walked & (LATER | PASSED)
    assert {name for name in WALKED if not callable(globals().get(name))} == set(), "there is no such test"


# --- a house with devices --------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("statuses")) as made:
        yield made


@pytest.fixture
def device(home: House, request: pytest.FixtureRequest) -> str:
    """One for each test."""
    id = "device-" + "".join(c if c.isalnum() else "-" for c in request.node.name)
    home.client.put_entity(id, type="device")
    return id


def begin(home: House, device: str, *steps: Any, on: tuple[str, ...] = (), config: Any = None, **start: Any) -> str:
    definition = {"name": "work", "run-on": "device", "config": config or {}, "steps": list(steps)}
    return home.start(definition, entities=[device, *on], **start)


def trail(home: House, id: str) -> list[S]:
    """Every status it had, in order."""
    with home.holdfast.store.reading() as queries:
        rows = queries.history(id)
    state, passed = open_state(id), [S.NEW]
    for row in rows:
        for event in unpack_events(row.body):
            if isinstance(event, PhasesPassed):
                passed += event.statuses[event.statuses[0] is passed[-1] :]
            before = state.status
            fold(state, row.at, [event])
            if state.status is not before and not isinstance(event, PhasesPassed):
                passed.append(state.status)
    return passed


def walked(home: House, name: str, *ids: str) -> list[S]:
    """What these executions went through; all that the test is named for is there. The way of the last."""
    pairs: set[Pair] = set()
    way: list[S] = []
    for id in ids:
        way = trail(home, id)
        assert home.client.show(id).status == way[-1].name
        pairs |= set(pairwise(way))
    missing = set(WALKED[name]) - pairs
    assert not missing, (missing, way)
    return way


def came_to(home: House, id: str, status: S) -> str:
    until(lambda: home.client.show(id).status == status.name, timeout=30)
    return id


PURE = {"id": "look", "step": "test.pure"}
HOLD = {"id": "hold", "step": "wait-signal go"}


def change(folder: Path, **more: str) -> dict[str, Any]:
    return {"id": "change", "step": "test.undoable", "input": {"path": str(folder / "lines"), "key": "k", **more}}


def fails(effect: str) -> dict[str, Any]:
    return {"id": "fail", "step": "test.fail", "input": {"effect": effect}}


# --- the way there -----------------------------------------------------------------------------------------
def test_all_goes_well(home: House, device: str) -> None:
    id = came_to(home, begin(home, device, PURE), S.COMPLETED)
    assert walked(home, "test_all_goes_well", id) == [*QUIET_START, S.COMPLETED]
    answer = home.ask("GET", f"/api/v1/executions/{id}/events").json
    (passed,) = (e["statuses"] for e in answer["items"] if e["type"] == "PhasesPassed")
    assert [*passed, home.ask("GET", f"/api/v1/executions/{id}").json["status"]] == [
        "NEW", "VALID", "READY", "RESOURCE_DISCOVERY", "RESOURCES_DISCOVERED", "SCHEDULED", "LOCKING", "LOCKED",
        "RUNNING", "COMPLETED",
    ]  # fmt: skip


def test_what_is_not_valid_fails_at_once(home: House, device: str) -> None:
    id = came_to(home, begin(home, device, "no.such-block"), S.FAILED_SAFE)
    assert walked(home, "test_what_is_not_valid_fails_at_once", id) == [S.NEW, S.FAILED_SAFE]


def test_a_gate_that_is_met(home: House, device: str) -> None:
    id = came_to(home, begin(home, device, PURE, gates={"approval": "now?"}), S.BLOCKED_WAITING)
    home.client.approve(id)
    came_to(home, id, S.COMPLETED)
    way = walked(home, "test_a_gate_that_is_met", id)
    assert way == [*QUIET_START[:2], S.BLOCKED_WAITING, *QUIET_START[2:], S.COMPLETED]


def test_a_gate_that_is_refused(home: House, device: str) -> None:
    id = came_to(home, begin(home, device, PURE, gates={"approval": "now?"}), S.BLOCKED_WAITING)
    home.client.approve(id, approved=False, note="not today")
    assert walked(home, "test_a_gate_that_is_refused", came_to(home, id, S.FAILED_SAFE))[-2:] == [
        S.BLOCKED_WAITING, S.FAILED_SAFE,
    ]  # fmt: skip


def test_an_entity_that_nobody_knows(home: House) -> None:
    id = came_to(home, begin(home, "nobody", PURE), S.FAILED_SAFE)
    walked(home, "test_an_entity_that_nobody_knows", id)


def test_locks_that_do_not_come_in_time(home: House, device: str) -> None:
    holder = came_to(home, begin(home, device, HOLD), S.RUNNING)
    id = begin(home, device, PURE, config={"lock": {"timeout": "1s"}})
    assert walked(home, "test_locks_that_do_not_come_in_time", came_to(home, id, S.FAILED_SAFE))
    home.client.signal(holder, "go")
    came_to(home, holder, S.COMPLETED)


def test_an_entity_that_is_gone(home: House, device: str) -> None:
    """What waits for an entity keeps it from being deleted; so it is gone only where nobody has waited since."""
    holder = came_to(home, begin(home, device, HOLD), S.RUNNING)
    waiter = came_to(home, begin(home, device, PURE), S.SCHEDULED)
    with pytest.raises(EntityNeeded):
        home.client.delete_entity(device)
    home.client.signal(holder, "go")
    came_to(home, waiter, S.COMPLETED)
    id = end(home, device, S.FAILED_SAFE)
    home.client.delete_entity(device)
    home.client.resume(id)
    until(lambda: home.client.show(id).run == 2)
    way = walked(home, "test_an_entity_that_is_gone", came_to(home, id, S.FAILED_SAFE))
    assert way[-3:] == [S.SCHEDULED, S.LOCKING, S.FAILED_SAFE]
    error = home.client.show(id).error
    assert error is not None
    assert (error.kind, error.code, device in error.message) == ("entity-gone", "HF0734", True)


# --- the way out -------------------------------------------------------------------------------------------
def test_a_failure_that_left_nothing(home: House, device: str) -> None:
    id = came_to(home, begin(home, device, fails("none")), S.FAILED_SAFE)
    assert walked(home, "test_a_failure_that_left_nothing", id) == [*QUIET_START, S.ERROR, S.FAILED_SAFE]


def test_a_failure_that_left_something(home: House, device: str) -> None:
    id = came_to(home, begin(home, device, fails("done")), S.FAILED_UNSAFE)
    assert walked(home, "test_a_failure_that_left_something", id) == [*QUIET_START, S.ERROR, S.FAILED_UNSAFE]


def test_a_failure_that_is_undone(home: House, device: str, tmp_path: Path) -> None:
    id = came_to(home, begin(home, device, change(tmp_path), fails("none")), S.FAILED_SAFE)
    way = walked(home, "test_a_failure_that_is_undone", id)
    assert way == [*QUIET_START, S.ERROR, S.ROLLBACK, S.FAILED_SAFE]
    assert (tmp_path / "lines").read_text() == f"+k {device}\n-k {device}\n"


def test_a_failure_that_cannot_be_undone(home: House, device: str, tmp_path: Path) -> None:
    id = came_to(home, begin(home, device, change(tmp_path, undo="no"), fails("none")), S.FAILED_UNSAFE)
    walked(home, "test_a_failure_that_cannot_be_undone", id)


# --- stopped -----------------------------------------------------------------------------------------------
def test_cancelled_and_undone(home: House, device: str, tmp_path: Path) -> None:
    id = begin(home, device, change(tmp_path), HOLD)
    until((tmp_path / "lines").exists)
    home.client.cancel(id)
    way = walked(home, "test_cancelled_and_undone", came_to(home, id, S.CANCELLED))
    assert way == [*QUIET_START, S.CANCELLING, S.ROLLBACK, S.CANCELLED]


def test_cancelled_before_it_ran(home: House, device: str) -> None:
    holder = came_to(home, begin(home, device, HOLD), S.RUNNING)
    asks = {"id": "ask", "step": "test.acquire", "queue": "nobody-works-here"}
    waiting = {
        S.BLOCKED_WAITING: begin(home, device, PURE, gates={"approval": "now?"}),
        S.RESOURCE_DISCOVERY: begin(home, device, asks),
        S.SCHEDULED: begin(home, device, PURE),
    }
    for status, id in waiting.items():
        home.client.cancel(came_to(home, id, status))
        came_to(home, id, S.CANCELLED)
    walked(home, "test_cancelled_before_it_ran", *waiting.values())
    home.client.cancel(holder)


def test_cancelled_while_it_ran(home: House, device: str) -> None:
    id = came_to(home, begin(home, device, HOLD), S.RUNNING)
    home.client.cancel(id)
    walked(home, "test_cancelled_while_it_ran", came_to(home, id, S.CANCELLED))


def test_cancelled_while_it_waited_for_a_word(home: House, device: str, tmp_path: Path) -> None:
    id = begin(home, device, change(tmp_path), fails("none"), config={"rollback": "manual"})
    came_to(home, id, S.ERROR)
    until(lambda: home.client.show(id).waiting)
    home.client.cancel(id)
    walked(home, "test_cancelled_while_it_waited_for_a_word", came_to(home, id, S.CANCELLED))


# --- after the end -----------------------------------------------------------------------------------------
def end(home: House, device: str, status: S) -> str:
    """An execution that ended so; on that device, or on nothing."""
    steps: dict[S, Any] = {
        S.COMPLETED: PURE, S.FAILED_SAFE: fails("none"), S.FAILED_UNSAFE: fails("done"), S.CANCELLED: HOLD,
    }  # fmt: skip
    definition = {"name": "ends", "replayable": "from start", "steps": [steps[status]]}
    on: dict[str, Any] = {"entities": [device]} if device else {}
    id = home.start({**definition, "run-on": "device"} if device else definition, **on)
    if status is S.CANCELLED:
        home.client.cancel(came_to(home, id, S.RUNNING))
    return came_to(home, id, status)


def test_an_end_is_acknowledged(home: House, device: str) -> None:
    ids = []
    for status, acked in ACKED.items():
        id = end(home, device, status)
        assert home.client.ack(id, note="seen").status == acked.name
        ids.append(id)
    walked(home, "test_an_end_is_acknowledged", *ids)


def test_it_goes_on_after_its_end(home: House, device: str) -> None:
    ids = []
    for status in ENDS:
        for is_acked in (False, True):
            for on in ("", device):
                id = end(home, on, status)
                if is_acked:
                    home.client.ack(id, note="seen")
                # What fails again fails again: it is the way there that counts.
                home.client.replay(id, "start", force=True)
                until(lambda id=id: home.client.show(id).run == 2)
                if status is S.CANCELLED:
                    home.client.cancel(came_to(home, id, S.RUNNING))
                came_to(home, id, status)
                ids.append(id)
    walked(home, "test_it_goes_on_after_its_end", *ids)


def test_resume_takes_the_same_edges_as_replay(home: House, device: str) -> None:
    for status, on in ((S.FAILED_SAFE, ""), (S.FAILED_UNSAFE, device), (S.CANCELLED, device)):
        id = end(home, on, status)
        home.client.resume(id, force=status is S.FAILED_UNSAFE)
        until(lambda id=id: home.client.show(id).run == 2)
        if status is S.CANCELLED:
            home.client.cancel(came_to(home, id, S.RUNNING))
        came_to(home, id, status)
        way = trail(home, id)
        assert way[way.index(status) + 1] is (S.SCHEDULED if on else S.RUNNING)


def test_going_on_waited_too_long_for_its_locks(home: House, device: str) -> None:
    id = came_to(home, begin(home, device, fails("done"), config={"lock": {"timeout": "1s"}}), S.FAILED_UNSAFE)
    holder = came_to(home, begin(home, device, HOLD), S.RUNNING)
    home.client.resume(id, force=True, accept_changes=True)
    until(lambda: home.client.show(id).run == 2)
    came_to(home, id, S.FAILED_UNSAFE)
    way = walked(home, "test_going_on_waited_too_long_for_its_locks", id)
    assert way[-3:] == [S.FAILED_UNSAFE, S.SCHEDULED, S.FAILED_UNSAFE]
    home.client.signal(holder, "go")
    came_to(home, holder, S.COMPLETED)


def test_going_on_found_its_entity_in_doubt(home: House, device: str) -> None:
    id = came_to(home, begin(home, device, fails("done"), config={"require-clean": True}), S.FAILED_UNSAFE)
    came_to(home, begin(home, device, fails("done")), S.FAILED_UNSAFE)
    home.client.resume(id, force=True, accept_changes=True)
    until(lambda: home.client.show(id).run == 2)
    came_to(home, id, S.FAILED_UNSAFE)
    way = walked(home, "test_going_on_found_its_entity_in_doubt", id)
    assert way[-4:] == [S.FAILED_UNSAFE, S.SCHEDULED, S.LOCKING, S.FAILED_UNSAFE]


# --- all of them -------------------------------------------------------------------------------------------
def test_nothing_rests_where_it_only_passes(home: House, device: str) -> None:
    """After no commit of any execution of this page: so nobody could ask for anything there."""
    came_to(home, begin(home, device, PURE), S.COMPLETED)
    rested: set[S] = set()
    with home.holdfast.store.reading() as queries:
        headers = queries.headers("default", statuses=tuple(S), workflow="", before="", limit=1000)
        for header in headers:
            state = open_state(header.id)
            for row in queries.history(header.id):
                fold(state, row.at, unpack_events(row.body))
                rested.add(state.status)
    assert not rested & ONLY_PASSED
    report = verify(home.holdfast.store)
    assert report.is_clean, report.findings
