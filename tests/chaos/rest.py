"""Feeds an engine over HTTP from outside, however often it dies, and notes what was acknowledged."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.client import Client
from holdfast.core.errors import Refused
from tests.acceptance.workload import definition

#: starts per second of one thread
PACE = 40.0
THREADS = 3


class RestFeeder:
    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._address = f"http://127.0.0.1:{port}"
        self._acks = os.open(folder / "acks", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._feed, args=(n,), daemon=True) for n in range(THREADS)]
        self._definitions = {kind: definition(kind) for kind in ("plain", "repeatable")}
        self.fed = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        os.close(self._acks)

    def until_fed(self, more: int, seconds: float = 10.0) -> None:
        """Until so many more were acknowledged."""
        enough, deadline = self.fed + more, time.monotonic() + seconds
        while self.fed < enough and time.monotonic() < deadline:
            time.sleep(0.01)

    def _feed(self, n: int) -> None:
        token = self._folder / "author.token"
        client: Client | None = None
        is_known = False
        while not self._over.is_set():
            try:
                if client is None:
                    client = Client(self._address, token.read_text())
                if not is_known:
                    # A block that was never registered ends an execution at once; that is not what is tested here.
                    is_known = "test.witness" in {offer.name for offer in client.blocks()}
                    continue
                kind = "plain" if n % 2 else "repeatable"
                given = {"witness": str(self._folder / "witness"), "n": n}
                view = client.start(definition=self._definitions[kind], input=given)
                os.write(self._acks, f"{view.id} {kind} {n}\n".encode())
                self.fed += 1
            except (Refused, FileNotFoundError):
                self._over.wait(0.05)  # it is dead, or about to be
            n += THREADS
            self._over.wait(1 / PACE)
        if client is not None:
            client.close()
