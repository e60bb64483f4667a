"""The command line as a user has it: a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
COMMAND = [sys.executable, "-m", "holdfast.cli.main"]

BLOCKS = '''
import asyncio

from holdfast import Context, block


@block(name="my.slow", idempotent=True)
async def slow(ctx: Context, seconds: float = 1.0) -> float:
    """Take so long."""
    ctx.log(f"slow for {seconds}")
    await asyncio.sleep(seconds)
    return seconds
'''

SLOW = """
name: slow
steps:
  - {id: one, block: my.slow, input: {seconds: 1.2}}
  - {id: two, block: my.slow, input: {seconds: 0.6}}
  - return done
"""


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "CI", "NO_COLOR"))}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error::DeprecationWarning:holdfast", **extra}


class Done:
    """What a command said and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def holdfast(*arguments: str, cwd: Path, stdin: str | None = None, timeout: float = 40, **env: str) -> Done:
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, env=environment(**env), input=stdin, capture_output=True, text=True,
        timeout=timeout, stdin=subprocess.DEVNULL if stdin is None else None, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


class Background:
    """A command that goes on while the test does something else."""

    def __init__(self, *arguments: str, cwd: Path, **env: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=cwd, env=environment(**env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self, timeout: float = 40) -> Done:
        out, err = self.process.communicate(timeout=timeout)
        assert "Traceback" not in err, err
        return Done(self.process.returncode, out, err)


def until(what: Callable[[], Any], timeout: float = 15, pause: float = 0.05) -> Any:
    """The first answer that is true."""
    deadline = time.monotonic() + timeout
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(pause)


def server_of(folder: Path) -> dict[str, Any]:
    """server.json, once it is there."""

    def read() -> Any:
        try:
            return json.loads((folder / ".holdfast" / "server.json").read_text())
        except (OSError, ValueError):
            return None

    found: dict[str, Any] = until(read)
    return found


def plain(text: str) -> bool:
    """No colours, no cursor movements."""
    return not re.search(r"\x1b", text)
