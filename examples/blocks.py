"""Blocks of the examples. `holdfast run` finds this file beside the workflow."""

from __future__ import annotations

from holdfast import Context, NothingDone, block


@block(name="example.unreliable", idempotent=True)
async def unreliable(ctx: Context, fails: int = 2) -> dict[str, int]:
    """Fail so many times, then work."""
    if ctx.attempt <= fails:
        raise NothingDone(f"not yet: {ctx.attempt} of {fails} failures")
    ctx.log(f"worked at attempt {ctx.attempt}")
    return {"attempt": ctx.attempt}
