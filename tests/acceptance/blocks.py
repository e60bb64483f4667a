"""Plain functions: by default they run in a process of their own, which dies with its worker; some in threads.
And slow ones, which something is likely to happen to.
"""

from __future__ import annotations

import asyncio
import os

from holdfast import block


@block(name="sync.witness")
def witness(path: str, key: str) -> str:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.write(file, f"{key}\n".encode())
    os.close(file)
    return key


@block(name="sync.witness-idempotent", idempotent=True)
def witness_idempotent(path: str, key: str) -> str:
    return witness(path, key)


@block(name="sync.threaded", isolation="thread")
def threaded(path: str, key: str) -> str:
    return witness(path, key)


@block(name="sync.threaded-idempotent", isolation="thread", idempotent=True)
def threaded_idempotent(path: str, key: str) -> str:
    return witness(path, key)


@block(name="slow.witness")
async def slow(path: str, key: str) -> str:
    witness(path, key)
    await asyncio.sleep(0.3)
    return key


@block(name="slow.witness-idempotent", idempotent=True)
async def slow_idempotent(path: str, key: str) -> str:
    return await slow(path, key)
