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
from .results import Acquired, Applied, Failed, NotApplied, RetryLater


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


@block(name="test.undoable", run_on="device")
async def undoable(
    path: str,
    key: str,
    ctx: Context,
    fail: Literal["no", "before", "after"] = "no",
    seconds: float = 0.0,
    undo: Literal["yes", "no"] = "yes",
) -> dict[str, Any]:
    """Append the line `+KEY ENTITY` to a file; `verify` looks for it, and `rollback` appends `-KEY ENTITY`.

    `fail` says when it fails, `seconds` how long it takes after its line, and `undo: no` has its rollback fail.
    """
    if fail == "before":
        raise Failed("failed as asked before anything was done")
    line = f"{key} {ctx.entity.id}"
    _bear_witness(path, f"+{line}", True)
    await asyncio.sleep(seconds)
    if fail == "after":
        raise Failed("failed as asked after its line was written")
    return {"line": line}


@undoable.verify
async def _look(path: str, key: str, ctx: Context) -> Applied | NotApplied:
    lines = _testimony(path)
    line = f"{key} {ctx.entity.id}"
    return Applied({"line": line}) if lines.count(f"+{line}") > lines.count(f"-{line}") else NotApplied()


@undoable.rollback
async def _undo(path: str, key: str, undo: Literal["yes", "no"], ctx: Context) -> None:
    if undo == "no":
        raise Failed("cannot be undone, as asked")
    lines = _testimony(path)
    line = f"{key} {ctx.entity.id}"
    if lines.count(f"+{line}") > lines.count(f"-{line}"):
        _bear_witness(path, f"-{line}", True)


@block(name="test.acquire", pure=True)
async def acquire(ctx: Context, ids: list[str] | None = None, select: list[str] | None = None) -> Any:
    """Ask for entities, by id and by selector; run, it returns the one it runs on."""
    return dict(ctx.entity) or None


@acquire.acquire
async def _which(ids: list[str] | None, select: list[str] | None) -> Acquired:
    return Acquired(ids or (), select or ())


@block(name="test.update", run_on="device", idempotent=True)
async def update(ctx: Context, facts: dict[str, Any] | None = None, labels: dict[str, str | None] | None = None) -> str:
    """Ask for changes of the entity it runs on; they are made when the execution completes."""
    ctx.update(facts=facts, labels=labels)
    return ctx.entity.id


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


def _testimony(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
