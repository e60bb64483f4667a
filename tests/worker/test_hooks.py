"""Every kind of job under every isolation, really run."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from holdfast.blocks import Registry
from holdfast.core.inventory import EntityChange
from holdfast.core.model import Effect
from holdfast.transport.messages import Forward, Outcome
from tests.worker.support import bench, parcel

KINDS = ("on-loop", "in-thread", "in-process")
SWITCH = {
    "type": "device",
    "name": "Switch 1",
    "parent": "rack-1",
    "groups": ["core"],
    "labels": {"site": "ams1"},
    "facts": {"os": {"name": "x", "ports": [1, 2]}},
}
FORWARD = Forward(1, 2, "DONE", {"was": "v1"})


@pytest.fixture(scope="module")
def registry() -> Registry:
    made = Registry()
    made.discover(["tests.worker.hooked"])
    return made


def once(registry: Registry, block: str, given: Any = None, **more: Any) -> Outcome:
    async def main() -> Outcome:
        async with bench(registry) as b:
            return await b.run(parcel(block, given, **more))

    return asyncio.run(main())


@pytest.mark.parametrize("block", KINDS)
def test_a_run_knows_its_entity_and_asks_for_changes(registry: Registry, block: str) -> None:
    outcome = once(registry, block, {"image": "v2"}, entity="sw1", context=SWITCH, fence=7, attempt=3)
    assert outcome.failure is None
    pid = outcome.value.pop("pid")
    assert (pid != os.getpid()) == (block == "in-process")
    outcome.value["entity"]["groups"] = list(outcome.value["entity"]["groups"])  # a tuple until it is sent
    assert outcome.value == {"kind": "EXECUTE", "fence": 7, "attempt": 3, "entity": {"id": "sw1", **SWITCH}}
    assert outcome.changes == [
        EntityChange("sw1", labels={"seen": "yes", "old": None}, facts={"image": "v2"}),
        EntityChange("new-1", "create", "interface", parent="sw1", groups=("g",), facts={"n": 1}),
        EntityChange("gone-1", "delete"),
    ]


@pytest.mark.parametrize("block", KINDS)
@pytest.mark.parametrize(
    ("found", "effect", "value"),
    [
        ("applied", Effect.DONE, {"image": "v2"}),
        ("yes", Effect.DONE, None),
        ("not", Effect.NONE, None),
        ("no", Effect.NONE, None),
        ("unknown", Effect.UNKNOWN, None),
        ("none", Effect.UNKNOWN, None),
    ],
)
def test_verify_says_what_came_of_it(registry: Registry, block: str, found: str, effect: Effect, value: Any) -> None:
    outcome = once(registry, block, {"image": "v2", "found": found}, kind="VERIFY", forward=FORWARD)
    assert (outcome.failure, outcome.effect, outcome.value) == (None, effect, value)


@pytest.mark.parametrize("block", KINDS)
def test_an_answer_that_is_none_fails_for_good(registry: Registry, block: str) -> None:
    outcome = once(registry, block, {"image": "v2", "found": "nonsense"}, kind="VERIFY", forward=FORWARD)
    assert outcome.failure is not None
    assert "hook `verify` of block" in outcome.failure.message
    assert "returned 5; say Applied(data)" in outcome.failure.message
    assert outcome.is_permanent


@pytest.mark.parametrize("block", KINDS)
def test_rollback_gets_what_the_run_was_given_and_returned(registry: Registry, block: str) -> None:
    outcome = once(
        registry, block, {"image": "v2"}, kind="ROLLBACK", forward=FORWARD, entity="sw1", context=SWITCH, fence=9
    )
    assert outcome.failure is None
    value = outcome.value
    assert (value["kind"], value["fence"], value["image"], value["result"]) == ("ROLLBACK", 9, "v2", {"was": "v1"})
    assert value["entity"]["facts"] == SWITCH["facts"]
    lost = once(registry, block, {"image": "v2"}, kind="ROLLBACK", forward=Forward(1, 1, "UNKNOWN"))
    assert lost.value["result"] is None
    assert lost.changes == []


def test_acquire_says_which_entities_it_needs(registry: Registry) -> None:
    def needed(block: str) -> Any:
        return once(registry, block, {"image": "v"}, kind="ACQUIRE").value

    assert needed("on-loop") == {"ids": ["v-a"], "select": ['type == "device"']}
    assert needed("in-thread") == {"ids": ["v-a", "v-b"], "select": []}
    assert needed("in-process") == {"ids": ["v-a", "v-b"], "select": []}


def test_a_hook_nobody_has_is_said_so(registry: Registry) -> None:
    outcome = once(registry, "greet", kind="ROLLBACK")
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.effect, outcome.is_permanent) == ("unknown-block", Effect.NONE, True)
    assert "has no hook `rollback`" in outcome.failure.message


def test_the_version_says_which_code_runs(registry: Registry) -> None:
    assert once(registry, "greet", version="1.0.0").value == "one"
    assert once(registry, "greet", version="1.1.0").value == "two"
    assert once(registry, "greet").value == "two"
    outcome = once(registry, "greet", version="1.2.0")
    assert outcome.failure is not None
    assert outcome.failure.message == "this worker has no block `greet` 1.2.0"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("too many", "1000 changes"),
        ("too long", "bytes encoded; the limit is 65536"),
        ("of nothing", "about no entity"),
        ("no data", "cannot be kept"),
        ("no text", "must be text"),
    ],
)
def test_wishes_nobody_could_grant_are_the_blocks_mistake(registry: Registry, what: str, said: str) -> None:
    outcome = once(registry, "asks", {"what": what})
    assert outcome.failure is not None
    assert said in outcome.failure.message
    assert outcome.changes == []


def test_only_a_run_that_succeeds_changes_the_inventory(registry: Registry) -> None:
    failed = once(registry, "changes-and-fails")
    assert failed.failure is not None
    assert failed.changes == []
    back = once(registry, "asks", {"what": ""}, kind="ROLLBACK", forward=FORWARD)
    assert back.failure is not None
    assert "not by its hook `rollback`" in back.failure.message


def test_the_witness_with_hooks(registry: Registry, tmp_path: Any) -> None:
    given = {"path": str(tmp_path / "w"), "key": "k"}
    verify = {"kind": "VERIFY", "entity": "sw1", "forward": Forward(1, 1, "UNKNOWN")}
    assert once(registry, "test.undoable", given, **verify).effect is Effect.NONE
    assert once(registry, "test.undoable", given, entity="sw1").value == {"line": "k sw1"}
    assert once(registry, "test.undoable", given, **verify).effect is Effect.DONE
    for _ in range(2):
        assert once(registry, "test.undoable", given, kind="ROLLBACK", entity="sw1").failure is None
    assert (tmp_path / "w").read_text().splitlines() == ["+k sw1", "-k sw1"]
    assert once(registry, "test.undoable", given, **verify).effect is Effect.NONE
