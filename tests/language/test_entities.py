"""Steps that are done for each of many entities: in the real core and interpreter, with an inventory in memory."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.inventory import EntityRow
from holdfast.core.model import BlockOffer, JobKind, JobStatus, Status
from holdfast.core.reads import EntityKey, Missing, SensorKey, TooLong

from .world import Block, Boom, NeedsRows, World


def devices(count: int, **facts: Any) -> dict[str, EntityRow]:
    return {f"d{n:02}": EntityRow(f"d{n:02}", "device", f"Device {n}", facts={"n": n, **facts}) for n in range(count)}


def world(
    text: str, count: int = 3, blocks: dict[str, Block] | None = None, input: Any = None,
    more: tuple[EntityRow, ...] = (), offers: dict[str, BlockOffer] | None = None, on: tuple[str, ...] | None = None,
) -> World:  # fmt: skip
    made = World(blocks, offers)
    made.entities = {**devices(count), **{row.id: row for row in more}}
    made.start(text, input, on=tuple(made.entities) if on is None else on)
    return made


def progress(made: World) -> dict[str, str]:
    return {subject.id: subject.progress.name for subject in made.states["e1"].subjects.values()}


def failing_on(*ids: str) -> Block:
    def block(given: Any) -> Any:
        if given.entity in ids:
            raise Boom(f"boom on {given.entity}")
        return {"on": given.entity}

    return block


def test_a_step_is_done_for_each_entity_before_the_next_begins() -> None:
    made = world("run-on: device\nsteps: [{id: a, step: net.a}, {id: b, step: net.b}]").run()
    assert made.labels() == ["a"] * 3 + ["b"] * 3
    assert made.ran_on == ["d00", "d01", "d02"] * 2
    assert made.output() == {id: {"ran": "net.b"} for id in ("d00", "d01", "d02")}
    assert progress(made) == dict.fromkeys(("d00", "d01", "d02"), "DONE")


PARALLEL = "run-on: device\nconfig: {execution-strategy: {parallel: yes}}\n"


def test_with_parallel_every_entity_goes_its_own_way() -> None:
    made = world(PARALLEL + "steps: [{id: a, step: net.a}, {id: b, step: net.b}, {id: c, step: net.c}]")
    for entity in ("d01", "d00"):  # one is through before another has begun
        for _ in range(3):
            state = made.states["e1"]
            made.work("e1", next(job.id for job in state.jobs.values() if job.entity == entity))
    assert [*zip(made.labels(), made.ran_on, strict=True)] == [
        (label, entity) for entity in ("d01", "d00") for label in "abc"
    ]
    assert progress(made) == {"d00": "DONE", "d01": "DONE", "d02": "REACHED"}
    assert set(made.run().output()) == {"d00", "d01", "d02"}
    assert len(made.states["e1"].lanes) == 1


def test_a_step_that_is_done_once_is_a_barrier_between_ways_of_entities() -> None:
    text = PARALLEL + "steps: [net.a, net.b, {step: net.once, run-on: global}, net.c, net.d]"
    made = world(text, 2).run()
    assert made.labels() == ["net.a", "net.a", "net.b", "net.b", "net.once", "net.c", "net.c", "net.d", "net.d"]
    assert made.ran_on[4] == ""


def test_a_group_is_a_barrier_too() -> None:
    groups = (EntityRow("g1", "group"), EntityRow("g2", "group"))
    text = PARALLEL + "steps: [net.a, {step: net.g, run-on: group}, {step: net.h, run-on: group}, net.b]"
    made = world(text, 2, more=groups).run()
    assert [*zip(made.labels(), made.ran_on, strict=True)] == [
        ("net.a", "d00"), ("net.a", "d01"), ("net.g", "g1"), ("net.g", "g2"), ("net.h", "g1"), ("net.h", "g2"),
        ("net.b", "d00"), ("net.b", "d01"),
    ]  # fmt: skip


def test_what_the_step_says_wins_over_the_block_and_the_block_over_the_workflow() -> None:
    offers = {"if.up": BlockOffer("if.up", run_on="interface"), "all": BlockOffer("all", run_on="global")}
    parts = (EntityRow("d00/1", "interface", parent="d00"), EntityRow("d01/1", "interface", parent="d01"))
    text = "run-on: device\nsteps: [net.a, if.up, block all, {step: if.up, run-on: device, name: up}]"
    made = world(text, 2, more=parts, offers=offers).run()
    assert [*zip(made.labels(), made.ran_on, strict=True)] == [
        ("net.a", "d00"), ("net.a", "d01"), ("if.up", "d00/1"), ("if.up", "d01/1"), ("block all", ""),
        ("up", "d00"), ("up", "d01"),
    ]  # fmt: skip


def test_without_a_type_a_block_is_done_once_in_a_workflow_that_acquires() -> None:
    made = world("acquire: 'type == \"device\"'\nsteps: [net.a]", on=()).run()
    assert made.ran_on == [""]
    assert set(progress(made)) == {"d00", "d01", "d02"}


# --- what an entity's lane sees ----------------------------------------------------------------------
def test_the_entity_and_its_facts_are_known_to_its_steps() -> None:
    row = EntityRow(
        "r1", "device", "Router", {"site-name": "ams"}, parent="pod", groups=("core",), facts={"os": {"v": 7}}
    )
    seen = []
    text = """
