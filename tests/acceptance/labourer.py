"""A worker process made to be killed. `python -m tests.acceptance.labourer FOLDER PORT NAME`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from holdfast.transport.http import HttpLink
from holdfast.worker import Worker


async def main() -> None:
    folder, port, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    link = HttpLink(f"http://127.0.0.1:{port}", (folder / "token").read_text())
    worker = Worker(link, name=name, slots=64, processes=0)
    print("ready", flush=True)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
