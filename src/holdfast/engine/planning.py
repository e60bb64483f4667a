"""Verbs for what is to come: what a start would do, and doing an execution again as a new one. Part of `Service`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from holdfast.core import retrying
from holdfast.core.codec import pack
from holdfast.core.errors import InvalidRequest, KeyReused
from holdfast.core.model import DEFAULT_ENTITY, PAYLOAD_LIMIT, Actor, BlockOffer
from holdfast.core.planning import plan
from holdfast.core.program import Program
from holdfast.core.reads import BlockKey, Need, StartKey, TicketKey, WorkflowKey
from holdfast.core.requests import StartExecution
from holdfast.core.state import State
from holdfast.core.views import ExecutionView
from holdfast.core.views_plan import StartPlan
from holdfast.language import canonical, gates_of, program_from_bytes
from holdfast.store.queries import Queries
from holdfast.store.records import Header

from .engine import new_execution_id
from .items import Ask, Reply, committed, future_reply, spill
from .reads import TurnReads, resolve
from .rebuild import rebuild
from .verdicts import VerdictVerbs
from .wishes import Existing

_NOTHING = StartExecution("")


class PlanningVerbs(VerdictVerbs):
    @abstractmethod
    def started(self, actor: Actor, answer: Header | Existing) -> ExecutionView: ...

    @abstractmethod
    def _compiled(self, actor: Actor, data: bytes, definition: Mapping[str, Any]) -> tuple[bytes, Program]: ...

    # --- plan -----------------------------------------------------------------------------------------
    def plan_start(
        self,
        actor: Actor,
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
        """What a start with the same words would do. It is decided on what is committed, and nothing is written.
        `offers` are blocks of a worker that would come with the start."""
        if bool(workflow) == (definition is not None):
            raise InvalidRequest("give either the name of a published workflow or a definition, not both")
        reads = TurnReads(program_from_bytes, is_shared=True)
        digest = b""
        if definition is not None:
            data, program = self._compiled(actor, canonical(definition), definition)
            digest = blake2b(data, digest_size=16).digest()
            reads.adopt(digest, program)
        now = self.store.now()
        spill(Ask("", _NOTHING), input)  # refuses what could not be kept
        request = StartExecution(
            new_execution_id(), input, workflow, digest, {}, actor, entity, tuple(entities), tuple(select),
            gates_of(gates, now) if gates else (), priority,
        )  # fmt: skip
        with self.store.reading() as queries, queries.consistent():
            while isinstance(found := plan(request, now, reads), Need):
                reads.learn({key: self._shared(queries, key, offers) for key in found.keys})
        return found

    def _shared(self, queries: Queries, key: Any, offers: Sequence[BlockOffer]) -> Any:
        if isinstance(key, TicketKey):
            return 1  # what is decided and thrown away takes no place in a queue
        row = queries.shared(key)
        if isinstance(key, BlockKey):
            return (*(row or ()), *(offer for offer in offers if offer.name == key.name))
        return row

    # --- retry ----------------------------------------------------------------------------------------
    def retry(
        self,
        actor: Actor,
        id: str,
        *,
        failed: bool = False,
        force: bool = False,
        input: Mapping[str, Any] | None = None,
        key: str = "",
        new_id: str = "",
    ) -> ExecutionView:
        """Another execution with the same definition and input; with `failed`, upon those entities that the first did
        not bring to their end. `input` replaces some of it."""
        future, reply = future_reply()
        self.submit_retry(actor, id, failed=failed, force=force, input=input, key=key, new_id=new_id, reply=reply)
        return self.started(actor, committed(future))

    def submit_retry(
        self,
        actor: Actor,
        id: str,
        *,
        failed: bool = False,
        force: bool = False,
        input: Mapping[str, Any] | None = None,
        key: str = "",
        new_id: str = "",
        reply: Reply,
    ) -> None:
        origin = self.resolve(actor, id)
        # Not what it comes to: the same words mean the same execution, whatever became of the first one since.
        content = blake2b(pack(("retry", origin, failed, input or {})), digest_size=16).digest()
        with self.store.reading() as queries, queries.consistent():
            same = queries.shared(StartKey(actor.tenant, key)) if key else None
            if same is not None:
                if same.content != content:
                    raise KeyReused(
                        f"the idempotency key {key!r} already started execution {same.execution} with other content;"
                        " use a new key for something new"
                    )
                reply(Existing(same.execution), None)
                return
            state = rebuild(queries, origin)
            retrying.check(state, force)
            program = self._program(queries, state.definition)
            given = self._input_of(queries, state)
            data = queries.definition(state.definition) or b""
            name = f"{state.workflow}:{state.workflow_version}" if self._is_published(queries, state) else ""
        upon = retrying.upon(state, program.outline(state.specs).types, failed)
        now = self.store.now()
        own = len(program.gates(given, now)) if state.gates else 0
        if input:
            given = {**(given or {}), **input} if isinstance(given, dict | None) else dict(input)
        priority = state.policy.priority
        self.engine.start_execution(
            workflow=name,
            definition=b"" if name else data,
            program=None if name else program,
            input=given,
            key=key,
            labels=state.labels,
            actor=actor,
            id=new_id,
            entity="" if state.entity == DEFAULT_ENTITY else state.entity,
            entities=upon.entities,
            select=upon.select,
            gates=retrying.gates_again(state, own, now),
            priority=priority if priority != program.policy.priority and state.policy.works_on_entities else None,
            retry_of=origin,
            is_exact=upon.is_exact,
            content=content,
            reply=reply,
        )

    def _input_of(self, queries: Queries, state: State) -> Any:
        """As the origin was given it, with its defaults."""
        return resolve(state.input, lambda ref: queries.blob(state.id, ref.digest) or b"\xc0", PAYLOAD_LIMIT)[0]

    def _is_published(self, queries: Queries, state: State) -> bool:
        """Whether its name still leads to its definition: a version may have been published under another name."""
        if not state.workflow_version:
            return False
        found = queries.shared(WorkflowKey(state.tenant, state.workflow, state.workflow_version))
        return found is not None and found.definition == state.definition
