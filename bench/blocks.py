"""Blocks that only benches need: a step that counts itself, and one that leaves a line outside with its time."""

from __future__ import annotations

import os
import time

from holdfast import Context, block

#: process CPU seconds when the n-th call of `bench.count` ran
cpu_at: list[float] = []


@block(name="bench.count")
async def count() -> None:
    """Do nothing, and note how much CPU this process had used."""
    cpu_at.append(time.process_time())


@block(name="bench.touch")
async def touch(path: str, key: str) -> None:
    """Append `key` and the time to a file."""
    _append(path, key)


@block(name="bench.touch-idempotent", idempotent=True)
async def touch_idempotent(path: str, key: str) -> None:
    """The same, declared idempotent."""
    _append(path, key)


_files: dict[str, int] = {}


def _append(path: str, key: str) -> None:
    file = _files.get(path)
    if file is None:
        file = _files[path] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    # One write: lines of two processes never mix.
    os.write(file, f"{key} {time.time():.4f}\n".encode())


@block(name="bench.upgrade", run_on="device")
async def upgrade(ctx: Context, image: str = "1.2.3", fail: str = "") -> dict[str, str]:
    """Pretend to change a device; it can be undone. `fail`: on which device not."""
    if fail and fail in (ctx.entity.id, "all"):
        raise RuntimeError(f"{ctx.entity.id} does not answer")
    return {"before": "1.2.2", "after": image}


@upgrade.verify
async def upgrade_looked() -> bool:
    return True


@upgrade.rollback
async def upgrade_undone(result: dict[str, str] | None = None) -> None:
    """Nothing was done, so nothing is undone."""


#: when the n-th call of `bench.tick` ran
ticks: list[float] = []


@block(name="bench.tick")
async def tick() -> None:
    """Do nothing, and note when."""
    ticks.append(time.perf_counter())
