"""What cannot be: asked for on the command line and over REST. It is named, with its code and its place, and nothing is
left behind: no job, no lock, no place in a queue, nothing on the agenda, and a store that verifies clean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import EntityNeeded
from holdfast.engine.verify import verify
from holdfast.store.sqlite import SqliteStore
from tests.api.support import House, house
from tests.cli.support import holdfast, until

#: rows that an execution has while it lives
LIVING = ("jobs", "agenda", "locks", "lock_queue", "sensor_waits", "entity_changes", "entity_flags")


def workflow(*steps: Any, **keys: Any) -> dict[str, Any]:
    return {"name": "work", "run-on": "device", "steps": list(steps) or ["test.pure"], **keys}


class Bad(msgspec.Struct):
    definition: dict[str, Any]
    code: str
    #: what the message names
    names: str
    #: where it stands
    path: str


#: refused before there is an execution
UNREADABLE = {
    "selector": Bad(workflow(acquire="type = 'device'"), "HF0751", "unexpected `=`", "$.acquire"),
    "selector-of-a-step": Bad(
        workflow({"step": "test.pure", "acquire": {"select": "type =="}}),
        "HF0751",
        "a value is missing",
        "$.steps[0].acquire.select",
    ),
    "percent-too-large": Bad(workflow(config={"max-failures": "101%"}), "HF0172", "101%", "$.config.max-failures"),
    "percent-below-zero": Bad(workflow(config={"max-failures": "-1%"}), "HF0172", "-1%", "$.config.max-failures"),
    "batch-of-nothing": Bad(
        workflow(config={"rollout": {"batches": 0}}), "HF0172", "not 0", "$.config.rollout.batches"
    ),
    "batch-of-no-percent": Bad(
        workflow(config={"rollout": {"batches": [1, "0%"]}}), "HF0172", "not 0%", "$.config.rollout.batches[1]"
    ),
    "no-batches": Bad(workflow(config={"rollout": {"batches": []}}), "HF0172", "batch", "$.config.rollout"),
}

#: an execution that says it in its error
INVALID = {
    "unknown-block": Bad(workflow("test.pure", "no.such"), "HF0211", "`no.such`", "$.steps[1]"),
    "unknown-version": Bad(workflow("test.pure:7"), "HF0771", "no version 7; there is 1.0.0", "$.steps[0]"),
    "type-of-a-parameter": Bad(
        workflow({"step": "test.sleep", "input": {"seconds": "long"}}),
        "HF0142",
        "`seconds`",
        "$.steps[0].input.seconds",
    ),
    "type-of-an-input": Bad(workflow(inputs={"count": "integer"}), "HF0152", "`count`", "$.input.count"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("bad"), modules=["tests.acceptance.asking"]) as made:
        for id in ("sw1", "sw2"):
            made.client.put_entity(id, type="device")
        yield made


def count(store: Any, table: str, where: str = "") -> int:
    with store.reading() as queries:
        return len(queries.rows(f"SELECT 1 FROM {table} {where}"))


def nothing_is_left(store: Any) -> None:
    left = {table: count(store, table) for table in LIVING}
    left["held or waited for"] = count(store, "entity_claims", "WHERE is_over = 0")
    assert not any(left.values()), left
    report = verify(store)
    assert report.is_clean, report.findings


# --- over REST -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_refused(home: House, case: str) -> None:
    bad = UNREADABLE[case]
    before = count(home.holdfast.store, "executions")
    for path, body in (
        ("/api/v1/executions", {"definition": bad.definition, "entities": ["sw1"]}),
        ("/api/v1/workflows", {"definition": bad.definition}),
    ):
        got = home.ask("POST", path, body)
        assert got.status == 422, got
        (problem,) = got.json["error"]["problems"]
        assert (problem["code"], problem["path"]) == (bad.code, bad.path)
        assert bad.names in problem["message"]
    assert count(home.holdfast.store, "executions") == before
    nothing_is_left(home.holdfast.store)


@pytest.mark.parametrize("case", INVALID)
def test_what_does_not_fit_fails_safe_before_anything_is_done(home: House, case: str) -> None:
    bad = INVALID[case]
    got = home.ask(
        "POST",
        "/api/v1/executions",
        {
            "definition": bad.definition,
            "entities": ["sw1"],
            "input": {"count": "x"} if "inputs" in bad.definition else {},
        },
    )
    assert got.status == 201, got
    view = home.client.wait(got.json["id"], 30)
    assert (view.status, view.progress.total) == ("FAILED_SAFE", 0)
    assert view.error is not None
    (problem,) = view.error.details
    assert (problem["code"], problem["path"]) == (bad.code, bad.path)
    assert bad.names in problem["message"]
    nothing_is_left(home.holdfast.store)


def failed(home: House, id: str, kind: str, code: str) -> str:
    view = home.client.wait(id, 30)
    assert (view.status, view.progress.total) == ("FAILED_SAFE", 0)
    assert view.error is not None
    assert (view.error.kind, view.error.code) == (kind, code)
    return view.error.message


def test_no_entity_at_all(home: House) -> None:
    none = workflow(acquire="type == 'rack'")
    view = home.client.wait(home.start(none), 30)
    assert (view.status, view.progress.total) == ("COMPLETED", 0), "nothing to do is no error by itself"
    required = {**none, "config": {"require-entities": True}}
    assert "no entity" in failed(home, home.start(required), "no-entities", "HF0732")
    nothing_is_left(home.holdfast.store)


def test_an_entity_that_nobody_knows(home: House) -> None:
    id = home.start(workflow(), entities=["sw1", "sw9"])
    assert "sw9" in failed(home, id, "unknown-entity", "HF0731")
    nothing_is_left(home.holdfast.store)


def test_an_entity_deleted_between_discovery_and_lock(home: House, tmp_path: Path) -> None:
    """While it waits for its locks, the entity cannot go; while a block is still asked, it can, and that is said."""
    home.client.put_entity("sw3", type="device")
    holder = home.start(workflow("wait-signal go"), entities=["sw1"])
    waiter = home.start(workflow(), entities=["sw1", "sw3"])
    assert home.client.show(waiter).status == "SCHEDULED"
    with pytest.raises(EntityNeeded) as refused:
        home.client.delete_entity("sw3")
    assert waiter in refused.value.message
    home.client.signal(holder, "go")
    assert home.client.wait(waiter, 30).status == "COMPLETED"

    asked = home.start(workflow({"step": "slow.ask", "input": {"path": str(tmp_path / "go")}}), entities=["sw3"])
    assert home.client.show(asked).status == "RESOURCE_DISCOVERY"
    home.client.delete_entity("sw3")
    (tmp_path / "go").touch()
    view = home.client.wait(asked, 30)
    assert view.status == "FAILED_SAFE"
    assert view.error is not None
    assert (view.error.kind, "sw3" in view.error.message) == ("unknown-entity", True)
    nothing_is_left(home.holdfast.store)


def test_locks_that_do_not_come_in_time(home: House) -> None:
    holder = home.start(workflow("wait-signal go"), entities=["sw1"])
    waiter = home.start(workflow(config={"lock": {"timeout": "1s"}}), entities=["sw1", "sw2"])
    at_once = home.start(workflow(config={"lock": {"on-conflict": "fail"}}), entities=["sw1"])
    assert "sw1" in failed(home, at_once, "lock-conflict", "HF0736")
    assert "sw1" in failed(home, waiter, "lock-timeout", "HF0737")
    store = home.holdfast.store
    assert count(store, "entity_claims", "WHERE is_over = 0") == 1, "only the holder has a place"
    home.client.signal(holder, "go")
    until(lambda: home.client.show(holder).is_ended)
    nothing_is_left(store)


# --- on the command line -------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    assert holdfast("entity", "set", "sw1", "--type", "device", cwd=folder, timeout=120).code == 0
    return folder


CLI = {
    "unknown-block": ("steps: [no.such]", 1, ("[HF0211]", "`no.such`", "$.steps[0]")),
    "unknown-version": ("steps: ['test.pure:7']", 1, ("[HF0771]", "no version 7", "$.steps[0]")),
    "type-of-a-parameter": (
        "steps:\n  - {step: test.sleep, input: {seconds: long}}",
        1,
        ("[HF0142]", "`seconds`", "$.steps[0].input.seconds"),
    ),
    "selector": ("acquire: type = 'device'\nsteps: [test.pure]", 2, ("[HF0751]", "unexpected `=`", "bad.yaml:3:15")),
    "percent": ("config: {max-failures: 150%}\nsteps: [test.pure]", 2, ("[HF0172]", "150%", "bad.yaml:3:24")),
    "batch": ("config: {rollout: {batches: 0}}\nsteps: [test.pure]", 2, ("[HF0172]", "not 0", "bad.yaml:3:29")),
    "no-entities": (
        "acquire: type == 'rack'\nconfig: {require-entities: yes}\nsteps: [test.pure]",
        1,
        ("[HF0732]", "no entity"),
    ),
}


@pytest.mark.parametrize("case", CLI)
def test_the_command_line_says_the_same(project: Path, case: str) -> None:
    text, code, said = CLI[case]
    (project / "bad.yaml").write_text(f"name: bad\nrun-on: device\n{text}\n")
    on = () if case == "no-entities" else ("--on", "sw1")
    done = holdfast("run", "bad.yaml", *on, cwd=project, timeout=120)
    assert done.code == code, done
    assert [word for word in said if word not in done.err] == [], done
    store = SqliteStore(project / ".holdfast" / "holdfast.db")
    try:
        nothing_is_left(store)
    finally:
        store.close()
