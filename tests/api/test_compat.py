"""The routes that tools of the function-block notation know: real engine and worker, simulated devices."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.blocks.context import Context
from holdfast.blocks.declare import block
from holdfast.blocks.registry import Registry
from holdfast.core.errors import InvalidRequest, NoteMissing, UnknownExecution, UnknownWorkflow, WrongStatus
from holdfast.core.model import Status
from holdfast.language.load import load
from tests.api.support import House, house

EXAMPLES = Path(__file__).parents[2] / "examples"
DEVICES = ("sw1", "sw2", "sw3")
#: what the simulated devices have, and what was said about them
VERSIONS = {"sw1": "15.2", "sw2": "12.1", "sw3": "15.2"}
REPORTS: list[str] = []
HELD = threading.Event()


@block(name="fb.example.io/show-version", version="1.0.1", pure=True, isolation="thread", run_on="device")
def show_version(ctx: Context, host: str, platform: str | None = None) -> dict[str, Any]:
    return {"version": VERSIONS[host]}


@block(name="fb.example.io/report", version="1.0.0", idempotent=True, isolation="thread")
def report(message: str, template: str = "") -> None:
    REPORTS.append(message)


@block(name="fb.example.io/backup", version="1.2.0", pure=True, isolation="thread", run_on="device")
def backup(path: str) -> dict[str, Any]:
    return {"path": path, "size": 1}


@block(name="fb.example.io/refresh", version="1.0.7", idempotent=True, isolation="thread", run_on="device")
def refresh(backup: str) -> None:
    if "sw2" in backup:
        raise RuntimeError("no answer")


@block(name="fb.example.io/hold", version="1.0.0", idempotent=True, isolation="thread")
def hold() -> None:
    HELD.wait(60)


@block(name="fb.example.io/break", version="1.0.0", isolation="thread")
def half_way() -> None:
    raise RuntimeError("stopped half way")


HOLDING = {
    "label": "holding", "name": "holding", "package": "wf.example.io", "majorVersion": 1, "minorVersion": 0,
    "patchVersion": 0, "seedEntity": "global", "type": "workflow",
    "steps": [{"label": "hold", "functionBlock": "fb.example.io/hold:1"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    registry = Registry([show_version, report, backup, refresh, hold, half_way])
    with house(tmp_path_factory.mktemp("compat"), registry=registry) as made:
        for id in DEVICES:
            made.client.put_entity(id, type="device", name=id)
        yield made
        HELD.set()


def example(name: str) -> Any:
    return load((EXAMPLES / f"{name}.yaml").read_text()).root.plain()


def publish(home: House, definition: Any) -> str:
    got = home.ask("POST", "/workflow-definition/publish", {"workflow": definition})
    assert got.status == 201, got
    return f"{got.json['name']}:{got.json['version']}"


def execute(home: House, workflow: str, *ids: str, **parameters: Any) -> str:
    body = {"workflow": workflow, "executeOnParameters": {"ids": list(ids)}, "parameters": parameters}
    got = home.ask("POST", "/workflow-execution", body)
    assert got.status == 201, got
    return str(got.json["uuid"])


def ended(home: House, id: str) -> Any:
    home.client.wait(id, 30)
    return home.ask("GET", f"/workflow-execution/id/{id}").json


def until_polled(home: House, id: str) -> None:
    for _ in range(3000):
        if [job["state"] for job in home.ask("GET", f"/blackboard/jobs/active?execution={id}").json] == ["POLLED"]:
            return
        time.sleep(0.01)
    raise AssertionError("no worker took the job")


def test_check_of_devices_as_it_is_written(home: House) -> None:
    assert publish(home, example("check-devices")) == "wf.example.io/check-devices:1.0.0"
    REPORTS.clear()
    id = execute(home, "wf.example.io/check-devices:1", *DEVICES)
    found = ended(home, id)
    assert (found["id"], found["uuid"], found["status"], found["settled"]) == (id, id, "COMPLETED", True)
    assert (found["reason"], found["retryNote"], found["progress"]) == ("", "", {"done": 4, "total": 4})
    assert REPORTS == ["sw2 has 12.1"]
    jobs = [(job["label"], job["jobType"], job["state"], job["result"]) for job in found["jobs"]]
    assert sorted(jobs[:3], key=str) == sorted(
        [("version", "EXECUTE", "PUSHED", {"version": version}) for version in VERSIONS.values()], key=str
    )
    assert jobs[3] == ("report", "EXECUTE", "PUSHED", None)
    assert {job["executionId"] for job in found["jobs"]} == {id}


def test_every_device_goes_its_own_way(home: House) -> None:
    publish(home, example("refresh-devices"))
    REPORTS.clear()
    found = ended(home, execute(home, "wf.example.io/refresh-devices", *DEVICES, folder="kept"))
    assert found["status"] == "COMPLETED", found
    assert sorted(REPORTS) == ["sw1: fresh", "sw2: as before", "sw3: fresh"]


def test_parameters_of_the_start_are_those_of_the_definition(home: House) -> None:
    publish(home, example("check-devices"))
    REPORTS.clear()
    ended(home, execute(home, "wf.example.io/check-devices:1.0", "sw1", wanted="16"))
    assert REPORTS == ["sw1 has 15.2"]
    bad = home.ask("POST", "/workflow-execution", {"workflow": "wf.example.io/check-devices", "parameters": {"x": 1}})
    assert ended(home, bad.json["uuid"])["status"] == "FAILED_SAFE"


def test_definition_published_twice_is_one_version(home: House) -> None:
    for _ in range(2):
        publish(home, example("check-devices"))
    versions = home.ask("GET", "/api/v1/workflows/wf.example.io%2Fcheck-devices").json["versions"]
    assert [each["version"] for each in versions] == [1]
    newer = {**example("check-devices"), "minorVersion": 7}
    assert publish(home, newer) == "wf.example.io/check-devices:1.7.0"
    for wanted, version in (("1", 2), ("1.0", 1), ("1.7.0", 2)):
        id = execute(home, f"wf.example.io/check-devices:{wanted}", "sw1")
        assert home.client.wait(id, 30).version == version
    got = home.ask("POST", "/workflow-execution", {"workflow": "wf.example.io/check-devices:2"})
    assert (got.status, got.code) == (404, UnknownWorkflow.code)


def test_definition_with_a_problem_is_refused_with_its_place(home: House) -> None:
    got = home.ask("POST", "/workflow-definition/publish", {"workflow": {**HOLDING, "extra": 1, "seedEntity": "x"}})
    assert got.status == 422
    problems = got.json["error"]["problems"]
    assert {(each["code"], each["path"]) for each in problems} == {("HF0188", "$.extra"), ("HF0116", "$.seedEntity")}


def test_cancel(home: House) -> None:
    publish(home, HOLDING)
    id = execute(home, "wf.example.io/holding:1.0.0")
    until_polled(home, id)
    assert id in [each["id"] for each in home.ask("GET", "/workflow-execution/active").json]
    for state in ("RUNNING", "running"):
        assert id in [each["id"] for each in home.ask("GET", f"/workflow-execution/state/{state}").json]
    first = home.ask("DELETE", f"/workflow-execution/{id}")
    again = home.ask("DELETE", f"/workflow-execution/{id}")
    assert (first.status, again.status) == (200, 200)
    assert {first.json["status"], again.json["status"]} <= {"CANCELLING", "CANCELLED"}
    HELD.set()
    found = ended(home, id)
    assert (found["status"], found["settled"], found["reason"]) == ("CANCELLED", True, "cancelled")
    assert home.ask("DELETE", f"/workflow-execution/{id}").json["status"] == "CANCELLED"
    publish(home, example("check-devices"))
    done = execute(home, "wf.example.io/check-devices", "sw1")
    ended(home, done)
    late = home.ask("DELETE", f"/workflow-execution/{done}")
    assert (late.status, late.code) == (409, WrongStatus.code)
    unknown = home.ask("DELETE", f"/workflow-execution/{'f' * 32}")
    assert (unknown.status, unknown.code) == (404, UnknownExecution.code)
    assert id in [each["id"] for each in home.ask("GET", "/workflow-execution/state/cancelled").json]
    assert id not in [each["id"] for each in home.ask("GET", "/workflow-execution/active").json]


def test_ack(home: House) -> None:
    publish(home, example("check-devices"))
    id = execute(home, "wf.example.io/check-devices", "sw1")
    ended(home, id)
    for note in ("", "seen"):
        got = home.ask("POST", f"/workflow-execution/{id}/ack", {"by": "ann", "note": note})
        assert (got.status, got.json["status"], got.json["settled"]) == (200, "COMPLETED_ACK", True)
    bad = {**HOLDING, "name": "unsafe", "seedEntity": "device", "steps": [
        {"label": "breaks", "functionBlock": "fb.example.io/break:1", "runOn": "device"}]}  # fmt: skip
    publish(home, bad)
    unsafe = execute(home, "wf.example.io/unsafe", "sw1")
    found = ended(home, unsafe)
    assert (found["status"], "half way" in found["reason"]) == ("FAILED_UNSAFE", True)
    refused = home.ask("POST", f"/workflow-execution/{unsafe}/ack", {"by": "ann"})
    assert (refused.status, refused.code) == (422, NoteMissing.code)
    done = home.ask("POST", f"/workflow-execution/{unsafe}/ack", {"by": "ann", "note": "repaired by hand"})
    assert (done.status, done.json["status"]) == (200, "FAILED_UNSAFE_ACK")
    (event,) = [each for each in home.client.events(unsafe) if each["type"] == "ExecutionAcked"]
    assert event["note"] == "repaired by hand (by ann)"
    publish(home, {**HOLDING, "name": "waiting", "steps": [
        {"label": "hold", "functionBlock": "fb.example.io/hold:1", "delay": 600}]})  # fmt: skip
    open_one = execute(home, "wf.example.io/waiting")
    assert home.ask("POST", f"/workflow-execution/{open_one}/ack", {}).status == 409
    home.ask("DELETE", f"/workflow-execution/{open_one}")


def test_state_that_does_not_exist(home: House) -> None:
    got = home.ask("GET", "/workflow-execution/state/SLEEPING")
    assert (got.status, got.code) == (422, InvalidRequest.code)
    assert all(status.name in got.json["error"]["message"] for status in Status)


def test_blackboard_workers_and_blocks(home: House) -> None:
    publish(home, example("check-devices"))
    id = execute(home, "wf.example.io/check-devices", "sw1")
    ended(home, id)
    board = home.ask("GET", "/blackboard/jobs").json
    assert {job["state"] for job in board if job["executionId"] == id} == {"PUSHED"}
    assert not [job for job in home.ask("GET", "/blackboard/jobs/active").json if job["executionId"] == id]
    (worker,) = home.ask("GET", "/workers/online").json
    for version, names in (("1", [worker["name"]]), ("1.0.1", [worker["name"]]), ("1.1", []), ("2", [])):
        got = home.ask("GET", f"/function-blocks/fb.example.io/show-version/{version}/workers").json
        assert [each["name"] for each in got] == names, version


def test_roles_and_tenants(home: House) -> None:
    publish(home, example("check-devices"))
    id = execute(home, "wf.example.io/check-devices", "sw1")
    viewer, other = home.token("viewer"), home.token("admin", "elsewhere")
    assert home.ask("GET", f"/workflow-execution/id/{id}", token=viewer).status == 200
    assert home.ask("DELETE", f"/workflow-execution/{id}", token=viewer).status == 403
    assert home.ask("POST", "/workflow-execution", {"workflow": "x"}, token=viewer).status == 403
    assert home.ask("GET", f"/workflow-execution/id/{id}", token=other).status == 404
    assert home.ask("GET", "/blackboard/jobs", token=other).json == []
    assert home.ask("GET", "/workflow-execution/active", token="").status == 401
