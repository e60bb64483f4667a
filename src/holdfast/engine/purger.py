"""The purger: forgets ended executions when their retention says so, and archives them before. One thread.

It looks at groups in which something ended, at groups with a member whose time is over, and now and then at all of
them: at most so many per round, so what it costs does not depend on how much is kept. It only reads; purging is a
request to the engine like any other, and whoever moved since the look is not purged. Coming twice does no harm.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.core.errors import Refused, StoreUnavailable
from holdfast.core.retention import Rule
from holdfast.store import keeping as kept
from holdfast.store.keeping import KEY_KEPT, Group, Place, StartPlace
from holdfast.store.port import Store
from holdfast.store.queries import Queries
from holdfast.store.records import Header

from . import archive
from .engine import Engine
from .items import future_reply
from .retention import NONE, Keeping, cut, expiry, is_forgettable, may_go, rule_of

log = logging.getLogger("holdfast.purger")

SECOND = 1_000_000
#: executions purged in one commit
BATCH = 500
#: groups of a full look taken up per round, and groups looked at in a round
GROUPS, LOOKS = 200, 2000
#: µs between full looks. Alone, everything that ends passes by us; with others, one may have died with what it knew.
FULL_ALONE, FULL_SHARED = 3600 * SECOND, 300 * SECOND
#: seconds between rounds; with an archive fewer, because every round that purges makes a file
PAUSE, PAUSE_ARCHIVING = 1.0, 60.0
#: groups that are remembered, because something in them ended or will be over; others are found by a full look
REMEMBERED = 100_000
#: seconds to wait for the commit of a purge
COMMIT_WAIT = 30.0


class Look:
    """One group at one moment."""

    def __init__(self, queries: Queries, group: Group, system: Rule, now: int) -> None:
        self._queries = queries
        self._known: dict[int, Place | None] = {}
        self.group = group
        self.now = now
        newest = kept.nth_newest(queries, group, 1)
        self.is_empty = newest is None
        #: of the one that ended last, as it was written, and what it means
        self.text = newest[1] if newest else ""
        self.rule = rule_of(self.text, system)
        self.cut = cut(self.rule, now, self._nth)

    def _nth(self, number: int) -> Place | None:
        if number not in self._known:
            found = kept.nth_newest(self._queries, self.group, number)
            self._known[number] = found[0] if found else None
        return self._known[number]

    def gone(self, limit: int) -> list[Header]:
        """Who may go now, oldest first."""
        found: list[Header] = []
        after = NONE
        while len(found) < limit:
            page = kept.beyond(self._queries, self.group, self.cut, after, BATCH)
            found += [header for header in page if may_go(header, self._queries)]
            if len(page) < BATCH:
                break
            after = (page[-1].ended_at, kept.stored_key(page[-1]))
        return found[:limit]

    def next_at(self) -> int | None:
        """When the next one may go, if only time has to pass."""
        oldest = kept.first_kept(self._queries, self.group, self.cut)
        return expiry(self.rule, self.now, oldest, self._nth) if oldest else None


def forget(store: Store, engine: Engine, keeping: Keeping, headers: Sequence[Header]) -> list[str]:
    """Archive these, then have them purged; the ids of those that are gone. Any thread but the engine's."""
    now = store.now()
    wanted = {header.id: (header.version, header.logs) for header in headers}
    if keeping.archive is not None:
        wanted = _archived(store, keeping, list(wanted), now)
        engine.committer.counters.executions_archived += len(wanted)
    if not wanted:
        return []
    future, reply = future_reply()
    engine.purge(wanted, reply)
    try:
        gone: list[str] = future.result(COMMIT_WAIT)
    except TimeoutError:
        raise StoreUnavailable(f"no commit within {COMMIT_WAIT:g} s, and it may still happen") from None
    return gone


def _archived(store: Store, keeping: Keeping, ids: Sequence[str], now: int) -> dict[str, tuple[int, int]]:
    """What each was when it was archived: only that may be purged."""
    assert keeping.archive is not None
    seen: dict[str, tuple[int, int]] = {}

    def lines() -> Iterable[archive.Line]:
        with store.reading() as queries:
            for id in ids:
                with queries.consistent():
                    header = queries.headers_of([id]).get(id)
                    if header is None or not is_forgettable(header):
                        continue
                    try:
                        line = archive.line_of(queries, header, now)
                    except Refused:
                        raise
                    except Exception:
                        # Its neighbours must not have to stay because of it.
                        log.exception("execution %s cannot be archived, and is kept; try `holdfast verify`", id)
                        continue
                seen[id] = (header.version, header.logs)
                yield line

    path = archive.write(keeping.archive, lines(), now)
    if not seen:
        path.unlink()
    return seen


