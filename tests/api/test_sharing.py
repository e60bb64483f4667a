"""Locks, entities, sensors over HTTP: what people see, may change, and are refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import (
    EntityNotHeld,
    InvalidRequest,
    SensorTooLarge,
    UnknownEntity,
    UnknownLock,
    UnknownSensor,
)
from tests.api.support import ECHO, House, house


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("sharing")) as made:
        yield made


def test_a_lock_shows_its_holder_and_its_queue(home: House) -> None:
    first, second = home.take_lock("default", "a"), home.take_lock("default", "a")
    (view,) = [view for view in home.client.locks() if view.name == "a"]
    assert view == home.client.lock("default", "a")
    assert view.holder is not None
    assert (view.holder.execution, view.fence, view.waiting) == (first, 1, 1)
    assert [claim.execution for claim in view.waiters] == [second]
    assert home.client.locks("elsewhere") == []
    (reason,) = home.client.why(second).reasons
    assert reason.kind == "lock"
    assert reason.text.startswith(f"waits for lock a on default: held by execution {first[:8]} since ")
    assert reason.text.endswith(", position 1 of 1")
    assert reason.command == f"holdfast why {first[:8]}"
    assert home.client.show(second).waiting == [reason.text]
    assert home.client.sensor("default", "lock-a").value == first
    home.client.cancel(first)
    home.client.cancel(second)


def test_releasing_passes_the_lock_on_and_is_told_in_the_owners_history(home: House) -> None:
    first, second = home.take_lock("default", "b"), home.take_lock("default", "b")
    view = home.client.release_lock("default", "b")
    assert view.holder is not None
    assert (view.holder.execution, view.fence, view.waiting) == (second, 2, 0)
    (forced,) = [event for event in home.client.events(first) if event["type"] == "LockForced"]
    assert (forced["owner"], forced["name"], forced["by"]) == (first, "b", "local")
    (line,) = home.client.logs(first)
    assert line.message == "lock b of default was taken away by local"
    free = home.client.release_lock("default", "b")
    assert (free.holder, free.fence) == (None, 3)
    with pytest.raises(UnknownLock):
        home.client.release_lock("default", "b")
    with pytest.raises(UnknownLock):
        home.client.lock("default", "b")


def test_entities_are_made_changed_and_worked_upon(home: House) -> None:
    assert [view.id for view in home.client.entities()] == ["default"]
    with pytest.raises(UnknownEntity):
        home.client.start(definition=ECHO, entity="web")
    made = home.client.put_entity("web", type="server", labels={"role": "edge"})
    assert (made.type, made.labels) == ("server", {"role": "edge"})
    changed = home.client.put_entity("web", name="Web")
    assert (changed.created_at, changed.type, changed.name, changed.labels) == (made.created_at, "", "Web", {})
    assert home.client.run(definition=ECHO, entity="web").entity == "web"
    assert home.client.run(definition=ECHO).entity == "default"
    assert [view.id for view in home.client.entities()] == ["default", "web"]
    with pytest.raises(UnknownEntity):
        home.client.entity("db")


@pytest.mark.parametrize("kind", ["sensor", "config"])
def test_sensors_and_configuration_are_set_shown_and_cleared(home: House, kind: str) -> None:
    home.client.put_entity("web")
    first = home.client.set_sensor("web", "x", {"a": [1, None]}, kind)
    assert (first.value, first.version, first.by) == ({"a": [1, None]}, 1, "local")
    assert home.client.set_sensor("web", "x", 2, kind).version == 2
    assert home.client.sensor("web", "x", kind).value == 2
    view = home.client.entity("web")
    assert [one.name for one in (view.sensors if kind == "sensor" else view.config)] == ["x"]
    home.client.clear_sensor("web", "x", kind)
    with pytest.raises(UnknownSensor):
        home.client.sensor("web", "x", kind)
    with pytest.raises(UnknownSensor):
        home.client.clear_sensor("web", "x", kind)
    with pytest.raises(UnknownEntity):
        home.client.set_sensor("db", "x", 1, kind)


def test_an_entity_that_only_a_workflow_knows_is_shown(home: House) -> None:
    home.client.wait(home.start({"name": "sets", "steps": ["set-sensor temperature on rack = 21"]}), 20)
    assert "rack" in [view.id for view in home.client.entities()]
    view = home.client.entity("rack")
    assert (view.created_at, [one.value for one in view.sensors]) == (None, [21])


def test_setting_a_sensor_from_outside_wakes_whoever_waits(home: House) -> None:
    id = home.start({"name": "waits", "steps": ["wait ${entity.attributeWhenReady.ready}", "return ${output}"]})
    assert any("waits for sensor ready on default" in text for text in home.client.show(id).waiting)
    home.client.set_sensor("default", "ready", False)
    assert home.client.set_sensor("default", "ready", True).version == 2
    assert home.client.wait(id, 20).output is True


def test_what_cannot_be_is_refused_with_a_code(home: House) -> None:
    with pytest.raises(SensorTooLarge):
        home.client.set_sensor("default", "x", "y" * 70_000)
    with pytest.raises(InvalidRequest, match="holdfast locks release a --entity default"):
        home.client.set_sensor("default", "lock-a", "me")
    with pytest.raises(InvalidRequest):
        home.client.put_entity("a?b")
    with pytest.raises(InvalidRequest):
        home.client.set_sensor("default", "x" * 300, 1)


def test_viewers_look_and_operators_act(home: House) -> None:
    home.take_lock("default", "d")
    viewer, operator = home.tokens["viewer"], home.tokens["operator"]
    assert home.ask("GET", "/api/v1/locks/default/d", token=viewer).status == 200
    assert home.ask("POST", "/api/v1/locks/default/d/release", token=viewer).status == 403
    assert home.ask("PUT", "/api/v1/entities/default/sensors/x", {"value": 1}, token=viewer).status == 403
    assert home.ask("POST", "/api/v1/locks/default/d/release", token=operator).status == 200


def test_another_tenant_has_locks_and_sensors_of_its_own(home: House) -> None:
    home.take_lock("default", "e")
    home.client.set_sensor("default", "mine", "secret")
    other = home.token("admin", "elsewhere")
    assert home.ask("GET", "/api/v1/locks", token=other).json == {"items": [], "entities": []}
    assert home.ask("POST", "/api/v1/locks/default/e/release", token=other).code == "HF0222"
    assert home.ask("GET", "/api/v1/entities/default/sensors/mine", token=other).code == "HF0223"
    assert b"secret" not in home.ask("GET", "/api/v1/entities/default", token=other).data
    home.client.release_lock("default", "e")


def test_locks_survive_the_engine(tmp_path: Path) -> None:
    with house(tmp_path) as before:
        first, second = before.take_lock("default", "a"), before.take_lock("default", "a")
        before.client.set_sensor("default", "x", 7)
    with house(tmp_path) as after:
        view = after.client.lock("default", "a")
        assert view.holder is not None
        assert (view.holder.execution, [claim.execution for claim in view.waiters]) == (first, [second])
        after.client.cancel(first)
        view = after.client.lock("default", "a")
        assert view.holder is not None
        assert (view.holder.execution, view.fence) == (second, 2)
        assert after.client.sensor("default", "x").value == 7


# --- entity locks ------------------------------------------------------------------------------------------
def works_on(home: House, *ids: str) -> str:
    """An execution that holds these devices, or waits for them, until it is stopped."""
    for id in ids:
        home.client.put_entity(id, type="device")
    steps = ["wait-signal never"]
    return home.start({"name": "upgrade", "run-on": "device", "acquire": [{"ids": list(ids)}], "steps": steps})


def _until(holds: Callable[[], bool]) -> None:
    """Who waits is woken right after the commit that makes room."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_entities_are_listed_with_who_has_them_and_who_waits(home: House) -> None:
    first, second = works_on(home, "r1", "r2"), works_on(home, "r2", "r3")
    assert (home.client.show(first).status, home.client.show(second).status) == ("RUNNING", "SCHEDULED")
    (view,) = home.client.entity_locks("r2")
    assert view == home.client.entity_lock("r2")
    assert [(claim.execution, claim.mode) for claim in view.holders] == [(first, "X")]
    assert [claim.execution for claim in view.waiters] == [second]
    assert {view.entity for view in home.client.entity_locks()} == {"r1", "r2", "r3"}
    (edge,) = home.client.lock_graph().edges
    assert (edge.waiter, edge.holder, edge.kind, edge.entity, edge.lock) == (second, first, "holder", "r2", "")
    (reason,) = home.client.why(second).reasons
    assert f"for 2 entities: r2 is held by execution {first[:8]} since " in reason.text
    assert reason.text.endswith(", position 1 of 1 there")
    home.client.cancel(first)
    _until(lambda: [claim.execution for claim in home.client.entity_lock("r2").holders] == [second])
    home.client.cancel(second)
    assert home.client.entity_locks() == []
    assert home.client.lock_graph().edges == []


def test_an_entity_is_taken_away_and_its_history_says_by_whom(home: House) -> None:
    first, second = works_on(home, "r1"), works_on(home, "r1")
    with pytest.raises(EntityNotHeld):
        home.client.free_entity("r1", second)
    view = home.client.free_entity("r1")
    assert first not in [claim.execution for claim in view.holders]
    _until(lambda: [claim.execution for claim in home.client.entity_lock("r1").holders] == [second])
    (lost,) = [event for event in home.client.events(first) if event["type"] == "EntityLost"]
    assert (lost["entity"], lost["by"]) == ("r1", "local")
    assert home.client.wait(first).error.code == "HF0735"
    home.client.cancel(second)
    with pytest.raises(EntityNotHeld):
        home.client.free_entity("r1")
    with pytest.raises(UnknownEntity):
        home.client.free_entity("nobody")
