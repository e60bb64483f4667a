"""The committer: many requests, one commit. *Lock → validate → decide → write*, sans I/O.

`Committer.turn` is a generator: it yields what it wants of the store (`Lock`, `Read`, `Commit`) and is
sent the answers. The shell drives it against a real store, the simulator against a faulty one. The cache of
states lives here; if a commit does not come back, every touched state is evicted, so nothing uncommitted is
ever seen by a later turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from typing import Any

from holdfast.core.program import Program

from .cached import Cached
from .dispatch import Dispatch
from .items import Item
from .patience import PATIENCE, Patience
from .reads import TurnReads
from .turn import Turn
from .wishes import Wish


class Broken(BaseException):
    """A bug after the commit: what is in memory can no longer be trusted, so the engine must stop. Nothing is
    lost; whoever starts next reads what was committed."""


class Counters:
    """What /metrics shows about committing."""

    def __init__(self) -> None:
        self.commits = 0
        self.items = 0
        self.events = 0
        self.executions_started = 0
        self.executions_ended = 0
        self.executions_revived = 0
        self.executions_purged = 0
        self.executions_archived = 0
        self.jobs_claimed = 0
        self.refused = 0
        self.stale_results = 0
        self.conflicts = 0
        self.largest_batch = 0


class Committer:
    def __init__(
        self,
        compile: Callable[[bytes], Program],
        dispatch: Dispatch,
        *,
        is_shared: bool,
        token: Callable[[str, int, int, int], str],
        patience: Patience = PATIENCE,
        cache_size: int = 8192,
    ) -> None:
        self.reads = TurnReads(compile, is_shared)
        self.dispatch = dispatch
        self.cache: OrderedDict[str, Cached] = OrderedDict()
        self.cache_size = cache_size
        self.counters = Counters()
        self.token = token
        self.patience = patience
        #: digests of definitions that are certainly in the store
        self.stored: set[bytes] = set()

    def turn(self, items: Sequence[Item], now: int) -> Generator[Wish, Any, Turn]:
        """One commit. Returns the finished turn; call its `answer` to tell everybody."""
        turn = Turn(self, items, now)
        try:
            yield from turn.run()
        except BaseException:
            turn.undo()
            raise
        try:
            turn.settle()
        except Exception as bug:
            raise Broken("memory could not be made to agree with a commit") from bug
        return turn

    def remember(self, id: str, cached: Cached) -> None:
        """Least recently used goes first. Only between turns: a turn pins what it works on."""
        self.cache[id] = cached
        self.cache.move_to_end(id)
        if len(self.cache) > self.cache_size:
            self.cache.popitem(last=False)
