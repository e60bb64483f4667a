"""Blocks of the demo: they only pretend. A block is a function; what it returns is its result."""

from __future__ import annotations

import asyncio

from holdfast import Context, block


@block(name="switch.backup", idempotent=True)
async def backup(host: str, ctx: Context) -> str:
    """Save the running configuration."""
    await asyncio.sleep(0.4 + len(host) % 3 * 0.1)
    return f"{host}.cfg"


@block(name="switch.install", idempotent=True)
async def install(host: str, image: str, ctx: Context, trouble: int = 0) -> str:
    """Copy and activate an image. Installing what is installed changes nothing, so it may be repeated."""
    await asyncio.sleep(0.7)
    if ctx.attempt <= trouble:
        raise ConnectionError(f"{host} closed the connection during the copy")
    await asyncio.sleep(0.3)
    ctx.log(f"{host} is on {image}" + (f", at attempt {ctx.attempt}" if ctx.attempt > 1 else ""))
    return image


@block(name="switch.version", pure=True)
async def version(host: str, image: str) -> str:
    """Ask for the version that is running."""
    await asyncio.sleep(0.3)
    return image
