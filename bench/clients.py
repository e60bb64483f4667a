"""Who asks for executions and waits for them: in the engine's process, or over HTTP.

Over HTTP there are two: `Client`, the public one (synchronous, so one thread per execution in flight), and a thin
one on the event loop that does as little as the peers' own benches do. Each asks once per execution: start, and wait
for the end.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.client import Client
from holdfast.core.model import Status
from holdfast.embedded import Embedded
from holdfast.engine.engine import new_execution_id
from holdfast.store.records import Header

#: seconds after which an execution that nobody spoke of is looked up: on a shared store another engine may end it
LOOK_AFTER = 0.5


class Inside:
    """Callbacks in the engine's process, no thread per execution: how a program with many would do it."""

    def __init__(self, holdfast: Embedded) -> None:
        self.holdfast = holdfast
        self._published: set[str] = set()

    def publish(self, definition: Mapping[str, Any]) -> str:
        name = str(definition["name"])
        if name not in self._published:
            self.holdfast.service.publish(self.holdfast.actor, definition)
            self._published.add(name)
        return name

    def run_many(self, definition: Mapping[str, Any], count: int, in_flight: int) -> float:
        """Seconds until `count` executions have completed, `in_flight` at a time."""
        name = self.publish(definition)
        engine, service, actor = self.holdfast.engine, self.holdfast.service, self.holdfast.actor
        room = threading.Semaphore(in_flight)
        lock = threading.Lock()
        pending: dict[str, Any] = {}
        failed: list[str] = []

        def settle(id: str, status: Status) -> None:
            with lock:
                unwatch = pending.pop(id, None)
            if unwatch is None:
                return
            unwatch()
            if status is not Status.COMPLETED:
                failed.append(f"{id} {status.name}")
            room.release()

        def start_one() -> None:
            id = new_execution_id()

            def moved(header: Header | None) -> None:
                if header is not None and header.status.is_ended:
                    settle(id, header.status)

            def answered(value: Any, error: Exception | None) -> None:
                if error is not None:
                    failed.append(str(error))
                    settle(id, Status.COMPLETED)

            pending[id] = engine.watch(id, moved)
            service.submit_start(actor, workflow=name, id=id, reply=answered)

        def acquire() -> None:
            while not room.acquire(timeout=LOOK_AFTER):
                with lock:
                    ids = list(pending)
                with self.holdfast.store.reading() as queries:
                    for id in ids:
                        header = queries.header(actor.tenant, id)
                        if header is not None and header.status.is_ended:
                            settle(id, header.status)

        began = time.perf_counter()
        for _ in range(count):
            acquire()
            start_one()
        for _ in range(in_flight):
            acquire()
        seconds = time.perf_counter() - began
        if failed:
            raise RuntimeError(f"{len(failed)} executions did not complete: {failed[0]}")
        return seconds

    def run_one(self, definition: Mapping[str, Any]) -> None:
        view = self.holdfast.run(workflow=self.publish(definition))
        if view.status != "COMPLETED":
            raise RuntimeError(f"{view.id} {view.status}")


class Threads:
    """The public client, a thread per execution in flight."""

    def __init__(self, address: str, token: str) -> None:
        self.client = Client(address, token)
        self._published: set[str] = set()

    def publish(self, definition: Mapping[str, Any]) -> str:
        name = str(definition["name"])
        if name not in self._published:
            self.client.publish(definition)
            self._published.add(name)
        return name

    def run_many(self, definition: Mapping[str, Any], count: int, in_flight: int) -> float:
        name = self.publish(definition)
        began = time.perf_counter()
        with ThreadPoolExecutor(in_flight) as pool:
            for _ in pool.map(lambda _: self._one(name), range(count)):
                pass
        return time.perf_counter() - began

    def run_one(self, definition: Mapping[str, Any]) -> None:
        self._one(self.publish(definition))

    def _one(self, name: str) -> None:
        view = self.client.run(workflow=name)
        if view.status != "COMPLETED":
            raise RuntimeError(f"{view.id} {view.status}")


class Thin(Threads):
    """As few instructions per request as Python allows: what is measured is the server."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(address, token)
        self.host, _, port = address.removeprefix("http://").partition(":")
        self.port = int(port)
        self.token = token
        self._loop = asyncio.new_event_loop()
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def run_many(self, definition: Mapping[str, Any], count: int, in_flight: int) -> float:
        name = self.publish(definition)
        began = time.perf_counter()
        self._loop.run_until_complete(self._many(name, count, in_flight))
        return time.perf_counter() - began

    def run_one(self, definition: Mapping[str, Any]) -> None:
        self._loop.run_until_complete(self._execution(self.publish(definition)))

    async def _many(self, name: str, count: int, in_flight: int) -> None:
        numbers = iter(range(count))

        async def caller() -> None:
            for _ in numbers:
                await self._execution(name)

        await asyncio.gather(*(caller() for _ in range(min(in_flight, count))))

    async def _execution(self, name: str) -> None:
        started = await self._ask("POST", "/api/v1/executions?wait=20", json.dumps({"workflow": name}).encode())
        while not (view := json.loads(started))["ended_at"]:
            started = await self._ask("GET", f"/api/v1/executions/{view['id']}?wait=20", b"")
        if view["status"] != "COMPLETED":
            raise RuntimeError(f"{view['id']} {view['status']}")

    async def _ask(self, method: str, path: str, body: bytes) -> bytes:
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(self.host, self.port)
        head = f"{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {self.token}\r\n"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.split(b"content-length:")[1].split(b"\r\n")[0])
        data = await reader.readexactly(length)
        self._idle.append((reader, writer))
        if int(answer[9:12]) >= 300:
            raise RuntimeError(f"{method} {path}: {data[:200]!r}")
        return data
