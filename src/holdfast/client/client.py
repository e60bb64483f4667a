"""`Client`: the verbs over HTTP. Synchronous, on the standard library, safe to share between threads.

What the server refuses is raised as the same class that the engine would have raised; a server that is not
there is `ServerUnreachable`. Following goes on where it was when the server comes back.
"""

from __future__ import annotations

import builtins
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from holdfast.core.errors import DuplicateExecution, Refused, ServerUnreachable, ShuttingDown, TimedOut
from holdfast.core.ids import make_id
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

T = TypeVar("T")
V1 = "/api/v1"
#: seconds one question may be held back by the server
LONG_WAIT = 20.0
#: seconds without a sign of life after which a stream is given up and opened anew; the server beats every 15
SILENCE = 40.0


class _Items(msgspec.Struct):
    items: msgspec.Raw
    next: Any = None


class Client:
    """Implements `verbs.Verbs`.

    with Client("http://127.0.0.1:3030", token) as holdfast:
        print(holdfast.wait(holdfast.start(workflow="hello").id).output)
    """

    def __init__(self, address: str, token: str = "", *, timeout: float = 60.0, patience: float = 30.0) -> None:
        """`timeout`: for an answer. `patience`: how long following survives a server that is away."""
        from .connection import Connections  # http.client is slow to import, and not every program gets here

        self._line = Connections(address, token, timeout)
        self.address = self._line.address
        self.patience = patience

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._line.close()

    # --- executions ----------------------------------------------------------------------------------
    def start(
        self,
        *,
        workflow: str = "",
        definition: Mapping[str, Any] | None = None,
        source: str = "",
        input: Any = None,
        key: str = "",
        labels: dict[str, str] | None = None,
        id: str = "",
        entity: str = "",
        entities: Sequence[str] = (),
        select: Sequence[str] = (),
        gates: Mapping[str, Any] | None = None,
        priority: int | None = None,
        wait: float = 0,
    ) -> ExecutionView:
        """`wait`: seconds (at most 30) that the server may hold the answer back until it has ended."""
        # The id is made here: a request whose answer was lost can be repeated and starts nothing twice.
        chosen = id or make_id(time.time_ns() // 1_000_000, os.urandom(10))
        fields = {
            "workflow": workflow, "definition": definition, "source": source, "input": input, "key": key,
            "labels": labels or {}, "id": chosen, "entity": entity, "entities": entities, "select": select,
            "gates": gates,
        }  # fmt: skip
        said = {name: value for name, value in fields.items() if value or name == "input"}
        if priority is not None:
            said["priority"] = priority
        body = msgspec.json.encode(said)
        path = f"{V1}/executions" + (f"?wait={wait:.3f}" if wait else "")
        try:
            _, data = self._line.ask("POST", path, body, is_repeatable=False)
        except ServerUnreachable:
            try:
                _, data = self._line.ask("POST", path, body)
            except DuplicateExecution:
                return self.show(chosen)
        return _decode(data, ExecutionView)

    def run(
        self,
        *,
        workflow: str = "",
        definition: Mapping[str, Any] | None = None,
        source: str = "",
        input: Any = None,
        labels: dict[str, str] | None = None,
        entity: str = "",
        timeout: float | None = None,
    ) -> ExecutionView:
        """Start and wait until it has ended: one question, unless it takes long."""
        began = time.monotonic()
        wait = LONG_WAIT if timeout is None else max(0.0, min(LONG_WAIT, timeout))
        view = self.start(
            workflow=workflow, definition=definition, source=source, input=input, labels=labels, entity=entity,
            wait=wait,
        )  # fmt: skip
        if view.is_ended:
            return view
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
        return self.wait(view.id, left)

    def show(self, id: str) -> ExecutionView:
        return self._get(f"/executions/{_part(id)}", ExecutionView)

    def executions(
        self, *, statuses: tuple[str, ...] = (), workflow: str = "", before: str = "", limit: int = 50
    ) -> builtins.list[ExecutionView]:
        """Newest first, in pages of at most 500 behind the scenes."""
        found: list[ExecutionView] = []
        while True:
            wanted = min(limit - len(found), 500)
            query = {"status": ",".join(statuses), "workflow": workflow, "before": before, "limit": wanted}
            page = self._get("/executions", _Items, {name: value for name, value in query.items() if value})
            found += _decode(page.items, list[ExecutionView])
            if not page.next or len(found) >= limit:
                return found
            before = page.next

    def events(self, id: str, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        page = self._get(f"/executions/{_part(id)}/events", _Items, {"after": after, "limit": min(limit, 1000)})
        return _decode(page.items, list[dict[str, Any]])

    def follow(self, id: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """Events as they happen, without gap or repeat, until the execution has ended."""
        for data in self._stream(f"/executions/{_part(id)}/events/stream", after):
            yield _decode(data, dict[str, Any])

    def jobs(self, id: str) -> list[JobView]:
        return self._list(f"/executions/{_part(id)}/jobs", JobView)

    def logs(self, id: str, after: int = 0, limit: int = 500) -> list[LogView]:
        page = self._get(f"/executions/{_part(id)}/logs", _Items, {"after": after, "limit": min(limit, 1000)})
        return _decode(page.items, list[LogView])

    def follow_logs(self, id: str, after: int = 0) -> Iterator[LogView]:
        """Log lines as they are written, until the execution has ended."""
        for data in self._stream(f"/executions/{_part(id)}/logs/stream", after):
            yield _decode(data, LogView)

    def why(self, id: str) -> WhyView:
        return self._get(f"/executions/{_part(id)}/why", WhyView)

    def wait(self, id: str, timeout: float | None = None) -> ExecutionView:
        """Until it has ended; `TimedOut` when that takes longer. Survives a restart of the server."""
        until = None if timeout is None else time.monotonic() + timeout
        gone_since: float | None = None
        while True:
            left = LONG_WAIT if until is None else max(0.0, min(LONG_WAIT, until - time.monotonic()))
            try:
                view = self._get(f"/executions/{_part(id)}", ExecutionView, {"wait": f"{left:.3f}"})
                gone_since = None
                if view.is_ended:
                    return view
            except (ServerUnreachable, ShuttingDown):
                gone_since = gone_since or time.monotonic()
                if time.monotonic() - gone_since > self.patience:
                    raise
                time.sleep(0.2)
            if until is not None and time.monotonic() >= until:
                raise TimedOut(f"execution {id} has not ended within {timeout} s; it goes on")

    def signal(self, id: str, name: str, value: Any = None, key: str = "") -> ExecutionView:
        body = {"name": name, "value": value, "key": key}
        return self._post(f"/executions/{_part(id)}/signal", body, ExecutionView, is_repeatable=bool(key))

    def cancel(self, id: str, reason: str = "") -> ExecutionView:
        return self._post(f"/executions/{_part(id)}/cancel", {"reason": reason}, ExecutionView)

    def resume(
        self, id: str, *, force: bool = False, reason: str = "", dry_run: bool = False, accept_changes: bool = False
    ) -> ExecutionView:
        """Carry on where it failed or was stopped. A dry run answers with a `plan`, and nothing happens."""
        body = {"force": force, "reason": reason, "dry_run": dry_run, "accept_changes": accept_changes}
        return self._post(f"/executions/{_part(id)}/resume", body, ExecutionView, is_repeatable=dry_run)

    def replay(
        self, id: str, start: str, *, force: bool = False, reason: str = "", dry_run: bool = False
    ) -> ExecutionView:
        """Do again what follows a waypoint. A dry run answers with a `plan`, and nothing happens."""
        body = {"from": start, "force": force, "reason": reason, "dry_run": dry_run}
        return self._post(f"/executions/{_part(id)}/replay", body, ExecutionView, is_repeatable=dry_run)

    def plan(
        self,
        *,
        workflow: str = "",
        definition: Mapping[str, Any] | None = None,
        source: str = "",
        input: Any = None,
        entity: str = "",
        entities: Sequence[str] = (),
        select: Sequence[str] = (),
        gates: Mapping[str, Any] | None = None,
        priority: int | None = None,
        offers: Sequence[BlockOffer] = (),
    ) -> StartPlan:
        fields = {
            "workflow": workflow, "definition": definition, "source": source, "input": input, "entity": entity,
            "entities": entities, "select": select, "gates": gates,
        }  # fmt: skip
        said = {name: value for name, value in fields.items() if value or name == "input"}
        return self._post("/executions/plan", said | ({} if priority is None else {"priority": priority}), StartPlan)

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
        # As with a start: repeated with the same id, it starts nothing twice.
        chosen = new_id or make_id(time.time_ns() // 1_000_000, os.urandom(10))
        body = {"failed": failed, "force": force, "input": dict(input or {}), "key": key, "id": chosen}
        try:
            return self._post(f"/executions/{_part(id)}/retry", body, ExecutionView)
        except DuplicateExecution:
            if new_id:
                raise
            return self.show(chosen)

    def standing(self, id: str) -> StandingView:
        return self._get(f"/executions/{_part(id)}/standing", StandingView)

    def approve(self, id: str, step: str = "", *, approved: bool = True, note: str = "") -> ExecutionView:
        """Approve or reject a step that waits for it; without a step the one that waits."""
        body = {"approved": approved, "note": note}
        path = f"/executions/{_part(id)}/approvals/{_part(step)}"
        return self._post(path, body, ExecutionView, is_repeatable=False)

    def ledger(self, id: str) -> LedgerView:
        return self._get(f"/executions/{_part(id)}/ledger", LedgerView)

    def ack(self, id: str, note: str = "") -> ExecutionView:
        return self._post(f"/executions/{_part(id)}/ack", {"note": note}, ExecutionView)

    def rollback(self, id: str, reason: str = "") -> ExecutionView:
        return self._post(f"/executions/{_part(id)}/rollback", {"reason": reason}, ExecutionView, is_repeatable=False)

    def fail(self, id: str, reason: str = "") -> ExecutionView:
        return self._post(f"/executions/{_part(id)}/fail", {"reason": reason}, ExecutionView, is_repeatable=False)

    def approvals(self) -> list[ApprovalView]:
        return self._list("/approvals", ApprovalView)

    def purge(self, id: str) -> ExecutionView:
        """Forget an execution that has ended; the answer is the last that is seen of it here."""
        _, data = self._line.ask("POST", f"{V1}/executions/{_part(id)}/purge", is_repeatable=False)
        return _decode(data, ExecutionView)

    def retention(self) -> RetentionView:
        return self._get("/retention", RetentionView)

    def apply_retention(self, *, dry_run: bool = False) -> PurgeView:
        """Purge what may go now; ask again while `is_more`."""
        return self._post("/retention/purge", {"dry_run": dry_run}, PurgeView)

    def definition(self, id: str) -> Any:
        return self._get(f"/executions/{_part(id)}/definition", Any)

    def blob(self, id: str, digest: str) -> Any:
        return self._get(f"/executions/{_part(id)}/blobs/{_part(digest)}", Any)

    # --- workflows -----------------------------------------------------------------------------------
    def publish(self, definition: Mapping[str, Any], name: str = "") -> WorkflowView:
        return self._post("/workflows", {"definition": definition, "name": name}, WorkflowView)

    def publish_all(self, definitions: Sequence[Mapping[str, Any]]) -> list[WorkflowView]:
        """All are checked, with each other, and published in one commit."""
        return _in_order(self._post("/workflows", {"definitions": list(definitions)}, dict[str, Any]))

    def publish_yaml(self, text: str, name: str = "", file: str = "") -> WorkflowView:
        """The text of a file, of which the last workflow is answered; problems come back with their lines."""
        return _decode(self._yaml(text, name, file), WorkflowView)

    def publish_yaml_all(self, text: str, file: str = "") -> list[WorkflowView]:
        """The text of a file with any number of workflows."""
        return _in_order(_decode(self._yaml(text, "", file), dict[str, Any]))

    def _yaml(self, text: str, name: str, file: str) -> bytes:
        query = urlencode({key: value for key, value in (("name", name), ("file", file)) if value})
        path = f"{V1}/workflows" + (f"?{query}" if query else "")
        _, data = self._line.ask("POST", path, text.encode(), {"Content-Type": "application/yaml"})
        return data

    def workflows(self, name: str = "") -> list[WorkflowView]:
        if not name:
            return self._list("/workflows", WorkflowView)
        found = self._get(f"/workflows/{_part(name)}", dict[str, Any])
        return msgspec.convert(found["versions"], list[WorkflowView])

    def workflow(self, name: str, version: int = 0) -> WorkflowView:
        if version:
            return self._get(f"/workflows/{_part(name)}/versions/{version}", WorkflowView)
        found = self._get(f"/workflows/{_part(name)}", dict[str, Any])
        return msgspec.convert(found["newest"], WorkflowView)

    # --- what executions share -----------------------------------------------------------------------
    def locks(self, entity: str = "") -> list[LockView]:
        page = self._get("/locks", _Items, {"entity": entity} if entity else None)
        return _decode(page.items, list[LockView])

    def lock(self, entity: str, name: str) -> LockView:
        return self._get(f"/locks/{_part(entity)}/{_part(name)}", LockView)

    def release_lock(self, entity: str, name: str) -> LockView:
        """Take it from its holder, who goes on without it."""
        # Asked twice, it would be taken from the next one too.
        path = f"{V1}/locks/{_part(entity)}/{_part(name)}/release"
        return _decode(self._line.ask("POST", path, is_repeatable=False)[1], LockView)

    def entity_locks(self, entity: str = "") -> list[EntityLockView]:
        """Entities that are held or waited for."""
        found = self._get("/locks", dict[str, Any], {"entity": entity} if entity else None)
        return msgspec.convert(found.get("entities", []), list[EntityLockView])

    def entity_lock(self, entity: str) -> EntityLockView:
        return self._get(f"/locks/entities/{_part(entity)}", EntityLockView)

    def free_entity(self, entity: str, execution: str = "") -> EntityLockView:
        """Take it from the executions that hold it, or from one of them; they fail."""
        query = f"?{urlencode({'execution': execution})}" if execution else ""
        path = f"{V1}/locks/entities/{_part(entity)}/release{query}"
        return _decode(self._line.ask("POST", path, is_repeatable=False)[1], EntityLockView)

    def lock_graph(self) -> GraphView:
        """Who waits for whom."""
        return self._get("/locks/graph", GraphView)

    def entities(self, *, where: str = "", type: str = "", after: str = "", limit: int = 1000) -> list[EntityView]:
        """One page, by id."""
        query = {"where": where, "type": type, "after": after, "limit": limit}
        page = self._get("/entities", _Items, {key: value for key, value in query.items() if value})
        return _decode(page.items, list[EntityView])

    def entity(self, id: str) -> EntityView:
        return self._get(f"/entities/{_part(id)}", EntityView)

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
        body = {
            "type": type, "name": name, "labels": labels or {}, "parent": parent, "groups": list(groups),
            "facts": facts or {}, "version": version,
        }  # fmt: skip
        return self._put(f"/entities/{_part(id)}", body, EntityView)

    def patch_entity(self, change: EntityChange, *, version: int | None = None) -> EntityView:
        body = {
            "type": change.type, "name": change.name, "parent": change.parent, "labels": change.labels,
            "groups": change.groups, "facts": change.facts, "version": version,
        }  # fmt: skip
        path = f"{V1}/entities/{_part(change.id)}"
        return _decode(self._line.ask("PATCH", path, msgspec.json.encode(body))[1], EntityView)

    def delete_entity(self, id: str, *, recursive: bool = False, version: int | None = None) -> list[str]:
        """Ids of what is gone."""
        query = {"recursive": "true"} if recursive else {}
        if version is not None:
            query["version"] = str(version)
        path = f"{V1}/entities/{_part(id)}" + (f"?{urlencode(query)}" if query else "")
        return _decode(_decode(self._line.ask("DELETE", path)[1], _Items).items, list[str])

    def import_entities(
        self, source: str, rows: Sequence[Imported], *, dry_run: bool = False, replace: bool = False
    ) -> ImportView:
        """Some of what another inventory says; `end_import` says what it has in all."""
        body = {"source": source, "rows": rows, "partial": True, "dry_run": dry_run, "replace": replace}
        return self._post("/entities/import", body, ImportView)

    def end_import(
        self, source: str, present: Iterable[str], *, dry_run: bool = False, prune: bool = False
    ) -> ImportView:
        body = {"source": source, "present": list(present), "dry_run": dry_run, "prune": prune}
        return self._post("/entities/import", body, ImportView)

    def sensor(self, entity: str, name: str, kind: str = "sensor") -> SensorView:
        return self._get(_sensor(entity, name, kind), SensorView)

    def set_sensor(self, entity: str, name: str, value: Any, kind: str = "sensor") -> SensorView:
        return self._put(_sensor(entity, name, kind), {"value": value}, SensorView)

    def clear_sensor(self, entity: str, name: str, kind: str = "sensor") -> None:
        self._line.ask("DELETE", V1 + _sensor(entity, name, kind))

    # --- the rest ------------------------------------------------------------------------------------
    def blocks(self) -> list[BlockView]:
        return self._list("/blocks", BlockView)

    def workers(self) -> list[WorkerView]:
        return self._list("/workers", WorkerView)

    def queues(self) -> list[QueueView]:
        return self._list("/queues", QueueView)

    def health(self) -> HealthView:
        return self._get("/health", HealthView)

    def version(self) -> dict[str, str]:
        """The server's version, and who the token says you are."""
        return self._get("/version", dict[str, str])

    def metrics(self) -> str:
        return self._line.ask("GET", f"{V1}/metrics")[1].decode()

    def tokens(self) -> list[dict[str, Any]]:
        return self._list("/tokens", dict[str, Any])

    def create_token(self, name: str, role: str, lifetime: float = 0) -> dict[str, Any]:
        """The answer's `token` is shown this once."""
        body = {"name": name, "role": role, "lifetime": lifetime}
        return self._post("/tokens", body, dict[str, Any], is_repeatable=False)

    def revoke_token(self, id: str) -> dict[str, Any]:
        _, data = self._line.ask("DELETE", f"{V1}/tokens/{_part(id)}")
        return _decode(data, dict[str, Any])

    # --- asking --------------------------------------------------------------------------------------
    def _get(self, path: str, type: type[T], query: Mapping[str, Any] | None = None) -> T:
        _, data = self._line.ask("GET", V1 + path + (f"?{urlencode(query)}" if query else ""))
        return _decode(data, type)

    def _list(self, path: str, type: type[T]) -> list[T]:
        return _decode(self._get(path, _Items).items, list[type])  # type: ignore[valid-type]

    def _post(self, path: str, body: Any, type: type[T], *, is_repeatable: bool = True) -> T:
        _, data = self._line.ask("POST", V1 + path, msgspec.json.encode(body), is_repeatable=is_repeatable)
        return _decode(data, type)

    def _put(self, path: str, body: Any, type: type[T]) -> T:
        return _decode(self._line.ask("PUT", V1 + path, msgspec.json.encode(body))[1], type)

    def _stream(self, path: str, after: int) -> Iterator[bytes]:
        """The data of a stream's messages up to `event: end`, over any number of connections."""
        failing_since: float | None = None
        while True:
            try:
                headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
                with self._line.stream(V1 + path, headers, SILENCE) as answer:
                    failing_since = None
                    for number, kind, data in _messages(answer):
                        if kind == "end":
                            return
                        if number is not None and number > after:
                            after = number
                            yield data
            except (ServerUnreachable, ShuttingDown):
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > self.patience:
                    raise
            # The server closed it in an orderly way, or is gone: come back with what we have.
            time.sleep(0.1 if failing_since is None else 0.3)


def _messages(lines: Any) -> Iterator[tuple[int | None, str, bytes]]:
    """(id, event, data) of each complete server-sent message."""
    number, kind, data = None, "message", []  # type: int | None, str, list[bytes]
    for line in lines:
        if not line.endswith(b"\n"):
            return  # cut off in the middle: it comes again
        line = line.rstrip(b"\r\n")
        if not line:
            if data:
                yield number, kind, b"\n".join(data)
            number, kind, data = None, "message", []
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id" and value.isdigit():
            number = int(value)
        elif name == b"event":
            kind = value.decode()
        elif name == b"data":
            data.append(value)


def _sensor(entity: str, name: str, kind: str) -> str:
    return f"/entities/{_part(entity)}/{'config' if kind == 'config' else 'sensors'}/{_part(name)}"


def _part(text: str) -> str:
    return quote(text, safe="") or "-"


def _decode(data: Any, type: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=type)
    except msgspec.MsgspecError as error:
        raise Refused(f"the server's answer cannot be read ({error}); are client and server of one version?") from None


def _in_order(answer: dict[str, Any]) -> list[WorkflowView]:
    """Workflows that were published together: the answer is the last of them, with the others in it."""
    return msgspec.convert([*answer.pop("also", ()), answer], list[WorkflowView])
