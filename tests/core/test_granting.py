"""What blocks ask of the inventory: all of it with COMPLETED, or none of it ever."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import events as e
from holdfast.core import program as p
from holdfast.core import requests as r
from holdfast.core.codec import pack, unpack_events
from holdfast.core.decide import decide
from holdfast.core.entity_locks import Contention, EntityClaim
from holdfast.core.folding import fold
from holdfast.core.granting import granting
from holdfast.core.inventory import (
    EntityChange,
    EntityRow,
    Found,
    Unchangeable,
    applied,
    difference,
    excess,
    has_terms,
    is_alike,
)
from holdfast.core.lanes import Op
from holdfast.core.model import Failure, JobKind, JobSpec, Mode, Status, Undo, Wait
from holdfast.core.reads import (
    ChangesKey,
    ContentionKey,
    EntityKey,
    HistoryKey,
    Key,
    Missing,
    Need,
    RelatedKey,
    WatchersKey,
)
from holdfast.core.rows import Rows, transit
from holdfast.core.state import State, open_state
from holdfast.core.subjects import Progress

NOW = 5_000
QUIET = (Status.VALID, Status.READY, Status.RESOURCE_DISCOVERY, Status.RESOURCES_DISCOVERED, Status.SCHEDULED,
         Status.LOCKING, Status.LOCKED, Status.RUNNING)  # fmt: skip


class Table:
    """Shared rows, of which nothing is known before it was asked for."""

    def __init__(self, *rows: EntityRow) -> None:
        self.rows = {row.id: row for row in rows}
        self.kept: tuple[EntityChange, ...] = ()
        self.past: list[tuple[int, tuple[e.Event, ...]]] = []
        self.claims: tuple[EntityClaim, ...] = ()
        self.known: set[Key] = set()
        self.rounds = 0

    def learn(self, keys: tuple[Key, ...]) -> None:
        assert not set(keys) <= self.known, "asks again for what it has"
        self.rounds += 1
        self.known |= set(keys)

    def _ask(self, key: Key) -> None:
        if key not in self.known:
            raise Missing(key)

    def entity(self, key: EntityKey) -> EntityRow | None:
        self._ask(key)
        return self.rows.get(key.id)

    def changes(self, key: ChangesKey) -> tuple[EntityChange, ...]:
        self._ask(key)
        return self.kept

    def related(self, key: RelatedKey) -> tuple[Found, ...]:
        self._ask(key)
        rows = [Found(row.id, row.type, row.parent, row.groups) for row in self.rows.values()]
        if key.relation == "children":
            return tuple(row for row in rows if row.parent in key.ids)
        return tuple(row for row in rows if not set(key.ids).isdisjoint(row.groups))

    def contention(self, key: ContentionKey) -> Contention:
        self._ask(key)
        return Contention(claims=tuple(claim for claim in self.claims if claim.entity in key.ids))

    def history(self, execution: str) -> list[tuple[int, tuple[e.Event, ...]]]:
        self._ask(HistoryKey(execution))
        return self.past

    # --- for `decide` -------------------------------------------------------------------------------------
    def program(self, digest: bytes) -> Any:
        return OneJob()

    def keep(self, execution: str, value: Any) -> Any:
        return value

    load = keep

    def watchers(self, key: WatchersKey) -> tuple[str, ...]:
        return ()


class OneJob:
    """Completes when its job has ended."""

    cleans_up = False

    def label(self, step: int) -> str:
        return str(step)

    def advance(self, state: State, cause: p.Cause, now: int, reads: Any) -> list[p.Command]:
        assert isinstance(cause, p.JobEnded)
        return [p.Complete("done")]


def running(*subjects: str, mode: Mode = Mode.X, types: str = "device") -> State:
    state = open_state("e" * 32)
    found = e.EntitiesFound(subjects, (types,) * len(subjects), (mode,) * len(subjects))
    fold(
        state,
        1000,
        [
            e.ExecutionStarted("default", "w", 1, b"d", None, r.Actor()),
            e.BlocksPinned((JobSpec("b", pure=True),)),
            found,
            *([e.EntitiesLocked(7, 7)] if subjects else []),
            e.PhasesPassed(QUIET),
            e.LaneAdvanced(1, ((Op.WAIT, Wait.JOB),)),
        ],
    )
    return state


def asked(*changes: EntityChange, job: int = 1) -> e.JobSucceeded:
    return e.JobSucceeded(job, 1, None, changes=changes)


def grant(state: State, table: Table, *changes: EntityChange) -> list[e.Event] | Failure:
    while True:
        try:
            return granting(state, [asked(*changes)], NOW, table)  # type: ignore[arg-type]
        except Missing as missing:
            table.learn(missing.keys)


def made(answer: list[e.Event] | Failure, table: Table) -> dict[str, EntityRow | None]:
    """The inventory after it."""
    assert not isinstance(answer, Failure), answer.message
    rows: dict[str, EntityRow | None] = dict(table.rows)
    for event in answer:
        assert isinstance(event, e.InventoryChanged)
        versions = dict(event.entities)
        for change in event.changes:
            row = rows[change.id] = applied(rows.get(change.id), change, NOW)
            assert versions[change.id] == (row.version if row else 0)
    return rows


def refused(answer: list[e.Event] | Failure) -> str:
    assert isinstance(answer, Failure), answer
    assert (answer.kind, answer.code) == ("inventory", "HF0756")
    return answer.message


R1 = EntityRow("r1", "device", "one", {"site": "ams"}, 1, 1, facts={"os": "16", "mtu": 1500}, version=3)


def test_changes_of_what_is_held_are_merged_into_one_each() -> None:
    table = Table(R1)
    answer = grant(
        running("r1"), table,
        EntityChange("r1", facts={"os": "17"}),
        EntityChange("r1", facts={"mtu": None, "serial": "x"}, labels={"site": "fra"}),
        EntityChange("r1", name="first"),
    )  # fmt: skip
    rows = made(answer, table)
    assert rows["r1"] == EntityRow(
        "r1", "device", "first", {"site": "fra"}, 1, NOW, facts={"os": "17", "serial": "x"}, version=4
    )
    (event,) = answer
    assert isinstance(event, e.InventoryChanged)
    assert event.changes == (
        EntityChange("r1", name="first", labels={"site": "fra"}, facts={"os": "17", "serial": "x", "mtu": None}),
    )
    assert unpack_events(pack([event])) == (event,)


def test_nothing_is_said_where_nothing_changes() -> None:
    assert grant(running("r1"), Table(R1), EntityChange("r1", facts={"os": "16"})) == []
    assert granting(running("r1"), [e.JobSucceeded(1, 1)], NOW, Table()) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["shared", "lost", "released", "another"])
def test_what_is_not_held_exclusively_is_not_changed(how: str) -> None:
    state = running("r1", mode=Mode.S if how == "shared" else Mode.X)
    if how == "lost":
        state.subjects[0].progress = Progress.LOST
    if how == "released":
        state.fence = 0
    table = Table(R1, msgspec.structs.replace(R1, id="r2"))
    said = refused(grant(state, table, EntityChange("r2" if how == "another" else "r1", facts={"os": "17"})))
    assert "not held exclusively" in said


def test_parts_of_what_is_held_may_be_changed_created_and_deleted() -> None:
    port, card = EntityRow("r1:1", "interface", parent="card"), EntityRow("card", "card", parent="r1")
    table = Table(R1, card, port)
    answer = grant(
        running("r1"), table,
        EntityChange("r1:1", "delete"),
        EntityChange("card", facts={"slots": 1}),
        EntityChange("r1:2", "create", "interface", parent="card", facts={"up": True}),
        EntityChange("r1:2", facts={"speed": 10}),
    )  # fmt: skip
    rows = made(answer, table)
    assert rows["r1:1"] is None
    assert rows["card"] is not None
    assert rows["card"].facts == {"slots": 1}
    new = rows["r1:2"]
    assert new is not None
    assert (new.version, new.facts, new.parent, new.created_at) == (1, {"up": True, "speed": 10}, "card", NOW)


def test_anything_new_may_be_created_also_without_any_entity() -> None:
    rows = made(grant(running(), table := Table(), EntityChange("n1", "create", "device")), table)
    assert rows["n1"] is not None
    answer = grant(running(), table, EntityChange("n1", "create", "device"), EntityChange("n1", "delete"))
    assert answer == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([EntityChange("nobody", facts={"a": 1})], "there is no entity nobody"),
        ([EntityChange("n", "create", parent="nobody")], "nobody, which does not exist"),
        ([EntityChange("n", "create", parent="r2")], "does not hold"),
        ([EntityChange("r1", "delete")], "still has parts: r1:1"),
        ([EntityChange("r1", parent="r1:1")], "a part of itself"),
        ([EntityChange("r1", parent="r1")], "a part of itself"),
        ([EntityChange("r1", groups=("r2",))], "which is no group"),
        ([EntityChange("r1", groups=("nobody",))], "which is no group"),
        ([EntityChange("r1", facts={"big": "x" * 70_000})], "65,536 are the limit"),
        ([EntityChange("r1", labels={str(n): "" for n in range(64)})], "65 labels"),
        ([EntityChange("r1", facts={"os": "17"}), EntityChange("r2", facts={"os": "17"})], "r2 is not held"),
    ],
)
def test_one_that_cannot_be_stops_all(changes: list[EntityChange], why: str) -> None:
    table = Table(R1, msgspec.structs.replace(R1, id="r2"), EntityRow("r1:1", "interface", parent="r1"))
    assert why in refused(grant(running("r1"), table, *changes))


def test_a_whole_and_its_parts_may_go_together() -> None:
    table = Table(R1, EntityRow("r1:1", "interface", parent="r1"))
    rows = made(grant(running("r1"), table, EntityChange("r1", "delete"), EntityChange("r1:1", "delete")), table)
    assert rows == {"r1": None, "r1:1": None}


def test_a_group_somebody_else_works_with_keeps_its_members() -> None:
    table = Table(msgspec.structs.replace(R1, groups=("core",)), EntityRow("core", "group"))
    leave = EntityChange("r1", groups=())
    table.claims = (
        EntityClaim("core", "f" * 32, Mode.S, 3, fence=3),
        EntityClaim("core", "e" * 32, Mode.S, 7, fence=7),
    )
    assert "works with group core" in refused(grant(running("r1"), table, leave))
    # Whoever only waits, or only intends something, does not count.
    table.claims = (EntityClaim("core", "f" * 32, Mode.X, 9), EntityClaim("core", "a" * 32, Mode.IS, 2, fence=2))
    rows = made(grant(running("r1"), table, leave), table)
    assert rows["r1"] is not None
    assert rows["r1"].groups == ()


def test_ten_thousand_are_read_in_one_go() -> None:
    ids = [f"r{n:05}" for n in range(10_000)]
    table = Table(*(EntityRow(id, "device") for id in ids))
    rows = made(grant(running(*ids), table, *(EntityChange(id, facts={"v": 1}) for id in ids)), table)
    assert all(row is not None and row.version == 2 for row in rows.values())
    assert table.rounds == 1


# --- through `decide` and the rows that follow -------------------------------------------------------------
def after(state: State, table: Table, request: r.Request) -> list[e.Event]:
    while isinstance(decided := decide(state, request, NOW, table), Need):  # type: ignore[arg-type]
        table.learn(decided.keys)
    return decided


def with_job(state: State, kind: JobKind = JobKind.EXECUTE) -> State:
    return fold(state, 2000, [e.JobScheduled(state.next_job, 1, 0, 0, kind=kind), e.JobStarted(state.next_job, 1, "w")])


def test_completing_says_it_in_one_transition_and_drops_what_was_kept() -> None:
    state, table, rows = with_job(running()), Table(), Rows()
    # Somebody asked before, in a transition of its own.
    with_job(state)
    transit(state, 2500, [asked(EntityChange("n1", "create", "device"))], rows)
    assert [change.id for _, _, change in rows.changes] == ["n1"]
    table.kept = (EntityChange("n1", "create", "device"),)
    decided = after(state, table, r.CompleteJob(2, 1, changes=(EntityChange("n1", facts={"a": 1}),)))
    kinds = [type(event) for event in decided]
    assert kinds[-1] is e.ExecutionCompleted
    changed = decided[kinds.index(e.InventoryChanged)]
    assert changed == e.InventoryChanged(
        (("n1", 1),), (EntityChange("n1", "create", "device", "", "", (), facts={"a": 1}),)
    )
    transit(state, NOW, decided, rows)
    assert (rows.changes, rows.changes_gone) == ([], {state.id: None})


def test_what_cannot_be_granted_fails_the_execution() -> None:
    state, table = with_job(running()), Table()
    decided = after(state, table, r.CompleteJob(1, 1, changes=(EntityChange("nobody", facts={"a": 1}),)))
    kinds = [type(event) for event in decided]
    assert e.ExecutionCompleted not in kinds
    assert e.InventoryChanged not in kinds
    raised = decided[kinds.index(e.ErrorRaised)]
    assert isinstance(raised, e.ErrorRaised)
    assert raised.failure.code == "HF0756"


def test_only_jobs_that_do_the_work_may_ask() -> None:
    state = with_job(running(), JobKind.VERIFY)
    decided = after(state, Table(), r.CompleteJob(1, 1, changes=(EntityChange("n", "create"),)))
    assert isinstance(decided[0], e.JobSucceeded)
    assert decided[0].changes == ()


def test_after_a_resume_the_history_says_what_was_asked_for() -> None:
    state, table = running("r1"), Table(R1)
    state.run, state.has_changes = 2, True
    table.past = [
        (1, (asked(EntityChange("r1", facts={"os": "17"}), job=1),)),
        (2, (asked(EntityChange("r1", facts={"wrong": 1}), job=2), e.EntrySettled(2, Undo.UNDONE))),
    ]
    rows = made(grant(state, table), table)
    assert rows["r1"] is not None
    assert rows["r1"].facts == {"os": "17", "mtu": 1500}


def test_what_a_completed_run_asked_for_was_made_then_and_not_again_after_a_replay() -> None:
    state, table = running("r1"), Table(R1)  # somebody has put it back to 16 since
    state.run, state.has_changes = 2, True
    table.past = [
        (1, (asked(EntityChange("r1", facts={"os": "17"}), job=1),)),
        (2, (e.InventoryChanged((("r1", 2),)), e.ExecutionCompleted(None))),
        (3, (e.ExecutionReplayed(r.Actor()), asked(EntityChange("r1", facts={"mtu": 9000}), job=2))),
    ]
    rows = made(grant(state, table), table)
    assert rows["r1"] is not None
    assert rows["r1"].facts == {"os": "16", "mtu": 9000}


# --- rows and differences ------------------------------------------------------------------------------------
KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.one_of(st.integers(0, 2), st.booleans(), st.sampled_from(["", "x"]), st.just(1.0),
                   st.just({"k": 1, "l": 2}), st.just({"l": 2, "k": 1}), st.just([1]))  # fmt: skip
ROWS = st.builds(
    lambda type, up, groups, labels, facts: EntityRow("e", type, "", labels, parent=up, groups=groups, facts=facts),
    st.sampled_from(["", "device"]), st.sampled_from(["", "p"]), st.sampled_from([(), ("g",), ("g", "h")]),
    st.dictionaries(KEYS, st.sampled_from(["", "1"])), st.dictionaries(KEYS, VALUES),
)  # fmt: skip


@given(st.none() | ROWS, st.none() | ROWS)
def test_a_difference_applied_makes_the_one_of_the_other(before: EntityRow | None, now: EntityRow | None) -> None:
    change = difference(before, now)
    if change is None:
        assert (before is None and now is None) or (before is not None and now is not None and is_alike(before, now))
        return
    result = applied(before, change, NOW)
    assert (result is None) is (now is None)
    if result is not None and now is not None:
        assert is_alike(result, now)
        assert result.version == (before.version + 1 if before else 1)


def test_a_patch_of_nothing_is_refused() -> None:
    with pytest.raises(Unchangeable):
        applied(None, EntityChange("x", facts={"a": 1}), NOW)
    assert applied(None, EntityChange("x", "delete"), NOW) is None


def test_limits() -> None:
    assert excess(EntityRow("e", labels={str(n): "" for n in range(64)})) == ""
    assert "groups" in excess(EntityRow("e", groups=tuple(map(str, range(300)))))
    assert has_terms(EntityRow("e"), [("id", "e")])
