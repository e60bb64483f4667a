"""Plans and retries, with a real worker and real hooks; asked by REST."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import (
    InvalidDefinition,
    KeyReused,
    NothingToRetry,
    UnknownExecution,
    UnsafeUnseen,
    WrongStatus,
)
from holdfast.engine.verify import verify
from holdfast.store.queries import TABLES
from tests.api.support import LONG, House, house

ALL = ("sw1", "sw2", "sw3")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("planning"), modules=["tests.api.switches"]) as made:
        for id in ALL:
            made.client.put_entity(id, type="switch", labels={"site": "ams"})
        yield made
        assert not verify(made.holdfast.store).findings


def workflow(folder: Path, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    for step in steps:
        if step.get("step", "").startswith("switch.") and step["step"] != "switch.check":
            step.setdefault("input", {}).setdefault("folder", str(folder))
    return {"name": "roll", "run-on": "switch", "acquire": {"select": "type == 'switch'"}, "steps": [*steps], **more}


def install(text: str = "new", **more: Any) -> dict[str, Any]:
    return {"id": "install", "step": "switch.set", "input": {"text": text, **more}}


def burn() -> dict[str, Any]:
    return {"id": "burn", "step": "switch.burn"}


def check(fails: Any) -> dict[str, Any]:
    return {"id": "check", "step": "switch.check", "input": {"fails": fails}}


def ended(home: House, definition: dict[str, Any], **more: Any) -> Any:
    return home.client.wait(home.client.start(definition=definition, **more).id, 30)


def retried(home: House, id: str, **more: Any) -> Any:
    return home.client.wait(home.client.retry(id, **more).id, 30)


def worked_upon(home: House, id: str) -> set[str]:
    return {job.entity for job in home.client.jobs(id) if job.entity and job.kind == "EXECUTE"}


def tables(home: House) -> dict[str, str]:
    """A digest of every table. What beats is left out: presence says nothing of what was asked."""
    made = {}
    with home.holdfast.store.reading() as queries:
        for table in sorted(TABLES - {"workers", "engines"}):
            rows = sorted(map(repr, queries.rows(f"SELECT * FROM {table}")))
            made[table] = blake2b("\n".join(rows).encode()).hexdigest()
    return made


# --- plan ----------------------------------------------------------------------------------------------
def test_a_plan_names_blocks_entities_locks_jobs_and_the_worst(home: House, tmp_path: Path) -> None:
    definition = workflow(tmp_path, check([]), install(), {**burn(), "condition": "${input.really}"}, check(["sw2"]))
    definition["steps"][3] = {**definition["steps"][3], "id": "after"}
    plan = home.client.plan(definition=definition, input={"really": True})
    assert (plan.problems, plan.refusal, plan.workflow) == ([], None, "roll")
    assert [(block.block, block.version, block.hooks) for block in plan.blocks] == [
        ("switch.check", "1.0.0", []), ("switch.set", "1.0.0", ["verify", "rollback"]), ("switch.burn", "1.0.0", []),
    ]  # fmt: skip
    assert plan.counts == {"switch": 3}
    assert [(entity.id, entity.mode, entity.blocked_by) for entity in plan.entities] == [(id, "X", []) for id in ALL]
    assert [(step.step, step.jobs, step.is_at_most, step.worst) for step in plan.steps] == [
        ("check", 3, False, "SAFE"), ("install", 3, False, "ROLLED_BACK"),
        ("burn", 3, True, "UNSAFE"), ("after", 3, False, "UNSAFE"),
    ]  # fmt: skip
    assert plan.jobs == 12
    assert plan.steps[3].fails == (
        "if `after` fails on a switch: UNSAFE, because `burn` has no rollback and is not pure; what `install` did there"
        " stays too"
    )


def test_nothing_is_written(home: House, tmp_path: Path) -> None:
    before = tables(home)
    definition = workflow(tmp_path, install(), gates={"approval": "sure?"}, name="never-seen")
    plan = home.client.plan(
        definition=definition, entities=["sw1"], select=["site == 'ams'"], gates={"window": "00:00-00:01"}
    )
    assert plan.counts == {"switch": 3}
    assert home.client.plan(definition=definition, entities=["sw9"]).refusal is not None
    assert home.client.plan(definition=workflow(tmp_path, {"step": "no.such"})).problems
    with pytest.raises(InvalidDefinition):
        home.client.plan(definition={"steps": [{"stepp": 1}]})
    assert tables(home) == before
    home.client.start(definition={"steps": ["no-op"]})
    assert tables(home) != before, "and the digest would show it"


def test_a_plan_says_who_holds_what_it_needs_and_which_gates_are_open(home: House, tmp_path: Path) -> None:
    holding = home.client.start(
        definition={"name": "hold", "run-on": "switch", "acquire": {"ids": ["sw2"]}, "steps": ["wait-signal go"]}
    )
    try:
        asked = workflow(tmp_path, install(), gates={"approval": "sure?"})
        plan = home.client.plan(definition=asked)
        assert [(gate.kind, gate.what, gate.is_met) for gate in plan.gates] == [("approval", "sure?", False)]
        assert plan.is_blocked
        held = {entity.id: entity.blocked_by for entity in plan.entities if entity.blocked_by}
        assert [*held] == ["sw2"]
        (claim,) = held["sw2"]
        assert (claim.execution, claim.mode, claim.is_holding) == (holding.id, "X", True)
        assert claim.since > 0
        waiting = home.client.start(definition=workflow(tmp_path, check([])))
        claims = next(e.blocked_by for e in home.client.plan(definition=asked).entities if e.id == "sw2")
        assert [(claim.execution, claim.is_holding) for claim in claims] == [(holding.id, True), (waiting.id, False)]
        impatient = {**asked, "config": {"lock": {"on-conflict": "fail"}}}
        refusal = home.client.plan(definition=impatient).refusal
        assert refusal is not None
        assert refusal.code == "HF0736"
    finally:
        home.client.signal(holding.id, "go")
        home.client.wait(holding.id, 30)
    home.client.wait(waiting.id, 30)


def test_a_plan_of_what_could_not_begin_lists_everything(home: House, tmp_path: Path) -> None:
    definition = {**workflow(tmp_path, {"id": "a", "step": "no.such"}, {"id": "b", "step": "switch.check:9"}),
                  "inputs": {"needed": {"type": "string"}}}  # fmt: skip
    plan = home.client.plan(definition=definition)
    assert {problem.code for problem in plan.problems} == {"HF0151", "HF0211", "HF0771"}
    assert plan.steps == []
    empty = home.client.plan(
        definition=workflow(
            tmp_path, check([]), acquire={"select": "type == 'moon'"}, config={"require-entities": True}
        )
    )
    assert empty.refusal is not None
    assert empty.refusal.code == "HF0732"
    started = ended(home, definition)
    assert [problem["code"] for problem in started.error.details] == [problem.code for problem in plan.problems]


def test_what_blocks_would_say_is_unknown_until_they_run(home: House, tmp_path: Path) -> None:
    seek = {"id": "seek", "step": "switch.seek", "input": {"wants": ["sw3"]}}
    definition = {"name": "seek", "run-on": "switch", "steps": [seek], "config": {"require-entities": True}}
    plan = home.client.plan(definition=definition)
    assert (plan.asks, plan.refusal, plan.counts) == (["seek"], None, {})
    (step,) = plan.steps
    assert (step.jobs, step.is_open) == (0, True)
    plan = home.client.plan(definition=definition, entities=["sw1"])
    assert (plan.asks, plan.counts) == (["seek"], {"switch": 1})
    first = ended(home, definition, entities=["sw1"])
    assert worked_upon(home, first.id) == {"sw1", "sw3"}
    again = retried(home, first.id)
    assert {job.kind for job in home.client.jobs(again.id)} == {"EXECUTE"}, "nobody is asked again"
    assert worked_upon(home, again.id) == {"sw1", "sw3"}


def test_batches_and_loops_are_counted(home: House, tmp_path: Path) -> None:
    plan = home.client.plan(definition=workflow(tmp_path, check([]), config={"rollout": {"batches": [1, 2]}}))
    assert [(step.jobs, step.batches) for step in plan.steps] == [(3, [1, 2])]
    loop = {"steps": [{"step": "foreach x in 1..3", "steps": [{"block": "test.echo"}]}]}
    plan = home.client.plan(definition=loop)
    assert (plan.jobs, [step.jobs for step in plan.steps], plan.works_on_entities) == (None, [None], False)


def test_a_published_workflow_may_be_planned_by_who_may_only_look(home: House, tmp_path: Path) -> None:
    home.client.publish(workflow(tmp_path, check([])), "seen")
    path = "/api/v1/executions/plan"
    assert home.ask("POST", path, {"workflow": "seen"}, token=home.tokens["viewer"]).json["counts"] == {"switch": 3}
    inline = {"definition": {"steps": ["no-op"]}}
    assert home.ask("POST", path, inline, token=home.tokens["viewer"]).status == 403
    assert home.ask("POST", path, {}).status == 422
    assert home.ask("POST", path, {"workflow": "nobody"}).status == 404


# --- retry ---------------------------------------------------------------------------------------------
def tolerant(tmp_path: Path) -> dict[str, Any]:
    definition = workflow(tmp_path, install(), check("${fails}"), config={"max-failures": 2})
    return {**definition, "inputs": {"fails": {"type": "list", "default": []}}}


def test_tolerated_failures_are_retried_and_each_names_the_other(home: House, tmp_path: Path) -> None:
    first = ended(home, tolerant(tmp_path), input={"fails": ["sw1", "sw3"]}, labels={"change": "4711"})
    assert first.status == "COMPLETED"
    assert (first.subjects.total, first.subjects.done, first.subjects.failed) == (3, 1, 2)
    home.client.put_entity("sw4", type="switch")
    try:
        again = retried(home, first.id, failed=True, input={"fails": ["sw3"]})
    finally:
        home.client.delete_entity("sw4")
    assert again.status == "COMPLETED"
    assert worked_upon(home, again.id) == {"sw1", "sw3"}, "neither what was done nor what came since"
    assert (again.retry_of, again.labels) == (first.id, {"change": "4711"})
    last = retried(home, again.id, failed=True, input={"fails": []})
    assert worked_upon(home, last.id) == {"sw3"}
    assert home.client.show(first.id).retries == [again.id]
    assert home.client.show(again.id).retries == [last.id]
    with pytest.raises(NothingToRetry, match="without --failed"):
        home.client.retry(last.id, failed=True)
    assert worked_upon(home, retried(home, last.id).id) == {"sw3"}


def test_what_was_never_reached_or_undone_is_done_again(home: House, tmp_path: Path) -> None:
    steps = (install(), check(["sw2"]), {"id": "then", "step": "switch.check", "input": {"fails": []}})
    first = ended(home, workflow(tmp_path, *steps, config={"rollout": {"batches": 2}}))
    assert first.status == "FAILED_SAFE"
    assert (first.subjects.failed, first.subjects.never_reached) == (1, 1)
    again = home.client.retry(first.id, failed=True)
    view = home.client.wait(again.id, 30)
    assert view.subjects.total == 3, "sw1 was undone with the others"
    assert view.retry_of == first.id


def test_what_is_done_and_not_undone_is_left_alone(home: House, tmp_path: Path) -> None:
    first = ended(home, workflow(tmp_path, check(["sw2"]), config={"rollout": {"batches": 1}}))
    assert (first.status, first.subjects.done, first.subjects.never_reached) == ("FAILED_SAFE", 1, 1)
    assert home.client.wait(home.client.retry(first.id, failed=True).id, 30).subjects.total == 2


def test_what_is_left_has_to_be_seen_first(home: House, tmp_path: Path) -> None:
    first = ended(home, workflow(tmp_path, burn(), check(["sw1"])))
    assert first.status == "FAILED_UNSAFE"
    with pytest.raises(UnsafeUnseen, match=r"holdfast ack .* --note"):
        home.client.retry(first.id, failed=True)
    path = f"/api/v1/executions/{first.id}/retry"
    assert home.ask("POST", path, {"force": True}, token=home.tokens["operator"]).status == 403
    forced = home.ask("POST", path, {"force": True, "failed": True}, token=home.tokens["admin"])
    assert (forced.status, forced.json["retry_of"]) == (201, first.id)
    home.client.wait(forced.json["id"], 30)
    home.client.ack(first.id, "seen")
    assert home.client.retry(first.id, failed=True).retry_of == first.id


def test_a_cancelled_one_is_retried_upon_what_was_not_through(home: House, tmp_path: Path) -> None:
    first = home.client.start(definition=workflow(tmp_path, {"id": "wait", "step": "wait-signal go"}, check([])))
    with pytest.raises(WrongStatus, match="holdfast cancel"):
        home.client.retry(first.id, failed=True)
    home.client.cancel(first.id)
    view = home.client.wait(first.id, 30)
    assert (view.status, view.subjects.never_reached) == ("CANCELLED", 3)
    again = home.client.retry(first.id, failed=True)
    home.client.signal(again.id, "go")
    assert home.client.wait(again.id, 30).subjects.done == 3


def test_all_through_and_something_else_failed(home: House, tmp_path: Path) -> None:
    first = ended(home, workflow(tmp_path, check([]), {"id": "close", "step": "fail no"}))
    assert (first.status, first.subjects.done) == ("FAILED_SAFE", 3)
    with pytest.raises(NothingToRetry, match="in step close, which is done for no entity"):
        home.client.retry(first.id, failed=True)


def test_the_same_key_starts_once(home: House, tmp_path: Path) -> None:
    first = ended(home, workflow(tmp_path, check(["sw1"])))
    path = f"/api/v1/executions/{first.id}/retry"
    one = home.ask("POST", path, {"failed": True, "key": "k1"})
    two = home.ask("POST", path, {"failed": True}, idempotency_key="k1")
    assert (one.status, two.status, one.json["id"]) == (201, 200, two.json["id"])
    with pytest.raises(KeyReused):
        home.client.retry(first.id, failed=False, key="k1")
    home.client.wait(one.json["id"], 30)
    assert home.client.show(first.id).retries == [one.json["id"]]


def test_without_entities_the_whole_run_is_done_again(home: House) -> None:
    home.client.publish({"name": "plain", "inputs": {"fails": {"type": "boolean"}},
                         "steps": [{"step": "fail no", "condition": "${fails}"}, "return done"]})  # fmt: skip
    first = home.client.wait(home.client.start(workflow="plain", input={"fails": True}).id, 30)
    assert first.status == "FAILED_SAFE"
    again = retried(home, first.id, failed=True, input={"fails": False})
    assert (again.status, again.output, again.version) == ("COMPLETED", "done", first.version)
    with pytest.raises(NothingToRetry):
        home.client.retry(again.id, failed=True)
    assert retried(home, again.id).output == "done"


def test_gates_that_came_with_the_start_come_again(home: House) -> None:
    gated = home.client.start(definition={"steps": ["fail no"]}, gates={"approval": "really?"})
    home.client.approve(gated.id)
    assert home.client.wait(gated.id, 30).status == "FAILED_SAFE"
    again = home.client.retry(gated.id)
    assert again.status == "BLOCKED_WAITING"
    home.client.approve(again.id, approved=False)
    third = home.client.retry(again.id)
    assert third.status == "BLOCKED_WAITING", "never found out what it works upon: started as the first was"
    home.client.cancel(third.id)


def test_what_cannot_be_retried(home: House) -> None:
    with pytest.raises(UnknownExecution):
        home.client.retry("f" * 32)
    running = home.start(LONG)
    with pytest.raises(WrongStatus):
        home.client.retry(running)
    home.client.cancel(running)
    home.client.wait(running, 30)
    assert home.ask("POST", f"/api/v1/executions/{running}/retry", {"id": "xyz"}).status == 422
    assert home.ask("POST", f"/api/v1/executions/{running}/retry", {"faild": True}).status == 422
