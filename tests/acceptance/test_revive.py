"""Executions that ended and come back to life, on each kind of store; the store is verified after every test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import CannotResume, NothingToApprove, WrongStatus
from holdfast.core.requests import ResumeExecution
from holdfast.embedded import Embedded
from holdfast.engine.items import future_reply
from tests.acceptance.test_walk import until

Open = Callable[..., Embedded]


def workflow(folder: Path, **more: Any) -> dict[str, Any]:
    """Fails until there is a file `ok`; what it does outside is in a file `log`."""
    return {
        "name": "revived",
        "steps": [
            {"id": "first", "step": f"shell echo first >> {folder}/log"},
            {"id": "check", "step": f"shell test -f {folder}/ok", "idempotent": True},
            {"id": "nap", "step": "sleep 1s"},
            {"id": "finish", "step": f"shell echo last >> {folder}/log"},
            "return done",
        ],
        **more,
    }


def ended(holdfast: Embedded, definition: dict[str, Any]) -> str:
    view = holdfast.service.start(holdfast.actor, definition=definition)
    return holdfast.service.wait(holdfast.actor, view.id, 60).id


def test_what_failed_is_resumed_and_the_rest_is_kept(open_holdfast: Open, tmp_path: Path) -> None:
    holdfast = open_holdfast()
    service, me = holdfast.service, holdfast.actor
    id = ended(holdfast, workflow(tmp_path))
    events, final = service.feed(me, id, 0)
    assert final == "FAILED_UNSAFE"
    (tmp_path / "ok").touch()
    plan = service.plan(me, id, ResumeExecution()).plan
    assert plan is not None
    assert ([each.step for each in plan.again], [each.step for each in plan.kept]) == (["check"], ["first"])
    before = holdfast.engine.committer.counters.executions_ended
    view = service.resume(me, id, reason="file is there")
    assert (view.status, view.run, view.ended_at, view.error) == ("RUNNING", 2, None, None)
    assert view.residue == []
    done = service.wait(me, id, 60)
    assert (done.status, done.output, done.run) == ("COMPLETED", "done", 2)
    assert (tmp_path / "log").read_text().split() == ["first", "last"]
    assert holdfast.engine.committer.counters.executions_revived == 1
    assert holdfast.engine.committer.counters.executions_ended == before + 1
    # A feed that was told of the first end goes on after it, and hears of the second.
    rest, final = service.feed(me, id, events[-1]["seq"])
    assert (rest[0]["type"], rest[0]["reason"], final) == ("ExecutionResumed", "file is there", "COMPLETED")
    assert [event["seq"] for event in events + rest] == list(range(1, done.events + 1))
    with pytest.raises(WrongStatus):
        service.resume(me, id)


def test_a_restart_between_resume_and_the_end(open_holdfast: Open, tmp_path: Path) -> None:
    holdfast = open_holdfast()
    id = ended(holdfast, workflow(tmp_path, replayable="from start"))
    holdfast.close(1.0)
    (tmp_path / "ok").touch()
    idle = open_holdfast(with_worker=False)
    idle.service.resume(idle.actor, id)
    with idle.store.reading() as queries:
        assert [row.job for row in queries.jobs_of(id)] == [3]
    idle.close(1.0)
    again = open_holdfast()
    assert again.service.wait(again.actor, id, 60).output == "done"
    # Ended again, and replayed: while it sleeps the engine leaves.
    again.service.replay(again.actor, id, "start")
    until(lambda: again.service.standing(again.actor, id).lanes[0].wait == "timer" or None)
    again.close(1.0)
    last = open_holdfast()
    done = last.service.wait(last.actor, id, 60)
    assert (done.run, done.output) == (3, "done")
    assert (tmp_path / "log").read_text().split() == ["first", "last", "first", "last"]


def test_after_cancel_it_sleeps_anew_and_one_timer_is_on_the_agenda(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    service, me = holdfast.service, holdfast.actor
    definition = {"name": "sleeper", "steps": ["test.noop", "sleep 1h", "return woke"]}
    id = service.start(me, definition=definition).id
    until(lambda: service.events(me, id)[-1]["type"] == "TimerSet" or None)
    service.cancel(me, id)
    assert service.wait(me, id, 60).status == "CANCELLED"
    service.resume(me, id)
    with holdfast.store.reading() as queries:
        assert [row.item for row in queries.agenda_of(id)] == ["timer/2"]
    (reason,) = service.why(me, id).reasons
    assert (reason.kind, reason.step) == ("timer", "sleep 1h")
    service.cancel(me, id)


def test_a_long_history_is_snapshotted_again_after_its_revival(open_holdfast: Open, tmp_path: Path) -> None:
    holdfast = open_holdfast(slots=32)
    service, me = holdfast.service, holdfast.actor
    wide = {"step": "foreach x in 1..150", "concurrency": 20, "steps": ["test.noop"]}
    check = {"id": "check", "step": f"shell test -f {tmp_path}/ok", "idempotent": True}
    definition = {"name": "long", "steps": [wide, check, wide, {"id": "gate", "step": "approve"}, "return done"]}
    id = ended(holdfast, definition)
    (tmp_path / "ok").touch()
    service.resume(me, id)
    until(lambda: service.approvals(me) or None)
    with holdfast.store.reading() as queries:
        assert queries.parts(id)
    holdfast.close(1.0)
    again = open_holdfast()
    again.service.approve(again.actor, id)
    done = again.service.wait(again.actor, id, 60)
    assert (done.output, done.progress.total) == ("done", 302)
    with again.store.reading() as queries:
        assert not queries.parts(id)


def test_it_is_not_purged_once_it_lives_again(open_holdfast: Open, tmp_path: Path) -> None:
    holdfast = open_holdfast()
    service, me = holdfast.service, holdfast.actor
    definition = {"name": "safe", "replayable": "from start", "steps": ["sleep 1s", "return 1"]}
    id = ended(holdfast, definition)
    with holdfast.store.reading() as queries:
        header = queries.header("default", id)
    assert header is not None
    service.replay(me, id, "start")
    future, reply = future_reply()
    holdfast.engine.purge({id: (header.version, header.logs)}, reply)
    assert future.result(30) == []
    assert service.wait(me, id, 60).run == 2


def test_force_and_its_refusal(open_holdfast: Open, tmp_path: Path) -> None:
    holdfast = open_holdfast()
    service, me = holdfast.service, holdfast.actor
    id = ended(holdfast, {"name": "risky", "steps": [f"shell test -f {tmp_path}/ok", "return done"]})
    with pytest.raises(CannotResume):
        service.resume(me, id)
    why = service.why(me, id)
    assert why.reasons[-1].command == f"holdfast resume {id[:8]} --force --dry-run"
    standing = service.standing(me, id)
    assert standing.refusal is not None
    assert [(lane.wait, bool(lane.error)) for lane in standing.lanes] == [("stopped", True)]
    (tmp_path / "ok").touch()
    service.resume(me, id, force=True)
    assert service.wait(me, id, 60).output == "done"


def test_two_answers_to_one_question_count_once(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    service, me = holdfast.service, holdfast.actor
    definition = {
        "name": "asking",
        "steps": [
            "let n = 0",
            {"id": "gate", "step": "approve", "message": "go on with ${n}?"},
            "let n = ${n} + 1",
            {"step": "goto gate", "condition": "${n} < 2"},
            "return ${output}",
        ],
    }
    id = service.start(me, definition=definition).id
    (asked,) = service.approvals(me)
    assert (asked.execution, asked.step, asked.message) == (id, "gate", "go on with 0?")
    futures = []
    gate = threading.Event()
    holdfast.engine._queue.put(lambda: [][: gate.wait(30)])  # both look before either is counted
    for _ in range(2):
        future, reply = future_reply()
        service.submit_approval(me, id, "gate", True, "", reply)
        futures.append(future)
    gate.set()
    for future in futures:
        future.result(30)
    (asked,) = service.approvals(me)
    assert asked.message == "go on with 1?"
    with pytest.raises(NothingToApprove, match="`gate`"):
        service.approve(me, id, "other")
    service.approve(me, id, note="fine")
    output = service.wait(me, id, 60).output
    assert (output["approved"], output["by"], output["note"]) == (True, me.name, "fine")
    with pytest.raises(NothingToApprove):
        service.approve(me, id)
