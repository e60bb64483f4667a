"""Executions that wait before they begin, over HTTP, with a real engine and worker: gates, entities, resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import Refused
from holdfast.core.views import ExecutionView
from tests.api.support import House

PATH = [
    "NEW",
    "VALID",
    "READY",
    "RESOURCE_DISCOVERY",
    "RESOURCES_DISCOVERED",
    "SCHEDULED",
    "LOCKING",
    "LOCKED",
    "RUNNING",
    "COMPLETED",
]
ON_DEVICES: dict[str, Any] = {"name": "on-devices", "run-on": "device", "steps": [{"id": "a", "step": "test.echo"}]}


def statuses(home: House, id: str) -> list[str]:
    found: list[str] = []
    for event in home.client.events(id):
        if event["type"] == "PhasesPassed":
            found += event["statuses"]
        elif event["type"] == "ExecutionCompleted":
            found.append("COMPLETED")
    return found


def until(home: House, id: str, status: str) -> ExecutionView:
    view = home.client.wait(id, 30)
    assert view.status == status
    return view


@pytest.fixture
def devices(home: House) -> tuple[str, str]:
    for id in ("r1", "r2"):
        home.client.put_entity(id, type="device")
    return "r1", "r2"


def test_the_way_of_an_execution_on_entities(home: House, devices: tuple[str, str]) -> None:
    id = home.start(ON_DEVICES, entities=devices)
    until(home, id, "COMPLETED")
    assert statuses(home, id) == PATH


def test_a_gate_is_answered_with_approve_and_reject(home: House, devices: tuple[str, str]) -> None:
    id = home.start(ON_DEVICES, entities=devices, gates={"approval": "now?"})
    assert home.client.show(id).status == "BLOCKED_WAITING"
    path = f"/api/v1/executions/{id}/approvals"
    assert home.ask("POST", f"{path}/never", {"approved": True}).code == "HF0306"
    home.client.approve(id, note="go")
    until(home, id, "COMPLETED")
    assert statuses(home, id) == [*PATH[:2], "BLOCKED_WAITING", *PATH[2:]]
    (said,) = [e["gates"] for e in home.client.events(id) if e["type"] == "GatesSet" and e["gates"][0]["is_met"]]
    assert (said[0]["note"], said[0]["kind"]) == ("go", "approval")
    other = home.start(ON_DEVICES, entities=devices, gates={"approval": "now?"})
    home.client.approve(other, "now?", approved=False, note="no")
    ended = until(home, other, "FAILED_SAFE")
    assert ended.error is not None
    assert (ended.error.kind, ended.error.code) == ("rejected", "HF0739")


def test_one_after_the_other(home: House, devices: tuple[str, str]) -> None:
    first = home.start({"name": "first", "steps": ["wait-signal go"]})
    then = home.start(ON_DEVICES, entities=devices, gates={"after": first})
    assert home.client.show(then).status == "BLOCKED_WAITING"
    home.client.signal(first, "go")
    until(home, then, "COMPLETED")
    assert home.client.show(home.start(ON_DEVICES, entities=devices, gates={"after": "f" * 32})).status == "FAILED_SAFE"


def test_waiting_for_a_lock_and_cancelled_there(home: House, devices: tuple[str, str]) -> None:
    holding = {"name": "holding", "run-on": "device", "steps": [{"id": "a", "step": "wait-signal go"}]}
    holder = home.start(holding, entities=devices[:1])
    assert home.client.show(holder).status == "RUNNING"
    waiter, next_one = (home.start(ON_DEVICES, entities=devices) for _ in range(2))
    assert home.client.show(waiter).status == home.client.show(next_one).status == "SCHEDULED"
    home.client.cancel(waiter)
    until(home, waiter, "CANCELLED")
    home.client.cancel(holder)
    until(home, next_one, "COMPLETED")


def test_resume_after_somebody_else(home: House, devices: tuple[str, str], tmp_path: Path) -> None:
    check = {"id": "a", "step": f"shell test -f {tmp_path}/ok", "idempotent": True}
    id = home.start({"name": "failing", "run-on": "device", "steps": [check]}, entities=devices[:1])
    until(home, id, "FAILED_UNSAFE")
    until(home, home.start(ON_DEVICES, entities=devices), "COMPLETED")
    with pytest.raises(Refused) as refused:
        home.client.resume(id)
    assert refused.value.code == "HF0738", refused.value
    planned = home.client.resume(id, dry_run=True, accept_changes=True).plan
    assert planned is not None
    assert planned.refusal is None
    assert home.client.show(id).status == "FAILED_UNSAFE"
    (tmp_path / "ok").touch()
    home.client.resume(id, accept_changes=True)
    assert until(home, id, "COMPLETED").run == 2


def test_gates_are_listed_with_what_waits_for_approval(home: House, devices: tuple[str, str]) -> None:
    gates = {"not-before": "2020-01-01T00:00:00Z", "approval": "tonight?"}
    id = home.start(ON_DEVICES, entities=devices, gates=gates)
    (asked,) = [each for each in home.client.approvals() if each.execution == id]
    assert (asked.message, asked.is_gate) == ("tonight?", True)
    home.client.approve(id, asked.step)
    until(home, id, "COMPLETED")
    assert not [each for each in home.client.approvals() if each.execution == id]
