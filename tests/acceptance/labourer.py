"""A worker process made to be killed. `python -m tests.acceptance.labourer FOLDER PORT NAME [PROCESSES]`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.transport.http import HttpLink
from holdfast.worker import Worker


def main(arguments: Sequence[str]) -> None:
    asyncio.run(_live(*arguments))


async def _live(folder: str, port: str, name: str, processes: str = "0") -> None:
    link = HttpLink(f"http://127.0.0.1:{port}", (Path(folder) / "worker.token").read_text())
    modules = ["tests.acceptance.thirty", *(["tests.acceptance.blocks"] if int(processes) else [])]
    worker = Worker(link, name=name, slots=64, modules=modules, processes=int(processes))
    print("ready", flush=True)
    await worker.run()


if __name__ == "__main__":
    main(sys.argv[1:])
