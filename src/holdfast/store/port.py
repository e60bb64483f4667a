"""The port every store implements: lock, read, commit — and plain questions. It takes no decisions.

A transaction is *lock → read → commit(batch)*; nothing else writes. `tests/store` is what this interface
means: every backend passes the same suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from holdfast.core.reads import Key

from .queries import Queries
from .records import Batch, Locked


class CommitUnknown(Exception):
    """The connection was lost while committing: it may or may not have happened."""


class Transaction(Protocol):
    #: the store's clock, µs UTC; one reading per transaction
    now: int

    def lock(self, known: Mapping[str, int]) -> dict[str, Locked | None]:
        """Lock these executions, all of them in one call, in sorted order. `known` maps id to the version
        the caller has (0 = none). The answer has an entry only for what the caller must look at: None where
        there is no such execution, `Locked` where it knows nothing or others have written since. Absent:
        what it knows is what there is. From `Locked` take `snapshot` and `logs` too, not only the rows."""
        ...

    def read(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """Shared rows as they are in this transaction; None where absent."""
        ...

    def commit(self, batch: Batch) -> None:
        """All or nothing. Headers that are not new must have been locked, and are compared with the version
        seen then. `Conflict`: nothing happened; forget what is known of these executions (version 0) and
        decide again. `CommitUnknown`: look whether it happened."""
        ...

    def abort(self) -> None: ...


class Store(Protocol):
    #: `sqlite` or `postgres`
    kind: str
    #: other engine processes may write too
    is_shared: bool
    #: how people know it, without secrets
    address: str

    def now(self) -> int: ...

    def begin(self) -> Transaction:
        """Only the committer's thread calls this, one transaction at a time."""
        ...

    def reading(self) -> AbstractContextManager[Queries]:
        """A reader of committed data; any thread."""
        ...

    def living_engines(self) -> list[str] | None:
        """Ids of engines whose process certainly holds the store open; None where it cannot be told. One
        that is missing twice, a few seconds apart, is dead."""
        ...

    def hint(self) -> None:
        """Tell other engines that something was committed. Never waits, never fails, may be lost."""
        ...

    def on_hint(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, from some thread, after a hint of another engine."""
        ...

    def close(self) -> None: ...
