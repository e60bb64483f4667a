"""Which failpoint is reached by which kind of life. Together they are all there are; a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

#: on a folder without a store, in the order in which they come
BIRTH = (
    "sqlite.migrate.before", "sqlite.migrate.written", "sqlite.migrate.after",
    "key.before", "key.written", "key.after",
    "fingerprint.before", "fingerprint.after",
)  # fmt: skip
#: under load, engine and worker in one process
WORKING = (
    "engine.start.before", "engine.start.after",
    "engine.hello.before", "engine.hello.after", "worker.hello.before", "worker.hello.after",
    "engine.claim.before", "engine.claim.after",
    "engine.commit.before", "engine.commit.after",
    "sqlite.begin.before", "sqlite.begin.after", "sqlite.commit.before", "sqlite.commit.after",
    "sqlite.journal.before", "sqlite.journal.after",
    "engine.push.before", "engine.push.after",
    "engine.answer.before", "engine.answer.after",
    "engine.handout.before", "engine.handout.after",
    "worker.exchange.before", "worker.exchange.after",
    "worker.take.before", "worker.take.after",
    "worker.block.before", "worker.block.after",
    "worker.thread.before", "worker.thread.after",
    "worker.process.before", "worker.process.after",
    "worker.outbox.before", "worker.outbox.after",
)  # fmt: skip
#: in a process that runs one block for a worker; the worker lives on
CHILD = (
    "child.ready.before", "child.ready.after", "child.begin.before", "child.begin.after",
    "child.end.before", "child.end.after",
)  # fmt: skip
#: on the way out of a process that ends in good order
LEAVING = (
    "worker.goodbye.before", "worker.goodbye.after", "engine.goodbye.before", "engine.goodbye.after",
    "engine.stop.before", "engine.stop.after", "sqlite.checkpoint.before", "sqlite.checkpoint.after",
)  # fmt: skip
#: in an engine that serves workers over HTTP
SERVING = ("api.commit.before", "api.commit.after")
#: the same places as in one process, but now only the engine or only the worker dies
SERVED_TOO = (
    "engine.answer.before", "engine.handout.before", "engine.handout.after", "engine.push.before",
    "worker.hello.after", "worker.exchange.before", "worker.exchange.after", "worker.take.before",
    "worker.block.before", "worker.block.after", "worker.outbox.after",
)  # fmt: skip
#: in an engine that archives what it purges; `tests/acceptance/test_retention.py` kills it there
PURGING = ("archive.before", "archive.written", "archive.after")
#: on a database without our tables
BIRTH_SHARED = ("postgres.migrate.before", "postgres.migrate.written", "postgres.migrate.after")
#: one of two engines on PostgreSQL
SHARED = ("postgres.begin.before", "postgres.begin.after", "postgres.commit.before", "postgres.commit.after")
SHARED_TOO = ("engine.push.before", "engine.push.after", "engine.answer.before", "worker.block.after")

#: reached once in a life
_ONCE = frozenset({*BIRTH, *CHILD, *LEAVING, *BIRTH_SHARED, *(name for name in WORKING if ".start." in name)})
_ISOLATED = ("worker.process.before", "worker.process.after", *CHILD)


def armed(name: str, chance: Random) -> str:
    """Killed there, at the first time or some later one."""
    if name in _ONCE or ".hello." in name:
        return f"{name}:hit=1:kill"
    most = 4 if name in _ISOLATED or ".thread." in name else 12
    return f"{name}:hit={chance.randint(1, most)}:kill"


def in_order(specs: Sequence[str], birth: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of a store that is being made, each once and in their order; and the others."""
    names = {spec.split(":")[0]: spec for spec in specs}
    return [names[name] for name in birth if name in names], [s for s in specs if s.split(":")[0] not in birth]


def needs_processes(spec: str) -> bool:
    return spec.split(":")[0] in _ISOLATED
