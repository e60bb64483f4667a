"""The load of the disk tests: whole engines on a disk one can look into, and what they said to the outside.

Everything an engine tells anybody is noted with the length of the disk's log at that moment: starts, published
workflows, keys, versions of executions, and each time a block began. What a disk lost is then a comparison.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from holdfast.blocks import Context, Failed, Registry, block
from holdfast.core.errors import ExecutionEnded, Refused, SyncFailed, WorkerSuperseded
from holdfast.core.model import Actor, Status
from holdfast.embedded import check_fingerprint
from holdfast.engine import writing
from holdfast.engine.engine import Engine, new_execution_id
from holdfast.engine.items import future_reply
from holdfast.engine.service import Service
from holdfast.language import canonical, program_from_bytes
from holdfast.store.records import Header
from holdfast.store.sqlite import SqliteStore
from holdfast.transport.local import LocalLink
from holdfast.worker import Worker

from .vfs import Disk

ACTOR = Actor("chaos")
KEY = bytes(32)
OPEN = tuple(status for status in Status if not status.is_ended)

PLAIN = {"block": "chaos.plain", "input": {"key": "${workflow.id}/plain"}}
SAFE = {"block": "chaos.repeatable", "input": {"key": "${workflow.id}/repeatable", "value": "${n}"}}

DEFINITIONS: dict[str, dict[str, Any]] = {
    "short": {"name": "short", "inputs": {"n": "integer"}, "steps": [PLAIN, "log n is ${n}", "return ${n + 1}"]},
    "long": {
        "name": "long",
        "inputs": {"n": "integer", "ballast": "string"},
        "steps": [
            SAFE,
            "let text = ${ballast}",
            {"block": "chaos.flaky", "retry": {"attempts": 3, "delay": "4ms"}},
            {"parallel": [PLAIN, ["sleep 3ms", {"block": "chaos.grow", "input": {"text": "${text}"}}]]},
            "sleep 5ms",
            SAFE,
            "return ${n + 1}",
        ],
    },
    "patient": {
        "name": "patient",
        "inputs": {"n": "integer"},
        "steps": [SAFE, "wait-signal go", PLAIN, "return ${n + 1}"],
    },
}


class ChaosStore(SqliteStore):
    """The real store, with journals small enough that a short life goes through many checkpoints. To prove that the
    judges can see, it may be made worse: `synchronous` below FULL; `is_trusting` what an earlier life left behind."""

    def __init__(
        self,
        path: Path,
        disk: Disk | None = None,
        *,
        synchronous: str = "FULL",
        pages: int = 0,
        is_trusting: bool = False,
    ) -> None:
        self._synchronous = synchronous
        self._is_trusting = is_trusting
        self.checkpoint_after = pages or self.checkpoint_after
        super().__init__(path, vfs=disk.name if disk else None)

    def _make_safe(self, connection: apsw.Connection) -> None:
        super()._make_safe(connection)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.set_busy_timeout(50)
        connection.execute(f"PRAGMA journal_size_limit = {self.checkpoint_after * 4096}")

    def _rewrite_journal(self) -> None:
        if not self._is_trusting:
            super()._rewrite_journal()

    def forget_readers(self) -> None:
        """The next question is asked over a new connection."""
        for reader in self._readers:
            reader.connection.close()
        self._readers.clear()

    def crash(self) -> None:
        """Leave the files as a process that dies leaves them: nothing is tidied up."""
        self._failed = self._failed or SyncFailed("as if the process had died")
        self.close()


@contextmanager
def small_snapshots() -> Iterator[None]:
    """A snapshot every few events instead of every 256: short histories have them too."""
    before, writing.SNAPSHOT_EVERY = writing.SNAPSHOT_EVERY, 8
    try:
        yield
    finally:
        writing.SNAPSHOT_EVERY = before


@dataclass
class Mark:
    """Somebody was told that this execution has come to this version."""

    at: int
    execution: str
    version: int
    digest: bytes


@dataclass
class Said:
    """What the outside knows."""

    log: list[Any]
    marks: list[Mark] = field(default_factory=list)
    #: keys of blocks that began, and when
    began: list[tuple[int, str]] = field(default_factory=list)
    #: idempotency key → execution
    keys: list[tuple[int, str, str]] = field(default_factory=list)
    #: name and version of published workflows
    published: list[tuple[int, str, int]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def heard(self, header: Header | None) -> None:
        if header is not None:
            self.marks.append(Mark(len(self.log), header.id, header.version, header.digest))

    def plain_runs(self, until: int) -> Counter[str]:
        """How often each block that may run once began before that moment."""
        return Counter(key for at, key in self.began if at <= until and key.endswith("/plain"))


def registry(said: Said) -> Registry:
    def begin(key: str) -> None:
        said.began.append((len(said.log), key))

    @block(name="chaos.plain")
    async def plain(key: str) -> None:
        begin(key)
        await asyncio.sleep(0)

    @block(name="chaos.repeatable", idempotent=True)
    async def repeatable(key: str, value: int = 0) -> int:
        begin(key)
        return value

    @block(name="chaos.flaky", idempotent=True)
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 2:
            raise Failed("the first attempt fails as asked")
        return ctx.attempt

    @block(name="chaos.grow", pure=True)
    async def grow(text: str) -> str:
        return text * 2

    return Registry([plain, repeatable, flaky, grow], built_in=False)


class CutLink(LocalLink):
    """A line that can be cut, as when the process on one end dies: nobody hears of anything any more."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._cut: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._is_cut = False

    def cut(self) -> None:
        self._is_cut = True
        for loop, event in self._cut:
            loop.call_soon_threadsafe(event.set)

    async def _call(self, ask: Callable[[Any], None]) -> Any:
        if not self._cut:
            self._cut.append((asyncio.get_running_loop(), asyncio.Event()))
        if self._is_cut:
            raise WorkerSuperseded("the line was cut")
        call = asyncio.ensure_future(super()._call(ask))
        cut = asyncio.ensure_future(self._cut[0][1].wait())
        try:
            await asyncio.wait([call, cut], return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise WorkerSuperseded("the line was cut")
            return call.result()
        finally:
            for future in (call, cut):
                future.cancel()


class Life:
    """One life of a whole Holdfast."""

    def __init__(self, store: ChaosStore, said: Said) -> None:
        self.store = store
        self.said = said
        check_fingerprint(store, KEY)
        self.engine = Engine(store, program_from_bytes, key=KEY)
        self.service = Service(store, self.engine)
        self.link = CutLink(self.engine)
        self.worker = Worker(self.link, registry(said), "chaos", 16, processes=0)
        #: answers that have not come yet
        self._waiting = 0

    def open(self, patience: float = 30.0) -> Life:
        for id in {mark.execution for mark in self.said.marks}:
            self.engine.watch(id, self.said.heard)
        self.engine.start()
        self.worker.start_in_thread(patience)
        return self

    def close(self) -> None:
        self.worker.stop(5.0)
        self.engine.stop()
        self.store.close()

    def crash(self) -> None:
        self.stop()
        self.store.crash()

    def stop(self) -> None:
        """Everything ends at once; what was in hand stays claimed."""
        self.link.cut()
        self.worker.stop(5.0)
        self.engine.stop()

    # --- asking -------------------------------------------------------------------------------------
    def start(self, kind: str, n: int, rng: random.Random, *, key: str = "") -> None:
        id = new_execution_id()
        self.engine.watch(id, self.said.heard)
        arguments: dict[str, Any] = {"n": n}
        if kind == "long":
            arguments["ballast"] = rng.randbytes(rng.choice((20, 700, 2500))).hex()
        source: dict[str, Any] = {"workflow": kind} if key else {"definition": DEFINITIONS[kind]}

        def said(answer: Any) -> None:
            self.said.heard(answer)
            if key:
                self.said.keys.append((len(self.said.log), key, id))

        self._ask(
            lambda reply: self.service.submit_start(ACTOR, input=arguments, id=id, key=key, reply=reply, **source), said
        )

    def publish(self, kind: str) -> bool:
        future, reply = future_reply()
        try:
            definition = DEFINITIONS[kind] | {"description": f"number {len(self.said.published)}"}
            self.engine.publish(ACTOR.tenant, kind, canonical(definition), ACTOR.name, reply)
            version, _ = future.result(30)
        except Refused as refused:
            self.said.refused[refused.code] += 1
            return False
        self.said.published.append((len(self.said.log), kind, version))
        return True

    def signal(self, id: str) -> None:
        self._ask(lambda reply: self.engine.signal(id, "go", None, ACTOR, reply), lambda answer: None)

    def _ask(self, ask: Callable[[Any], None], then: Callable[[Any], None]) -> None:
        def reply(answer: Any, error: Exception | None) -> None:
            self._waiting -= 1
            if error is None:
                then(answer)
            elif not isinstance(error, ExecutionEnded):  # a signal that came too late
                self.said.refused[getattr(error, "code", type(error).__name__)] += 1

        self._waiting += 1
        try:
            ask(reply)
        except Refused as refused:
            reply(None, refused)

    def signal_all(self) -> None:
        try:
            found = self.service.executions(ACTOR, statuses=OPEN, workflow="patient", limit=500)
        except Refused as refused:
            self.said.refused[refused.code] += 1
            return
        for view in found:
            self.signal(view.id)

    def wait_for(self, is_so: Callable[[], bool], seconds: float = 20.0) -> bool:
        """Whether it came to be so before patience ended."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def is_answered(self) -> bool:
        return self._waiting == 0

    def is_idle(self) -> bool:
        try:
            return not self.service.executions(ACTOR, statuses=OPEN, limit=1)
        except Refused:
            return False

    def finish(self, seconds: float = 20.0) -> bool:
        """Let everything end; False if something does not."""
        if not self.wait_for(self.is_answered, seconds):
            return False
        self.signal_all()
        return self.wait_for(self.is_idle, seconds)


def feed(life: Life, rng: random.Random, count: int, first: int = 0) -> None:
    """So many executions, in bursts, so that some commits are large and some small."""
    is_published = life.publish("long")
    n = first
    while n < first + count:
        for _ in range(rng.choice((1, 1, 2, 4))):
            kind = rng.choice(("short", "short", "long", "long", "patient"))
            key = f"key-{n}" if kind == "long" and is_published and rng.random() < 0.5 else ""
            life.start(kind, n, rng, key=key)
            n += 1
        time.sleep(rng.choice((0, 0.002, 0.005)))
        if rng.random() < 0.3:
            life.signal_all()
