"""Runs one turn of the committer against a store: grants its wishes, and finds out what became of a commit whose
answer was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from holdfast.core.errors import Conflict, Refused
from holdfast.core.rows import LogRow
from holdfast.failpoints import failpoint
from holdfast.store.port import CommitUnknown, Store
from holdfast.store.queries import Queries
from holdfast.store.records import Batch, HistoryRow

from .committer import Committer
from .dispatch import JobKey
from .items import Item
from .turn import Turn
from .wishes import Commit, Lock, Read

log = logging.getLogger("holdfast.engine")


class Driver:
    def __init__(
        self, store: Store, committer: Committer, *, set_clock: Callable[[int], None], rest: Callable[[float], None]
    ) -> None:
        self._store = store
        self._committer = committer
        self._set_clock = set_clock
        self._rest = rest

    def run(self, items: list[Item]) -> Turn:
        """One turn, whole or not at all."""
        transaction = self._store.begin()
        self._set_clock(transaction.now)
        turn = self._committer.turn(items, transaction.now)
        answer: Any = None
        wish = None
        try:
            while True:
                wish = turn.send(answer)
                match wish:
                    case Lock(known=known):
                        answer = transaction.lock(known)
                    case Read(keys=keys):
                        answer = transaction.read(keys)
                    case Commit(batch=batch):
                        answer = self.conclude(transaction, batch)
        except StopIteration as done:
            if not isinstance(wish, Commit):
                transaction.abort()
            finished: Turn = done.value
            return finished
        except BaseException as error:
            if not isinstance(wish, Commit):
                transaction.abort()
            try:
                turn.throw(error)
            except BaseException as raised:
                if raised is not error:
                    raise
            raise

    def conclude(self, transaction: Any, batch: Batch) -> set[JobKey]:
        """Claims of the batch that turned out to be somebody else's."""
        failpoint("engine.commit.before")
        try:
            transaction.commit(batch)
        except CommitUnknown:
            if not self.has_happened(batch):
                raise Conflict from None
            return self._claims_of_others(batch)
        failpoint("engine.commit.after")
        return set()

    def has_happened(self, batch: Batch) -> bool:
        """The connection broke while committing. A batch is all or nothing, so its rows tell: all of them,
        because another engine may have decided the same about some. As long as the store cannot be asked,
        nobody is answered."""
        while batch.history or batch.logs:
            try:
                with self._store.reading() as queries:
                    if batch.history:
                        return all(_is_stored(queries, row) for row in batch.history)
                    return all(_is_kept(queries, row) for row in batch.logs)
            except Refused as refused:
                log.warning("waiting to learn whether a commit happened: %s", refused)
                self._rest(0.3)
        return False

    def _claims_of_others(self, batch: Batch) -> set[JobKey]:
        """Another engine may even have written the very same rows of history, for another incarnation of the
        worker: a claim is ours only if its row says so. In doubt it is not; if it was, the sweep sees that its
        worker lacks a parcel."""
        claims = {(row.execution, row.job): row for row in batch.jobs if row.incarnation}
        try:
            with self._store.reading() as queries:
                for incarnation in {row.incarnation: None for row in claims.values()}:
                    for row in queries.claimed(incarnation):
                        own = claims.get((row.execution, row.job))
                        if own is not None and (own.incarnation, own.attempt) == (row.incarnation, row.attempt):
                            del claims[row.execution, row.job]
        except Refused as refused:
            log.warning("cannot tell whose claims were committed: %s", refused)
        return set(claims)


def _is_stored(queries: Queries, row: HistoryRow) -> bool:
    found = queries.history(row.execution, row.seq - 1, 1)
    return bool(found) and found[0].seq == row.seq and found[0].digest == row.digest


def _is_kept(queries: Queries, row: LogRow) -> bool:
    found = queries.logs(row.execution, row.number - 1, 1)
    return bool(found) and (found[0].number, found[0].at, found[0].line) == (row.number, row.at, row.line)
