"""Blocks for trying things out, under `test.`: nothing, echo, failures, waiting, and a witness on disk.

Always registered: a tutorial, a benchmark and a crash test use the same ones. They change nothing but
the file a witness is given.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

from holdfast.core.model import Effect

from .context import Context
from .declare import block
from .results import Failed, RetryLater


@block(name="test.noop")
async def noop(**given: Any) -> Any:
    """Do nothing; returns its input, if any. Neither pure nor idempotent, so nothing is optimised away."""
    return given or None


@block(name="test.echo")
async def echo(value: Any = None) -> Any:
    """Return `value`."""
    return value


@block(name="test.pure", pure=True)
async def pure(value: Any = None) -> Any:
    """Return `value`; declared pure."""
    return value


@block(name="test.idempotent", idempotent=True)
async def idempotent(value: Any = None) -> Any:
    """Return `value`; declared idempotent."""
    return value


@block(name="test.fail")
async def fail(
    message: str = "failed as asked",
    permanent: bool = False,
    effect: Literal["none", "done", "unknown"] | None = None,
    details: Any = None,
) -> None:
    """Fail, for good or not, saying what was changed or leaving it open."""
    said = None if effect is None else Effect[effect.upper()]
    raise Failed(message, permanent=permanent, effect=said, details=details)


@block(name="test.sleep")
async def sleep(seconds: float = 1.0, value: Any = None) -> Any:
    """Wait, then return `value`. Stops at once when cancelled."""
    await asyncio.sleep(seconds)
    return value


@block(name="test.flaky", idempotent=True)
async def flaky(ctx: Context, until: int = 3, value: Any = None) -> Any:
    """Fail until attempt number `until`, then return `value`."""
    if ctx.attempt < until:
        raise Failed(f"attempt {ctx.attempt} of {until} fails as asked")
    return value


@block(name="test.retry-later")
async def retry_later(ctx: Context, until: int = 2, after: float = 0.1, value: Any = None) -> Any:
    """Ask to be called again until attempt number `until`, then return `value`."""
    if ctx.attempt < until:
        raise RetryLater(after)
    return value


@block(name="test.witness")
async def witness(path: str, key: str, sync: bool = False) -> str:
    """Append the line `key` to a file: what happened outside, whatever the engine believes."""
    return _bear_witness(path, key, sync)


@block(name="test.witness-idempotent", idempotent=True)
async def witness_idempotent(path: str, key: str, sync: bool = False) -> str:
    """As `test.witness`, declared idempotent, so that a crash may show as a second line."""
    return _bear_witness(path, key, sync)


@block(name="test.crash", isolation="process")
def crash(code: int = 42) -> None:
    """End the process that runs it, without a word."""
    os._exit(code)


def _bear_witness(path: str, key: str, sync: bool) -> str:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # One write: lines of processes that append at the same time never mix.
        os.write(file, f"{key}\n".encode())
        if sync:
            os.fsync(file)
    finally:
        os.close(file)
    return key