run-on: device
steps:
- step: net.a
  input:
    id: ${entity.id}
    more: "${entity.type} ${entity.name} ${entity.labels.site-name} ${entity.facts.os.v} ${entity.parent}"
    groups: ${entity.groups}
    all: ${entities}
"""
    pod = EntityRow("pod", "rack")
    made = world(text, 0, {"net.a": lambda given: seen.append(dict(given))}, more=(row, pod), on=("r1",)).run()
    assert seen == [{"id": "r1", "more": "device Router ams 7 pod", "groups": ["core"], "all": ["r1"]}]
    assert made.states["e1"].status is Status.COMPLETED


NUMBERS = {"net.a": lambda given: {"n": int(given.entity[1:]) * 10}}


@pytest.mark.parametrize("config", ["", "config: {execution-strategy: {parallel: yes}}\n"])
def test_an_output_of_an_earlier_step_is_that_of_the_same_entity(config: str) -> None:
    text = f"""
run-on: device
{config}steps:
- {{id: a, step: net.a}}
- {{id: b, step: net.b, input: {{before: '${{output.n}}', same: '${{steps.a.output.n}}'}}, output: '${{output.x}}'}}
- {{id: c, step: net.c, input: {{first: '${{steps.a.output.n}}', then: '${{steps.b.output}}'}}}}
"""
    seen = []
    blocks: dict[str, Block] = {
        **NUMBERS,
        "net.b": lambda given: {"x": given["before"] + given["same"]},
        "net.c": lambda given: seen.append((given.entity, dict(given))),
    }
    world(text, 3, blocks).run()
    assert sorted(seen) == [(f"d0{n}", {"first": 10 * n, "then": 20 * n}) for n in range(3)]


@pytest.mark.parametrize("config", ["", "config: {execution-strategy: {parallel: yes}}\n"])
def test_after_all_the_results_are_a_map_by_entity(config: str) -> None:
    text = f"""
run-on: device
{config}steps:
- {{id: a, step: net.a}}
- {{id: b, step: net.b}}
- let at = ${{steps.a.results['d02'].n}}
- let same = ${{steps.a.output['d02'].n}}
- return: ["${{at}}", "${{same}}", "${{steps.a.failed}}", "${{steps.b.results.d01.ran}}", "${{entities}}"]
"""
    assert world(text, 3, NUMBERS).run().output() == [20, 20, [], "net.b", ["d00", "d01", "d02"]]


def test_the_results_of_all_can_be_seen_by_the_steps_of_one() -> None:
    text = """
run-on: device
steps:
- {id: a, step: net.a}
- {step: net.b, input: {sum: "${steps.a.results.d00.n + steps.a.results.d01.n + steps.a.output.n}"}}
"""
    seen = []
    world(text, 2, {**NUMBERS, "net.b": lambda given: seen.append(given["sum"])}).run()
    assert seen == [10, 20]


def test_variables_of_an_entity_stay_there() -> None:
    text = """
run-on: device
steps:
- let x = 0
- run-on: device
  steps:
  - let x = ${entity.facts.n}
  - net.a
  - {step: net.b, input: {x: "${x}"}}
