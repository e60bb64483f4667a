"""Verify finds what is wrong with locks and subscriptions, and says it once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.core.model import DEFAULT_ENTITY as E
from holdfast.core.requests import CancelExecution
from holdfast.engine.verify import verify
from tests.engine.driver import execution_id
from tests.engine.test_sharing import Puppets
from tests.engine.test_verify import Patient
from tests.store.conftest import Backend

#: who holds `a`, who waits for it, who was granted `b` and not told, who waits for a sensor, who has ended
HOLDER, WAITER, GRANTED, WATCHER, ENDED, LOSER = range(1, 7)


def furnish(backend: Backend) -> None:
    hand = Puppets(backend.open(), 6)
    hand.turn([hand.say(n, "take", 2, E, "a") for n in (HOLDER, WAITER, ENDED)])
    hand.turn([hand.say(ENDED, "take", 3, E, "b"), hand.say(GRANTED, "take", 3, E, "b")])
    hand.turn([hand.say(WATCHER, "await", 2, E, "x"), hand.say(ENDED, "await", 3, E, "x")])
    hand.turn([hand.ask(ENDED, CancelExecution())])
    hand.turn([hand.say(HOLDER, "set", 2, E, "x", 1)])
    hand.turn([hand.say(LOSER, "take", 2, E, "c"), hand.say(HOLDER, "force", 2, E, "c")])
    assert len(hand.agenda()) == 3


@pytest.fixture(params=["sqlite", "postgres"])
def patient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Patient]:
    place = str(tmp_path / "holdfast.db") if request.param == "sqlite" else request.getfixturevalue("pg_dsn")
    backend = Backend(request.param, place)
    furnish(backend)
    backend.close()
    yield Patient(backend)
    backend.close()


def test_a_sound_store_has_no_findings(patient: Patient) -> None:
    """A lock granted and not noticed, a sensor changed and not looked at, a lock lost and not mourned."""
    report = verify(patient.backend.open())
    assert report.findings == []
    assert report.executions == 6


class Damage(NamedTuple):
    what: str
    at: int
    sql: str
    invariant: str
    words: str
    count: int = 1


ITS = "WHERE execution = {x}"
DAMAGES = [
    Damage("holder's claim dropped", GRANTED, f"DELETE FROM lock_queue {ITS}", "I-23", "has no place there"),
    Damage("waiter's claim dropped", WAITER, f"DELETE FROM lock_queue {ITS}", "I-23", "waits for lock a"),
    Damage("claim of an ended one", ENDED, "INSERT INTO locks VALUES ('default', 'default', 'z', 1, 2);"
           " INSERT INTO lock_queue SELECT tenant, entity, 'z', 1, {x}, lane, path, since, 1 FROM lock_queue"
           " WHERE name = 'a' AND fence > 0", "I-22", "still has claims to z of default"),
    Damage("claim nobody asked for", WATCHER, "INSERT INTO locks VALUES ('default', 'default', 'z', 1, 2);"
           " INSERT INTO lock_queue SELECT tenant, entity, 'z', 1, {x}, lane, path, since, 1 FROM lock_queue"
           " WHERE name = 'a' AND fence > 0", "I-23", "holds lock z of default according to its row"),
    Damage("another lane", WAITER, f"UPDATE lock_queue SET lane = 9 {ITS}", "I-23", "lane 9"),
    Damage("granted without a wake-up", GRANTED, f"DELETE FROM agenda {ITS}", "I-18", "would wait for ever"),
    Damage("numbers set back", HOLDER, "UPDATE locks SET next_seq = 0 WHERE name = 'a'", "I-21", "behind its queue"),
    Damage("fence set back", LOSER, "UPDATE locks SET fence = 0 WHERE name = 'c'", "I-21", "fence 1", 2),
    Damage("subscription dropped", WATCHER, f"DELETE FROM sensor_waits {ITS}", "I-18", "no change of it"),
    Damage("subscription nobody asked for", HOLDER, "INSERT INTO sensor_waits VALUES"
           " ('default', 'default', 'sensor', 'y', {x}, 2)", "I-22", "does not wait for it"),
    Damage("subscription of an ended one", ENDED, "INSERT INTO sensor_waits VALUES"
           " ('default', 'default', 'sensor', 'y', {x}, 2)", "I-22", "still waits for 1 sensors"),
    Damage("lost without a word", LOSER, f"DELETE FROM agenda {ITS}", "I-23", "has no place there"),
    Damage("a wake-up for nobody", HOLDER, "INSERT INTO agenda SELECT {x}, 'sensor/2', due, request FROM agenda"
           " WHERE item = 'sensor/2'", "I-18", "sensor/2 is on the agenda"),
    Damage("another entity in the header", WAITER, "UPDATE executions SET entity = 'web' WHERE id = {x}",
           "I-4", "entity"),
    Damage("orphan subscription", 99, "INSERT INTO sensor_waits VALUES ('default', 'default', 'sensor', 'y', {x}, 2)",
           "I-36", "table sensor_waits"),
    Damage("orphan claim", 99, "INSERT INTO locks VALUES ('default', 'default', 'z', 1, 2);"
           " INSERT INTO lock_queue SELECT tenant, entity, 'z', 1, {x}, lane, path, since, 1 FROM lock_queue"
           " WHERE name = 'a' AND fence > 0", "I-36", "table lock_queue"),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.what for damage in DAMAGES])
def test_one_damage_is_found_and_named(patient: Patient, damage: Damage) -> None:
    for statement in damage.sql.split(";"):
        patient.sql(statement, damage.at)
    found = patient.findings()
    assert len(found) == damage.count
    one = next(one for one in found if one.execution == execution_id(damage.at))
    assert one.invariant == damage.invariant
    assert damage.words in one.text


QUEUES = [
    ("two holders", "UPDATE lock_queue SET fence = 7 WHERE name = 'a'", "I-20", "2 holders"),
    ("nobody holds what is waited for", "UPDATE lock_queue SET fence = 0 WHERE name = 'a'", "I-25", "nobody holds"),
    ("overtaken", "UPDATE lock_queue SET seq = 90 WHERE name = 'a' AND fence > 0", "I-25", "overtaken"),
]


@pytest.mark.parametrize(("what", "sql", "invariant", "words"), QUEUES, ids=[one[0] for one in QUEUES])
def test_a_queue_that_contradicts_itself_is_found(
    patient: Patient, what: str, sql: str, invariant: str, words: str
) -> None:
    patient.sql(sql)
    assert any(one.invariant == invariant and words in one.text for one in patient.findings())
