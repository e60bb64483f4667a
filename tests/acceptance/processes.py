"""Real processes for the crash tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

#: ended by the fixture `no_leftovers`
_LIVING: list[subprocess.Popen[str]] = []
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def spawn(folder: Path, store: str, name: str, *more: str) -> subprocess.Popen[str]:
    """An engine."""
    return spawn_module("tests.acceptance.victim", folder, store, name, *more)


def spawn_worker(folder: Path, port: int, name: str) -> subprocess.Popen[str]:
    return spawn_module("tests.acceptance.labourer", folder, str(port), name)


def spawn_module(module: str, folder: Path, place: str, name: str, *more: str) -> subprocess.Popen[str]:
    """Any program that takes a folder, an address and a name, and says `ready`."""
    with (folder / f"{name}.err").open("a") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(folder), place, name, *more],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            # Not our own: a child that outlives a failing test would hold it open.
            stderr=errors,
            text=True,
            env=ENVIRONMENT,
        )
    _LIVING.append(child)
    assert child.stdout is not None
    with child.stdout as said:
        assert said.readline() == "ready\n", f"{module} {name} did not come up"
    return child


def end_all() -> None:
    for child in _LIVING:
        child.kill()
        child.wait()
    _LIVING.clear()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def verify_beside(address: str) -> None:
    """`holdfast verify`, as a user would run it beside a working engine."""
    command = [sys.executable, "-m", "holdfast.cli.main", "verify", "--store", address]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