- return ${x}
"""
    seen = []
    made = world(text, 3, {"net.b": lambda given: seen.append((given.entity, given["x"]))}).run()
    assert seen == [("d00", 0), ("d01", 1), ("d02", 2)]
    assert made.output() == 0
    # What has steps inside is one way for each, without any barrier between.
    assert sorted(made.labels()) == ["net.a"] * 3 + ["net.b"] * 3


# --- what every step may have, for each --------------------------------------------------------------
def test_a_condition_is_asked_for_each() -> None:
    made = world("run-on: device\nsteps: [{step: net.a, condition: '${entity.facts.n} != 1'}, net.b]").run()
    assert made.ran_on == ["d00", "d02", "d00", "d01", "d02"]


def test_one_assertion_that_does_not_hold_and_there_is_no_job_at_all() -> None:
    made = world("run-on: device\nsteps: [{id: a, step: net.a, assert: '${entity.facts.n} < 2'}]", 4).run()
    failure = made.failure()
    assert made.ran == []
    assert failure.kind == "assertion-failed"
    assert "for 2 of 4 devices: d02, d03" in failure.message
    assert [each["entity"] for each in failure.details] == ["d02", "d03"]
    assert made.states["e1"].status is Status.FAILED_SAFE


def test_an_assertion_is_not_asked_of_who_is_skipped() -> None:
    text = (
        "run-on: device\nsteps: [{step: net.a, condition: '${entity.facts.n} == 0', assert: '${entity.facts.n} < 1'}]"
    )
    assert world(text).run().ran_on == ["d00"]


def test_with_continue_on_error_the_others_are_done() -> None:
    text = "run-on: device\nsteps: [{step: net.a, assert: '${entity.facts.n} != 1', continue-on-error: yes}, net.b]"
    made = world(text).run()
    assert made.ran_on == ["d00", "d02", "d00", "d01", "d02"]


def test_an_error_that_is_tolerated_is_the_result_of_that_entity() -> None:
    text = "run-on: device\nsteps: [{id: a, step: net.a, continue-on-error: yes}, 'return ${steps.a.results}']"
    made = world(text, 2, {"net.a": failing_on("d01")}).run()
    found = made.output()
    assert found["d00"] == {"on": "d00"}
    assert found["d01"]["success"] is False
    assert found["d01"]["error"]["message"] == "boom on d01"
    assert progress(made) == {"d00": "DONE", "d01": "DONE"}


def test_attempts_and_passages_are_counted_for_each() -> None:
    calls: dict[str, int] = {}

    def flaky(given: Any) -> Any:
        calls[given.entity] = calls.get(given.entity, 0) + 1
        if given.entity == "d01" and calls["d01"] < 3:
            raise Boom()
        return calls[given.entity]

    text = "run-on: device\nsteps: [{step: net.a, idempotent: yes, retry: {attempts: 3, delay: 1s}}]"
    assert world(text, 3, {"net.a": flaky}).run().output() == {"d00": 1, "d01": 3, "d02": 1}
    calls.clear()
    text = "run-on: device\nsteps: [{step: net.b, repeat: {times: 5, until: '${output} > ${entity.facts.n}'}}]"

    def up(given: Any) -> Any:
        calls[given.entity] = calls.get(given.entity, 0) + 1
        return calls[given.entity]

    assert world(text, 3, {"net.b": up}).run().output() == {"d00": 1, "d01": 2, "d02": 3}


def test_handlers_cleanup_delay_and_output_are_those_of_each() -> None:
    text = """
run-on: device
steps:
- step: net.a
  delay: 5s
  on-error: [{step: net.fix, input: {on: "${entity.id}", why: "${error.message}"}}]
  finally: [net.tidy]
- {step: net.b, output: "${entity.id} is done"}
"""
    made = world(text, 2, {"net.a": failing_on("d01")}).run()
    ran = [*zip(made.labels(), made.ran_on, strict=True)]
    assert ("net.fix", "d01") in ran
    assert ("net.fix", "d00") not in ran
    assert {each for each in ran if each[0] == "net.tidy"} == {("net.tidy", "d00"), ("net.tidy", "d01")}
    assert made.output() == {"d00": "d00 is done", "d01": "d01 is done"}
    assert made.now >= 1_000_000_000 + 5_000_000


def test_next_is_about_all_of_them() -> None:
    text = "run-on: device\nsteps: [{step: net.a, next: there}, net.b, {id: there, step: net.c}]"
    assert world(PARALLEL + text.removeprefix("run-on: device\n"), 2).run().labels() == ["net.a"] * 2 + ["there"] * 2


def test_a_case_and_a_handler_of_the_workflow_run_on_entities_too() -> None:
    text = """
