"""`holdfast plan` and `holdfast retry`: before a run, and after one that failed for some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .support import holdfast

BLOCKS = '''
from pathlib import Path

from holdfast import Context, block


@block(name="my.install", run_on="device")
async def install(ctx: Context, bad: str = "") -> None:
    """Write a file for the device; on a bad one, half of it."""
    Path(f"{ctx.entity.id}.txt").write_text("new")
    if ctx.entity.id == bad:
        raise RuntimeError("bad device")


@install.rollback(accepts_unknown=True)
async def installed(ctx: Context) -> None:
    Path(f"{ctx.entity.id}.txt").unlink(missing_ok=True)


@block(name="my.reboot", run_on="device")
async def reboot(ctx: Context) -> None:
    """Cannot be undone."""
'''
UPGRADE = """
name: upgrade
run-on: device
inputs: {bad: {type: string, default: ""}}
steps:
  - {id: install, step: my.install, input: {bad: "${bad}"}}
  - {id: reboot, step: my.reboot}
"""


@pytest.fixture
def fleet(project: Path) -> Path:
    (project / "blocks.py").write_text(BLOCKS)
    (project / "upgrade.yaml").write_text(UPGRADE)
    for id in ("r1", "r2", "r3"):
        assert holdfast("entity", "set", id, "--type", "device", cwd=project).code == 0
    return project


ON = ("--on", "type == 'device'")


def test_a_plan_for_people_and_for_programs(fleet: Path) -> None:
    text = holdfast("plan", "upgrade.yaml", *ON, cwd=fleet)
    assert text.code == 0, text
    assert "3 of type device" in text.out
    assert "r1, r2, r3" in text.out
    assert "if `install` fails on a device: rolled back, because `install` has a rollback" in text.out
    assert "if `reboot` fails on a device: UNSAFE, because `reboot` has no rollback and is not pure" in text.out
    assert "nothing was done" in text.err
    plan = holdfast("plan", "upgrade.yaml", *ON, "-o", "json", cwd=fleet).json
    assert (plan["jobs"], plan["counts"]) == (6, {"device": 3})
    assert [step["worst"] for step in plan["steps"]] == ["ROLLED_BACK", "UNSAFE"]
    assert [entity["id"] for entity in plan["entities"]] == ["r1", "r2", "r3"]
    assert holdfast("ps", "-o", "json", cwd=fleet).json == []


def test_what_could_not_begin_ends_as_check_does(fleet: Path) -> None:
    def planned(*args: str, **more: Any) -> Any:
        return holdfast("plan", *args, cwd=fleet, **more)

    wrong = planned("upgrade.yaml", "-i", "goood=1")
    assert (wrong.code, "HF0150" in wrong.out) == (2, True)
    broken = planned("-", stdin="steps: [{stepp: x}]")
    assert broken.code == 2
    assert "error[" in broken.out
    nobody = planned("upgrade.yaml", "--on", "r9")
    assert (nobody.code, "no entity is called r9" in nobody.out) == (2, True)
    selector = planned("upgrade.yaml", "--on", "type ==", "-o", "json")
    assert (selector.code, selector.json["problems"][0]["code"]) == (2, "HF0751")
    unknown = planned("-", stdin="steps: [{block: no.such}]")
    assert (unknown.code, "HF0211" in unknown.out) == (2, True)
    assert planned("nowhere.yaml").code == 2


def test_what_failed_is_retried_from_the_command_line(fleet: Path) -> None:
    (fleet / "upgrade.yaml").write_text(UPGRADE + "config: {max-failures: 1}\n")
    first = holdfast("run", "upgrade.yaml", *ON, "-i", "bad=r2", "-q", "-o", "json", cwd=fleet)
    assert first.code == 0, first
    id = first.json["id"]
    shown = holdfast("show", id, cwd=fleet)
    assert "3: 2 done, 1 failed" in shown.out
    assert f"holdfast retry {id[:8]} --failed" in shown.out
    again = holdfast(
        "retry", id[:8], "--failed", "-i", "bad=", "--follow", "-m", "blocks.py", "-o", "json", cwd=fleet
    )  # fmt: skip
    assert again.code == 0, again
    assert (again.json["status"], again.json["retry_of"], again.json["subjects"]["total"]) == ("COMPLETED", id, 1)
    assert f"Retried by: {again.json['id']}" in holdfast("show", id, cwd=fleet).out
    assert f"Retry of:  {id}" in holdfast("show", again.json["id"], cwd=fleet).out
    nothing = holdfast("retry", again.json["id"], "--failed", cwd=fleet)
    assert (nothing.code, "without --failed" in nothing.err) == (1, True)


def test_a_run_that_left_something_says_what_to_do_and_is_not_simply_retried(fleet: Path) -> None:
    steps = UPGRADE + "  - {id: finish, step: fail no}\n"
    (fleet / "upgrade.yaml").write_text(steps)
    first = holdfast("run", "upgrade.yaml", *ON, "-o", "json", cwd=fleet)
    assert first.code == 3, first
    id = first.json["id"]
    for command in (f"holdfast ledger {id[:8]} --left", f"holdfast ack {id[:8]}", f"holdfast retry {id[:8]} --failed"):
        assert command in first.err
        assert command in holdfast("show", id, cwd=fleet).out
    refused = holdfast("retry", id, "--failed", cwd=fleet)
    assert (refused.code, "HF0331" in refused.err, "holdfast ack" in refused.err) == (1, True, True)
    forced = holdfast("retry", id, "--force", "-o", "json", cwd=fleet)
    assert (forced.code, forced.json["retry_of"]) == (0, id)
    assert holdfast("ack", id, "--note", "seen", cwd=fleet).code == 0
    assert "ack" not in holdfast("show", id, cwd=fleet).out.split("Next")[1].split("Events")[0]
