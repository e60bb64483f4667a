"""The verbs, as a port: what one can ask of Holdfast, in this process or over HTTP, in the same words.

`client.Client` speaks them over HTTP. In one process, `engine.service.Service` has the same verbs with
the actor in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from holdfast.core.inventory import EntityChange, Imported
from holdfast.core.model import BlockOffer
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


class Verbs(Protocol):
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
        """`entities` and `select` say what it works upon, by id and by selector; `gates` what has to be so before it
        begins, under the keys of a workflow's `gates`."""
        ...

    def show(self, id: str) -> ExecutionView: ...

    def executions(
        self, *, statuses: tuple[str, ...] = (), workflow: str = "", before: str = "", limit: int = 50
    ) -> list[ExecutionView]: ...

    def events(self, id: str, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]: ...

    def follow(self, id: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """Events as they happen, without gap or repeat, until the execution has ended."""
        ...

    def jobs(self, id: str) -> list[JobView]: ...

    def logs(self, id: str, after: int = 0, limit: int = 500) -> list[LogView]: ...

    def why(self, id: str) -> WhyView: ...

    def wait(self, id: str, timeout: float | None = None) -> ExecutionView: ...

    def signal(self, id: str, name: str, value: Any = None, key: str = "") -> ExecutionView: ...

    def cancel(self, id: str, reason: str = "") -> ExecutionView: ...

    def resume(
        self, id: str, *, force: bool = False, reason: str = "", dry_run: bool = False, accept_changes: bool = False
    ) -> ExecutionView:
        """Carry on where it failed or was stopped. A dry run answers with a `plan`, and nothing happens."""
        ...

    def replay(
        self, id: str, start: str, *, force: bool = False, reason: str = "", dry_run: bool = False
    ) -> ExecutionView: ...

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
        """What `start` with the same words would do; nothing happens. `offers`, blocks that come with the start, count
        only where no server is asked: that one knows its own."""
        ...

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
        """Another execution with the same definition and input; with `failed`, upon those entities that the first did
        not bring to their end."""
        ...

    def standing(self, id: str) -> StandingView: ...

    def approve(self, id: str, step: str = "", *, approved: bool = True, note: str = "") -> ExecutionView: ...

    def ledger(self, id: str) -> LedgerView:
        """What its jobs changed outside, and what is left of that."""
        ...

    def ack(self, id: str, note: str = "") -> ExecutionView:
        """Somebody has seen how it ended. A note is needed where something is left."""
        ...

    def rollback(self, id: str, reason: str = "") -> ExecutionView:
        """Undo what an execution did that waits in ERROR for a decision."""
        ...

    def fail(self, id: str, reason: str = "") -> ExecutionView:
        """End an execution as it is that waits in ERROR for a decision."""
        ...

    def approvals(self) -> list[ApprovalView]: ...

    def purge(self, id: str) -> ExecutionView:
        """Forget an execution that has ended; the answer is the last that is seen of it here."""
        ...

    def retention(self) -> RetentionView: ...

    def apply_retention(self, *, dry_run: bool = False) -> PurgeView:
        """Purge what may go now; ask again while `is_more`."""
        ...

    def publish(self, definition: Mapping[str, Any], name: str = "") -> WorkflowView: ...

    def publish_all(self, definitions: Sequence[Mapping[str, Any]]) -> list[WorkflowView]: ...

    def workflows(self, name: str = "") -> list[WorkflowView]: ...

    def workflow(self, name: str, version: int = 0) -> WorkflowView: ...

    def definition(self, id: str) -> Any: ...

    def locks(self, entity: str = "") -> list[LockView]: ...

    def lock(self, entity: str, name: str) -> LockView: ...

    def release_lock(self, entity: str, name: str) -> LockView: ...

    def entity_locks(self, entity: str = "") -> list[EntityLockView]:
        """Entities that are held or waited for."""
        ...

    def entity_lock(self, entity: str) -> EntityLockView: ...

    def free_entity(self, entity: str, execution: str = "") -> EntityLockView:
        """Take it from the executions that hold it, or from one of them; they fail."""
        ...

    def lock_graph(self) -> GraphView:
        """Who waits for whom."""
        ...

    def entities(self, *, where: str = "", type: str = "", after: str = "", limit: int = 1000) -> list[EntityView]: ...

    def entity(self, id: str) -> EntityView: ...

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
    ) -> EntityView: ...

    def patch_entity(self, change: EntityChange, *, version: int | None = None) -> EntityView: ...

    def delete_entity(self, id: str, *, recursive: bool = False, version: int | None = None) -> list[str]:
        """Ids of what is gone."""
        ...

    def import_entities(
        self, source: str, rows: Sequence[Imported], *, dry_run: bool = False, replace: bool = False
    ) -> ImportView:
        """Some of what another inventory says; `end_import` says what it has in all."""
        ...

    def end_import(
        self, source: str, present: Iterable[str], *, dry_run: bool = False, prune: bool = False
    ) -> ImportView: ...

    def sensor(self, entity: str, name: str, kind: str = "sensor") -> SensorView: ...

    def set_sensor(self, entity: str, name: str, value: Any, kind: str = "sensor") -> SensorView: ...

    def clear_sensor(self, entity: str, name: str, kind: str = "sensor") -> None: ...

    def blocks(self) -> list[BlockView]: ...

    def workers(self) -> list[WorkerView]: ...

    def queues(self) -> list[QueueView]: ...

    def health(self) -> HealthView: ...
