"""Built-in blocks under the runner: what the engine is told when they are stopped, and in which words."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.blocks import Cancelled, Context, Registry, block, trees
from holdfast.core.model import Effect
from tests.services.ssh import SshServer
from tests.worker.support import bench, in_time, parcel


@pytest.fixture
def mute() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_step_that_takes_too_long_is_ended_over_there(ssh_server: SshServer) -> None:
    async def main() -> Any:
        async with bench() as b:
            given = {"command": "touch begun; sleep 60", **ssh_server.parameters}
            future = b.start(parcel("ssh", given, timeout=3_000_000))
            return await in_time(future)

    outcome = asyncio.run(main())
    assert outcome.failure is not None
    assert outcome.failure.kind == "timeout"
    assert outcome.effect is None, "it began, so nobody can tell"
    assert (ssh_server.root / "begun").exists()
    (pid,) = ssh_server.pids
    # It confirmed the end of the command; what the command had started got the same signal.
    deadline = time.monotonic() + 10
    while trees.members(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_stopped_while_it_connects_is_known_to_have_done_nothing(mute: int) -> None:
    async def main() -> Any:
        async with bench() as b:
            stopped = await in_time(
                b.start(parcel("ssh", {"command": "true", "host": "127.0.0.1", "port": mute}, timeout=300_000))
            )
            future = b.start(parcel("ssh", {"command": "true", "host": "127.0.0.1", "port": mute}, job=2))
            await asyncio.sleep(0.1)
            b.runner.cancel(("x1", 2, 1), "enough")
            return stopped, await in_time(future)

    timed, cancelled = asyncio.run(main())
    assert (timed.failure.kind, timed.effect) == ("timeout", Effect.NONE)
    assert (cancelled.failure.message, cancelled.effect) == ("enough", Effect.NONE)
    assert cancelled.is_cancelled


@block(name="stops", isolation="thread")
def stops(ctx: Context, effect: str, path: str) -> None:
    Path(path).touch()
    while not ctx.is_cancelled:
        time.sleep(0.01)
    raise Cancelled("stopped", effect=Effect[effect] if effect in Effect.__members__ else effect)  # type: ignore[arg-type]


def _until_there(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("said", "heard"), [("NONE", Effect.NONE), ("DONE", Effect.DONE), ("nonsense", None)])
def test_a_block_may_say_what_it_had_changed_when_it_was_stopped(
    said: str, heard: Effect | None, tmp_path: Path
) -> None:
    async def main() -> Any:
        async with bench(Registry([stops])) as b:
            future = b.start(parcel("stops", {"effect": said, "path": str(tmp_path / "begun")}))
            await asyncio.to_thread(_until_there, tmp_path / "begun")
            b.runner.cancel(("x1", 1, 1), "enough")
            return await in_time(future)

    outcome = asyncio.run(main())
    assert outcome.is_cancelled
    assert outcome.effect is heard


def test_a_failure_carries_its_code() -> None:
    async def main() -> Any:
        async with bench() as b:
            return await b.run(parcel("shell", {"command": "yes | head -c 3000000", "output_max_size": -1}))

    outcome = asyncio.run(main())
    assert outcome.failure.code == "HF0701"
    assert (outcome.is_permanent, outcome.effect) == (True, Effect.DONE)
