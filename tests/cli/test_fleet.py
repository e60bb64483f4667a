"""Runs on entities, as they are shown: a line or a mark for each, how each ended, and what to do next."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.fleet import Fleet
from holdfast.language.reaching import BATCH

from .support import COMMAND, environment, holdfast

BLOCKS = """
from pathlib import Path

from holdfast import Context, NothingDone, block

HERE = Path(__file__).parent


@block(name="my.change", run_on="device")
async def change(ctx: Context) -> int:
    if ctx.entity.id == "d-02":
        raise ValueError("it broke")
    return 1


@block(name="my.wish", run_on="device")
async def wish(ctx: Context) -> int:
    if ctx.entity.id == "d-02" and not (HERE / "granted").exists():
        raise NothingDone("not granted", permanent=True)
    return 1
"""


def workflow(name: str, block: str, **config: object) -> str:
    said = "".join(f"  {key.replace('_', '-')}: {value}\n" for key, value in config.items())
    return f"name: {name}\nrun-on: device\nconfig:\n  rollback: none\n{said}steps:\n  - {{id: work, block: {block}}}\n"


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    (tmp_path / ".holdfast").mkdir(mode=0o700)
    (tmp_path / "blocks.py").write_text(BLOCKS)
    (tmp_path / "fails.yaml").write_text(workflow("fails", "my.change"))
    (tmp_path / "bears.yaml").write_text(workflow("bears", "my.change", max_failures=1, rollout="{batches: 20}"))
    (tmp_path / "wishes.yaml").write_text(workflow("wishes", "my.wish", execution_strategy="{parallel: yes}"))
    rows = "".join(f"d-{number:02},device\n" for number in range(1, 41))
    (tmp_path / "devices.csv").write_text(f"id,type\n{rows}")
    assert holdfast("inventory", "import", "devices.csv", cwd=tmp_path).code == 0
    return tmp_path


def fleet_of(folder: Path, id: str) -> Fleet:
    fleet = Fleet(str)
    for event in holdfast("events", id, "-o", "json", cwd=folder).json:
        fleet.apply(event)
    return fleet


def few(count: int) -> list[str]:
    return [word for number in range(1, count + 1) for word in ("--on", f"d-{number:02}")]


def test_each_is_named_with_its_verdict_and_what_to_do(devices: Path) -> None:
    done = holdfast("run", "fails.yaml", *few(3), "-o", "json", cwd=devices)
    assert done.code == 3
    short = done.json["id"][:8]
    assert "ok       d-01 › work" in done.err
    assert "failed   d-02 › work  it broke" in done.err
    assert re.search(r"d-02  \? in doubt  work  failed: it broke\n", done.err)
    # Nobody undid what was done to the others either.
    assert "3 entities  3 in doubt" in done.err
    assert f"holdfast ledger {short} --left" in done.err
    assert f"holdfast ack {short} --note" in done.err


def test_what_many_left_behind_is_counted_where_it_would_fill_the_screen(devices: Path) -> None:
    done = holdfast("run", "fails.yaml", "--on", "type == 'device'", "-o", "json", cwd=devices)
    short = done.json["id"][:8]
    assert "… and 10 more like that" in done.err
    shown = holdfast("show", short, cwd=devices).out
    assert "unsafe: effects of jobs 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 28 more remain" in shown
    why = " ".join(holdfast("why", short, cwd=devices).out.split())
    assert "40 effects remain. Job 1 (step work" in why
    assert "32 more are like that." in why
    assert "Job 9" not in why
    listed = holdfast("entity", "list", "--where", "id == 'd-02'", cwd=devices)
    assert "d-02 suspect  device" in listed.out


def test_a_run_that_waits_for_a_decision_says_so(devices: Path) -> None:
    (devices / "asks.yaml").write_text(workflow("asks", "my.change").replace("rollback: none", "rollback: manual"))
    started = holdfast("run", "asks.yaml", *few(1), "--on", "d-02", "--timeout", "3", cwd=devices)
    assert re.search(r"waits    if anything is left.*\(holdfast rollback (\w{8}) \| holdfast fail \1\)", started.err)
    (devices / "gated.yaml").write_text("gates: {approval: please}\n" + workflow("gated", "my.wish"))
    started = holdfast("run", "gated.yaml", *few(1), "--timeout", "3", cwd=devices)
    assert re.search(r"waits    for its gates: approval  \(holdfast why \w{8}\)", started.err)


def test_a_tolerated_failure_is_in_doubt_though_the_run_completed(devices: Path) -> None:
    done = holdfast("run", "bears.yaml", *few(3), "-o", "json", cwd=devices)
    assert (done.code, done.json["status"]) == (0, "COMPLETED")
    assert "3 entities  2 done · 1 in doubt" in done.err
    assert "once d-02 is right" in done.err
    assert [m.id for m in fleet_of(devices, done.json["id"]).doubtful] == ["d-02"]


def test_a_resumed_run_is_told_anew(devices: Path) -> None:
    done = holdfast("run", "wishes.yaml", *few(2), "-o", "json", cwd=devices)
    fleet = fleet_of(devices, done.json["id"])
    assert [fleet.verdict(member) for member in fleet.members] == ["in doubt", "failed"]
    (devices / "granted").touch()
    assert holdfast("resume", done.json["id"], cwd=devices).code == 0
    ended = holdfast("run", "--continue", done.json["id"], "-m", "blocks.py", cwd=devices)
    assert ended.code == 0, ended
    assert "2 entities  2 done" in ended.err
    assert "in doubt" not in ended.err


def on_a_terminal(folder: Path, *arguments: str, lines: int) -> tuple[int, str]:
    master, slave = pty.openpty()
    env = environment(TERM="xterm-256color", COLUMNS="80", LINES=str(lines))
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=env, stdin=slave, stdout=subprocess.DEVNULL, stderr=slave
    )
    os.close(slave)
    seen = b""
    while process.poll() is None or select.select([master], [], [], 0.2)[0]:
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:
                break
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r", "")
    return process.wait(10), text


def test_a_terminal_has_a_line_for_each_of_few(devices: Path) -> None:
    code, text = on_a_terminal(devices, "run", "bears.yaml", *few(3), lines=24)
    assert code == 0, text
    assert re.search(r"  ✓ d-01  \S+ +done", text)
    assert re.search(r"  \? d-02  \S+ +in doubt +failed: it broke", text)
    drawn = [line for line in text.splitlines() if re.match(r"  \S d-", line)]
    assert max(map(len, drawn)) < 80


def test_a_terminal_has_a_mark_for_each_of_many(devices: Path) -> None:
    code, text = on_a_terminal(devices, "run", "bears.yaml", "--on", "type == 'device'", lines=24)
    assert code == 0, text
    assert "  ✓?" + "✓" * 38 + "\n" in text
    assert "40 entities  39 done · 1 in doubt" in text
    # Those in trouble have their line all the same.
    assert re.search(r"  \? d-02  work  in doubt +failed: it broke", text)


def test_the_batch_is_known_by_the_name_that_the_interpreter_gives_it() -> None:
    fleet = Fleet(str)
    fleet.apply({"type": "EntitiesFound", "ids": ["a"], "types": ["device"]})
    fleet.apply({"type": "LaneAdvanced", "lane": 1, "ops": [[2, BATCH, 3]]})
    assert fleet.batch == 3