run-on: device
on-error:
- {condition: "${error.kind} == 'none-such'", step: net.never}
- {condition: "${error.kind} == 'block-error'", step: net.fix}
steps:
- type: switch
  value: two
  cases: [{condition: {equals: one}, step: net.one}, {condition: {equals: two}, step: net.two}]
- net.a
"""
    made = world(text, 2, {"net.a": failing_on("d00")}).run()
    assert made.labels() == ["net.two"] * 2 + ["net.a"] * 2 + ["net.fix"]
    assert made.ran_on[-1] == "d01"


# --- failing -----------------------------------------------------------------------------------------
def test_where_one_fails_the_others_run_to_their_end_and_then_the_step_fails() -> None:
    made = world("run-on: device\nsteps: [{id: a, step: net.a}, net.b]", 5, {"net.a": failing_on("d01", "d03")}).run()
    assert made.labels() == ["a"] * 5
    failure = made.failure()
    assert failure.message == "failed for 2 of 5 devices (d01, d03): boom on d01"
    assert [each["entity"] for each in failure.details] == ["d01", "d03"]
    assert progress(made) == {"d00": "REACHED", "d01": "FAILED", "d02": "REACHED", "d03": "FAILED", "d04": "REACHED"}
    assert made.states["e1"].subjects[1].reason == "boom on d01"


@pytest.mark.parametrize(
    ("budget", "failing", "is_over"),
    [
        ("2", 2, False), ("2", 3, True), ("0", 0, False), ("0", 1, True),
        ('"25%"', 3, False), ('"25%"', 4, True), ('"20%"', 2, False), ('"20%"', 3, True), ('"0%"', 1, True),
        ('"100%"', 12, False), ('"16.6%"', 1, False), ('"16.6%"', 2, True), ('"16.7%"', 2, False),
    ],
)  # fmt: skip
def test_so_many_may_fail_and_no_more(budget: str, failing: int, is_over: bool) -> None:
    ids = [f"d{n:02}" for n in range(failing)]
    text = f"run-on: device\nconfig: {{max-failures: {budget}}}\nsteps: [{{id: a, step: net.a}}, net.b]"
    made = world(text, 12, {"net.a": failing_on(*ids)}).run()
    if is_over:
        assert "net.b" not in made.labels()
        assert "boom" in made.failure().message
        return
    assert set(made.output()) == {f"d{n:02}" for n in range(failing, 12)}
    assert made.labels().count("net.b") == 12 - failing
    assert [id for id, state in progress(made).items() if state == "FAILED"] == ids


def test_failures_are_counted_over_the_whole_execution_and_known_to_what_follows() -> None:
    text = """
run-on: device
config: {max-failures: 2}
steps:
- {id: a, step: net.a}
- {id: b, step: net.b}
- return: ["${steps.a.failed}", "${steps.b.failed}", "${entities}"]
"""
    blocks = {"net.a": failing_on("d01"), "net.b": failing_on("d03")}
    made = world(text, 5, blocks).run()
    assert made.output() == [["d01"], ["d03"], ["d00", "d02", "d04"]]
    blocks["net.b"] = failing_on("d00", "d03")
    made = world(text, 5, blocks).run()
    assert "failed for 1 of 4 devices" in made.failure().message


def test_with_a_budget_no_further_entity_is_begun_once_it_is_used_up() -> None:
    text = "run-on: device\nconfig: {max-failures: 1, concurrency: 2}\nsteps: [net.a]"
    made = world(text, 8, {"net.a": failing_on("d00", "d01", "d02")}).run()
    assert made.ran_on == ["d00", "d01", "d02"]
    assert progress(made)["d03"] == "NEVER_REACHED"
    assert "failed for 2 of 8 devices (d01, d02)" in made.failure().message


def test_fail_fast_cancels_what_waits_and_lets_run_what_runs() -> None:
    made = world("run-on: device\nconfig: {fail-fast: yes}\nsteps: [net.a, net.b]", 4, {"net.a": failing_on("d01")})
    made.claim("e1", 1)  # d00 is at work
    made.work("e1", 2)
    assert [job.entity for job in made.states["e1"].jobs.values()] == ["d00"]
    made.ask("e1", r.CompleteJob(1, 1, "fine"))
    made.run()
    assert made.labels() == ["net.a"]
    assert made.failure().message == "failed for 1 of 4 devices (d01): boom on d01"
    assert progress(made) == {"d00": "REACHED", "d01": "FAILED", "d02": "REACHED", "d03": "REACHED"}


def test_fail_fast_lets_no_way_of_an_entity_go_on_to_its_next_step() -> None:
    made = world(
        PARALLEL.replace("}}", "}, fail-fast: yes}") + "steps: [net.a, net.b]", 3, {"net.b": failing_on("d00")}
    )
    made.work("e1", 1)  # d00 is through its first step
    made.claim("e1", 2)
    made.work("e1", 4)  # and fails in its second, while d01 works at its first
    made.ask("e1", r.CompleteJob(2, 1, "fine"))
    made.run()
    assert [*zip(made.labels(), made.ran_on, strict=True)] == [("net.a", "d00"), ("net.b", "d00")]
    assert made.failure().message.startswith("failed for 1 of 3 devices (d00)")


def test_so_many_entities_at_a_time() -> None:
    made = world("run-on: device\nconfig: {concurrency: 2}\nsteps: [net.a]", 5)
    most = 0
    while made.step():
        most = max(most, len(made.states["e1"].lanes) - 1)
    assert most == 2
    assert len(made.run().output()) == 5


# --- rollout -----------------------------------------------------------------------------------------
def test_batches_of_a_rollout_follow_each_other() -> None:
    text = """
