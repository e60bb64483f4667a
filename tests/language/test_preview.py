"""The dry run of resume and replay: what it announces is what then happens."""

from __future__ import annotations

from typing import Any

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.model import BlockOffer, Status
from holdfast.core.preview import preview
from holdfast.core.snapshot import canonical
from holdfast.core.views import PlanView

from .test_replay import IDEMPOTENT, failed
from .world import World, flaky


def plan(world: World, request: Any, id: str = "e1") -> PlanView:
    before = canonical(world.states[id])
    found = preview(world.states[id], request, world.now, world)  # type: ignore[arg-type]
    assert isinstance(found, PlanView)
    assert canonical(world.states[id]) == before, "a dry run changes nothing"
    return found


def steps(found: list[Any]) -> dict[str, int]:
    return {each.step: each.times for each in found}


def test_a_resume_enters_only_the_step_that_failed() -> None:
    world = failed("steps:\n- a.b\n- let x = 5\n- x.y\n- return ${x} ${calls}", offers=IDEMPOTENT)
    found = plan(world, r.ResumeExecution())
    assert (found.verb, found.step, found.run, found.refusal) == ("resume", "x.y", 2, None)
    assert steps(found.again) == {"x.y": 1}
    assert steps(found.kept) == {"a.b": 1, "let x = 5": 1}
    assert found.variables == {"x": 5}
    assert [(job.job, job.step, job.is_sure, job.may_repeat) for job in found.jobs] == [(2, "x.y", False, True)]
    world.ask("e1", r.ResumeExecution())
    world.run()
    assert world.labels() == ["a.b", "x.y", "x.y"]


def test_a_refusal_is_announced_with_its_code() -> None:
    world = failed("steps:\n- x.y\n- return ok")
    found = plan(world, r.ResumeExecution())
    assert found.refusal is not None
    assert found.refusal.code == "HF0303"
    assert "may not run twice" in found.refusal.message
    forced = plan(world, r.ResumeExecution(is_forced=True))
    assert forced.refusal is None
    assert [(job.step, job.is_sure, job.may_repeat) for job in forced.jobs] == [("x.y", False, False)]
    unknown = plan(world, r.ReplayExecution("nowhere"))
    assert unknown.refusal is not None
    assert unknown.refusal.code == "HF0305"


def test_a_resume_that_falls_back_says_from_which_waypoint() -> None:
    world = failed("steps:\n- let x = 1\n- workflow replayable from here\n- let x = ${x} + 1\n- x.y\n- return ${x}")
    found = plan(world, r.ResumeExecution())
    assert found.lanes[0].is_back
    assert found.variables == {"x": 1}
    assert steps(found.kept) == {"let x = 1": 1}
    assert list(steps(found.again))[-1] == "x.y"
    assert found.jobs[0].step == "x.y"


def test_a_loop_keeps_the_passages_that_went_well() -> None:
    failing = flaky(1)

    def odd(given: Any) -> Any:
        return failing(given) if given["x"] == 2 else given["x"]

    world = World({"a.b": odd}, {"a.b": BlockOffer("a.b", idempotent=True)})
    world.start(
        "steps:\n- step: foreach x in 1..3\n  concurrency: 3\n  steps: ['a.b x=${x}']\n"
        "- return ${output[0]}${output[2]}"
    )
    world.run()
    found = plan(world, r.ResumeExecution())
    assert steps(found.again) == {"a.b x=${x}": 1}
    assert steps(found.kept) == {"a.b x=${x}": 2}
    assert [lane.is_back for lane in found.lanes] == [False]
    world.ask("e1", r.ResumeExecution())
    assert world.run().output() == "13"
    assert len(world.ran) == 4


def test_a_replay_begins_at_the_waypoint_and_repeats_what_came_after() -> None:
    text = """
steps:
- let x = 1
- {id: a, step: a.b, replayable: from here}
- let x = ${x} + 1
- {id: c, step: c.d}
- return ${x}
"""
    world = World()
    world.start(text)
    world.run()
    for run in (2, 3):
        found = plan(world, r.ReplayExecution("c"))
        assert (found.verb, found.asked, found.step, found.run) == ("replay", "c", "a", run)
        assert found.variables == {"x": 1}
        assert steps(found.kept) == {"let x = 1": 1}
        assert set(steps(found.again)) >= {"a", "c"}
        # Effects of earlier runs are effects too, and would come once more.
        assert [job.job for job in found.jobs] == list(range(1, 2 * run - 1))
        before = len(world.ran)
        world.ask("e1", r.ReplayExecution("c"))
        world.run()
        assert [label for _, label, _ in world.ran[before:]] == ["a", "c"]


def test_locks_that_others_have_now_are_named() -> None:
    world = World({"x.y": flaky(1)}, IDEMPOTENT)
    world.start("lock: L\nsteps:\n- {type: workflow, lock: M, steps: [x.y, sleep 1s]}\n- return ok")
    world.run()
    world.start("lock: L\nsteps: [sleep 1h]", id="e2")
    found = plan(world, r.ResumeExecution())
    assert {(lock.entity, lock.name, lock.holder) for lock in found.locks} == {
        ("default", "L", "e2"),
        ("default", "M", ""),
    }
    assert not list(world.events(e.ExecutionResumed))


def test_one_that_has_not_ended_is_refused() -> None:
    world = World()
    world.start("steps: [sleep 1h]")
    found = plan(world, r.ReplayExecution("start", is_forced=True))
    assert found.refusal is not None
    assert found.refusal.code == "HF0301"
    assert world.states["e1"].status is Status.RUNNING
