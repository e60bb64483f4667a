"""Entities edited by people and imports, on real stores: checked in the commit, on what is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core.errors import (
    BadRelation,
    EntityHeld,
    EntityMoved,
    EntityNeeded,
    EntityTooLarge,
    InvalidRequest,
    Refused,
    UnknownEntity,
)
from holdfast.core.inventory import EntityChange, EntityRow, Imported
from holdfast.core.model import Mode
from holdfast.core.reads import SensorKey
from holdfast.core.rows import EntityClaims, SensorChange
from holdfast.engine.editing import (
    DropEntity,
    Edit,
    Edited,
    EditEntities,
    ImportEntity,
    LeaveStale,
    PatchEntity,
    PutEntity,
)
from holdfast.engine.items import Put
from holdfast.engine.sensing import PutSensor
from holdfast.store.port import Store
from holdfast.store.records import Batch
from tests.engine.driver import Hand, execution_id

T = "default"
HOLDER, WAITER = execution_id(1), execution_id(2)


class Editor(Hand):
    def __init__(self, store: Store, *rows: EntityRow) -> None:
        super().__init__(store)
        if rows:
            self.edit(*(PutEntity(row) for row in rows))

    def try_edit(self, *edits: Edit, lenient: bool = False, **options: Any) -> tuple[list[Edited], Exception | None]:
        found: list[tuple[Any, Exception | None]] = []
        item = EditEntities(T, list(edits), lambda *answer: found.append(answer), is_lenient=lenient, **options)
        self.turn([item])
        ((made, error),) = found
        return made, error

    def edit(self, *edits: Edit, **options: Any) -> list[Edited]:
        made, error = self.try_edit(*edits, **options)
        if error is not None:
            raise error
        return made

    def outcomes(self, *edits: Edit) -> list[tuple[str, str]]:
        return [(each.id, each.outcome) for each in self.edit(*edits, lenient=True)]

    def refused(self, kind: type[Refused], *edits: Edit) -> str:
        before = self.rows()
        _, error = self.try_edit(*edits)
        assert isinstance(error, kind), error
        assert self.rows() == before, "what is refused changes nothing"
        return error.message

    def rows(self) -> dict[str, EntityRow]:
        with self.store.reading() as queries:
            return {row.id: row for row in queries.entities(T)}

    def select(self, *terms: tuple[str, str]) -> list[str]:
        with self.store.reading() as queries:
            return [row.id for row in queries.entities_where(T, terms)]

    def claim(self, execution: str, modes: dict[str, Mode], fence: int = 0) -> None:
        ids = sorted(modes)
        place = EntityClaims(
            T, execution, 7, 0, fence, self.now, "" if fence else ids[0], tuple(ids), tuple(modes[id] for id in ids)
        )
        self.turn([Put(Batch(entity_claims=[place]))])

    def free(self, execution: str) -> None:
        self.turn([Put(Batch(entity_claims_over=[execution]))])


def device(id: str = "r1", **more: Any) -> EntityRow:
    return EntityRow(id, "device", **more)


def group(id: str) -> EntityRow:
    return EntityRow(id, "group")


def patch(id: str, **more: Any) -> PatchEntity:
    return PatchEntity(EntityChange(id, **more))


def test_made_replaced_patched_and_indexed(store: Store) -> None:
    hand = Editor(store, group("core"), device(groups=("core",), labels={"site": "ams"}, facts={"os": "16"}))
    row = hand.rows()["r1"]
    assert (row.version, row.created_at, row.updated_at) == (1, hand.now, hand.now)
    assert hand.select(("group", "core"), ("label.site", "ams")) == ["r1"]
    (made,) = hand.edit(patch("r1", facts={"os": "17", "up": True}, labels={"site": None}))
    assert made.outcome == "changed"
    row = hand.rows()["r1"]
    assert (row.version, row.labels, row.facts, row.updated_at) == (2, {}, {"os": "17", "up": True}, hand.now)
    assert hand.select(("label.site", "ams")) == []
    assert [each.outcome for each in hand.edit(patch("r1", facts={"os": "17"}))] == ["unchanged"]
    hand.edit(PutEntity(device(name="one")))
    row = hand.rows()["r1"]
    assert (row.version, row.name, row.groups, row.facts) == (3, "one", (), {})
    assert row.created_at < row.updated_at


def test_a_version_that_is_expected(store: Store) -> None:
    hand = Editor(store, device())
    assert "not in version 0" in hand.refused(EntityMoved, PutEntity(device(name="x"), version=0))
    hand.refused(EntityMoved, PatchEntity(EntityChange("r1", name="x"), version=2))
    hand.refused(EntityMoved, DropEntity("r1", version=2))
    assert "is not there" in hand.refused(EntityMoved, PutEntity(device("r2"), version=1))
    hand.edit(PatchEntity(EntityChange("r1", name="x"), version=1), PutEntity(device("r2"), version=0))
    assert hand.rows()["r1"].version == 2


def test_two_edits_of_one_turn_see_each_other(store: Store) -> None:
    hand = Editor(store, device())
    found: list[Any] = []
    items = [
        EditEntities(T, [PatchEntity(EntityChange("r1", facts={str(n): n}), version=n)], lambda *a: found.append(a))
        for n in (1, 2, 2)
    ]
    hand.turn(items)
    assert [type(error) for _, error in found] == [type(None), type(None), EntityMoved]
    assert hand.rows()["r1"].facts == {"1": 1, "2": 2}


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([PutEntity(device("p", parent="nobody"))], "nobody, which does not exist"),
        ([PutEntity(device("p", parent="p"))], "a part of itself"),
        ([patch("r1", parent="p2")], "p2, which is a part of it"),
        ([PutEntity(device("p", groups=("nobody",)))], "which does not exist"),
        ([patch("r1", groups=("p1",))], "which is a interface"),
        ([PutEntity(device("new")), patch("r1", parent="nobody")], "does not exist"),
    ],
)
def test_what_an_entity_belongs_to_has_to_be_there(store: Store, edits: list[Edit], why: str) -> None:
    hand = Editor(store, device(), EntityRow("p1", "interface", parent="r1"), EntityRow("p2", "unit", parent="p1"))
    assert why in hand.refused(BadRelation, *edits)


def test_a_whole_and_its_parts_come_in_one_go(store: Store) -> None:
    hand = Editor(store, group("g"), device(groups=("g",)), EntityRow("p1", "interface", parent="r1"))
    assert set(hand.rows()) == {"g", "r1", "p1"}
    assert hand.select(("parent", "r1")) == ["p1"]


def test_parts_within_parts_have_an_end(store: Store) -> None:
    hand = Editor(store, device("p0"))
    hand.edit(*(PutEntity(EntityRow(f"p{n}", parent=f"p{n - 1}")) for n in range(1, 16)))
    assert "16 levels" in hand.refused(BadRelation, PutEntity(EntityRow("p16", parent="p15")))


def test_limits(store: Store) -> None:
    hand = Editor(store, device())
    hand.refused(EntityTooLarge, patch("r1", labels={str(n): "" for n in range(65)}))
    hand.refused(EntityTooLarge, patch("r1", facts={"x": "y" * 70_000}))
    hand.refused(UnknownEntity, patch("nobody", name="x"))
    hand.refused(UnknownEntity, DropEntity("nobody"))
    hand.refused(InvalidRequest, DropEntity("default"))
    assert hand.edit(PutEntity(EntityRow("default", "thing")))[0].outcome == "added"
    hand.refused(InvalidRequest, DropEntity("default"))


def test_what_is_held_exclusively_is_not_changed_by_others(store: Store) -> None:
    port = EntityRow("p1", "interface", parent="r1")
    hand = Editor(store, device(), port, device("r2"), device("r3"))
    hand.claim(HOLDER, {"r1": Mode.X, "r3": Mode.S}, fence=7)
    hand.claim(WAITER, {"r1": Mode.X, "r2": Mode.X})
    for edit in (patch("r1", name="x"), PutEntity(device(name="x")), patch("p1", name="x"),
                 PutEntity(EntityRow("p2", parent="r1")), patch("r2", parent="r1")):  # fmt: skip
        said = hand.refused(EntityHeld, edit)
        assert HOLDER in said
    # Nobody has it yet, or only to look at it.
    hand.edit(patch("r2", name="x"), patch("r3", name="x"))
    # A change that changes nothing is none.
    assert hand.edit(PutEntity(device()))[0].outcome == "unchanged"
    for id in ("r1", "r2", "r3"):
        hand.refused(EntityNeeded, DropEntity(id))
    assert f"{WAITER} waits for entity r2" in hand.refused(EntityNeeded, DropEntity("r2"))
    assert "holds it" in hand.refused(EntityHeld, DropEntity("p1"))
    hand.free(HOLDER)
    hand.free(WAITER)
    hand.edit(patch("r1", name="x"), DropEntity("r2"))


@pytest.mark.parametrize("fence", [0, 7])
@pytest.mark.parametrize("moved", ["r1", "r1:1"])
def test_what_is_worked_upon_or_waited_for_stays_where_it_is(store: Store, moved: str, fence: int) -> None:
    editor = Editor(
        store, EntityRow("rack1"), EntityRow("rack2"), EntityRow("r1", parent="rack1"), EntityRow("r1:1", parent="r1")
    )
    # Whoever took the whole of rack2 next would have r1:1 with it, and see nobody there.
    editor.claim(HOLDER, {"rack1": Mode.IS, "r1": Mode.IS, "r1:1": Mode.S}, fence)
    assert HOLDER in editor.refused(EntityHeld, PatchEntity(EntityChange(moved, parent="rack2")))
    editor.edit(PatchEntity(EntityChange(moved, facts={"os": "17"})))
    editor.free(HOLDER)
    editor.edit(PatchEntity(EntityChange(moved, parent="rack2")))


def test_a_group_that_is_worked_with_keeps_its_members(store: Store) -> None:
    hand = Editor(store, group("core"), device(groups=("core",)), device("r2"))
    hand.claim(HOLDER, {"core": Mode.S}, fence=7)
    for edit in (patch("r1", groups=()), patch("r2", groups=("core",)), DropEntity("r1"),
                 PutEntity(device("r3", groups=("core",)))):  # fmt: skip
        assert "works with the group core" in hand.refused(EntityHeld, edit)
    hand.edit(patch("r1", name="still"))


def test_deleting_takes_parts_along_only_if_told(store: Store) -> None:
    hand = Editor(
        store, group("g"), device(groups=("g",)), EntityRow("p1", parent="r1"), EntityRow("p2", parent="p1"),
        device("r2", groups=("g",)),
    )  # fmt: skip
    assert "r1 has 1 parts: p1" in hand.refused(EntityNeeded, DropEntity("r1"))
    assert "group g has 2 members" in hand.refused(EntityNeeded, DropEntity("g"))
    hand.claim(HOLDER, {"p2": Mode.X}, fence=7)
    assert "p2" in hand.refused(EntityNeeded, DropEntity("r1", with_parts=True))
    hand.free(HOLDER)
    assert [each.id for each in hand.edit(DropEntity("r1", with_parts=True))] == ["r1", "p1", "p2"]
    assert [each.id for each in hand.edit(DropEntity("g", with_parts=True))] == ["g"]
    row = hand.rows()["r2"]
    assert (set(hand.rows()), row.groups, row.version) == ({"r2"}, (), 2)
    assert hand.select(("group", "g")) == []


def test_sensors_go_with_their_entity(store: Store) -> None:
    hand = Editor(store, device())
    key = SensorKey(T, "r1", "sensor", "temperature")
    hand.turn([PutSensor(key, 5, "me", lambda *answer: None)])
    hand.edit(DropEntity("r1"), sensors={"r1": [("sensor", "temperature"), ("config", "none")]})
    with store.reading() as queries:
        assert queries.sensors(T, "r1") == []
        assert not isinstance(queries.sensor(T, "r1", "sensor", "temperature"), SensorChange)


# --- imports -----------------------------------------------------------------------------------------------
def said(*rows: Imported, source: str = "s") -> list[Edit]:
    return [ImportEntity(row, source) for row in rows]


def test_an_import_does_what_it_can(store: Store) -> None:
    hand = Editor(store, device("held"), device("other"), device("byhand", facts={"mine": 1}))
    hand.edit(*said(Imported("other", "device"), source="elsewhere"), lenient=True)
    hand.claim(HOLDER, {"held": Mode.X}, fence=7)
    edits = said(
        Imported("core", "group"),
        Imported("new", "device", groups=("core",), facts={"os": "17"}),
        Imported("held", "device", facts={"os": "17"}),
        Imported("other", "device", facts={"os": "17"}),
        Imported("byhand", "device", facts={"os": "17"}),
        Imported("lost", "device", parent="nobody"),
    )
    assert hand.outcomes(*edits) == [
        ("core", "added"), ("new", "added"), ("held", "skipped"), ("other", "skipped"), ("byhand", "changed"),
        ("lost", "refused"),
    ]  # fmt: skip
    rows = hand.rows()
    assert (rows["byhand"].source, rows["byhand"].facts) == ("s", {"mine": 1, "os": "17"})
    assert "lost" not in rows
    # Twice is once.
    before = hand.rows()
    assert {outcome for _, outcome in hand.outcomes(*edits)} == {"unchanged", "skipped", "refused"}
    assert hand.rows() == before


def test_what_is_gone_there_becomes_stale_and_may_come_back(store: Store) -> None:
    hand = Editor(store)
    hand.outcomes(*said(Imported("a", "device"), Imported("b", "device")))
    assert hand.outcomes(LeaveStale("a", "s"), LeaveStale("b", "another"), LeaveStale("c", "s")) == [
        ("a", "stale"), ("b", "unchanged"), ("c", "unchanged"),
    ]  # fmt: skip
    assert (hand.rows()["a"].is_stale, hand.rows()["a"].version) == (True, 2)
    assert hand.outcomes(LeaveStale("a", "s")) == [("a", "unchanged")]
    assert hand.outcomes(*said(Imported("a", "device"))) == [("a", "changed")]
    assert not hand.rows()["a"].is_stale


def test_pruning_deletes_what_is_free(store: Store) -> None:
    hand = Editor(store)
    hand.outcomes(
        *said(Imported("a", "device"), Imported("a:1", "port", parent="a"), Imported("b"), Imported("c")),
    )
    hand.edit(PutEntity(EntityRow("c:1", parent="c")))
    hand.claim(HOLDER, {"b": Mode.X}, fence=7)
    made = hand.outcomes(*(LeaveStale(id, "s", is_pruned=True) for id in ("a:1", "a", "b", "c")))
    assert made == [("a:1", "deleted"), ("a", "deleted"), ("b", "skipped"), ("c", "skipped")]
    assert set(hand.rows()) == {"b", "c", "c:1"}


def test_five_hundred_rows_are_read_in_a_few_questions(store: Store) -> None:
    hand = Editor(store, *(device(f"r{n}") for n in range(500)))
    asked: list[int] = []
    begin = store.begin

    class Counting:
        def __init__(self) -> None:
            self.inner = begin()

        def read(self, keys: Iterable[Any]) -> Any:
            asked.append(len(list(keys)))
            return self.inner.read(keys)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    store.begin = Counting  # type: ignore[method-assign, assignment]
    try:
        hand.edit(*(patch(f"r{n}", facts={"n": n}) for n in range(500)))
    finally:
        store.begin = begin  # type: ignore[method-assign]
    assert asked == [1, 500]


# --- what blocks ask for -------------------------------------------------------------------------------------
def test_the_rows_of_what_was_granted_are_written_in_its_commit(store: Store) -> None:
    from holdfast.core.requests import CompleteJob, StartExecution
    from holdfast.language import canonical, compile_definition, digest

    hand = Hand(store, slots=4)
    data = canonical({"name": "w", "steps": [{"step": "test.noop"}]})
    ask = hand.ask(5, StartExecution(execution_id(5), definition=digest(data)))
    ask.definition, ask.program = data, compile_definition({"name": "w", "steps": [{"step": "test.noop"}]})
    hand.turn([ask])
    wish = (EntityChange("n1", "create", "device", facts={"os": "17"}),)
    hand.turn([hand.ask(5, CompleteJob(1, 1, changes=wish))])
    events = [event for row in hand.history(5) for event in _unpacked(row.body)]
    assert [type(event) for event in events][-2:] == [e.InventoryChanged, e.ExecutionCompleted]
    with store.reading() as queries:
        row = queries.entity("default", "n1")
        assert row is not None
        assert (row.type, row.facts, row.version, row.created_at) == ("device", {"os": "17"}, 1, hand.now)


def _unpacked(body: bytes) -> tuple[e.Event, ...]:
    from holdfast.core.codec import unpack_events

    return unpack_events(body)
