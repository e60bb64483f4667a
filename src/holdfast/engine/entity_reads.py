"""Entities and claims to them for the decisions of one turn: what was read, with what the turn has done since.

Earlier decisions of a turn are seen through the rows that follow from them (`Rows`), which say by the last word what
the tables will hold. So nothing is kept here that could differ from what is written; and where no decision was about
entities, everything is as it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from holdfast.core.entity_locks import Contention, EntityClaim
from holdfast.core.inventory import EntityChange, EntityRow, Found, default_entity, has_terms
from holdfast.core.model import DEFAULT_ENTITY, Mode
from holdfast.core.reads import (
    ChangesKey,
    ContentionKey,
    EntityKey,
    FlaggedKey,
    FoundKey,
    HeaderKey,
    Key,
    Missing,
    RelatedKey,
    SelectKey,
    TicketKey,
    TraceKey,
    WatchersKey,
)
from holdfast.core.rows import EntityClaims, Rows

from .cached import Cached


class EntityReads:
    """The half of `core.program.Reads` that is about entities."""

    def __init__(self) -> None:
        #: rows read in this turn
        self.rows: dict[Key, Any] = {}
        self._turn = Rows()
        self._states: Mapping[str, Cached] = {}
        #: the last number that was handed out
        self._ticket = 0
        #: (tenant, entity) → places that came in this turn, with their modes; and which are in it already
        self._places: dict[tuple[str, str], list[tuple[EntityClaims, Mode]]] = {}
        self._placed: dict[str, EntityClaims] = {}
        #: (tenant, entity, execution) of every claim, and of every flag, that was read in this turn
        self._claimed: set[tuple[str, str, str]] = set()
        self._flagged: set[tuple[str, str, str]] = set()

    def begin_entities(self, turn: Rows, states: Mapping[str, Cached]) -> None:
        self._turn, self._states = turn, states
        self._ticket = 0
        self._places.clear()
        self._placed.clear()
        self._claimed.clear()
        self._flagged.clear()

    def learn_contention(self, key: ContentionKey, read: Contention) -> None:
        self.rows[key] = read
        self._claimed.update((key.tenant, claim.entity, claim.execution) for claim in read.claims)
        self._flagged.update((key.tenant, flag.entity, flag.execution) for flag in read.flags)

    def _read(self, key: Key) -> Any:
        if key not in self.rows:
            raise Missing(key)
        return self.rows[key]

    # --- inventory --------------------------------------------------------------------------------------
    def entity(self, key: EntityKey) -> EntityRow | None:
        changed = self._turn.entities
        place = (key.tenant, key.id)
        row: EntityRow | None = changed[place] if place in changed else self._read(key)
        return default_entity() if row is None and key.id == DEFAULT_ENTITY else row

    def select(self, key: SelectKey) -> tuple[Found, ...] | tuple[EntityRow, ...]:
        read: tuple[Any, ...] = self._read(key)
        shape: Callable[[EntityRow], Any] = _brief if key.is_brief else _whole
        return self._changed(key.tenant, read, lambda row: has_terms(row, key.terms), shape)

    def found(self, key: FoundKey) -> tuple[Found, ...]:
        read: tuple[Found, ...] = self._read(key)
        wanted = set(key.ids) if self._turn.entities else ()
        return self._changed(key.tenant, read, lambda row: row.id in wanted, _brief)

    def related(self, key: RelatedKey) -> tuple[Found, ...]:
        read: tuple[Found, ...] = self._read(key)
        ids = set(key.ids) if self._turn.entities else set()
        if key.relation == "children":
            return self._changed(key.tenant, read, lambda row: row.parent in ids, _brief)
        return self._changed(key.tenant, read, lambda row: not ids.isdisjoint(row.groups), _brief)

    def _changed(
        self, tenant: str, read: tuple[Any, ...], fits: Callable[[EntityRow], bool], shape: Callable[[EntityRow], Any]
    ) -> tuple[Any, ...]:
        changed = {id: row for (owner, id), row in self._turn.entities.items() if owner == tenant}
        if not changed:
            return read
        kept = [one for one in read if one.id not in changed]
        kept += [shape(row) for row in changed.values() if row is not None and fits(row)]
        return tuple(sorted(kept, key=lambda one: one.id))

    def changes(self, key: ChangesKey) -> tuple[EntityChange, ...]:
        read: tuple[EntityChange, ...] = self._read(key)
        turn = self._turn
        kept = () if key.execution in turn.changes_gone else read
        return (*kept, *(change for execution, _, change in turn.changes if execution == key.execution))

    # --- claims -----------------------------------------------------------------------------------------
    def contention(self, key: ContentionKey) -> Contention:
        read: Contention = self._read(key)
        turn = self._turn
        if not turn.is_about_entities:
            return read
        wanted = set(key.ids)
        changed = {id: row for (tenant, id), row in turn.entities.items() if tenant == key.tenant and id in wanted}
        missing = {*read.missing, *changed} - {id for id, row in changed.items() if row is not None}
        claims = [now for claim in read.claims if (now := self._now(key.tenant, claim)) is not None]
        claims += self._new_claims(key.tenant, key.ids)
        flags = [flag for flag in read.flags if flag.execution not in turn.flags_gone]
        flags += [flag for tenant, flag in turn.flags if tenant == key.tenant and flag.entity in wanted]
        return Contention(tuple(id for id in key.ids if id in missing), tuple(claims), tuple(flags))

    def _now(self, tenant: str, claim: EntityClaim) -> EntityClaim | None:
        """A stored claim after the decisions of this turn."""
        turn, execution = self._turn, claim.execution
        if execution in turn.entities_released or (tenant, claim.entity, execution) in turn.entities_lost:
            return None
        if execution in turn.entities_granted:
            fence, since = turn.entities_granted[execution]
            return replace(claim, fence=fence, since=since, is_watching=False)
        if execution in turn.entities_watching:
            return replace(claim, is_watching=turn.entities_watching[execution] == claim.entity)
        return claim

    def _new_claims(self, tenant: str, ids: Iterable[str]) -> list[EntityClaim]:
        """At these entities, of places that came in this turn."""
        self._note_places()
        if not self._places:
            return []
        turn, found = self._turn, []
        for id in ids:
            for place, mode in self._places.get((tenant, id), ()):
                execution = place.execution
                if turn.entities_queued.get(execution) is not place or (tenant, id, execution) in turn.entities_lost:
                    continue
                found.append(
                    EntityClaim(
                        id, execution, mode, place.ticket, place.priority, place.fence, place.since, place.watch == id
                    )
                )
        return found

    def _note_places(self) -> None:
        for execution, place in self._turn.entities_queued.items():
            if self._placed.get(execution) is not place:
                self._placed[execution] = place
                for id, mode in zip(place.entities, place.modes, strict=True):
                    self._places.setdefault((place.tenant, id), []).append((place, mode))

    def watchers(self, key: WatchersKey) -> tuple[str, ...]:
        read: tuple[str, ...] = self._read(key)
        new = self._new_watches(key.tenant)
        if not new and not self._turn.is_about_entities:
            return read
        own = [entity for entity in new if self._has_place(key, entity)]
        return self._watching(read, [execution for entity in own for execution in new[entity]], key.execution)

    def flagged(self, key: FlaggedKey) -> tuple[str, ...]:
        read: tuple[str, ...] = self._read(key)
        new = self._new_watches(key.tenant)
        if not new and not self._turn.is_about_entities:
            return read
        here = {(tenant, flag.entity, flag.execution) for tenant, flag in self._turn.flags} | self._flagged
        shut = [entity for entity in new if (key.tenant, entity, key.execution) in here]
        return self._watching(read, [execution for entity in shut for execution in new[entity]], key.execution)

    def _watching(self, read: Iterable[str], new: Iterable[str], own: str) -> tuple[str, ...]:
        """Who was watching and still does, and who began to. That one may watch something else by now does no harm:
        it looks at everything again."""
        turn = self._turn
        still = [id for id in read if id not in turn.entities_released and id not in turn.entities_granted]
        return tuple(sorted({*still, *new} - {own}))

    def _new_watches(self, tenant: str) -> dict[str, list[str]]:
        """Entity → executions that began to watch it in this turn."""
        turn = self._turn
        watches: dict[str, list[str]] = {}
        for place in turn.entities_queued.values():
            if place.watch and not place.fence and place.tenant == tenant:
                watches.setdefault(place.watch, []).append(place.execution)
        for execution, entity in turn.entities_watching.items():
            watches.setdefault(entity, []).append(execution)
        return watches

    def _has_place(self, key: WatchersKey, entity: str) -> bool:
        """Whether the execution holds that entity, or waits for it. Whoever began to watch the entity in this turn has
        read who is there, so it is known."""
        if (key.tenant, entity, key.execution) in self._claimed:
            return True
        place = self._turn.entities_queued.get(key.execution)
        return place is not None and place.tenant == key.tenant and entity in place.entities

    def ticket(self, key: TicketKey) -> int:
        number: int = self._read(key)
        if number < self._ticket:
            # Somebody has decided with a greater one meanwhile: who comes later needs one that is greater still.
            raise Missing(key)
        self._ticket = number
        return number

    def trace(self, key: TraceKey) -> tuple[EntityClaim, ...]:
        read: tuple[EntityClaim, ...] = self._read(key)
        return read

    # --- other executions ---------------------------------------------------------------------------------
    def header_status(self, execution: str, tenant: str) -> int | None:
        cached = self._states.get(execution)
        if cached is not None and cached.state.version:
            return int(cached.state.status) if cached.state.tenant == tenant else None
        header = self._read(HeaderKey(execution, tenant))
        return None if header is None else int(header.status)


def _brief(row: EntityRow) -> Found:
    return Found(row.id, row.type, row.parent, row.groups)


def _whole(row: EntityRow) -> EntityRow:
    return row
