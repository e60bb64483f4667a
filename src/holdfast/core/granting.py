"""What the jobs of an execution asked of the inventory, granted in the transition that completes it.

All of it or none: where one wish cannot be granted, the execution fails instead, because what it did outside is real
and the inventory would no longer say so. It may change what it holds exclusively, what lies within that, and what it
creates itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import events as e
from .entity_locks import S, X
from .inventory import GROUP, EntityChange, EntityRow, Unchangeable, applied, difference, excess
from .model import Failure, Undo
from .reads import ChangesKey, ContentionKey, EntityKey, Key, Missing, Reads, RelatedKey
from .state import State
from .subjects import Progress

#: Levels of parts within parts.
DEPTH = 16


def granting(state: State, events: list[e.Event], now: int, reads: Reads) -> list[e.Event] | Failure:
    """The facts to stand before the end of an execution that completes after `events`; or why it cannot."""
    fresh = [change for event in events if type(event) is e.JobSucceeded for change in event.changes]
    if not fresh and not state.has_changes:
        return []
    wishes = [*_kept(state, reads), *fresh] if state.has_changes else fresh
    if not wishes:
        return []
    try:
        changes, versions = _Grant(state, now, reads).all(wishes)
    except Unchangeable as why:
        message = f"the inventory cannot be changed as the blocks asked: {why}; none of {len(wishes)} changes was made"
        return Failure("inventory", message, code="HF0756")
    return [e.InventoryChanged(versions, changes)] if changes else []


def _kept(state: State, reads: Reads) -> Iterable[EntityChange]:
    if state.run == 1:
        return reads.changes(ChangesKey(state.id))
    # What was kept aside went with the end before; what the jobs asked for is in the history all the same.
    by_job: dict[int, list[EntityChange]] = {}
    for _, events in reads.history(state.id):
        for event in events:
            if type(event) is e.JobSucceeded and event.changes:
                by_job.setdefault(event.job, []).extend(event.changes)
            elif type(event) is e.EntrySettled and event.outcome is Undo.UNDONE:
                by_job.pop(event.job, None)
            elif type(event) is e.ExecutionCompleted:
                by_job.clear()  # made then; others may have changed it since
    return [change for changes in by_job.values() for change in changes]


class _Grant:
    def __init__(self, state: State, now: int, reads: Reads) -> None:
        self.state = state
        self.now = now
        self.reads = reads
        self.held = {
            subject.id
            for subject in state.subjects.values()
            if state.fence and subject.mode is X and subject.progress is not Progress.LOST
        }
        self.before: dict[str, EntityRow | None] = {}
        self.after: dict[str, EntityRow | None] = {}

    def all(self, wishes: list[EntityChange]) -> tuple[tuple[EntityChange, ...], tuple[tuple[str, int], ...]]:
        self._read(dict.fromkeys(wish.id for wish in wishes))
        for wish in wishes:
            self.after[wish.id] = applied(self.after[wish.id], wish, self.now)
        changes: list[EntityChange] = []
        versions: list[tuple[str, int]] = []
        for id in sorted(self.after):
            before, after = self.before[id], self.after[id]
            change = difference(before, after)
            if change is None:
                continue
            # However many jobs asked for it, it is one change.
            version = 0 if after is None else before.version + 1 if before is not None else 1
            changes.append(change)
            versions.append((id, version))
        self._read_around(changes)
        for change in changes:
            self._check(change)
        self._check_left(changes)
        self._check_groups(changes)
        return tuple(changes), tuple(versions)

    # --- rows, many at a time ------------------------------------------------------------------------------
    def _read(self, ids: Iterable[str]) -> None:
        missing: list[Key] = []
        for id in ids:
            if id in self.before:
                continue
            try:
                self.before[id] = self.after[id] = self.reads.entity(EntityKey(self.state.tenant, id))
            except Missing as more:
                missing += more.keys
        if missing:
            raise Missing(*missing)

    def _read_around(self, changes: list[EntityChange]) -> None:
        """What the changed ones are parts of, up to something that is held; and the groups they join."""
        wanted = {group for change in changes for group in change.groups or ()}
        level = {change.parent for change in changes if change.parent}
        for change in changes:
            row = self.before[change.id]
            if row is not None and row.parent and row.id not in self.held:
                level.add(row.parent)
        for _ in range(DEPTH):
            self._read(wanted | level)
            rows = [row for id in level - self.held for row in (self.before[id], self.after[id]) if row is not None]
            wanted, level = set(), {row.parent for row in rows if row.parent}
            if not level:
                return

    # --- may it? -------------------------------------------------------------------------------------------
    def _check(self, change: EntityChange) -> None:
        before, after = self.before[change.id], self.after[change.id]
        if before is not None and not self._is_held(before):
            raise Unchangeable(f"entity {change.id} is not held exclusively by this execution")
        if after is None:
            return
        if too_much := excess(after):
            raise Unchangeable(too_much)
        if change.parent:
            self._check_parent(after)
        for group in change.groups or ():
            row = self.after.get(group)
            if row is None or row.type != GROUP:
                raise Unchangeable(f"entity {change.id} cannot be in {group}, which is no group")

    def _is_held(self, row: EntityRow) -> bool:
        """It, or what it is a part of. Ids were read up to something held or the top."""
        for _ in range(DEPTH):
            if row.id in self.held:
                return True
            above = self.before.get(row.parent) if row.parent else None
            if above is None:
                return False
            row = above
        return False

    def _check_parent(self, row: EntityRow) -> None:
        seen = {row.id}
        above = self.after.get(row.parent)
        if above is None:
            raise Unchangeable(f"entity {row.id} cannot be a part of {row.parent}, which does not exist")
        if self.before.get(row.parent) is not None and not self._is_held(above):
            raise Unchangeable(
                f"entity {row.id} cannot become a part of {row.parent}, which this execution does not hold"
            )
        while above is not None:
            if above.id in seen:
                raise Unchangeable(f"entity {row.id} would be a part of itself")
            seen.add(above.id)
            above = self.after.get(above.parent) if above.parent else None

    def _check_left(self, changes: list[EntityChange]) -> None:
        """Nothing stays behind that is a part or a member of something deleted."""
        gone = tuple(change.id for change in changes if change.op == "delete")
        if not gone:
            return
        for relation, word in (("children", "parts"), ("members", "members")):
            left = self.reads.related(RelatedKey(self.state.tenant, relation, gone))
            for found in left:
                after = self.after[found.id] if found.id in self.after else self.before.get(found.id, found)
                if after is None:
                    continue
                lost = {after.parent} if relation == "children" else set(after.groups)
                if lost.isdisjoint(gone):
                    continue
                raise Unchangeable(f"entity {min(lost & set(gone))} still has {word}: {found.id}")

    def _check_groups(self, changes: list[EntityChange]) -> None:
        """Nobody joins or leaves a group that somebody else works with."""
        touched: set[str] = set()
        for change in changes:
            before, after = self.before[change.id], self.after[change.id]
            old = set(before.groups) if before is not None else set()
            touched |= old ^ (set(after.groups) if after is not None else set())
        touched -= self.held
        if not touched:
            return
        found = self.reads.contention(ContentionKey(self.state.tenant, tuple(sorted(touched))))
        for claim in found.claims:
            if claim.fence and claim.mode in (S, X) and claim.execution != self.state.id:
                raise Unchangeable(f"execution {claim.execution} works with group {claim.entity}, so its members stay")
