"""A block that takes its time to say which entities it needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import block
from holdfast.blocks import Acquired


@block(name="slow.ask", pure=True)
async def ask(path: str) -> None:
    """Nothing."""


@ask.acquire
async def _which(path: str) -> Acquired:
    while not Path(path).exists():
        await asyncio.sleep(0.02)
    return Acquired()
