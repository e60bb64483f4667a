"""The beginning of an execution: what it runs, with which input and blocks; or everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from . import events as e
from . import program as p
from . import requests as r
from . import versions
from .acquiring import Road, is_running
from .errors import DuplicateExecution, Refused, UnknownEntity, UnknownWorkflow, WrongStatus
from .folding import fold
from .gates import awaited, misfits
from .lifecycle import QUIET_START
from .model import Failure, Gate, Policy, Problem, Status
from .reads import EntityKey, Reads, WorkflowKey
from .state import State, open_state

_PLAIN = Policy()


def begin(state: State, request: r.StartExecution, now: int, reads: Reads) -> tuple[list[e.Event], p.Program | None]:
    """Everything up to the first step, and the program that takes it; none where the execution has ended already, or
    has to wait first."""
    if state.version:
        raise DuplicateExecution(f"execution {state.id} already exists; start another with a new id")
    tenant = request.actor.tenant
    if request.retry_of:
        # It may have been resumed since somebody looked at it.
        status = reads.header_status(request.retry_of, tenant)
        if status is None or not Status(status).is_ended:
            now_is = "gone" if status is None else Status(status).name
            raise WrongStatus(f"execution {request.retry_of} is {now_is}; only what has ended can be retried")
    version, digest = 0, request.definition
    if request.entity and reads.entity(EntityKey(tenant, request.entity)) is None:
        raise UnknownEntity(f"no entity {request.entity!r}; `holdfast entity set {request.entity}` makes one")
    if request.workflow:
        name, _, number = request.workflow.partition(":")
        key = WorkflowKey(tenant, name, int(number) if number.isdigit() else 0)
        published = reads.workflow(key)
        if published is None or (number and not number.isdigit()):
            raise UnknownWorkflow(
                f"no workflow {request.workflow!r} is published; `holdfast publish FILE` publishes one"
            )
        version, digest = published.version, published.definition
    program = reads.program(digest)
    if program is None:
        raise UnknownWorkflow("the definition that belongs to this request is not stored")

    given = reads.load(state.id, request.input)
    input, problems = program.check_input(given)
    policy = program.policy
    gates, wrong = _ahead(program, policy, request, None if problems else (input,), now, reads)
    problems += wrong
    offers, unknown = versions.pinned(program, reads)
    problems += unknown
    specs, unfit = program.pin(offers)
    problems += [problem for problem in unfit if not problem.warning]

    if problems:
        # What was asked for, not what would have become of it.
        input = given
    events: list[e.Event] = [
        e.ExecutionStarted(
            tenant,
            program.name,
            version,
            digest,
            reads.keep(state.id, input),
            request.actor,
            request.labels,
            entity=request.entity,
            entities=request.entities,
            select=request.select,
            retry_of=request.retry_of,
            is_exact=request.is_exact,
        )
    ]
    if problems:
        return [*events, e.ExecutionFailed(Status.FAILED_SAFE, failure=_invalid(problems))], None
    if specs:
        events.append(e.BlocksPinned(specs))
    if policy.works_on_entities and request.priority is not None:
        policy = msgspec.structs.replace(policy, priority=request.priority)
    if policy != _PLAIN:
        events.append(e.PolicySet(policy))
    rule, hash = program.retention
    if rule:
        events.append(e.RetentionSet(rule, hash))
    if not policy.works_on_entities and not gates:
        events.append(e.PhasesPassed(QUIET_START))
        return events, program
    road = Road(fold(open_state(state.id), now, events), now, reads, program)
    road.set_out(gates)
    return [*events, *road.events], program if is_running(road.events) else None


def _ahead(
    program: p.Program, policy: Policy, request: r.StartExecution, input: tuple[Any] | None, now: int, reads: Reads
) -> tuple[tuple[Gate, ...], list[Problem]]:
    """The gates before it, and what is wrong with them or with the entities it was started on. Without an input that
    can be used, only what was asked for with the start is looked at."""
    gates = request.gates
    problems: list[Problem] = []
    try:
        if input is not None:
            gates = (*program.gates(*input, now), *gates)
        if not (gates or policy.works_on_entities or request.entities or request.select):
            return gates, problems  # most have nothing before them
        problems += misfits(gates)
        if policy.works_on_entities:
            problems += _misread(program, request.select)
            if input is not None:
                program.wanted(*input)
        elif request.entities or request.select:
            text = f"workflow `{program.name}` works on no entities, and was started on some"
            problems.append(Problem("HF0739", text, help="leave them out, or let a step say what it runs on"))
    except Refused as refused:
        problems += refused.problems or (Problem(refused.code, refused.message),)
    for other in {awaited(gate)[0]: None for gate in gates if gate.kind == "after" and gate.what}:
        if reads.header_status(other, request.actor.tenant) is None:
            text = f"it has to wait for execution {other}, and there is none of that id"
            problems.append(Problem("HF0739", text, help="`holdfast ps` shows the executions there are"))
    return gates, problems


def _misread(program: p.Program, select: tuple[str, ...]) -> Iterator[Problem]:
    """What is wrong with selectors that were given with the start; there is no file to point into."""
    for number, text in enumerate(select):
        try:
            program.selector(text)
        except Refused as refused:
            column = refused.problems[0].column if refused.problems else 0
            at = f" (at character {column})" if column else ""
            yield Problem(refused.code, f"{refused.message}{at}", column=column, path=f"$.select[{number}]")


def _invalid(problems: list[Problem]) -> Failure:
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    listed = [{"code": x.code, "message": x.message, "path": x.path, "help": x.help} for x in problems]
    return Failure("invalid", first.message + more, code=first.code, details=listed)
