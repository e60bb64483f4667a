"""Readers that leave, streams that are closed, terminals that hang up: the exit code says what the work came to."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import COMMAND, Background, environment, holdfast, server_of, until

FAILS = "name: fails\nsteps: [shell sleep 0.5, shell echo x, log a, log b, fail message no luck]\n"


@pytest.fixture(autouse=True)
def hung_up() -> Iterator[None]:
    """A suite that runs under nohup passes its deafness on to everything it starts; here it must not."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def piped(cwd: Path, *arguments: str, lines: int, both: bool = True) -> tuple[int, bytes]:
    """Run it into a real pipe whose reader leaves after so many lines: exit code, and what was read."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=cwd, env=environment(), stdin=subprocess.DEVNULL, stdout=write,
        stderr=write if both else subprocess.DEVNULL,
    )  # fmt: skip
    os.close(write)
    with os.fdopen(read, "rb") as reader:
        seen = b"".join(reader.readline() for _ in range(lines))
    return process.wait(40), seen


def test_a_run_goes_on_without_its_reader_and_keeps_its_exit_code(project: Path) -> None:
    (project / "fails.yaml").write_text(FAILS)
    code, seen = piped(project, "run", "slow.yaml", lines=2)
    assert code == 0
    assert seen.count(b"\n") == 2
    assert [view["status"] for view in holdfast("ps", "-o", "json", cwd=project).json] == ["COMPLETED"]
    assert piped(project, "run", "fails.yaml", lines=1)[0] == 3
    ids = [view["id"] for view in holdfast("ps", "-o", "json", cwd=project).json]
    assert piped(project, "watch", ids[0], lines=0)[0] == 3
    assert piped(project, "run", "fails.yaml", "-o", "json", lines=0, both=False)[0] == 3
    assert piped(project, "demo", lines=1)[0] == 0
    # Looking is over when nobody looks.
    assert piped(project, "events", ids[0], lines=1)[0] == 0
    assert piped(project, "show", ids[0], lines=0)[0] == 0
    with Background("up", cwd=project):
        server_of(project)
        waits = holdfast("run", "--detach", "-", cwd=project, stdin="steps: [log hi, wait-signal go]").out.strip()
        assert piped(project, "events", waits, lines=1)[0] == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams(project: Path, closed: str) -> None:
    (project / "fails.yaml").write_text(FAILS)
    command = f"exec {' '.join(COMMAND)} $0 {closed}"
    for arguments, code in (("run fails.yaml", 3), ("run fails.yaml -o json", 3), ("ps", 0), ("doctor", 0)):
        line = command.replace("$0", arguments)
        done = subprocess.run(["/bin/sh", "-c", line], cwd=project, env=environment(), capture_output=True, check=False)
        assert done.returncode == code, (arguments, done)
        assert b"bug" not in done.stderr
    assert holdfast("verify", cwd=project).code == 0


def test_output_that_cannot_be_written(project: Path) -> None:
    (project / "hi.yaml").write_text("steps: [return hi]")
    with open("/dev/full", "w") as full:
        for arguments, code in ((["run", "hi.yaml"], 0), (["ps"], 1)):
            done = subprocess.run(
                [*COMMAND, *arguments], cwd=project, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
            )
            assert done.returncode == code, done
            assert b"output cannot be written: No space left" in done.stderr


def test_a_terminal_that_hangs_up_leaves_a_durable_run(project: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "run", "slow.yaml"], cwd=project, env=environment(TERM="xterm"), stdin=slave, stdout=slave,
        stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    until(lambda: holdfast("ps", "-s", "open", "-o", "json", cwd=project).json)
    os.close(master)
    for _ in range(3):  # the system says so, and so does the shell
        process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    assert process.wait(20) == 130
    view = holdfast("ps", "-o", "json", cwd=project).json[0]
    done = holdfast("run", "--continue", view["id"], "-m", "blocks.py", cwd=project)
    assert (done.code, done.out) == (0, "done\n")
    # What was running when it hung up was let end, and not done twice.
    assert [job["attempt"] for job in holdfast("jobs", view["id"], "-o", "json", cwd=project).json] == [1, 1]


def test_up_drains_when_its_terminal_hangs_up(project: Path) -> None:
    with Background("up", cwd=project) as up:
        server_of(project)
        up.process.send_signal(signal.SIGHUP)
        up.process.send_signal(signal.SIGHUP)
        done = up.end()
    assert done.code == 0, done
    assert "stopped" in done.err


def test_nohup_is_heeded(project: Path) -> None:
    command = "while [ ! -e go ]; do sleep 0.05; done"  # it goes on when it is let, however slow we are
    (project / "held.yaml").write_text(
        f"steps:\n  - {{block: shell, input: {{command: '{command}'}}}}\n  - return done\n"
    )
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"trap '' HUP; exec {' '.join(COMMAND)} run held.yaml"], cwd=project, env=environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: holdfast("ps", "-s", "open", "-o", "json", cwd=project).json)
    process.send_signal(signal.SIGHUP)
    (project / "go").touch()
    assert (process.communicate(timeout=30)[0], process.returncode) == (b"done\n", 0)
