"""The simulator's tables of entities: claims with their traces, flags, wishes for changes, tickets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.core.entity_locks import IX, Contention, EntityClaim, X
from holdfast.core.inventory import EntityChange, EntityRow, Flag, Found, has_terms
from holdfast.core.reads import (
    ChangesKey,
    ContentionKey,
    EntityKey,
    FlaggedKey,
    FoundKey,
    Key,
    RelatedKey,
    SelectKey,
    TicketKey,
    TraceKey,
    WatchersKey,
)
from holdfast.store.records import Batch

#: Keys whose rows the real stores lock when they are read.
LOCKING = (ContentionKey, WatchersKey, FlaggedKey)


class EntityTables:
    def __init__(self) -> None:
        self.entities: dict[tuple[str, str], EntityRow] = {}
        #: live ones: (tenant, entity) → execution → claim
        self.at: dict[tuple[str, str], dict[str, EntityClaim]] = {}
        #: execution → (tenant, entity) of its live ones
        self.of: dict[str, dict[tuple[str, str], None]] = {}
        #: those that are over and held something: (tenant, claim)
        self.past: list[tuple[str, EntityClaim]] = []
        #: (execution, entity, kind)
        self.flags: dict[tuple[str, str, str], tuple[str, Flag]] = {}
        self.changes: dict[str, list[EntityChange]] = {}
        self.tickets = 0
        #: how often somebody came to an entity, moved on there or went
        self.moves: Counter[tuple[str, str]] = Counter()

    # --- reading ----------------------------------------------------------------------------------------
    def read(self, key: Key) -> Any:
        match key:
            case EntityKey(tenant, id):
                return self.entities.get((tenant, id))
            case SelectKey(tenant, terms, is_brief):
                rows = [row for row in self._of(tenant) if has_terms(row, terms)]
                return tuple(map(_brief, rows)) if is_brief else tuple(rows)
            case FoundKey(tenant, ids):
                return tuple(_brief(row) for row in self._of(tenant) if row.id in set(ids))
            case RelatedKey(tenant, "children", ids):
                return tuple(_brief(row) for row in self._of(tenant) if row.parent in set(ids))
            case RelatedKey(tenant, _, ids):
                return tuple(_brief(row) for row in self._of(tenant) if not set(ids).isdisjoint(row.groups))
            case ContentionKey(tenant, ids):
                missing = tuple(id for id in ids if (tenant, id) not in self.entities)
                claims = tuple(self.at[tenant, id][by] for id in ids for by in sorted(self.at.get((tenant, id), ())))
                wanted = set(ids)
                flags = tuple(flag for owner, flag in self.flags.values() if owner == tenant and flag.entity in wanted)
                return Contention(missing, claims, flags)
            case WatchersKey(execution=execution):
                return tuple(sorted(self._watching(self.of.get(execution, {}), execution)))
            case FlaggedKey(execution=execution):
                shut = {(t, f.entity): None for t, f in self.flags.values() if _is_shut_by(f, execution)}
                return tuple(sorted(self._watching(shut, "")))
            case ChangesKey(execution):
                return tuple(self.changes.get(execution, ()))
            case TraceKey(tenant, execution):
                return self._trace(tenant, execution)
            case TicketKey():
                self.tickets += 1  # one that is given and not used does no harm
                return self.tickets
            case _:
                raise AssertionError(key)

    def stamp(self, key: Key) -> tuple[int, ...]:
        """Differs when somebody was at these entities meanwhile, although everything looks as before: nobody could
        have been while the real stores hold the rows."""
        match key:
            case ContentionKey(tenant, ids):
                return tuple(self.moves[tenant, id] for id in ids)
            case WatchersKey(execution=execution):
                return tuple(self.moves[place] for place in self.of.get(execution, ()))
            case _:
                return ()

    def _of(self, tenant: str) -> list[EntityRow]:
        return [self.entities[key] for key in sorted(self.entities) if key[0] == tenant]

    def _watching(self, places: dict[tuple[str, str], None], but: str) -> set[str]:
        return {
            claim.execution
            for place in places
            for claim in self.at.get(place, {}).values()
            if claim.is_watching and claim.execution != but
        }

    def claims(self) -> Iterator[tuple[str, EntityClaim]]:
        """Live ones, with their tenant."""
        for (tenant, _), here in self.at.items():
            for claim in here.values():
                yield tenant, claim

    def _trace(self, tenant: str, execution: str) -> tuple[EntityClaim, ...]:
        every = [claim for owner, claim in (*self.claims(), *self.past) if owner == tenant]
        own: dict[str, int] = {}
        for claim in every:
            if claim.execution == execution:
                own[claim.entity] = max(own.get(claim.entity, 0), claim.fence)
        found = [
            claim
            for claim in every
            if claim.execution != execution and claim.mode in (IX, X) and claim.fence > own.get(claim.entity, 1 << 62)
        ]
        return tuple(sorted(found, key=lambda claim: (claim.entity, claim.fence)))

    # --- writing ----------------------------------------------------------------------------------------
    def write(self, batch: Batch) -> None:
        for tenant, row in batch.entities:
            before = self.entities.get((tenant, row.id))
            made = row if before is None else replace(row, created_at=before.created_at)
            self.entities[tenant, row.id] = made
        for gone in batch.entities_gone:
            self.entities.pop(gone, None)
        for execution in batch.entity_claims_over:
            for place in list(self.of.get(execution, ())):
                self._over(place, execution)
        for new in batch.entity_claims:
            for entity, mode in zip(new.entities, new.modes, strict=True):
                place = (new.tenant, entity)
                is_watching = entity == new.watch
                claim = EntityClaim(
                    entity, new.execution, mode, new.ticket, new.priority, new.fence, new.since, is_watching
                )
                assert new.execution not in self.at.setdefault(place, {}), "one live place at an entity"
                self.at[place][new.execution] = claim
                self.moves[place] += 1
                self.of.setdefault(new.execution, {})[place] = None
        for execution, fence, since in batch.entity_grants:
            for place in self.of.get(execution, ()):
                self.moves[place] += 1
                self.at[place][execution] = replace(
                    self.at[place][execution], fence=fence, since=since, is_watching=False
                )
        for execution, entity in batch.entity_watches:
            for place in self.of.get(execution, ()):
                self.at[place][execution] = replace(self.at[place][execution], is_watching=place[1] == entity)
        for tenant, entity, execution in batch.entity_claims_lost:
            self._over((tenant, entity), execution)
        for execution in batch.flags_gone:
            for key in [key for key in self.flags if key[0] == execution]:
                del self.flags[key]
        for tenant, flag in batch.flags:
            self.flags[flag.execution, flag.entity, flag.kind] = (tenant, flag)
        for execution in batch.changes_gone:
            self.changes.pop(execution, None)
        for execution, _, change in batch.changes:
            self.changes.setdefault(execution, []).append(change)

    def _over(self, place: tuple[str, str], execution: str) -> None:
        self.moves[place] += 1
        claim = self.at.get(place, {}).pop(execution, None)
        self.of.get(execution, {}).pop(place, None)
        if claim is not None and claim.fence:
            self.past.append((place[0], replace(claim, is_watching=False)))


def _brief(row: EntityRow) -> Found:
    return Found(row.id, row.type, row.parent, row.groups)


def _is_shut_by(flag: Flag, execution: str) -> bool:
    return flag.kind == "quarantine" and flag.execution == execution
