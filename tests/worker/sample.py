"""Blocks for the tests, in a module of their own: child processes have to import them."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import time
from typing import Any

from holdfast.blocks import Context, NothingDone, PermanentFailure, RetryLater, Unchanged, block

seen: contextvars.ContextVar[int] = contextvars.ContextVar("seen", default=0)


@block
async def add(a: int, b: int = 1) -> int:
    return a + b


@block
async def who(ctx: Context) -> dict[str, Any]:
    return {
        "execution": ctx.execution,
        "job": ctx.job,
        "attempt": ctx.attempt,
        "step": ctx.step,
        "workflow": ctx.workflow,
        "entity": ctx.entity.id,
        "key": ctx.idempotency_key,
        "details": ctx.details,
    }


@block
def who_child(ctx: Context) -> dict[str, Any]:
    return {"pid": os.getpid(), "job": ctx.job, "details": ctx.details, "parent": os.getppid()}


@block
async def raising(kind: str) -> Any:
    match kind:
        case "permanent":
            raise PermanentFailure("never", details={"a": 1})
        case "nothing":
            raise NothingDone("not begun")
        case "later":
            raise RetryLater(after=1.5)
        case "misfit":
            raise PermanentFailure(17, details=_nested(5000), effect="none")  # type: ignore[arg-type]
        case "nested":
            return _nested(5000)
        case "unchanged":
            return Unchanged({"same": True})
        case "exit":
            sys.exit(3)
        case "cancelled":
            raise asyncio.CancelledError
        case "large":
            return "x" * (2 * 1024 * 1024)
        case "object":
            return {"a": object()}
        case "long":
            raise ValueError("y" * 10_000)
        case _:
            return _deeper(kind)


@block
async def later(after: Any) -> None:
    raise RetryLater(float(after) if isinstance(after, str) else after)


@block(isolation="process")
def later_child(after: Any) -> None:
    raise RetryLater(float(after) if isinstance(after, str) else after)


def _nested(depth: int) -> Any:
    value: Any = ["at the bottom"]
    for n in range(depth - 1):
        value = [value] if n % 2 else {"a": value}
    return value


@block
async def nests(depth: int) -> Any:
    return _nested(depth)


@block(isolation="thread")
def nests_thread(depth: int) -> Any:
    return _nested(depth)


@block(isolation="process")
def nests_process(depth: int) -> Any:
    return _nested(depth)


@block
async def says_half(ctx: Context) -> str:
    ctx.log("half a pair: \udcff")
    return "said"


def _deeper(kind: str) -> None:
    raise KeyError(kind)


@block
async def counts() -> int:
    seen.set(seen.get() + 1)
    return seen.get()


@block
async def timed(seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.sleep(30)
    except TimeoutError:
        return "own timeout"
    return "slept"


@block
async def stubborn() -> str:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        return "finished anyway"
    return "slept"


def _talk(ctx: Context) -> None:
    ctx.log("hello")
    ctx.warning("careful")
    ctx.heartbeat({"done": 3})


@block
async def talks_async(ctx: Context) -> None:
    _talk(ctx)


@block(isolation="thread")
def talks_thread(ctx: Context) -> None:
    _talk(ctx)


@block(isolation="process")
def talks_process(ctx: Context) -> None:
    _talk(ctx)


@block(isolation="process")
async def async_in_process(value: int) -> int:
    await asyncio.sleep(0.01)
    return value + 1


@block(isolation="thread")
def waits_thread(ctx: Context) -> None:
    for _ in range(1000):
        ctx.check_cancelled()
        time.sleep(0.01)


@block
def waits_process(path: str = "", ignore: bool = False) -> str:
    """Wait in a child process, with a grandchild in a session of its own."""
    grandchild = subprocess.Popen(["sleep", "60"], start_new_session=True)
    if path:
        with open(path, "w") as file:
            file.write(f"{os.getpid()} {grandchild.pid}")
    while True:
        try:
            time.sleep(60)
        except BaseException:
            if not ignore:
                raise
    return "never"


@block
async def stays_a_while(path: str) -> str:
    with open(path, "a") as file:  # noqa: ASYNC230
        file.write("begun\n")
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        await asyncio.sleep(0.1)
    return "old"


@block
def cleans_up(path: str) -> None:
    try:
        open(path + ".begun", "w").close()
        time.sleep(60)
    finally:
        with open(path, "w") as file:
            file.write("clean")


@block
def prints() -> str:
    print("this must not reach the standard output of the worker")
    return "printed"


@block(isolation="thread")
def deaf() -> None:
    time.sleep(1)


@block
async def talks_then_waits(ctx: Context, seconds: float) -> None:
    _talk(ctx)
    await asyncio.sleep(seconds)
