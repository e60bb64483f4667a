"""Blocks with hooks, one for each isolation, and one block in two versions."""

from __future__ import annotations

import os
from typing import Any, Literal

from holdfast.blocks import Acquired, Applied, Context, NotApplied, Unknown, block

Found = Literal["applied", "not", "unknown", "yes", "no", "none", "nonsense"]
ANSWERS: dict[str, Any] = {
    "applied": Applied({"image": "v2"}),
    "not": NotApplied(),
    "unknown": Unknown(),
    "yes": True,
    "no": False,
    "none": None,
    "nonsense": 5,
}


def told(ctx: Context, **given: Any) -> dict[str, Any]:
    return {
        "kind": ctx.kind,
        "fence": ctx.fence,
        "attempt": ctx.attempt,
        "entity": ctx.entity,
        "pid": os.getpid(),
        **given,
    }


def change(ctx: Context, facts: dict[str, Any]) -> None:
    ctx.update(facts=facts, labels={"seen": "yes", "old": None})
    ctx.create("new-1", type="interface", parent=ctx.entity.id, facts={"n": 1}, groups=["g"])
    ctx.delete("gone-1")


@block(name="on-loop", run_on="device")
async def on_loop(image: str, ctx: Context, found: Found = "applied") -> Any:
    change(ctx, {"image": image})
    return told(ctx)


@on_loop.acquire
async def loop_acquire(image: str, ctx: Context) -> Any:
    return Acquired(ids=[f"{image}-a"], select='type == "device"')


@on_loop.verify
async def loop_verify(found: Found) -> Any:
    return ANSWERS[found]


@on_loop.rollback
async def loop_rollback(image: str, result: Any, ctx: Context) -> Any:
    return told(ctx, image=image, result=result)


@block(name="in-thread", isolation="thread", run_on="device")
def in_thread(image: str, ctx: Context, found: Found = "applied") -> Any:
    change(ctx, {"image": image})
    return told(ctx)


@in_thread.acquire
def thread_acquire(image: str) -> Any:
    return {f"{image}-b", f"{image}-a"}


@in_thread.verify
def thread_verify(found: Found) -> Any:
    return ANSWERS[found]


@in_thread.rollback
def thread_rollback(image: str, result: Any, ctx: Context) -> Any:
    return told(ctx, image=image, result=result)


@block(name="in-process", isolation="process", run_on="device")
def in_process(image: str, ctx: Context, found: Found = "applied") -> Any:
    change(ctx, {"image": image})
    return told(ctx)


@in_process.acquire
def process_acquire(image: str) -> Any:
    return [f"{image}-a", f"{image}-b"]


@in_process.verify
async def process_verify(found: Found) -> Any:
    return ANSWERS[found]


@in_process.rollback
def process_rollback(image: str, result: Any, ctx: Context) -> Any:
    return told(ctx, image=image, result=result)


@block(name="greet", version="1.0")
async def greet_one() -> str:
    return "one"


@block(name="greet", version="1.1.0", isolation="process")
def greet_two() -> str:
    return "two"


@block(name="asks")
async def asks(ctx: Context, what: str) -> None:
    if what == "too many":
        for n in range(1001):
            ctx.update(f"e{n}")
    elif what == "too long":
        ctx.update("e", facts={"x": "x" * 70_000})
    elif what == "of nothing":
        ctx.update(facts={"a": 1})
    elif what == "no data":
        ctx.update("e", facts={"a": object()})
    elif what == "no text":
        ctx.update("e", labels={"a": 1})  # type: ignore[dict-item]


@asks.rollback
async def asks_back(ctx: Context) -> None:
    ctx.update("e", facts={"a": 1})


@block(name="changes-and-fails")
async def changes_and_fails(ctx: Context) -> None:
    ctx.update("e", facts={"a": 1})
    raise RuntimeError("after all")
