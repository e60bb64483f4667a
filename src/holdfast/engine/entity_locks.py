"""Verbs of entity locks: who holds an entity, who waits, who waits for whom, and taking one away. Part of `Service`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.core.entity_locks import EntityClaim, goes_with, is_before
from holdfast.core.errors import EntityNotHeld, UnknownEntity
from holdfast.core.model import Actor
from holdfast.core.reads import ContentionKey
from holdfast.core.requests import FreeEntity
from holdfast.core.rows import ClaimRow
from holdfast.core.views_shared import EntityHoldView, EntityLockView, FlagView, GraphEdge, GraphNode, GraphView
from holdfast.store.port import Store
from holdfast.store.queries import Queries

from .deadlock import cycles
from .items import Reply, committed, future_reply

if TYPE_CHECKING:
    from .engine import Engine

#: Claims that one answer lists.
CLAIMS = 2000


class EntityLockVerbs(ABC):
    store: Store

    @property
    @abstractmethod
    def engine(self) -> Engine: ...

    @abstractmethod
    def resolve(self, actor: Actor, id: str) -> str: ...

    def entity_locks(self, actor: Actor, entity: str = "") -> list[EntityLockView]:
        """Entities that are held or waited for, by id; of each the holders, and who waits in the order of the queue."""
        with self.store.reading() as queries:
            claims = queries.entity_claims(actor.tenant, entity, CLAIMS)
            by_entity: dict[str, list[EntityClaim]] = {}
            for claim in claims:
                by_entity.setdefault(claim.entity, []).append(claim)
            flags = flags_of(queries, actor.tenant, by_entity)
        return [_view(id, claims, flags.get(id, [])) for id, claims in by_entity.items()]

    def entity_lock(self, actor: Actor, entity: str) -> EntityLockView:
        """One of them, also where nobody wants it."""
        with self.store.reading() as queries:
            claims = queries.entity_claims(actor.tenant, entity, CLAIMS)
            if not claims and queries.entity(actor.tenant, entity) is None:
                raise UnknownEntity(f"no entity {entity!r}; `holdfast entity list` lists them")
            return _view(entity, claims, flags_of(queries, actor.tenant, [entity]).get(entity, []))

    def free_entity(self, actor: Actor, entity: str, execution: str = "") -> EntityLockView:
        """Take it from the executions that hold it, or from one of them; what they do there does not count any more."""
        for holder in self.entity_holders(actor, entity, execution):
            future, reply = future_reply()
            self.submit_free(actor, entity, holder, reply)
            committed(future)
        return self.entity_lock(actor, entity)

    def entity_holders(self, actor: Actor, entity: str, execution: str = "") -> list[EntityHoldView]:
        view = self.entity_lock(actor, entity)
        holders = view.holders
        if execution:
            id = self.resolve(actor, execution)
            holders = [holder for holder in holders if holder.execution == id]
        if not holders:
            who = f"execution {execution} does not hold" if execution else "nobody holds"
            raise EntityNotHeld(f"{who} entity {entity}; `holdfast locks` lists who holds what")
        return holders

    def submit_free(self, actor: Actor, entity: str, holder: EntityHoldView, reply: Reply) -> None:
        self.engine.ask(holder.execution, FreeEntity(entity, holder.fence, actor.name), reply)

    def lock_graph(self, actor: Actor) -> GraphView:
        """Who waits for whom, over named locks and entities; of entities, at the one that is watched."""
        with self.store.reading() as queries:
            named = [row for row in queries.contended() if row.tenant == actor.tenant]
            edges = [*_named_edges(named), *_entity_edges(queries.entity_blocks(actor.tenant))]
            ids = sorted({id for edge in edges for id in (edge.waiter, edge.holder)})
            headers = queries.headers_of(ids)
        nodes = [
            GraphNode(id, headers[id].workflow, headers[id].status.name) if id in headers else GraphNode(id)
            for id in ids
        ]
        return GraphView(nodes, edges, cycles(named))


def flags_of(queries: Queries, tenant: str, entities: Iterable[str]) -> dict[str, list[FlagView]]:
    """Who left which of these in doubt."""
    ids = tuple(sorted(set(entities)))
    found: dict[str, list[FlagView]] = {}
    for flag in queries.shared(ContentionKey(tenant, ids)).flags if ids else ():
        found.setdefault(flag.entity, []).append(FlagView(flag.execution, flag.kind, flag.reason, flag.at))
    return found


def _view(entity: str, claims: Sequence[EntityClaim], flags: list[FlagView]) -> EntityLockView:
    holders = [hold_view(claim) for claim in claims if claim.fence]
    waiters = [hold_view(claim) for claim in claims if not claim.fence]
    return EntityLockView(entity, holders, waiters, len(waiters), flags)


def hold_view(claim: EntityClaim) -> EntityHoldView:
    return EntityHoldView(
        claim.execution, claim.mode.name, claim.fence, claim.since, claim.priority, claim.ticket
    )  # fmt: skip


def _named_edges(claims: Sequence[ClaimRow]) -> list[GraphEdge]:
    """A waiter waits for the holder, and for who waits right before it."""
    edges: list[GraphEdge] = []
    before: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in claims:
        ahead = before.setdefault((row.entity, row.name), [])
        if not row.fence:
            for other in [*(one for one in ahead if one.fence), *(one for one in ahead[-1:] if not one.fence)]:
                kind = "holder" if other.fence else "waiter"
                edges.append(
                    GraphEdge(
                        row.claim.execution, other.claim.execution, kind, row.entity, row.name, "X", row.claim.since
                    )
                )
        ahead.append(row)
    return edges


def _entity_edges(blocks: Iterable[tuple[EntityClaim, EntityClaim]]) -> list[GraphEdge]:
    edges = []
    for claim, other in blocks:
        if is_before(other, claim.ticket, claim.priority) and not goes_with(other.mode, claim.mode):
            kind = "holder" if other.fence else "waiter"
            pair = (claim.execution, other.execution)
            edges.append(GraphEdge(*pair, kind, claim.entity, "", claim.mode.name, claim.since))
    return edges
