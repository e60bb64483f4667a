"""The shell block against real programs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.blocks import Context, NothingDone, PermanentFailure, trees
from holdfast.blocks import shell as shell_module
from holdfast.blocks.commands import CommandFailed
from holdfast.blocks.shell import shell
from holdfast.blocks.values import encode
from holdfast.core.model import PAYLOAD_LIMIT, Effect


def run(command: str | list[str], **more: Any) -> dict[str, Any]:
    return asyncio.run(shell(command, Context("x1", 7, idempotency_key="key"), **more))


def test_text_goes_through_the_shell_and_a_list_does_not() -> None:
    assert run("echo $((1 + 1)); echo oops >&2") == {"stdout": "2\n", "stderr": "oops\n", "exit_code": 0}
    assert run(["printf", "%s", "$HOME; rm -rf /"])["stdout"] == "$HOME; rm -rf /"


def test_environment_directory_and_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER_KEY", "secret")
    result = run(
        'pwd; echo "$A $B $HOLDFAST_IDEMPOTENCY_KEY [$HOLDFAST_SERVER_KEY]"; cat',
        env={"A": "text", "B": {"x": [1, None]}},
        cwd=str(tmp_path),
        stdin="given",
    )
    assert result["stdout"] == f'{tmp_path}\ntext {{"x": [1, null]}} key []\ngiven'


def test_without_input_there_is_none() -> None:
    assert run("cat")["stdout"] == ""


def test_an_exit_code_not_asked_for_is_a_failure_with_all_that_was_said() -> None:
    with pytest.raises(CommandFailed, match="ended with exit code 3: no disk") as caught:
        run("echo partial; echo no disk >&2; exit 3")
    assert caught.value.details == {"stdout": "partial\n", "stderr": "no disk\n", "exit_code": 3}
    assert caught.value.effect is None
    with pytest.raises(CommandFailed) as caught:
        run(f"printf '%s' {'x' * 200}END >&2; exit 1")
    assert caught.value.message.endswith("x" * 77 + "END")
    assert caught.value.message.count("x") < 150


@pytest.mark.parametrize(
    ("wanted", "code"), [(3, 3), ([1, 2], 2), ("any", 9), ("0..3", 3), ({"less-than": 4}, 3), ({"not": 0}, 1)]
)
def test_other_exit_codes_may_be_wanted(wanted: Any, code: int) -> None:
    assert run(f"exit {code}", exit_code=wanted)["exit_code"] == code


def test_an_exit_code_that_cannot_be_read_is_said_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(NothingDone, match="`les-than` is no test") as caught:
        run("touch done", cwd=str(tmp_path), exit_code={"les-than": 4})
    assert caught.value.permanent
    assert not (tmp_path / "done").exists()


def test_death_by_signal_is_128_and_more() -> None:
    assert run(["sh", "-c", "kill -9 $$"], exit_code=137)["exit_code"] == 137


def test_long_output_keeps_its_end() -> None:
    result = run("yes | head -c 1000000; echo END", output_max_size=100)
    assert result["stdout"].startswith("... ")
    assert result["stdout"].endswith("y\nEND\n")
    assert len(result["stdout"]) == 104
    assert len(run("yes | head -c 300000", output_max_size=-1)["stdout"]) == 300_000


@pytest.mark.parametrize("limit", [-1, 100_000_000])
def test_more_than_a_result_can_hold_is_an_error_that_says_what_is_known(limit: int) -> None:
    with pytest.raises(PermanentFailure, match="set output_max_size") as caught:
        run("yes | head -c 3000000; echo END", output_max_size=limit)
    failure = caught.value
    assert (failure.code, failure.effect) == ("HF0701", Effect.DONE)
    assert failure.details["exit_code"] == 0
    assert failure.details["stdout"].endswith("y\nEND\n")
    assert encode(failure.details)[1] < PAYLOAD_LIMIT


def test_output_without_end_does_not_fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "FILE_LIMIT", 1024 * 1024)
    monkeypatch.setattr(shell_module, "LOOK", 0.02)
    kept: list[int] = []

    def look(file: Any, keep: int) -> None:
        shorten(file, keep)
        kept.append(os.fstat(file.fileno()).st_blocks * 512)

    shorten = shell_module._shorten
    monkeypatch.setattr(shell_module, "_shorten", look)
    result = run("i=0; while [ $i -lt 40 ]; do head -c 500000 /dev/zero | tr '\\0' y; i=$((i+1)); done; echo END")
    assert result["stdout"].endswith("yyyEND\n")
    assert len(result["stdout"]) == 100_004
    assert max(kept) < 10_000_000, "20 MB were written"


def test_what_cannot_be_started_has_done_nothing(tmp_path: Path) -> None:
    with pytest.raises(NothingDone, match="cannot start `/no/such/program`"):
        run(["/no/such/program"])
    with pytest.raises(NothingDone, match="cannot start"):
        run("true", cwd=str(tmp_path / "missing"))
    with pytest.raises(NothingDone, match="empty"):
        run([])
    with pytest.raises(NothingDone, match="empty"):
        run("")


def test_a_grandchild_that_keeps_the_output_open_does_not_hang_us() -> None:
    pid = int(run("sleep 30 & echo $!")["stdout"])
    # Still there, so it was not waited for; what a command leaves in the background is its own business.
    assert _is_alive(pid)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60 & echo $! > pid; sleep 60",
        "trap '' TERM; (trap '' TERM; echo $(exec sh -c 'echo $PPID') > pid; while :; do sleep 1; done) & wait; wait",
        "setsid sleep 60 & echo $! > pid; wait",
        "(setsid sleep 60 & echo $! > pid); sleep 60",
    ],
    ids=["group", "ignores SIGTERM", "own session", "double fork"],
)
def test_cancel_ends_the_command_and_all_it_started(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "GRACE", 0.3)

    async def main() -> int:
        task = asyncio.create_task(shell(command, Context(), cwd=str(tmp_path)))
        pid = tmp_path / "pid"
        await asyncio.to_thread(_until, lambda: pid.exists() and pid.read_text().strip())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        return int((tmp_path / "pid").read_text())

    assert not _is_alive(asyncio.run(main()))


def test_a_killed_worker_leaves_no_command_behind(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from holdfast.blocks import Context\n"
        "from holdfast.blocks.shell import shell\n"
        "asyncio.run(shell('sleep 60 & echo $! $$ > pids; wait', Context(), cwd=sys.argv[1]))\n"
    )
    source = str(Path(trees.__file__).parents[2])
    worker = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env={**os.environ, "PYTHONPATH": source})
    pids = tmp_path / "pids"
    _until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    worker.kill()
    worker.wait()
    found = [int(pid) for pid in pids.read_text().split()]
    _until(lambda: not any(_is_alive(pid) for pid in found))


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
