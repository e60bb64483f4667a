"""The verbs of `client.Verbs` without a server: over a `Service` in this process, for one actor."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.core.errors import BadUsage, Refused, ServerUnreachable
from holdfast.core.inventory import EntityChange, Imported
from holdfast.core.model import Actor, BlockOffer, Status
from holdfast.core.views import (
    ApprovalView,
    BlockView,
    ExecutionView,
    HealthView,
    JobView,
    LedgerView,
    LogView,
    PurgeView,
    QueueView,
    RetentionView,
    StandingView,
    WhyView,
    WorkerView,
    WorkflowView,
)
from holdfast.core.views_plan import StartPlan
from holdfast.core.views_shared import EntityLockView, EntityView, GraphView, ImportView, LockView, SensorView
from holdfast.engine import forgetting
from holdfast.engine.reviving import replaying, resuming
from holdfast.engine.service import Service
from holdfast.store.sqlite_reading import ReadingStore

#: seconds between looks at a store that other engines write
LOOK = 0.25


class LocalVerbs:
    """`is_live` says whether anything can move while we look: an engine here, or others on the store."""

    def __init__(self, service: Service, actor: Actor, *, has_engine: bool = True) -> None:
        self.service = service
        self.actor = actor
        self.has_engine = has_engine

    @property
    def is_live(self) -> bool:
        return self.has_engine or self.service.store.is_shared or bool(self.owner)

    @property
    def owner(self) -> str:
        """Who has the store we only read, e.g. `process 7`. An engine on a full disk cannot say where it serves."""
        store = self.service.store
        return store.owner() if isinstance(store, ReadingStore) else ""

    @property
    def trouble(self) -> str:
        """Why the engine here commits nothing; empty if all is well."""
        return getattr(self.service.engine, "trouble", "") if self.has_engine else ""

    def start(
        self,
        *,
        workflow: str = "",
        definition: Mapping[str, Any] | None = None,
        input: Any = None,
        key: str = "",
        labels: dict[str, str] | None = None,
        id: str = "",
        entity: str = "",
        entities: Sequence[str] = (),
        select: Sequence[str] = (),
        gates: Mapping[str, Any] | None = None,
        priority: int | None = None,
    ) -> ExecutionView:
        return self.service.start(
            self.actor, workflow=workflow, definition=definition, input=input, key=key, labels=labels, id=id,
            entity=entity, entities=entities, select=select, gates=gates, priority=priority,
        )  # fmt: skip

    def show(self, id: str) -> ExecutionView:
        return self.service.show(self.actor, id)

    def executions(
        self, *, statuses: tuple[str, ...] = (), workflow: str = "", before: str = "", limit: int = 50
    ) -> list[ExecutionView]:
        chosen = tuple(Status[name] for name in statuses)
        return self.service.executions(self.actor, statuses=chosen, workflow=workflow, before=before, limit=limit)

    def events(self, id: str, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        return self.service.events(self.actor, self.service.resolve(self.actor, id), after, limit)

    def follow(self, id: str, after: int = 0) -> Iterator[dict[str, Any]]:
        id = self.service.resolve(self.actor, id)
        for _ in self._moments(id):
            if self.has_engine and not self.service.engine.is_alive:
                fatal = self.service.engine.fatal
                bug = ServerUnreachable("the engine in this process has stopped because of a bug; what it had is safe")
                raise fatal if isinstance(fatal, Refused) else bug
            # Before the events: those of an execution seen as ended here are then complete.
            is_over = self.service.show(self.actor, id).is_ended or not self.is_live
            while page := self.events(id, after):
                yield from page
                after = page[-1]["seq"]
            if is_over:
                return

    def _moments(self, id: str) -> Iterator[None]:
        """At once, and then whenever something may have happened."""
        if self.has_engine:
            for _ in self.service.follow(id):
                yield
            return
        while True:
            yield
            time.sleep(LOOK)

    def jobs(self, id: str) -> list[JobView]:
        return self.service.jobs(self.actor, id)

    def logs(self, id: str, after: int = 0, limit: int = 500) -> list[LogView]:
        return self.service.logs(self.actor, id, after, limit)

    def why(self, id: str) -> WhyView:
        return self.service.why(self.actor, id)

    def wait(self, id: str, timeout: float | None = None) -> ExecutionView:
        return self.service.wait(self.actor, id, timeout)

    def signal(self, id: str, name: str, value: Any = None, key: str = "") -> ExecutionView:
        return self.service.signal(self.actor, id, name, value, key)

    def cancel(self, id: str, reason: str = "") -> ExecutionView:
        return self.service.cancel(self.actor, id, reason)

    def resume(
        self, id: str, *, force: bool = False, reason: str = "", dry_run: bool = False, accept_changes: bool = False
    ) -> ExecutionView:
        if dry_run:
            return self.service.plan(self.actor, id, resuming(self.actor, force, reason, accept_changes))
        return self.service.resume(self.actor, id, force=force, reason=reason, accept_changes=accept_changes)

    def replay(
        self, id: str, start: str, *, force: bool = False, reason: str = "", dry_run: bool = False
    ) -> ExecutionView:
        if dry_run:
            return self.service.plan(self.actor, id, replaying(self.actor, start, force, reason))
        return self.service.replay(self.actor, id, start, force=force, reason=reason)

    def plan(
        self,
        *,
        workflow: str = "",
        definition: Mapping[str, Any] | None = None,
        input: Any = None,
        entity: str = "",
        entities: Sequence[str] = (),
        select: Sequence[str] = (),
        gates: Mapping[str, Any] | None = None,
        priority: int | None = None,
        offers: Sequence[BlockOffer] = (),
    ) -> StartPlan:
        return self.service.plan_start(
            self.actor, workflow=workflow, definition=definition, input=input, entity=entity, entities=entities,
            select=select, gates=gates, priority=priority, offers=offers,
        )  # fmt: skip

    def retry(
        self,
        id: str,
        *,
        failed: bool = False,
        force: bool = False,
        input: Mapping[str, Any] | None = None,
        key: str = "",
        new_id: str = "",
    ) -> ExecutionView:
        return self.service.retry(
            self.actor, id, failed=failed, force=force, input=input, key=key, new_id=new_id
        )  # fmt: skip

    def standing(self, id: str) -> StandingView:
        return self.service.standing(self.actor, id)

    def approve(self, id: str, step: str = "", *, approved: bool = True, note: str = "") -> ExecutionView:
        return self.service.approve(self.actor, id, step, approved=approved, note=note)

    def ledger(self, id: str) -> LedgerView:
        return self.service.ledger(self.actor, id)

    def ack(self, id: str, note: str = "") -> ExecutionView:
        return self.service.ack(self.actor, id, note)

    def rollback(self, id: str, reason: str = "") -> ExecutionView:
        return self.service.rollback(self.actor, id, reason)

    def fail(self, id: str, reason: str = "") -> ExecutionView:
        return self.service.fail(self.actor, id, reason)

    def approvals(self) -> list[ApprovalView]:
        return self.service.approvals(self.actor)

    def purge(self, id: str) -> ExecutionView:
        return forgetting.purge(self.service, self.actor, id)

    def retention(self) -> RetentionView:
        return forgetting.groups(self.service, self.actor)

    def apply_retention(self, *, dry_run: bool = False) -> PurgeView:
        return forgetting.apply(self.service, self.actor, dry_run=dry_run)

    def publish(self, definition: Mapping[str, Any], name: str = "") -> WorkflowView:
        return self.service.publish(self.actor, definition, name)

    def publish_all(self, definitions: Sequence[Mapping[str, Any]]) -> list[WorkflowView]:
        return self.service.publish_all(self.actor, definitions)

    def workflows(self, name: str = "") -> list[WorkflowView]:
        return self.service.workflows(self.actor, name)

    def workflow(self, name: str, version: int = 0) -> WorkflowView:
        return self.service.workflow(self.actor, name, version)

    def definition(self, id: str) -> Any:
        return self.service.definition(self.actor, self.service.resolve(self.actor, id))

    def locks(self, entity: str = "") -> list[LockView]:
        return self.service.locks(self.actor, entity)

    def lock(self, entity: str, name: str) -> LockView:
        return self.service.lock(self.actor, entity, name)

    def release_lock(self, entity: str, name: str) -> LockView:
        return self.service.release_lock(self.actor, entity, name)

    def entity_locks(self, entity: str = "") -> list[EntityLockView]:
        return self.service.entity_locks(self.actor, entity)

    def entity_lock(self, entity: str) -> EntityLockView:
        return self.service.entity_lock(self.actor, entity)

    def free_entity(self, entity: str, execution: str = "") -> EntityLockView:
        return self.service.free_entity(self.actor, entity, execution)

    def lock_graph(self) -> GraphView:
        return self.service.lock_graph(self.actor)

    def entities(self, *, where: str = "", type: str = "", after: str = "", limit: int = 1000) -> list[EntityView]:
        return self.service.entities(self.actor, where=where, type=type, after=after, limit=limit)

    def entity(self, id: str) -> EntityView:
        return self.service.entity(self.actor, id)

    def put_entity(
        self,
        id: str,
        *,
        type: str = "",
        name: str = "",
        labels: dict[str, str] | None = None,
        parent: str = "",
        groups: Sequence[str] = (),
        facts: dict[str, Any] | None = None,
        version: int | None = None,
    ) -> EntityView:
        return self.service.put_entity(
            self.actor, id, type=type, name=name, labels=labels, parent=parent, groups=groups, facts=facts,
            version=version,
        )  # fmt: skip

    def patch_entity(self, change: EntityChange, *, version: int | None = None) -> EntityView:
        return self.service.patch_entity(self.actor, change, version=version)

    def delete_entity(self, id: str, *, recursive: bool = False, version: int | None = None) -> list[str]:
        return self.service.delete_entity(self.actor, id, recursive=recursive, version=version)

    def import_entities(
        self, source: str, rows: Sequence[Imported], *, dry_run: bool = False, replace: bool = False
    ) -> ImportView:
        return self.service.import_entities(self.actor, source, rows, dry_run=dry_run, replace=replace)

    def end_import(
        self, source: str, present: Iterable[str], *, dry_run: bool = False, prune: bool = False
    ) -> ImportView:
        return self.service.end_import(self.actor, source, present, dry_run=dry_run, prune=prune)

    def sensor(self, entity: str, name: str, kind: str = "sensor") -> SensorView:
        return self.service.sensor(self.actor, entity, name, kind)

    def set_sensor(self, entity: str, name: str, value: Any, kind: str = "sensor") -> SensorView:
        return self.service.set_sensor(self.actor, entity, name, value, kind)

    def clear_sensor(self, entity: str, name: str, kind: str = "sensor") -> None:
        self.service.clear_sensor(self.actor, entity, name, kind)

    def blocks(self) -> list[BlockView]:
        return self.service.blocks()

    def workers(self) -> list[WorkerView]:
        return self.service.workers()

    def queues(self) -> list[QueueView]:
        return self.service.queues()

    def health(self) -> HealthView:
        return self.service.health()


def statuses_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Statuses as people write them: any case, `-` for `_`, and the groups `open`, `ended`, `failed`."""
    groups = {
        "open": [s for s in Status if not s.is_ended],
        "ended": [s for s in Status if s.is_ended],
        "failed": [s for s in Status if s.name.startswith("FAILED")],
    }
    chosen: dict[str, None] = {}
    for text in names:
        for name in text.split(","):
            plain = name.strip().upper().replace("-", "_")
            if plain in Status.__members__:
                chosen[plain] = None
            elif plain.lower() in groups:
                chosen |= dict.fromkeys(s.name for s in groups[plain.lower()])
            else:
                from .refusals import close_to

                close = close_to(plain, Status.__members__)
                hint = f"did you mean {close}?" if close else "see `holdfast explain statuses`"
                raise BadUsage(f"there is no status `{name}`; {hint}")
    return tuple(chosen)
