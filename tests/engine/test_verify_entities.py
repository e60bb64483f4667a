"""Verify finds what is wrong with entities, claims to them and their index, and says it once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine.items import Put
from holdfast.engine.verify import verify
from holdfast.store.records import Batch
from tests.engine.driver import execution_id
from tests.engine.test_entity_turns import Locks
from tests.engine.test_verify import Patient
from tests.engine.test_verify_shared import Damage
from tests.store.conftest import Backend

#: who holds a and b, who waits for b and c, who waits behind it, who has ended, who was woken and has not looked yet
HOLDER, WAITER, BEHIND, ENDED, WOKEN = range(1, 6)


def furnish(backend: Backend) -> None:
    hand = Locks(backend.open(), "a", "b", "c", "d")
    hand.turn([hand.on(HOLDER, "a", "b"), hand.on(WAITER, "b", "c"), hand.on(BEHIND, "c")])
    hand.turn([hand.on(ENDED, "d")])
    hand.turn([hand.on(WOKEN, "d")])
    hand.turn([hand.end(ENDED)])
    assert len(hand.agenda()) == 1
    hand.turn([Put(Batch(meta={"x": b"1"}))])


@pytest.fixture(params=["sqlite", "postgres"])
def patient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Patient]:
    place = str(tmp_path / "holdfast.db") if request.param == "sqlite" else request.getfixturevalue("pg_dsn")
    backend = Backend(request.param, place)
    furnish(backend)
    backend.close()
    yield Patient(backend)
    backend.close()


def test_a_sound_store_has_no_findings(patient: Patient) -> None:
    report = verify(patient.backend.open())
    assert report.findings == []
    assert report.executions == 5


ITS = "WHERE execution = {x} AND is_over = 0"
CLAIM = "(tenant, entity, ticket, execution, mode, priority, fence, since, is_watching, is_over)"
DAMAGES = [
    Damage("a claim dropped", HOLDER, f"DELETE FROM entity_claims {ITS} AND entity = 'a'", "I-23", "holds a according"),
    Damage("claims of an ended one", ENDED, "UPDATE entity_claims SET is_over = 0 WHERE execution = {x}", "I-22",
           "still has claims to d"),
    Damage("a claim nobody asked for", BEHIND, f"INSERT INTO entity_claims {CLAIM} VALUES"
           " ('default', 'a', 3, {x}, 4, 0, 0, 1, 0, 0)", "I-23", "has a place at a according to its rows"),
    Damage("another mode", HOLDER, f"UPDATE entity_claims SET mode = 3 {ITS} AND entity = 'a'", "I-23", "another mode"),
    Damage("a part of it not granted", HOLDER, f"UPDATE entity_claims SET fence = 0 {ITS} AND entity = 'a'", "I-24",
           "its rows at a say otherwise"),
    Damage("another fence", HOLDER, f"UPDATE entity_claims SET fence = 2 {ITS}", "I-21", "its fence is 1"),
    Damage("another ticket", HOLDER, f"UPDATE entity_claims SET ticket = 2 {ITS}", "I-21", "its ticket is 1"),
    Damage("a watch forgotten", WAITER, f"UPDATE entity_claims SET is_watching = 0 {ITS}", "I-18", "it watches b"),
    Damage("nothing wakes it", WOKEN, "DELETE FROM agenda WHERE execution = {x}", "I-18", "would wait for ever"),
    Damage("a number to be given twice", WOKEN, f"UPDATE entity_claims SET ticket = 99 {ITS}", "I-21",
           "would be given twice", 2),
    Damage("a flag nobody left", HOLDER, "INSERT INTO entity_flags (tenant, entity, execution, kind, reason, at)"
           " VALUES ('default', 'a', {x}, 'suspect', '', 1)", "I-50", "suspect of a"),
    Damage("changes kept for an ended one", ENDED, "INSERT INTO entity_changes (execution, n, job, change)"
           " VALUES ({x}, 1, 1, {blob})", "I-36", "changes of the inventory"),
    Damage("orphan claim", 99, f"INSERT INTO entity_claims {CLAIM} VALUES"
           " ('default', 'a', 3, {x}, 1, 0, 0, 1, 0, 1)", "I-36", "table entity_claims"),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.what for damage in DAMAGES])
def test_one_damage_is_found_and_named(patient: Patient, damage: Damage) -> None:
    blob = "x'91a161'" if patient.backend.kind == "sqlite" else r"'\x91a161'::bytea"
    patient.sql(damage.sql.replace("{blob}", blob), damage.at)
    found = patient.findings()
    assert len(found) == damage.count, found
    assert any(
        one.execution == execution_id(damage.at) and one.invariant == damage.invariant and damage.words in one.text
        for one in found
    ), found


SELF = [
    ("two holders", "UPDATE entity_claims SET fence = 1 WHERE entity = 'b'", "I-20", "two hold b"),
    ("overtaken", "UPDATE entity_claims SET ticket = 4 WHERE fence > 0 AND entity = 'b'", "I-25", "overtaken at b"),
    ("a fence given before", f"INSERT INTO entity_claims {CLAIM} SELECT tenant, entity, ticket, {{other}}, mode,"
     " priority, fence + 1, since, 0, 1 FROM entity_claims WHERE entity = 'a'", "I-21", "behind one that was given"),
    ("a term too many", "INSERT INTO entity_terms (tenant, key, value, id) VALUES ('default', 'label.x', 'y', 'a')",
     "I-4", "entity a disagree about label.x"),
    ("a term too few", "DELETE FROM entity_terms WHERE id = 'c'", "I-4", "entity c disagree about type"),
    ("terms of nobody", "INSERT INTO entity_terms (tenant, key, value, id) VALUES ('default', 'type', 'x', 'zz')",
     "I-36", "knows entity zz"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "sql", "invariant", "words"), SELF, ids=[one[0] for one in SELF])
def test_what_contradicts_itself_is_found(patient: Patient, what: str, sql: str, invariant: str, words: str) -> None:
    patient.sql(sql)
    assert any(one.invariant == invariant and words in one.text for one in patient.findings())
