"""A commit of unknown outcome: whether it happened, and whose claims were written."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.core.errors import Conflict
from holdfast.core.rows import JobRow
from holdfast.engine.engine import Engine
from holdfast.store.port import CommitUnknown
from holdfast.store.records import Batch, HistoryRow


class Stored:
    """A store that can only be asked what is in it."""

    is_shared = True

    def __init__(self, history: list[HistoryRow], jobs: list[JobRow]) -> None:
        self._history, self._jobs = history, jobs

    def now(self) -> int:
        return 0

    @contextmanager
    def reading(self) -> Any:
        yield self

    def history(self, id: str, after: int, limit: int) -> list[HistoryRow]:
        return [row for row in self._history if row.execution == id and row.seq > after][:limit]

    def claimed(self, incarnation: str) -> list[JobRow]:
        return [row for row in self._jobs if row.incarnation == incarnation]

    def commit(self, batch: Batch) -> None:
        raise CommitUnknown


ONE, TWO = (HistoryRow(id, 3, 0, b"", id.encode()) for id in ("one", "two"))
CLAIMS = [JobRow(id, 1, "default", "b", 0, 1, "w.1") for id in ("one", "two")]


def commit(store: Stored) -> set[tuple[str, int]]:
    engine = Engine(store, lambda data: None, key=b"k" * 32)  # type: ignore[arg-type, return-value]
    return engine.driver.conclude(store, Batch(history=[ONE, TWO], jobs=CLAIMS))


def test_it_has_happened_if_all_of_it_is_there() -> None:
    assert commit(Stored([ONE, TWO], CLAIMS)) == set()


def test_one_row_of_it_proves_nothing() -> None:
    """Found by the simulator: while the store was away another engine decided the same about one execution, to
    the byte, since the clock had been set back; and something else about the other. An attempt began twice."""
    with pytest.raises(Conflict):
        commit(Stored([ONE], CLAIMS))


def test_a_claim_that_somebody_else_wrote_is_not_handed_out() -> None:
    others = JobRow("two", 1, "default", "b", 0, 1, "w.2")
    assert commit(Stored([ONE, TWO], [CLAIMS[0], others])) == {("two", 1)}
