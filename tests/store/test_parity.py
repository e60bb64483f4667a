"""The same script on every store leaves the same rows (I-10)."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import Conflict
from holdfast.core.model import BlockOffer, Level, LogLine, Status
from holdfast.core.requests import FireTimer, ReleaseJob
from holdfast.core.rows import AgendaRow, JobRow, LogRow
from holdfast.store.port import Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import TABLES, storable
from holdfast.store.records import Batch, EngineRow, PublishedRow, StartRow
from holdfast.store.sqlite import SqliteStore

from .rows import T0, an_id, header, history

TEXTS = ["", "a", "A", "b\0", "ä", "\ud800", "日本", "\U0001f600", "a\nb", "'", '"', "\\", "%s ?", "$1"]


class Script:
    """Batches by chance; some of them collide with what is there."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.versions: dict[str, int] = {}

    def batch(self) -> Batch:
        chance, text = self.random, lambda: self.random.choice(TEXTS)
        batch = Batch()
        for n in chance.sample(range(12), 4):
            id = an_id(n)
            version = self.versions.get(id, 0) + chance.randint(1, 3)
            is_new = id not in self.versions
            batch.headers.append(header(
                id, version, is_new=is_new, status=chance.choice(list(Status)), tenant=f"t{n % 2}", workflow=text(),
                logs=version, summary=chance.randbytes(chance.randint(0, 300)),
            ))  # fmt: skip
            batch.history += history(id, version)
            batch.logs.append(LogRow(id, version, T0, LogLine(text(), Level.ERROR, text(), n)))
            for job in range(3):
                batch.jobs.append(
                    JobRow(id, job, text(), text(), T0 + chance.randint(0, 3), job, chance.choice(["", "w"]))
                )
            batch.jobs_gone += [(id, chance.randint(0, 4))]
            batch.agenda += [AgendaRow(id, text(), T0 + chance.randint(0, 3), FireTimer(n)) for _ in range(2)]
            batch.agenda.append(AgendaRow(id, "job/1", T0, ReleaseJob(1, version)))
            batch.agenda_gone += [(id, text()), (id, "job/1")]
            batch.blobs.append((id, bytes([version % 7]) * 16, bytes([version % 7]) * 50))
            batch.parts += [(id, f"lanes/{chance.randint(0, 3)}", chance.randbytes(chance.choice([0, 20])))]
        # By key, so that two that become equal only in the store do not meet in one batch.
        batch.agenda = list({(row.execution, row.item): row for row in batch.agenda if row.item != "\ufffd"}.values())
        if chance.random() < 0.3:
            batch.parts_gone.append(an_id(chance.randint(0, 11)))
        if chance.random() < 0.5:
            batch.starts.append(StartRow("t", f"{text()}{chance.randint(0, 9)}", an_id(1), b"c", T0))
        if chance.random() < 0.5:
            row = PublishedRow("t", text(), chance.randint(1, 9), b"d" * 16, T0, text())
            batch.published.append(row)
        batch.definitions += [(bytes([chance.randint(0, 9)]) * 16, b"definition")]
        batch.engines.append(EngineRow(f"e{chance.randint(0, 3)}", text(), T0, T0))
        batch.engines_gone.append(f"e{chance.randint(0, 3)}")
        batch.blocks.append(BlockOffer(storable(text()) or "block", f"{chance.randint(0, 3)}"))
        batch.meta[chance.choice("abc")] = chance.randbytes(5)
        return batch


def play(store: Store, batch: Batch, versions: dict[str, int]) -> str:
    transaction = store.begin()
    answer = transaction.lock({id: versions.get(id, 0) for id in (h.id for h in batch.headers)})
    assert answer == {h.id: None for h in batch.headers if h.is_new}
    try:
        transaction.commit(batch)
    except Conflict:
        return "conflict"
    return "done"


def everything(store: Store) -> dict[str, Any]:
    ids = [an_id(n) for n in range(12)]
    with store.reading() as q:
        return {
            "counts": {table: q.count(table) for table in sorted(TABLES)},
            "headers": [q.headers(tenant, limit=100) for tenant in ("t0", "t1")],
            "statuses": [q.status_counts(tenant) for tenant in ("t0", "t1")],
            "of": [
                (q.history(id), q.logs(id), q.jobs_of(id), q.agenda_of(id), sorted(q.parts(id).items()))
                for id in ids
            ],
            "blobs": [q.blob(id, bytes([n]) * 16) for id in ids for n in range(7)],
            "found": [q.find("t0", id[:length], 20) for id in ids for length in (1, 2, 5)],
            "queue": (q.ready(), q.claimed(), q.queue_depths()),
            "agenda": (q.due(T0 + 1), q.due(T0 + 9, 7), q.next_due()),
            "rest": (
                q.published("t"), q.engines(), sorted(offer.name for offer in q.blocks()),
                [q.start("t", f"{text}{n}") for text in TEXTS for n in range(10)],
                [q.meta(key) for key in "abc"], q.orphans(), q.ids(),
            ),
        }  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_the_same_script_leaves_the_same_rows(seed: int, tmp_path: Path, pg_dsn: str) -> None:
    with closing(SqliteStore(tmp_path / "h.db")) as one, closing(PostgresStore(pg_dsn)) as two:
        compare(Script(seed), [one, two])


def compare(script: Script, stores: list[Store]) -> None:
    outcomes = []
    for _ in range(40):
        batch = script.batch()
        one, two = (play(store, batch, script.versions) for store in stores)
        assert one == two
        outcomes.append(one)
        if one == "done":
            script.versions |= {h.id: h.version for h in batch.headers}
    assert {"done", "conflict"} == set(outcomes)
    one, two = map(everything, stores)
    for key in one:
        assert one[key] == two[key], key
