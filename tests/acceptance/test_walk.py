"""What a user sees, on each kind of store: sequences, retries, sleeps, signals, cancels, restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.blocks import Registry, block
from holdfast.core.errors import (
    ExecutionEnded,
    KeyReused,
    PayloadTooLarge,
    TimedOut,
    UnknownExecution,
    UnknownWorkflow,
    WrongStatus,
)
from holdfast.embedded import Embedded

Open = Callable[..., Embedded]


def until(check: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def kinds(holdfast: Embedded, id: str) -> list[str]:
    return [event["type"] for event in holdfast.service.events(holdfast.actor, id)]


def test_a_sequence_with_variables_conditions_and_output(open_holdfast: Open) -> None:
    view = open_holdfast().run(
        {
            "name": "sequence",
            "inputs": {"who": "string", "loud": {"type": "boolean", "default": False}},
            "steps": [
                {"id": "say", "block": "test.echo", "input": {"value": {"text": "hello ${who}"}}},
                "let greeting = ${steps.say.output.text}",
                {"step": "let greeting = ${upper(greeting)}", "condition": "${loud}"},
                "log ${greeting}",
            ],
            "output": "${greeting}",
        },
        input={"who": "world", "loud": True},
    )
    assert (view.status, view.output) == ("COMPLETED", "HELLO WORLD")
    assert (view.progress.done, view.progress.total) == (1, 1)


def test_ten_sequential_steps_are_eleven_commits_and_many_in_flight_share_theirs(open_holdfast: Open) -> None:
    holdfast = open_holdfast(slots=256)
    counters = holdfast.engine.committer.counters
    definition = {"name": "ten", "steps": ["test.noop"] * 10}
    holdfast.run(definition)
    before = counters.commits
    assert holdfast.run(definition).status == "COMPLETED"
    # A worker's own sign of life may fall into the same moment; it is a commit too, but not of this execution.
    assert counters.commits - before <= 12
    with holdfast.store.reading() as queries:
        newest = queries.headers("default", limit=1)[0]
        assert len(queries.history(newest.id)) == 11
    before, items = counters.commits, counters.items
    started = [holdfast.service.start(holdfast.actor, definition=definition) for _ in range(4)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(64) as pool:
        views = list(pool.map(lambda _: holdfast.run(definition), range(256)))
    assert {view.status for view in views} == {"COMPLETED"}
    assert [holdfast.service.wait(holdfast.actor, view.id, 10).status for view in started] == ["COMPLETED"] * 4
    commits, decided = counters.commits - before, counters.items - items
    assert decided >= 260 * 11
    assert commits < decided / 3, f"{decided} items took {commits} commits"


def test_a_flaky_block_recovers_by_itself_and_the_back_off_survives_a_restart(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    definition = {
        "name": "flaky",
        "steps": [
            {"block": "test.flaky", "input": {"until": 3, "value": 7}, "retry": {"attempts": 5, "delay": "700ms"}}
        ],
    }
    started = holdfast.service.start(holdfast.actor, definition=definition)
    until(lambda: "JobRescheduled" in kinds(holdfast, started.id))
    holdfast.close(1.0)
    again = open_holdfast()
    view = again.service.wait(again.actor, started.id, 15)
    assert (view.status, view.output) == ("COMPLETED", 7)
    assert kinds(again, started.id).count("JobStarted") == 3


def test_a_sleep_keeps_its_deadline_across_a_restart(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    started = holdfast.service.start(holdfast.actor, definition={"name": "nap", "steps": ["sleep 1s", "return up"]})
    holdfast.close(1.0)
    time.sleep(1.1)
    again = open_holdfast()
    view = again.service.wait(again.actor, started.id, 10)
    assert (view.status, view.output) == ("COMPLETED", "up")
    assert view.ended_at is not None
    assert view.ended_at - view.created_at >= 1_000_000


def test_parallel_branches_run_side_by_side_and_gather_in_order(open_holdfast: Open) -> None:
    branches = [{"block": "test.sleep", "input": {"seconds": 0.5 - n / 10, "value": n}} for n in range(5)]
    holdfast = open_holdfast()
    view = holdfast.run({"name": "side-by-side", "steps": [{"parallel": branches}]})
    assert view.output == [0, 1, 2, 3, 4]
    jobs = holdfast.service.jobs(holdfast.actor, view.id)
    assert max(job.started_at or 0 for job in jobs) < min(job.ended_at or 0 for job in jobs), "all ran at once"


def test_a_signal_waits_for_its_step_and_a_step_for_its_signal(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    definition = {
        "name": "gate",
        "steps": ["wait-signal go", "let first = ${output}", "wait-signal go", "return ${first + output}"],
    }
    started = holdfast.service.start(holdfast.actor, definition=definition)
    why = holdfast.service.why(holdfast.actor, started.id)
    assert "signal `go`" in why.summary
    assert why.reasons[0].command.startswith("holdfast signal")
    holdfast.service.signal(holdfast.actor, started.id, "go", 1, key="once")
    holdfast.service.signal(holdfast.actor, started.id, "go", 100, key="once")
    holdfast.service.signal(holdfast.actor, started.id, "go", 2)
    view = holdfast.service.wait(holdfast.actor, started.id, 10)
    assert view.output == 3
    with pytest.raises(ExecutionEnded):
        holdfast.service.signal(holdfast.actor, started.id, "go")


def test_cancel_stops_running_work_and_says_what_may_remain(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    definition = {"name": "slow", "steps": [{"block": "test.sleep", "input": {"seconds": 60}}]}
    started = holdfast.service.start(holdfast.actor, definition=definition)
    until(lambda: "JobStarted" in kinds(holdfast, started.id))
    assert holdfast.service.cancel(holdfast.actor, started.id, "enough").status in ("CANCELLING", "CANCELLED")
    view = holdfast.service.wait(holdfast.actor, started.id, 10)
    assert (view.status, view.is_safe, view.residue) == ("CANCELLED", False, [1])
    assert holdfast.service.cancel(holdfast.actor, started.id).status == "CANCELLED", "asked again, the same answer"
    done = holdfast.run({"name": "done", "steps": ["no-op"]})
    with pytest.raises(WrongStatus):
        holdfast.service.cancel(holdfast.actor, done.id)


def test_cancel_right_after_the_start_never_sticks(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    definition = {"name": "short", "steps": [{"block": "test.sleep", "input": {"seconds": 0.01}}] * 5}
    for _ in range(20):
        started = holdfast.service.start(holdfast.actor, definition=definition)
        holdfast.service.cancel(holdfast.actor, started.id)
        assert holdfast.service.wait(holdfast.actor, started.id, 10).status == "CANCELLED"


def test_a_block_nobody_ever_registered_ends_safely_with_every_problem_listed(open_holdfast: Open) -> None:
    view = open_holdfast().run({"name": "unknown", "steps": ["no.such a=1", "nor.this", "test.noop"]})
    assert view.status == "FAILED_SAFE"
    assert view.is_safe
    assert view.error is not None
    assert view.error.code == "HF0211"
    assert len(view.error.details) == 2
    assert view.progress.total == 0


def test_a_block_that_was_registered_but_has_no_worker_waits_and_says_so(open_holdfast: Open) -> None:
    @block(name="special.thing")
    async def special() -> int:
        return 42

    registry = Registry([special])
    open_holdfast(registry=registry, worker_name="specialist").close(1.0)
    without = open_holdfast(worker_name="other")
    started = without.service.start(without.actor, definition={"name": "wait", "steps": ["special.thing"]})
    assert started.status == "RUNNING"
    assert "no worker online offers `special.thing`" in started.waiting[0]
    assert "specialist" in without.service.why(without.actor, started.id).summary
    with pytest.raises(TimedOut):
        without.service.wait(without.actor, started.id, 0.2)
    without.close(1.0)
    back = open_holdfast(registry=registry, worker_name="specialist")
    assert back.service.wait(back.actor, started.id, 10).output == 42


def test_a_failure_names_step_and_residue(open_holdfast: Open) -> None:
    view = open_holdfast().run(
        {
            "name": "half-way",
            "steps": [
                {"id": "change", "block": "test.noop"},
                {"id": "break", "block": "test.fail", "input": {"message": "no luck"}},
            ],
        }
    )
    assert (view.status, view.is_safe, view.residue) == ("FAILED_UNSAFE", False, [1, 2])
    assert view.error is not None
    assert (view.error.step, view.error.message) == ("break", "no luck")


def test_a_block_that_overruns_its_timeout_is_stopped(open_holdfast: Open) -> None:
    view = open_holdfast().run(
        {"name": "late", "steps": [{"block": "test.sleep", "input": {"seconds": 60}, "timeout": "300ms"}]}, timeout=20
    )
    assert view.status == "FAILED_UNSAFE"
    assert view.error is not None
    assert view.error.kind == "timeout"


def test_a_process_that_dies_under_a_block_is_an_unknown_outcome(open_holdfast: Open) -> None:
    view = open_holdfast().run({"name": "crash", "steps": ["test.crash"]}, timeout=30)
    assert view.status == "FAILED_UNSAFE"
    assert view.error is not None
    assert view.error.kind == "process-died"


def test_published_workflows_start_by_name_and_version(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    one = holdfast.service.publish(holdfast.actor, {"name": "greet", "steps": ["return one"]})
    same = holdfast.service.publish(holdfast.actor, {"name": "greet", "steps": ["return one"]})
    two = holdfast.service.publish(holdfast.actor, {"name": "greet", "steps": ["return two"]})
    assert (one.version, same.version, same.is_new, two.version) == (1, 1, False, 2)
    assert holdfast.run(workflow="greet").output == "two"
    assert holdfast.run(workflow="greet:1").output == "one"
    with pytest.raises(UnknownWorkflow):
        holdfast.run(workflow="great")
    with pytest.raises(UnknownWorkflow):
        holdfast.run(workflow="greet:7")


def test_an_idempotency_key_starts_once(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    definition = {"name": "once", "steps": ["test.noop"]}
    first = holdfast.service.start(holdfast.actor, definition=definition, key="k")
    assert holdfast.service.start(holdfast.actor, definition=definition, key="k").id == first.id
    with pytest.raises(KeyReused):
        holdfast.service.start(holdfast.actor, definition=definition, input={}, key="k", labels={"a": "b"})


def test_long_values_travel_whole_and_too_long_ones_fail_clearly(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    text = "x" * 100_000
    view = holdfast.run(
        {
            "name": "long",
            "inputs": {"t": "string"},
            "steps": [
                {"id": "a", "block": "test.echo", "input": {"value": {"deep": ["${t}"]}}},
                {
                    "parallel": [
                        {"block": "test.echo", "input": {"value": "${steps.a.output}"}},
                        "return ${steps.a.output.deep[0]}",
                    ]
                },
            ],
        },
        input={"t": text},
    )
    assert view.output == [{"deep": [text]}, text]
    shout = {"block": "test.echo", "input": {"value": "${t}"}}
    wide = {"name": "wide", "inputs": {"t": "string"}, "steps": [{"parallel": [shout] * 30}]}
    assert holdfast.run(wide, input={"t": text}).status == "COMPLETED"
    with pytest.raises(PayloadTooLarge):
        holdfast.run({"name": "big", "steps": ["no-op"]}, input={"t": "x" * 3_000_000})


@pytest.mark.parametrize(
    "value", ["x" * 3_000_000, object(), 2**70, "\ud800"], ids=["long", "object", "huge", "surrogate"]
)
def test_a_result_that_cannot_be_kept_fails_the_job_and_says_why(open_holdfast: Open, value: Any) -> None:
    @block(name="strange")
    async def strange() -> Any:
        return value

    view = open_holdfast(registry=Registry([strange])).run({"name": "odd", "steps": ["strange"]}, timeout=20)
    assert view.status == "FAILED_UNSAFE"
    assert view.error is not None
    assert view.error.kind.startswith("result-")


def test_logs_of_steps_and_blocks_come_in_one_numbered_stream(open_holdfast: Open) -> None:
    from holdfast.blocks import Context

    @block(name="chatty", idempotent=True)
    async def chatty(ctx: Context) -> None:
        ctx.log("from the block")

    holdfast = open_holdfast(registry=Registry([chatty]))
    view = holdfast.run({"name": "chat", "steps": ["log before", "chatty", "log after"]})
    lines = holdfast.service.logs(holdfast.actor, view.id)
    assert sorted(line.message for line in lines) == ["after", "before", "from the block"]
    assert [line.number for line in lines] == [1, 2, 3]


def test_heartbeat_details_reach_the_next_attempt(open_holdfast: Open) -> None:
    from holdfast.blocks import Context, Failed

    @block(name="resumes", idempotent=True, retry={"attempts": 3, "delay": 0.01})
    async def resumes(ctx: Context) -> Any:
        if ctx.details is None:
            ctx.heartbeat({"done": 5})
            import asyncio

            await asyncio.sleep(1.0)
            raise Failed("half way")
        return ctx.details

    view = open_holdfast(registry=Registry([resumes])).run({"name": "resume", "steps": ["resumes"]}, timeout=20)
    assert view.output == {"done": 5}


def test_a_short_id_is_enough_and_an_unknown_one_is_refused(open_holdfast: Open) -> None:
    holdfast = open_holdfast()
    view = holdfast.run({"name": "id", "steps": ["no-op"]})
    assert holdfast.service.show(holdfast.actor, view.id[:7]).id == view.id
    for unknown in ("ffffffff", "zz", "", "0" * 40):
        with pytest.raises(UnknownExecution):
            holdfast.service.show(holdfast.actor, unknown)