class Purger:
    def __init__(
        self, store: Store, engine: Engine, keeping: Keeping, *, pause: float | None = None, batch: int = BATCH
    ) -> None:
        self._store = store
        self._engine = engine
        self._keeping = keeping
        self._batch = batch
        self._pause = pause if pause is not None else PAUSE if keeping.archive is None else PAUSE_ARCHIVING
        self._full = FULL_SHARED if store.is_shared else FULL_ALONE
        #: groups in which something ended, as the engine tells it; None for what is not to be kept
        self._heard: dict[Group | None, None] = {}
        self._ear = threading.Lock()
        #: groups to look at
        self._dirty: dict[Group, None] = {}
        #: (when, group); `_when` has the one that counts
        self._due: list[tuple[int, Group]] = []
        self._when: dict[Group, int] = {}
        self._is_unkept = False
        #: the full look: where it stands, and when the next one begins
        self._is_scanning = False
        self._scanned: Group | None = None
        self._next_scan = 0
        self._starts: StartPlace | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-purger", daemon=True)

    # --- life ---------------------------------------------------------------------------------------
    def start(self) -> None:
        self._engine.on_ended = self.hear
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """After a last round for what ended here: a short life would else never forget anything."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if not self._thread.is_alive() and self._engine.is_alive and (self._heard or self._dirty or self._is_unkept):
            self._try()

    def _run(self) -> None:
        if self._keeping.archive is not None:
            archive.tidy(self._keeping.archive)
        while not self._stopping.wait(self._pause):
            while (gone := self._try()) and (gone >= self._batch or self._dirty) and not self._stopping.is_set():
                # There is more. Others want to commit too.
                self._stopping.wait(0.02)

    def _try(self) -> int:
        try:
            return self.round(self._store.now())
        except Refused as refused:
            log.warning("nothing was purged: %s", refused)
        except Exception:
            log.exception("nothing was purged because of a bug")
        return 0

    # --- one round ----------------------------------------------------------------------------------
    def round(self, now: int) -> int:
        """Look where something may have to go, and have it purged; how many are gone."""
        self._listen()
        self._wake(now)
        chosen: dict[str, Header] = {}
        looked: list[Group] = []
        is_unkept, self._is_unkept = self._is_unkept, False
        try:
            with self._store.reading() as queries:
                if is_unkept:
                    self._choose_unkept(queries, chosen)
                while self._dirty and len(chosen) < self._batch and len(looked) < LOOKS:
                    group = next(iter(self._dirty))
                    del self._dirty[group]
                    looked.append(group)
                    self._choose(queries, group, now, chosen)
            gone = forget(self._store, self._engine, self._keeping, list(chosen.values())) if chosen else []
            self._forget_starts(now)
        except BaseException:
            # Looked at again in the next round.
            self._dirty |= dict.fromkeys(looked)
            self._is_unkept |= is_unkept
            raise
        return len(gone)

    def hear(self, headers: Iterable[Header]) -> None:
        """These have ended. Called by the engine's thread; only their groups are remembered."""
        with self._ear:
            for header in headers:
                self._heard[None if header.retention == "disabled" else kept.group_of(header)] = None

    def _listen(self) -> None:
        with self._ear:
            heard, self._heard = self._heard, {}
        self._is_unkept |= None in heard
        groups = [group for group in heard if group is not None]
        if len(self._dirty) + len(groups) > REMEMBERED:
            groups, self._next_scan = groups[:REMEMBERED], 0
        self._dirty |= dict.fromkeys(groups)

    def _wake(self, now: int) -> None:
        """Groups whose time has come, and the next few of a full look."""
        while self._due and self._due[0][0] <= now:
            at, group = heapq.heappop(self._due)
            if self._when.get(group) == at:
                del self._when[group]
                self._dirty[group] = None
        if not self._is_scanning and now >= self._next_scan:
            self._is_scanning, self._scanned, self._next_scan = True, None, now + self._full
            self._is_unkept, self._starts = True, (0, "", "")
        if self._is_scanning and len(self._dirty) < GROUPS:
            with self._store.reading() as queries:
                page = kept.groups(queries, self._scanned, limit=GROUPS)
            self._dirty |= dict.fromkeys(page)
            self._is_scanning = len(page) == GROUPS
            self._scanned = page[-1] if page else None

    def _choose(self, queries: Queries, group: Group, now: int, chosen: dict[str, Header]) -> None:
        look = Look(queries, group, self._keeping.system, now)
        if look.is_empty:
            return
        room = self._batch - len(chosen)
        found = look.gone(room)
        chosen |= {header.id: header for header in found}
        if len(found) == room:
            self._dirty[group] = None  # there may be more
            return
        at = look.next_at()
        if at is not None and (group in self._when or len(self._when) < REMEMBERED):
            self._when[group] = at
            heapq.heappush(self._due, (at, group))

    def _choose_unkept(self, queries: Queries, chosen: dict[str, Header]) -> None:
        after = NONE
        while len(chosen) < self._batch:
            page = kept.unkept(queries, after, self._batch)
            chosen |= {header.id: header for header in page if may_go(header, queries)}
            if len(page) < self._batch:
                return
            after = (page[-1].ended_at, kept.stored_key(page[-1]))
        self._is_unkept = True

    def _forget_starts(self, now: int) -> None:
        """A page of the keys that are old enough; those whose execution is gone may be used anew."""
        if self._starts is None:
            return
        with self._store.reading() as queries:
            page = kept.starts_between(queries, self._starts, now - KEY_KEPT, BATCH)
        self._starts = page[-1][0] if len(page) == BATCH else None
        if gone := [(tenant, key) for (_, tenant, key), is_gone in page if is_gone]:
            self._engine.forget_starts(gone, _ignore)


def _ignore(value: Any, error: Exception | None) -> None:
    """The next full look comes by again."""