run-on: device
config: {rollout: {batches: [1, "25%"]}}
steps: [{id: a, step: net.a}, {id: b, step: net.b}]
output: ${steps.a.results}
"""
    made = world(text, 12).run()
    sizes = []
    rest = [*zip(made.labels(), made.ran_on, strict=True)]
    while rest:
        size = next((n for n, (label, _) in enumerate(rest) if label != "a"), len(rest))
        first = [entity for _, entity in rest[:size]]
        assert rest[size : 2 * size] == [("b", entity) for entity in first]
        sizes.append(size)
        rest = rest[2 * size :]
    assert sizes == [1, 3, 3, 3, 2]
    assert len(made.output()) == 12


def test_the_output_of_a_rollout_is_that_of_all_its_batches() -> None:
    made = world("run-on: device\nconfig: {rollout: {batches: 2}}\nsteps: [net.a]", 5).run()
    assert set(made.output()) == {f"d0{n}" for n in range(5)}


def test_no_batch_follows_one_that_failed() -> None:
    text = "run-on: device\nconfig: {rollout: {batches: 2}}\nsteps: [net.a]"
    made = world(text, 6, {"net.a": failing_on("d02")}).run()
    assert made.ran_on == ["d00", "d01", "d02", "d03"]
    assert [*progress(made).values()] == ["DONE", "DONE", "FAILED", "DONE", "NEVER_REACHED", "NEVER_REACHED"]


def test_parts_follow_their_whole() -> None:
    parts = tuple(EntityRow(f"d0{n}/{port}", "interface", parent=f"d0{n}") for n in range(3) for port in (1, 2))
    text = "run-on: device\nconfig: {rollout: {batches: 1}}\nsteps: [net.a, {step: net.i, run-on: interface}]"
    made = world(text, 3, more=parts).run()
    assert made.ran_on == [
        id for n in range(3) for id in (f"d0{n}", f"d0{n}/1", f"d0{n}/2")
    ]  # fmt: skip


def test_parts_of_what_failed_are_left_out_too() -> None:
    parts = tuple(EntityRow(f"d0{n}/1", "interface", parent=f"d0{n}") for n in range(3))
    text = "run-on: device\nconfig: {max-failures: 1}\nsteps: [net.a, {step: net.i, run-on: interface}]"
    made = world(text, 3, {"net.a": failing_on("d01")}, more=parts).run()
    assert made.ran_on[3:] == ["d00/1", "d02/1"]


def test_a_rollout_waits_before_every_batch_but_the_first() -> None:
    text = "run-on: device\nconfig: {rollout: {batches: 1, gate: 10m}}\nsteps: [net.a]"
    made = world(text, 3)
    made.run(until=1_000_000_000)
    assert made.ran_on == ["d00"]
    made.run()
    assert made.ran_on == ["d00", "d01", "d02"]
    assert made.now == 1_000_000_000 + 2 * 600_000_000


def test_a_rollout_asks_before_every_batch_but_the_first() -> None:
    text = "run-on: device\nconfig: {rollout: {batches: 2, gate: approval}}\nsteps: [net.a]"
    made = world(text, 5).run()
    assert made.ran_on == ["d00", "d01"]
    assert any("go on with batch 2 of 3?" in line for line in made.logs["e1"])
    (name,) = [lane.signal for lane in made.states["e1"].lanes.values()]
    made.ask("e1", r.SendSignal(name, {"approved": True}))
    made.run()
    assert made.ran_on == ["d00", "d01", "d02", "d03"]
    made.ask("e1", r.SendSignal(name, {"approved": False, "by": "me"}))
    made.run()
    assert made.failure().kind == "rejected"
    assert progress(made)["d04"] == "NEVER_REACHED"


# --- going on ----------------------------------------------------------------------------------------
def test_resume_goes_on_with_those_that_failed() -> None:
    offers = {"net.a": BlockOffer("net.a", idempotent=True)}
    for config in ("", "config: {execution-strategy: {parallel: yes}}\n", "config: {rollout: {batches: 3}}\n",
                   "config: {fail-fast: yes}\n"):  # fmt: skip
        text = f"run-on: device\n{config}steps: [net.a, net.b]"
        blocks = {"net.a": failing_on("d01")}
        made = world(text, 4, blocks, offers=offers).run()
        assert made.failure()
        before = len(made.ran)
        blocks["net.a"] = failing_on()
        made.ask("e1", r.ResumeExecution())
        made.run()
        assert set(made.output()) == {"d00", "d01", "d02", "d03"}, config
        again = made.ran_on[before:]
        assert again.count("d01") == 2, config
        assert made.ran_on.count("d00") == 2, config
        assert [*progress(made).values()] == ["DONE"] * 4


def test_what_was_tolerated_before_a_failure_stays_out_after_resume() -> None:
    offers = {"net.a": BlockOffer("net.a", idempotent=True)}
    blocks = {"net.a": failing_on("d00", "d02")}
    made = world("run-on: device\nconfig: {max-failures: 1}\nsteps: [net.a, net.b]", 4, blocks, offers=offers).run()
    assert made.failure()
    blocks["net.a"] = failing_on()
    made.ask("e1", r.ResumeExecution())
    made.run()
    assert set(made.output()) == {"d01", "d02", "d03"}
    assert progress(made)["d00"] == "FAILED"


def test_replay_from_a_waypoint_does_it_for_all_again() -> None:
    text = "run-on: device\nsteps: [{id: a, step: net.a, replayable: from here}, {id: b, step: net.b}]"
    made = world(text, 2, {"net.b": failing_on("d01")}).run()
    assert made.failure()
    made.blocks = {}
    made.ask("e1", r.ReplayExecution("a"))
    made.run()
    assert made.labels() == ["a", "a", "b", "b"] * 2
    assert set(made.output()) == {"d00", "d01"}


def counted(text: str, count: int) -> World:
    """Without looking at the whole state after every job."""
    made = World()
    made.is_compared = False
    made.entities = devices(count)
    made.start(text, on=tuple(made.entities))
    return made.run(limit=50_000)


def test_many_entities_are_opened_turn_by_turn_and_each_costs_the_same() -> None:
    small, large = (counted("run-on: device\nsteps: [net.a, net.b]", count) for count in (600, 2_400))
    assert len(large.ran) == 4_800
    bytes_of = [sum(len(str(events)) for _, events in made.histories["e1"]) for made in (small, large)]
    assert bytes_of[1] < 4.4 * bytes_of[0]
    assert large.transitions < 4.4 * small.transitions


class Unread(World):
    """Rows have to be asked for, as they have to be of a store."""

    def __init__(self, blocks: dict[str, Block] | None = None) -> None:
        super().__init__(blocks)
        self.is_compared = False
        self.read: set[Any] = set()
        self.asked: list[int] = []

    def entity(self, key: EntityKey) -> EntityRow | None:
        if key not in self.read:
            raise Missing(key)
        return super().entity(key)

    def sensor(self, key: SensorKey) -> Any:
        if key not in self.read:
            raise Missing(key)
        return super().sensor(key)

    def ask(self, id: str, request: Any) -> None:
        for _ in range(10):
            try:
                super().ask(id, request)
                break
            except NeedsRows as need:
                self.read |= set(need.keys)
                self.asked.append(len(need.keys))
        else:
            raise AssertionError("asked again and again")
        self.read.clear()


def test_what_is_asked_of_many_entities_is_read_at_once() -> None:
    text = """
