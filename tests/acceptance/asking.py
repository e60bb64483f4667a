"""A block that takes its time to say which entities it needs."""

from __future__ import annotations

import asyncio
import os

from holdfast import block
from holdfast.blocks import Acquired


@block(name="slow.ask", pure=True)
async def ask(path: str) -> None:
    """Nothing."""


@ask.acquire
async def _which(path: str) -> Acquired:
    while not await asyncio.to_thread(os.path.exists, path):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return Acquired()
