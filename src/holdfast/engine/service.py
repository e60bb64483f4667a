"""The verbs people and programs use, and what they are shown. REST, client and CLI all speak these.

Writing verbs hand a request to the engine and answer after its commit; reading verbs look at committed
rows only. Every verb takes the actor: the tenant it may see comes from there and from nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.codec import event_json, unpack
from holdfast.core.errors import (
    AmbiguousId,
    InvalidRequest,
    TimedOut,
    UnknownBlob,
    UnknownExecution,
    UnknownWorkflow,
)
from holdfast.core.ids import is_id
from holdfast.core.jobs import fold_jobs
from holdfast.core.model import Actor, Status
from holdfast.core.program import Program
from holdfast.core.reads import WorkflowKey
from holdfast.core.retrying import counts
from holdfast.core.state import State
from holdfast.core.version import VERSION
from holdfast.core.versions import order, place, with_padded
from holdfast.core.views import (
    BlockView,
    ExecutionView,
    HealthView,
    JobView,
    LogView,
    QueueView,
    WhyView,
    WorkerView,
    WorkflowView,
    hooks_of,
    log_view,
    subject_counts,
)
from holdfast.language import (
    Definition,
    Published,
    canonical,
    define,
    define_all,
    gates_of,
    program_from_bytes,
    signature,
)
from holdfast.store.port import Store
from holdfast.store.queries import Queries
from holdfast.store.records import Header

from .engine import Engine
from .items import Reply, committed, future_reply
from .patience import PATIENCE, Patience, is_taking, worker_state
from .planning import PlanningVerbs
from .rebuild import rebuild, transitions
from .retention import Keeping
from .retention import keeping as default_keeping
from .reviving import waits_of
from .sharing import lock_rows
from .showing import Unread, shown, view_of
from .why import Waiting, explain, offers, queue_reason, with_stumbles
from .why_entities import contention_of
from .wishes import Existing

#: Names and keys are index entries: longer ones are refused.
NAME_LIMIT = 200
LABEL_LIMIT = 64
REASON_LIMIT = 2000


class Service(PlanningVerbs):
    """`engine` is None where nobody may write: then only the reading verbs work."""

    def __init__(
        self,
        store: Store,
        engine: Engine | None = None,
        keeping: Keeping | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        self.store = store
        self.patience = patience
        self.keeping = keeping or default_keeping()
        self._engine = engine
        self._programs: dict[bytes, Program] = {}

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "this service only reads"
        return self._engine

    # --- writing ------------------------------------------------------------------------------------
    def start(
        self,
        actor: Actor,
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
        """By published name (`name` or `name:version`) or with an inline definition."""
        future, reply = future_reply()
        self.submit_start(
            actor,
            workflow=workflow,
            definition=definition,
            input=input,
            key=key,
            labels=labels,
            id=id,
            entity=entity,
            entities=entities,
            select=select,
            gates=gates,
            priority=priority,
            reply=reply,
        )
        return self.started(actor, committed(future))

    def submit_start(
        self,
        actor: Actor,
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
        reply: Reply,
    ) -> None:
        if bool(workflow) == (definition is not None):
            raise InvalidRequest("give either the name of a published workflow or a definition, not both")
        if id and not is_id(id):
            raise InvalidRequest("an execution id is 32 hexadecimal digits")
        _short("idempotency key", key)
        _short("workflow name", workflow)
        _short("entity", entity)
        if labels and len(labels) > LABEL_LIMIT:
            raise InvalidRequest(f"{len(labels)} labels; {LABEL_LIMIT} are allowed")
        for label, value in (labels or {}).items():
            _short("label", label)
            _short(f"value of label {label}", value)
        data, program = b"", None
        if definition is not None:
            data = canonical(definition)
            data, program = self._compiled(actor, data, definition)
        self.engine.start_execution(
            workflow=workflow, definition=data, program=program, input=input, key=key, labels=labels,
            actor=actor, id=id, entity=entity, entities=entities, select=select,
            gates=gates_of(gates, self.store.now()) if gates else (), priority=priority, reply=reply,
        )  # fmt: skip

    def _compiled(self, actor: Actor, data: bytes, definition: Mapping[str, Any]) -> tuple[bytes, Program]:
        """The definition with what it uses of the published ones inside, and its program."""
        program = self._programs.get(data)
        if program is None:
            found = define(definition, library=self._library(actor))
            linked = canonical(found.data)
            if linked != data:
                return linked, found.program  # what is published may be something else the next time
            program = self._remember(data, found.program)
        return data, program

    def _library(self, actor: Actor) -> Published:
        def read(name: str) -> Any:
            with self.store.reading() as queries:
                found = queries.shared(WorkflowKey(actor.tenant, name))
                data = queries.definition(found.definition) if found is not None else None
            return msgspec.json.decode(data) if data else None

        return Published(read)

    def _remember(self, key: bytes, program: Program) -> Program:
        """Called from many threads; each step is atomic, and one program too many does no harm."""
        if len(self._programs) >= 256:
            self._programs.pop(next(iter(tuple(self._programs)), b""), None)
        self._programs[key] = program
        return program

    def started(self, actor: Actor, answer: Header | Existing) -> ExecutionView:
        """What a start is answered with: the execution, and why it does not move if it does not."""
        if isinstance(answer, Existing):
            return self.show(actor, answer.execution)
        view = self.known(answer)
        if view is not None:
            return view
        with self.store.reading() as queries:
            view = view_of(queries, answer)
            return view if view.is_ended else msgspec.structs.replace(view, waiting=self._unoffered(queries, answer))

    def known(self, header: Header) -> ExecutionView | None:
        """The view of what was just committed, or of what has ended; nothing if more has to be read for it."""
        if header.is_queued and not header.status.is_ended:
            return None
        try:
            return view_of(None, header)
        except Unread:
            return None

    def _unoffered(self, queries: Queries, header: Header) -> list[str]:
        unclaimed = [row for row in queries.jobs_of(header.id) if not row.incarnation]
        if not unclaimed:
            return []
        now = self.store.now()
        workers = queries.workers()
        online = [w for w in workers if is_taking(w, now)]
        return [
            f"job {row.job}: {queue_reason(row.queue, row.block, workers, {}, now)}"
            for row in unclaimed
            if not any(offers(w, row.block) and row.queue in w.queues for w in online)
        ]

    def signal(self, actor: Actor, id: str, name: str, value: Any = None, key: str = "") -> ExecutionView:
        _short("signal name", name)
        _short("signal key", key)
        id = self.resolve(actor, id)
        future, reply = future_reply()
        self.engine.signal(id, name, value, actor, reply, key)
        committed(future)
        return self.show(actor, id)

    def cancel(self, actor: Actor, id: str, reason: str = "") -> ExecutionView:
        if len(reason) > REASON_LIMIT:
            raise InvalidRequest(f"the reason has {len(reason)} characters; {REASON_LIMIT} are allowed")
        _storable("reason", reason)
        id = self.resolve(actor, id)
        future, reply = future_reply()
        self.engine.cancel(id, reason, actor, reply)
        committed(future)
        return self.show(actor, id)

    def publish(self, actor: Actor, definition: Mapping[str, Any], name: str = "") -> WorkflowView:
        """A new version, unless the newest one already is this definition."""
        defined = define(definition, library=self._library(actor))
        return self._publish(actor, [defined], name)[0]

    def publish_all(self, actor: Actor, definitions: Sequence[Mapping[str, Any]]) -> list[WorkflowView]:
        """Workflows that belong together: all are checked, and published in one commit."""
        return self._publish(actor, define_all(definitions, library=self._library(actor)))

    def _publish(self, actor: Actor, defined: Sequence[Definition], name: str = "") -> list[WorkflowView]:
        names = [name or each.program.name for each in defined]
        for called in names:
            _short("workflow name", called)
        future, reply = future_reply()
        data = [(called, canonical(each.data)) for called, each in zip(names, defined, strict=True)]
        self.engine.publish_all(actor.tenant, data, actor.name, reply)
        return self.just_published(actor, names, committed(future))

    def just_published(
        self, actor: Actor, names: Sequence[str], answers: Sequence[tuple[int, bool]]
    ) -> list[WorkflowView]:
        """What the engine answered to `publish_all`, as views."""
        return [msgspec.structs.replace(self.workflow(actor, called, version), is_new=is_new)
                for called, (version, is_new) in zip(names, answers, strict=True)]  # fmt: skip

    # --- executions ---------------------------------------------------------------------------------
    def resolve(self, actor: Actor, id: str) -> str:
        """A whole id, or the beginning of one."""
        text = id.lower()
        if not text or len(text) > 32 or any(c not in "0123456789abcdef" for c in text):
            raise UnknownExecution(f"{id[:40]!r} is not an execution id; `holdfast ps` lists them")
        with self.store.reading() as queries:
            if is_id(text):
                found = [text] if queries.header(actor.tenant, text) else []
            else:
                found = queries.find(actor.tenant, text)
        if not found:
            raise UnknownExecution(self.unknown(id))
        if len(found) > 1:
            shown = ", ".join(x[: len(text) + 4] for x in found[:5])
            raise AmbiguousId(f"{id} could be {shown}; give more characters")
        return found[0]

    def show(self, actor: Actor, id: str) -> ExecutionView:
        id = self.resolve(actor, id)
        with self.store.reading() as queries:
            header = self._header(queries, actor, id)
            view = msgspec.structs.replace(view_of(queries, header), retries=queries.retries_of(actor.tenant, id))
            if header.status.is_ended:
                return view
            state = rebuild(queries, id)
            why = self._why(queries, state, waits_of(queries, state, approvals_only=True))
        waiting = [reason.text for reason in why.reasons]
        return msgspec.structs.replace(view, waiting=waiting, subjects=subject_counts(counts(state)))

    def executions(
        self,
        actor: Actor,
        *,
        statuses: tuple[Status, ...] = (),
        workflow: str = "",
        before: str = "",
        limit: int = 50,
    ) -> list[ExecutionView]:
        """Newest first. The next page begins before the last id of this one."""
        with self.store.reading() as queries:
            headers = queries.headers(actor.tenant, statuses=statuses, workflow=workflow, before=before, limit=limit)
            return [view_of(queries, header) for header in headers]

    def events(self, actor: Actor, id: str, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """Events numbered above `after`, as the API shows them."""
        found: list[dict[str, Any]] = []
        with self.store.reading() as queries:
            self._header(queries, actor, id)
            for last, at, events in transitions(queries, id, after):
                first = last - len(events) + 1
                for seq, event in enumerate(events, first):
                    if seq > after:
                        found.append(event_json(event, seq, at))
                    if len(found) == limit:
                        return found
        return found

    def jobs(self, actor: Actor, id: str) -> list[JobView]:
        id = self.resolve(actor, id)
        with self.store.reading() as queries:
            header = self._header(queries, actor, id)
            program = self._program(queries, header.definition)
            views = fold_jobs(((at, events) for _, at, events in transitions(queries, id)), program.label)
            return [
                msgspec.structs.replace(
                    view, input=shown(queries, id, view.input), result=shown(queries, id, view.result)
                )
                for view in views
            ]

    def logs(self, actor: Actor, id: str, after: int = 0, limit: int = 500) -> list[LogView]:
        id = self.resolve(actor, id)
        with self.store.reading() as queries:
            self._header(queries, actor, id)
            return [log_view(row.number, row.at, row.line) for row in queries.logs(id, after, limit)]

    def why(self, actor: Actor, id: str) -> WhyView:
        id = self.resolve(actor, id)
        with self.store.reading() as queries:
            self._header(queries, actor, id)
            state = rebuild(queries, id)
            return self._why(queries, state, waits_of(queries, state))

    def _why(self, queries: Queries, state: State, waits: Mapping[int, Waiting]) -> WhyView:
        """`waits` is of `waits_of`."""
        program = self._program(queries, state.definition)
        workers, busy, locks = queries.workers(), queries.claim_counts(), lock_rows(queries, state)
        there = contention_of(queries, state)
        view = explain(state, workers, busy, program, self.store.now(), locks, waits, there)
        if self._engine is None or not self._engine.agenda.has_stumbles:
            return view
        tripped = [(row, self._engine.agenda.stumble(row)) for row in queries.agenda_of(state.id)]
        return with_stumbles(view, [(row.item, stumble) for row, stumble in tripped if stumble is not None])

    def definition(self, actor: Actor, id: str) -> Any:
        with self.store.reading() as queries:
            digest = self._header(queries, actor, id).definition
            data = queries.definition(digest)
        return msgspec.json.decode(data) if data else None

    def blob(self, actor: Actor, id: str, digest: str) -> Any:
        """A long value that events only refer to."""
        with self.store.reading() as queries:
            self._header(queries, actor, id)
            data = queries.blob(id, bytes.fromhex(digest)) if is_id(digest) else None
        if data is None:
            raise UnknownBlob(f"execution {id} has no value {digest[:40]}")
        return unpack(data)

    def feed(self, actor: Actor, id: str, after: int, limit: int = 500) -> tuple[list[dict[str, Any]], str]:
        """Events above `after` and, once they are the last there will be, the final status."""
        with self.store.reading() as queries:
            header = self._header(queries, actor, id)
        # The header first: what it counts is in the history by then.
        found = self.events(actor, id, after, limit)
        last = found[-1]["seq"] if found else after
        return found, header.status.name if header.status.is_ended and last >= header.version else ""

    def feed_logs(self, actor: Actor, id: str, after: int, limit: int = 500) -> tuple[list[LogView], str]:
        """The same for log lines."""
        with self.store.reading() as queries:
            header = self._header(queries, actor, id)
            found = [log_view(row.number, row.at, row.line) for row in queries.logs(id, after, limit)]
        last = found[-1].number if found else after
        return found, header.status.name if header.status.is_ended and last >= header.logs else ""

    def wait(self, actor: Actor, id: str, timeout: float | None = None) -> ExecutionView:
        """Until it has ended; `TimedOut` when that takes longer."""
        id = self.resolve(actor, id)
        deadline = None if timeout is None else time.monotonic() + timeout
        for moved in self.follow(id, deadline):
            if moved is not None and not moved.status.is_ended:
                continue
            with self.store.reading() as queries:
                header = moved or self._header(queries, actor, id)
                if header.status.is_ended:
                    return view_of(queries, header)
        raise TimedOut(f"execution {id} has not ended within {timeout} s; it goes on")

    def follow(self, id: str, deadline: float | None = None) -> Iterator[Header | None]:
        """Yields at once and then whenever the execution may have moved, at least once a second: its newest
        header, or nothing where only the store knows it."""
        import queue

        news: queue.SimpleQueue[Header | None] = queue.SimpleQueue()
        unwatch = self.engine.watch(id, news.put)
        moved: Header | None = None
        try:
            while True:
                yield moved
                left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
                if left <= 0:
                    return
                moved = None
                try:
                    moved = news.get(timeout=left)
                    while not news.empty():
                        moved = news.get_nowait()
                except queue.Empty:
                    pass
        finally:
            unwatch()

    def unknown(self, id: str) -> str:
        """What is said of an execution that is not there."""
        how = f"holdfast archive show {id}" if self.keeping.archive is not None else "holdfast retention"
        return f"no execution {id}; `holdfast ps` lists them (it may have been purged: `{how}`)"

    def _header(self, queries: Queries, actor: Actor, id: str) -> Header:
        header = queries.header(actor.tenant, id) if is_id(id) else None
        if header is None:
            raise UnknownExecution(self.unknown(id))
        return header

    def _program(self, queries: Queries, digest: bytes) -> Program:
        program = self._programs.get(digest)
        if program is None:
            data = queries.definition(digest)
            if data is None:
                raise UnknownWorkflow("the definition of this execution is not stored any more")
            program = self._remember(digest, program_from_bytes(data))
        return program

    # --- the rest -----------------------------------------------------------------------------------
    def workflows(self, actor: Actor, name: str = "") -> list[WorkflowView]:
        """The newest version of each, or all versions of one."""
        with self.store.reading() as queries:
            rows = queries.published(actor.tenant, name)
            if name and not rows:
                raise UnknownWorkflow(f"no workflow {name!r} is published; `holdfast publish FILE` publishes one")
            views = [WorkflowView(r.name, r.version, r.definition.hex(), r.published_at, r.published_by) for r in rows]
            return views if name else [msgspec.structs.replace(v, **_called(queries, v)) for v in views]

    def workflow(self, actor: Actor, name: str, version: int = 0) -> WorkflowView:
        views = self.workflows(actor, name)
        view = next((v for v in views if version in (0, v.version)), None)
        if view is None:
            raise UnknownWorkflow(f"workflow {name!r} has no version {version}; the newest is {views[0].version}")
        with self.store.reading() as queries:
            data = queries.definition(bytes.fromhex(view.digest))
        definition = msgspec.json.decode(data) if data else None
        return msgspec.structs.replace(view, definition=definition, **signature(definition)._asdict())

    def blocks(self) -> list[BlockView]:
        now = self.store.now()
        with self.store.reading() as queries:
            known, workers = queries.blocks(), queries.workers()
        online = [w for w in workers if is_taking(w, now)]
        return [
            BlockView(
                o.name, o.version, o.description, o.pure, o.idempotent, o.timeout / 1e6 if o.timeout else None,
                o.isolation, o.parameters, o.result, [w.name for w in online if offers(w, place(o.name, o.version))],
                o.run_on, hooks_of(o), o.accepts_unknown, o.is_pivot,
            )
            for o in sorted(map(with_padded, known), key=lambda o: (o.name, order(o.version)))
        ]  # fmt: skip

    def workers(self) -> list[WorkerView]:
        now = self.store.now()
        with self.store.reading() as queries:
            workers, busy = queries.workers(), queries.claim_counts()
        return [
            WorkerView(
                w.name, w.incarnation, worker_state(w, now, self.patience), w.host, w.pid, w.slots,
                busy.get(w.incarnation, 0), w.queues, w.blocks, w.registered_at, w.seen_at, bool(w.engine),
            )
            for w in workers
        ]  # fmt: skip

    def queues(self) -> list[QueueView]:
        now = self.store.now()
        with self.store.reading() as queries:
            depths, workers = queries.queue_depths(), queries.workers()
        online = [w for w in workers if is_taking(w, now)]
        return [
            QueueView(
                queue, block, waiting, claimed, (now - oldest) / 1e6 if oldest else 0.0,
                [w.name for w in online if offers(w, block) and queue in w.queues],
            )
            for queue, block, waiting, claimed, oldest in depths
        ]  # fmt: skip

    def health(self) -> HealthView:
        with self.store.reading() as queries:
            queries.meta("")
        engine = self._engine
        is_well = engine is not None and engine.is_alive
        return HealthView(
            "ok" if is_well else "reading only",
            VERSION,
            self.store.kind,
            engine.name if engine else "",
            engine.pending if engine else 0,
            len(engine.dispatch.sessions) if engine else 0,
        )


def _short(what: str, text: str) -> None:
    if len(text) > NAME_LIMIT:
        raise InvalidRequest(f"the {what} has {len(text)} characters; {NAME_LIMIT} are allowed")
    _storable(what, text)


def _storable(what: str, text: str) -> None:
    """Text that came in as something else than UTF-8 carries halves of characters; nobody could store it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"the {what} is not valid Unicode text") from None


def _called(queries: Queries, view: WorkflowView) -> dict[str, str]:
    """What a list says of each workflow."""
    data = queries.definition(bytes.fromhex(view.digest))
    called = signature(msgspec.json.decode(data) if data else None)
    return {"description": called.description, "shorthand": called.shorthand}