run-on: device
steps:
- step: net.a
  condition: ${entity.sensor.up ?? true}
  assert: ${entity.facts.n} >= 0
  input: {n: "${entity.facts.n}", name: "${entity.name}", size: "${entity.config.size ?? 1}"}
"""
    made = Unread()
    made.entities = devices(300)
    made.start(text, on=tuple(made.entities))
    made.run()
    assert len(made.ran) == 300
    # The entity and two of its values, for all of them together; then nothing any more.
    assert made.asked == [900]


# --- cancelling ----------------------------------------------------------------------------------------
def test_a_cancelled_execution_stops_at_all_entities_and_can_be_resumed() -> None:
    offers = {"net.a": BlockOffer("net.a", idempotent=True)}
    text = "run-on: device\nconfig: {execution-strategy: {parallel: yes}}\nsteps: [net.a, net.b]\nfinally: [net.tidy]"
    made = world(text, 3, offers=offers)
    made.claim("e1", 1)
    made.ask("e1", r.CancelExecution("enough"))
    assert [job.entity for job in made.states["e1"].jobs.values()] == ["d00"]
    made.ask("e1", r.CompleteJob(1, 1, "fine"))
    made.run()
    assert made.states["e1"].status is Status.CANCELLED
    assert sorted([*zip(made.labels(), made.ran_on, strict=True)]) == [("net.tidy", f"d0{n}") for n in range(3)]
    made.ask("e1", r.ResumeExecution())
    made.run()
    assert set(made.output()) == {"d00", "d01", "d02"}
    assert made.labels().count("net.b") == 3


FINALLY = "run-on: device\nsteps: [net.a, net.b]\nfinally: [net.tidy]"


@pytest.mark.parametrize("when", ["before the cancel", "after the cancel", "looked at meanwhile"])
@pytest.mark.parametrize("found", ["applied", "not-applied", "unknown"])
def test_what_is_looked_at_after_the_cleanup_of_a_cancelled_execution_ends_it(when: str, found: str) -> None:
    made = world(FINALLY, 1, offers={"net.a": BlockOffer("net.a", has_verify=True)})
    made.claim("e1", 1)
    state = made.states["e1"]
    if when == "after the cancel":
        made.ask("e1", r.CancelExecution("enough"))
        made.lose("e1", 1)
    else:
        made.lose("e1", 1)
        if when == "looked at meanwhile":
            made.claim("e1", 2)
        made.ask("e1", r.CancelExecution("enough"))
    tidy = next(job.id for job in state.jobs.values() if job.kind is JobKind.EXECUTE)
    made.work("e1", tidy)
    assert (state.status, made.labels()) == (Status.CANCELLING, ["net.tidy"])
    look = next(job for job in state.jobs.values() if job.kind is JobKind.VERIFY)
    if when != "looked at meanwhile":
        made.claim("e1", look.id)
    made.ask("e1", r.CompleteJob(look.id, 1, found))
    assert state.status is Status.CANCELLED
    assert state.residue == ((1, tidy) if found != "not-applied" else (tidy,))


def test_an_entity_taken_away_during_the_cleanup_of_a_cancelled_execution_ends_the_cleanup() -> None:
    made = world(FINALLY, 3)
    made.claim("e1", 1)
    made.ask("e1", r.CancelExecution("enough"))
    made.ask("e1", r.CompleteJob(1, 1, "fine"))
    state = made.states["e1"]
    first, _, third = (job.id for job in state.jobs.values() if job.status is JobStatus.SENT)
    made.claim("e1", first)
    made.claim("e1", third)
    made.ask("e1", r.FreeEntity("d00", state.fence, "ops"))
    assert (state.status, state.running) == (Status.CANCELLING, 1)
    made.ask("e1", r.CompleteJob(third, 1, "tidied"))
    assert (state.status, state.residue) == (Status.CANCELLED, (1, first, third))


def test_what_does_not_stop_after_the_cleanup_was_given_up_is_abandoned() -> None:
    made = world(FINALLY + "\nconfig: {cancel-grace: 5s}", 2)
    made.ask("e1", r.CancelExecution("enough"))
    state = made.states["e1"]
    first, second = (job.id for job in state.jobs.values() if job.status is JobStatus.SENT)
    made.claim("e1", first)
    made.claim("e1", second)
    made.ask("e1", r.FreeEntity("d00", state.fence, "ops"))
    made.run()
    assert (state.status, state.residue) == (Status.CANCELLED, (first, second))
    assert [event.failure.kind for event in made.events(e.JobFailed)] == ["lock-lost", "abandoned"]


def test_an_error_of_an_expression_in_an_assertion_is_one_before_anything_is_done() -> None:
    made = world("run-on: device\nsteps: [{step: net.a, assert: '${entity.facts.n} - \"x\" > 1'}]").run()
    assert made.ran == []
    assert made.failure().kind == "assertion-failed"


def test_entities_whose_assertion_fails_may_be_tolerated() -> None:
    text = "run-on: device\nconfig: {max-failures: 1}\nsteps: [{step: net.a, assert: '${entity.facts.n} != 1'}, net.b]"
    made = world(text).run()
    assert made.ran_on == ["d00", "d02"] * 2
    assert progress(made) == {"d00": "DONE", "d01": "FAILED", "d02": "DONE"}
    made = world(text.replace("!= 1", "== 1")).run()
    assert made.ran == []


def test_a_handler_of_the_workflow_may_try_those_again_that_failed() -> None:
    tries: dict[str, int] = {}

    def flaky(given: Any) -> Any:
        tries[given.entity] = tries.get(given.entity, 0) + 1
        if given.entity == "d01" and tries["d01"] < 3:
            raise Boom()
        return tries[given.entity]

    text = "run-on: device\nsteps:\n- steps: [{id: a, step: net.a, idempotent: yes}]\n  on-error: retry limit 5"
    made = world(text, 3, {"net.a": flaky}).run()
    assert made.output() == {"d00": 1, "d01": 3, "d02": 1}
    assert progress(made)["d01"] == "DONE"


def test_results_too_long_to_be_kept_together_fail_nobody() -> None:
    class Small(World):
        def keep(self, execution: str, value: Any) -> Any:
            if isinstance(value, dict) and len(value) > 2:
                raise TooLong("too long")
            return super().keep(execution, value)

    made = Small()
    made.entities = devices(3)
    made.start("run-on: device\nsteps: [net.a, net.b]", on=tuple(made.entities))
    made.run()
    assert made.output() == {}
    assert any("too long to be kept together" in line for line in made.logs["e1"])


def test_no_entity_in_scope_is_no_job_and_no_error() -> None:
    made = world("run-on: device\nsteps: [{id: a, step: net.a}, 'return ${steps.a.results}']", 0, on=()).run()
    assert made.output() == {}
    made = world("run-on: device\nconfig: {rollout: {batches: 1}}\nsteps: [net.a]", 0, on=()).run()
    assert made.output() == {}


def test_replay_leaves_out_who_failed_before_the_waypoint() -> None:
    text = """
