"""The simulator's tables of entities answer as the real stores do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.inventory import EntityChange, EntityRow, Flag
from holdfast.core.model import Mode
from holdfast.core.reads import (
    ChangesKey,
    ContentionKey,
    EntityKey,
    FlaggedKey,
    FoundKey,
    Key,
    RelatedKey,
    SelectKey,
    TraceKey,
    WatchersKey,
)
from holdfast.core.rows import EntityClaims
from holdfast.store.records import Batch
from holdfast.store.sqlite import SqliteStore
from tests.sim.memory_entities import EntityTables
from tests.store.rows import an_id, put, start

IDS = tuple("abcdef")
EXECUTIONS = tuple(an_id(n) for n in range(6))


class Script:
    """Batches as the engine could write them: nobody is placed twice, and only who waits is granted."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.places: dict[str, tuple[str, ...]] = {}
        self.waiting: set[str] = set()
        self.number = 0

    def batch(self) -> Batch:
        chance, batch = self.random, Batch()
        execution = chance.choice(EXECUTIONS)
        self.number += 1
        if execution not in self.places:
            ids = tuple(sorted(chance.sample(IDS, chance.randint(1, 4))))
            fence = chance.choice((0, self.number))
            watch = "" if fence else chance.choice(ids)
            modes = tuple(chance.choice(list(Mode)) for _ in ids)
            batch.entity_claims.append(
                EntityClaims("default", execution, self.number, chance.randint(0, 2), fence, 5, watch, ids, modes)
            )
            self.places[execution] = ids
            if not fence:
                self.waiting.add(execution)
        elif chance.random() < 0.4:
            batch.entity_claims_over.append(execution)
            del self.places[execution]
            self.waiting.discard(execution)
        elif execution in self.waiting:
            if chance.random() < 0.5:
                batch.entity_watches.append((execution, chance.choice(self.places[execution])))
            else:
                batch.entity_grants.append((execution, self.number, 9))
                self.waiting.remove(execution)
        else:
            batch.entity_claims_lost.append(("default", chance.choice(self.places[execution]), execution))
        if chance.random() < 0.3:
            kind = chance.choice(("suspect", "quarantine"))
            batch.flags.append(("default", Flag(chance.choice(IDS), chance.choice(EXECUTIONS), kind)))
        if chance.random() < 0.2:
            batch.flags_gone.append(chance.choice(EXECUTIONS))
        if chance.random() < 0.3:
            batch.changes += [(chance.choice(EXECUTIONS), 1, EntityChange(chance.choice(IDS))) for _ in range(3)]
        if chance.random() < 0.2:
            batch.changes_gone.append(chance.choice(EXECUTIONS))
        if chance.random() < 0.5:
            groups = tuple(chance.sample(IDS, 2))
            row = EntityRow(
                chance.choice(IDS), "device", labels={"x": chance.choice("12")}, parent=chance.choice(IDS),
                facts={"x": 1, "y": chance.choice("12")}, groups=groups, created_at=self.number, updated_at=self.number,
            )  # fmt: skip
            batch.entities.append(("default", row))
        elif chance.random() < 0.3:
            batch.entities_gone.append(("default", chance.choice(IDS)))
        return batch


def keys() -> list[Key]:
    terms: list[tuple[tuple[str, str], ...]] = [
        (), (("type", "device"),), (("label.x", "1"), ("fact.y", "2")), (("any.x", "1"),), (("any.y", "2"),),
        (("group", "a"), ("parent", "b")), (("id", "c"),),
    ]  # fmt: skip
    of_executions = [
        key
        for id in EXECUTIONS
        for key in (WatchersKey("default", id), FlaggedKey("default", id), ChangesKey(id), TraceKey("default", id))
    ]
    return [
        *(EntityKey("default", id) for id in IDS), *(ContentionKey("default", (id,)) for id in IDS),
        *(SelectKey("default", each, is_brief) for each in terms for is_brief in (True, False)),
        FoundKey("default", IDS[:3]), RelatedKey("default", "children", IDS[:2]),
        RelatedKey("default", "members", IDS[3:]), *of_executions,
    ]  # fmt: skip


def sorted_out(answer: Any) -> Any:
    """Claims and flags at one entity come in whatever order a store likes."""
    if hasattr(answer, "claims"):
        return (answer.missing, sorted(answer.claims, key=repr), sorted(answer.flags, key=repr))
    return answer


@pytest.mark.parametrize("seed", range(5))
def test_memory_answers_as_the_disk_does(seed: int, tmp_path: Path) -> None:
    script, tables = Script(seed), EntityTables()
    store = SqliteStore(tmp_path / "holdfast.db")
    start(store, *EXECUTIONS)
    for _ in range(60):
        batch = script.batch()
        put(store, batch, {})
        tables.write(batch)
        with store.reading() as q:
            for key in keys():
                assert sorted_out(tables.read(key)) == sorted_out(q.shared(key)), key
    store.close()
