"""Real processes for the crash tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: ended by the fixture `no_leftovers`
_LIVING: list[subprocess.Popen[str]] = []
ROOT = Path(__file__).parents[2]


def spawn(folder: Path, store: str, name: str, *more: str) -> subprocess.Popen[str]:
    with (folder / f"{name}.err").open("a") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.victim", str(folder), store, name, *more],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            # Not our own: a child that outlives a failing test would hold it open.
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
    _LIVING.append(child)
    assert child.stdout is not None
    with child.stdout as said:
        assert said.readline() == "ready\n", "the engine did not come up"
    return child


def end_all() -> None:
    for child in _LIVING:
        child.kill()
        child.wait()
    _LIVING.clear()