run-on: device
config: {max-failures: 1}
steps: [net.a, {id: b, step: net.b, replayable: from here}, {step: net.c, run-on: global}]
"""
    made = world(text, 3, {"net.a": failing_on("d00"), "net.c": flaky_once()}).run()
    assert made.failure()
    made.ask("e1", r.ReplayExecution("b"))
    made.run()
    assert made.ran_on == ["d00", "d01", "d02", "d01", "d02", "", "d01", "d02", ""]
    assert progress(made) == {"d00": "FAILED", "d01": "DONE", "d02": "DONE"}


def flaky_once() -> Block:
    calls = []

    def block(given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            raise Boom()

    return block


def test_a_rollout_may_be_replayed_from_a_step_of_a_batch() -> None:
    text = (
        "run-on: device\nconfig: {rollout: {batches: 2}}\nsteps: [net.a, {id: b, step: net.b, replayable: from here}]"
    )
    blocks = {"net.b": failing_on("d02")}
    made = world(text, 4, blocks).run()
    assert made.failure()
    before = len(made.ran)
    blocks["net.b"] = failing_on()
    made.ask("e1", r.ReplayExecution("b"))
    made.run()
    assert [*zip(made.labels(), made.ran_on, strict=True)][before:] == [("b", "d02"), ("b", "d03")]
    assert set(made.output()) == {f"d0{n}" for n in range(4)}


def test_start_in_a_rollout_is_that_of_the_batch() -> None:
    text = """
run-on: device
config: {rollout: {batches: 1, gate: 1m}}
steps:
- {id: a, step: net.a}
- let tries = ${tries ?? 0} + 1
- if ${tries} == 2 then goto start
- net.b
"""
    made = world(text, 3).run()
    assert [*zip(made.labels(), made.ran_on, strict=True)] == [
        ("a", "d00"), ("net.b", "d00"), ("a", "d01"), ("a", "d01"), ("net.b", "d01"), ("a", "d02"), ("net.b", "d02"),
    ]  # fmt: skip
    assert made.now == 1_000_000_000 + 2 * 60_000_000
