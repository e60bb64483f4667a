"""Resume, replay and approve over HTTP: who may, what is announced, what feeds and waiting callers see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import CannotResume, Forbidden, InvalidRequest, NothingToApprove, UnknownStep
from tests.api.support import House, house


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("reviving")) as made:
        yield made


def failed(home: House, folder: Path, **more: Any) -> str:
    check = {"id": "check", "step": f"shell test -f {folder}/ok", **more}
    id = home.start({"name": "checking", "steps": ["test.noop", check, "return done"]})
    assert home.client.wait(id, 30).status == "FAILED_UNSAFE"
    return id


def test_resume_and_wait_for_the_end_of_the_new_run(home: House, tmp_path: Path) -> None:
    id = failed(home, tmp_path, idempotent=True)
    again = home.ask("POST", f"/api/v1/executions/{id}/resume?wait=20", {})
    assert (again.status, again.json["status"], again.json["run"]) == (200, "FAILED_UNSAFE", 2)
    (tmp_path / "ok").touch()
    plan = home.client.resume(id, dry_run=True).plan
    assert plan is not None
    assert [step.step for step in plan.again] == ["check"]
    seen = home.client.show(id).events
    done = home.ask("POST", f"/api/v1/executions/{id[:12]}/resume?wait=20", {"reason": "there"})
    assert (done.json["status"], done.json["run"], done.json["output"]) == ("COMPLETED", 3, "done")
    # A feed that was over goes on behind its end.
    told = [event["type"] for event in home.client.follow(id, seen)]
    assert (told[0], told[-1]) == ("ExecutionResumed", "ExecutionCompleted")
    assert sum(event["type"] == "ExecutionResumed" for event in home.client.follow(id)) == 2


def test_force_needs_the_role_admin(home: House, tmp_path: Path) -> None:
    id = failed(home, tmp_path)
    path = f"/api/v1/executions/{id}"
    for role in ("viewer", "operator", "author", "admin"):
        token = home.token(role)
        got = home.ask("POST", f"{path}/resume", {"force": True}, token=token)
        if role != "admin":
            assert (got.status, got.code) == (403, Forbidden.code), role
    operator = home.token("operator")
    assert home.client.wait(id, 30).run == 2
    assert home.ask("POST", f"{path}/resume", {}, token=operator).code == CannotResume.code
    # To look at what force would do is no use of force.
    assert home.ask("POST", f"{path}/resume", {"force": True, "dry_run": True}, token=operator).status == 200
    assert home.ask("POST", f"{path}/replay", {"from": "0", "force": True}, token=operator).status == 403
    assert home.ask("POST", path, {"action": "replay", "from": "0", "force": True}, token=operator).status == 403
    assert home.ask("POST", f"{path}/replay", {"from": "nowhere"}, token=operator).code == UnknownStep.code
    assert home.ask("POST", path, {"action": "resume", "from": "0"}).code == InvalidRequest.code
    refused = home.client.replay(id, "check", dry_run=True).plan
    assert refused is not None
    assert refused.refusal is not None
    assert refused.refusal.code == "HF0304"
    (tmp_path / "ok").touch()
    done = home.ask("POST", f"{path}?wait=20", {"action": "replay", "from": "0", "force": True})
    assert (done.json["status"], done.json["run"]) == ("COMPLETED", 3)


def test_where_it_stands(home: House, tmp_path: Path) -> None:
    id = failed(home, tmp_path, replayable="from here")
    standing = home.client.standing(id)
    assert [(lane.step, lane.wait) for lane in standing.lanes] == [("check", "stopped")]
    assert [(mark.start, mark.step) for mark in standing.waypoints] == [("check", "check")]
    assert standing.refusal is None
    assert home.client.why(id).reasons[-1].command == f"holdfast resume {id[:8]}"


def test_approvals(home: House) -> None:
    gate = {"id": "gate", "step": "approve", "message": "now?"}
    id = home.start({"name": "asking", "steps": [{"parallel": [gate, {"id": "door", "step": "approve"}]}]})
    assert {(a.step, a.message) for a in home.client.approvals() if a.execution == id} == {
        ("gate", "now?"),
        ("door", ""),
    }
    path = f"/api/v1/executions/{id}/approvals"
    assert home.ask("POST", f"{path}/gate", {"approved": True}, token=home.token("viewer")).status == 403
    assert home.ask("POST", f"{path}/-", {"approved": True}).code == "HF0307"
    assert home.ask("POST", f"{path}/roof", {"approved": True}).code == NothingToApprove.code
    assert home.ask("POST", f"{path}/gate", {"approved": "yes"}).status == 422
    got = home.ask("POST", f"{path}/gate", {"approved": True, "note": "ok"}, token=home.token("operator"))
    assert got.status == 200
    (reason,) = [reason for reason in home.client.why(id).reasons if reason.kind == "approval"]
    assert reason.command == f"holdfast approve {id[:8]} door"
    home.client.approve(id, approved=False, note="closed")
    ended = home.client.wait(id, 30)
    assert ended.error is not None
    assert (ended.error.kind, ended.error.message) == ("rejected", "rejected by local: closed")
    (event,) = [x for x in home.client.events(id) if x["type"] == "SignalReceived" and x["name"] == "approve/gate"]
    assert event["value"] == {"approved": True, "by": "operator-default", "note": "ok"}
