"""Killed before or after its commits, a workflow with everything in it comes to the same end. Every other boundary on
SQLite and some on PostgreSQL; `make chaos ARGS=boundaries` takes them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.model import Failure, Status
from holdfast.core.state import open_state
from holdfast.language import define
from tests.acceptance import thirty

from .boundaries import Cell
from .forks import Forks


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as made:
        yield made


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", thirty.KINDS)
def test_every_other_boundary_on_sqlite(forks: Forks, tmp_path: Path, kind: str, moment: str) -> None:
    cell = Cell(forks, tmp_path, f"sqlite:///{tmp_path}/holdfast.db", kind, f"engine.commit.{moment}")
    cell.run(1 if moment == "before" else 2, 2)
    cell.end()
    print(dict(cell.seen))
    assert cell.violations == []
    assert cell.seen["boundaries"] >= 10
    assert cell.seen["undisturbed"] == 1
    if kind == "plain":
        assert cell.seen["unknown"] > 0, "no kill caught a job half way: the test tests nothing"
    else:
        assert cell.seen["completed"] == cell.seen["boundaries"] + 1


@pytest.mark.parametrize(("kind", "moment"), [("repeatable", "before"), ("plain", "after")])
def test_some_boundaries_on_postgresql(forks: Forks, tmp_path: Path, pg_dsn: str, kind: str, moment: str) -> None:
    cell = Cell(forks, tmp_path, pg_dsn, kind, f"engine.commit.{moment}")
    cell.run(3, 6)
    cell.end()
    print(dict(cell.seen))
    assert cell.violations == []
    assert cell.seen["boundaries"] >= 3
    assert cell.seen["completed"] > 0


def test_a_worker_that_lives_on_can_tell(forks: Forks, tmp_path: Path) -> None:
    """Only the engine is killed: then even blocks that may not repeat come to the same end every time."""
    address = f"sqlite:///{tmp_path}/holdfast.db"
    cell = Cell(forks, tmp_path, address, "plain", "engine.commit.after", is_served=True)
    cell.run(1, 3)
    cell.end()
    print(dict(cell.seen))
    assert cell.violations == []
    assert cell.seen["boundaries"] >= 6
    assert cell.seen["completed"] == cell.seen["boundaries"] + 1


def test_the_workflow_is_what_it_is_said_to_be() -> None:
    for kind in thirty.KINDS:
        program = define(thirty.definition(kind)).program
        assert len(program.steps) >= 30
        kinds = {step.kind for step in program.steps}
        assert kinds >= {"workflow", "foreach", "retry", "sleep", "switch", "if", "parallel", "set-sensor", "block"}
        assert any(step.on_error for step in program.steps)
        assert any(step.cleanup for step in program.steps)


def test_the_judge_sees_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "witness"
    path.write_text("".join(f"v{n} {mark}\n" for n, mark in enumerate(thirty.MARKS)))
    state = open_state("e")
    state.workflow, state.status, state.output = "thirty-plain", Status.COMPLETED, thirty.OUTPUT
    assert thirty.judge(state, path) == ("completed", [])
    with path.open("a") as file:
        file.write("v0 first\n")
    assert "ran twice within a visit" in thirty.judge(state, path)[1][0]
    state.workflow = "thirty-repeatable"
    assert thirty.judge(state, path)[1] == []
    with path.open("a") as file:
        file.write("v99 last\n")
    assert "more visits" in thirty.judge(state, path)[1][0]
    state.output = None
    assert "another output" in thirty.judge(state, path)[1][1]
    state.status, state.failure = Status.FAILED_UNSAFE, Failure("block-error", "boom")
    assert "FAILED_UNSAFE" in thirty.judge(state, path)[1][1]
    state.workflow = "thirty-plain"
    assert "not for a job whose outcome is unknown" in thirty.judge(state, path)[1][-1]
