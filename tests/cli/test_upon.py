"""`holdfast run --on …`: a workflow on entities, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.upon import upon
from holdfast.core.errors import BadUsage

from .support import holdfast

GREET = """
name: greet
run-on: device
steps:
  - {id: greet, step: "shell echo ${entity.id}", output: "${trim(output.stdout)}"}
"""


@pytest.fixture
def fleet(project: Path) -> Path:
    (project / "greet.yaml").write_text(GREET)
    for id, site in (("sw1", "ams"), ("sw2", "ams"), ("sw3", "zrh")):
        assert holdfast("entity", "set", id, "--type", "device", "-l", f"site={site}", cwd=project).code == 0
    return project


def run(fleet: Path, *args: str) -> Any:
    done = holdfast("run", "greet.yaml", "-q", "-o", "json", *args, cwd=fleet)
    assert done.code == 0, done
    return done.json["output"]


def test_on_ids_selectors_and_the_lines_of_a_file(fleet: Path) -> None:
    assert run(fleet, "--on", "sw1") == {"sw1": "sw1"}
    assert run(fleet, "--on", "type == 'device' && site == 'ams'") == {"sw1": "sw1", "sw2": "sw2"}
    assert set(run(fleet, "--on", "sw1", "--on", "site == 'zrh'", "--priority", "3")) == {"sw1", "sw3"}
    (fleet / "ids.txt").write_text("# of today\nsw2\n\n  sw3\n")
    assert set(run(fleet, "--entities-from", "ids.txt")) == {"sw2", "sw3"}


def test_what_cannot_be_worked_upon_is_said_and_nothing_is_begun(fleet: Path) -> None:
    unknown = holdfast("run", "greet.yaml", "--on", "sw9", cwd=fleet)
    assert "no entity is called sw9" in unknown.err
    assert "nothing was left behind" in unknown.err
    wrong = holdfast("run", "greet.yaml", "--on", "site = 'ams'", cwd=fleet)
    assert "HF0751" in wrong.err
    plain = holdfast("run", "-", "--on", "sw1", cwd=fleet, stdin="steps: [no-op]")
    assert "works on no entities" in plain.err
    soon = holdfast("run", "greet.yaml", "--on", "sw1", "--not-before", "soon", cwd=fleet)
    assert (soon.code, "HF0178" in soon.err) == (2, True)
    nobody = holdfast("run", "greet.yaml", "--on", "sw1", "--after", "f" * 32, cwd=fleet)
    assert "there is none" in nobody.err


def test_only_what_was_said_is_asked_for(tmp_path: Path) -> None:
    assert upon((), "", "", (), None) == {}
    assert upon(("a", "b == 1", "a"), "", "2030-01-01T00:00:00Z", ("e1", "e2"), 0) == {
        "entities": ["a"],
        "select": ["b == 1"],
        "gates": {"not-before": "2030-01-01T00:00:00Z", "after": ["e1", "e2"]},
        "priority": 0,
    }
    empty = tmp_path / "none.txt"
    empty.write_text("# nothing\n")
    with pytest.raises(BadUsage):
        upon((), str(empty), "", (), None)
    with pytest.raises(BadUsage):
        upon((), str(tmp_path / "missing.txt"), "", (), None)
