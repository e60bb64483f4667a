"""The beginning of an execution: what it runs, with which input and blocks; or everything that is wrong with them."""

from __future__ import annotations

from . import events as e
from . import program as p
from . import requests as r
from . import versions
from .errors import DuplicateExecution, UnknownEntity, UnknownWorkflow
from .lifecycle import QUIET_START
from .model import Failure, Problem, Status
from .state import State


def begin(state: State, request: r.StartExecution, reads: p.Reads) -> tuple[list[e.Event], p.Program | None]:
    """Everything up to the first step, and the program that takes it; none where the execution has ended already."""
    if state.version:
        raise DuplicateExecution(f"execution {state.id} already exists; start another with a new id")
    tenant = request.actor.tenant
    version, digest = 0, request.definition
    if request.entity and reads.entity(p.EntityKey(tenant, request.entity)) is None:
        raise UnknownEntity(f"no entity {request.entity!r}; `holdfast entity set {request.entity}` makes one")
    if request.workflow:
        name, _, number = request.workflow.partition(":")
        key = p.WorkflowKey(tenant, name, int(number) if number.isdigit() else 0)
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
    offers, unknown = versions.pinned(program.blocks, reads)
    problems += unknown
    specs, misfits = program.pin(offers)
    problems += [problem for problem in misfits if not problem.warning]

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
        )
    ]
    if problems:
        return [*events, e.ExecutionFailed(Status.FAILED_SAFE, failure=_invalid(problems))], None
    if specs:
        events.append(e.BlocksPinned(specs))
    rule, hash = program.retention
    if rule:
        events.append(e.RetentionSet(rule, hash))
    events.append(e.PhasesPassed(QUIET_START))
    return events, program


def _invalid(problems: list[Problem]) -> Failure:
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    listed = [{"code": x.code, "message": x.message, "path": x.path, "help": x.help} for x in problems]
    return Failure("invalid", first.message + more, code=first.code, details=listed)
