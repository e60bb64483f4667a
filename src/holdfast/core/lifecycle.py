"""The status table and the verb table, as data. Diagrams in the docs are drawn from these.

Rules by which this file stays what it is: no function here looks at anything but a status; every
change of status anywhere goes through `step_to`; a pair that is not in EDGES is a broken invariant.
"""

from __future__ import annotations

from typing import NamedTuple

from .model import Status as S


class Edge(NamedTuple):
    source: S
    target: S
    when: str


_BEFORE_END = tuple(s for s in S if not s.is_ended)
_STOPPING = (S.CANCELLING, S.FORCE_CANCELLING, S.KILLING)
_FORWARD = tuple(s for s in _BEFORE_END if s not in _STOPPING and s is not S.ROLLBACK)

EDGES: tuple[Edge, ...] = (
    Edge(S.NEW, S.VALID, "resolved and validated"),
    Edge(S.NEW, S.FAILED_SAFE, "any problem, all of them listed"),
    Edge(S.VALID, S.BLOCKED_WAITING, "a gate is open"),
    Edge(S.VALID, S.READY, "no gate is open"),
    Edge(S.BLOCKED_WAITING, S.READY, "all gates met together"),
    Edge(S.BLOCKED_WAITING, S.FAILED_SAFE, "rejected, or past its deadline"),
    Edge(S.READY, S.RESOURCE_DISCOVERY, "acquire jobs out"),
    Edge(S.RESOURCE_DISCOVERY, S.RESOURCES_DISCOVERED, "entity set stored, sorted"),
    Edge(S.RESOURCE_DISCOVERY, S.FAILED_SAFE, "acquiring failed"),
    Edge(S.RESOURCES_DISCOVERED, S.SCHEDULED, "enters the lock queue"),
    Edge(S.SCHEDULED, S.LOCKING, "its turn"),
    Edge(S.SCHEDULED, S.FAILED_SAFE, "waited too long"),
    Edge(S.LOCKING, S.LOCKED, "all locks granted at once"),
    Edge(S.LOCKING, S.FAILED_SAFE, "timeout or vanished entity"),
    Edge(S.LOCKED, S.RUNNING, "first step entered"),
    Edge(S.LOCKED, S.FAILED_SAFE, "an entity vanished"),
    Edge(S.RUNNING, S.COMPLETED, "last step done; locks released in that commit"),
    Edge(S.RUNNING, S.ERROR, "permanent failure, or budget exceeded"),
    Edge(S.ERROR, S.FAILED_SAFE, "drained; the ledger shows nothing left"),
    Edge(S.ERROR, S.ROLLBACK, "drained; something left and a feasible plan"),
    Edge(S.ERROR, S.FAILED_UNSAFE, "drained; something left and no plan"),
    Edge(S.ROLLBACK, S.FAILED_SAFE, "every entry undone"),
    Edge(S.ROLLBACK, S.FAILED_UNSAFE, "some entry not undone"),
    Edge(S.ROLLBACK, S.CANCELLED, "the run was being cancelled"),
    *(Edge(s, S.CANCELLING, "cancel") for s in _FORWARD),
    *(Edge(s, S.FORCE_CANCELLING, "force-cancel") for s in (*_FORWARD, S.CANCELLING)),
    *(Edge(s, S.KILLING, "kill") for s in (*_FORWARD, S.ROLLBACK, S.CANCELLING, S.FORCE_CANCELLING)),
    *(Edge(s, S.ROLLBACK, "drained; rollback configured") for s in (S.CANCELLING, S.FORCE_CANCELLING)),
    Edge(S.CANCELLING, S.CANCELLED, "drained"),
    Edge(S.FORCE_CANCELLING, S.CANCELLED, "not waited for"),
    Edge(S.KILLING, S.CANCELLED, "trees empty"),
    Edge(S.COMPLETED, S.COMPLETED_ACK, "acknowledged"),
    Edge(S.FAILED_SAFE, S.FAILED_SAFE_ACK, "acknowledged"),
    Edge(S.FAILED_UNSAFE, S.FAILED_UNSAFE_ACK, "acknowledged with a note"),
    Edge(S.CANCELLED, S.CANCELLED_ACK, "acknowledged"),
    *(
        Edge(s, t, "resume, replay")
        for s in (
            S.FAILED_SAFE, S.FAILED_UNSAFE, S.CANCELLED,
            S.FAILED_SAFE_ACK, S.FAILED_UNSAFE_ACK, S.CANCELLED_ACK,
        )
        for t in (S.RUNNING, S.SCHEDULED)
    ),
    *(Edge(s, t, "replay") for s in (S.COMPLETED, S.COMPLETED_ACK) for t in (S.RUNNING, S.SCHEDULED)),
    *(Edge(s, S.FAILED_UNSAFE, "resumed, not locked again; an earlier run left something")
      for s in (S.SCHEDULED, S.LOCKING)),
)  # fmt: skip

_PAIRS = {(edge.source, edge.target) for edge in EDGES}

#: What a run passes on its way to the first step when nothing has to be waited for.
QUIET_START: tuple[S, ...] = (
    S.NEW, S.VALID, S.READY, S.RESOURCE_DISCOVERY, S.RESOURCES_DISCOVERED,
    S.SCHEDULED, S.LOCKING, S.LOCKED, S.RUNNING,
)  # fmt: skip

#: What an acknowledged end is called; one that is acknowledged already stays so.
ACKED: dict[S, S] = {
    S.COMPLETED: S.COMPLETED_ACK,
    S.FAILED_SAFE: S.FAILED_SAFE_ACK,
    S.FAILED_UNSAFE: S.FAILED_UNSAFE_ACK,
    S.CANCELLED: S.CANCELLED_ACK,
}

#: New forward steps may be entered only here.
MOVING = frozenset({S.RUNNING})


class Verb(NamedTuple):
    name: str
    allowed: frozenset[S]
    effect: str


_ENDED = frozenset(s for s in S if s.is_ended)
_OPEN = frozenset(_BEFORE_END)
_FAILED_OR_CANCELLED = frozenset(
    {S.FAILED_SAFE, S.FAILED_UNSAFE, S.CANCELLED, S.FAILED_SAFE_ACK, S.FAILED_UNSAFE_ACK, S.CANCELLED_ACK}
)

VERBS: dict[str, Verb] = {
    v.name: v
    for v in (
        Verb("signal", _OPEN, "a message for the workflow; kept until a step waits for it"),
        Verb("cancel", _OPEN - {S.ROLLBACK, S.FORCE_CANCELLING, S.KILLING},
             "no new forward steps; running jobs are told and drained; then CANCELLED with a verdict"),
        Verb("force-cancel", _OPEN - {S.ROLLBACK, S.KILLING},
             "the same without waiting for the workflow; unanswered jobs are UNKNOWN"),
        Verb("kill", _OPEN, "every process of the execution is killed; CANCELLED when none is left"),
        Verb("resume", _FAILED_OR_CANCELLED | {S.RUNNING}, "carry on; what succeeded stays"),
        Verb("force-resume", _FAILED_OR_CANCELLED, "also what was in flight or UNKNOWN runs again"),
        Verb("replay", _ENDED, "do again from a waypoint"),
        Verb("retry", _ENDED, "a new execution for what failed or was never reached"),
        Verb("rollback", frozenset({S.ERROR}), "of one that waits for a decision: undo what it did"),
        Verb("fail", frozenset({S.ERROR}), "of one that waits for a decision: end it as it is"),
        Verb("ack", _ENDED, "somebody has seen it; a note is required where unsafe"),
        Verb("purge", _ENDED - {S.FAILED_UNSAFE}, "forget it, by retention"),
    )
}  # fmt: skip


def may(verb: str, status: S) -> bool:
    return status in VERBS[verb].allowed


def step_to(source: S, target: S) -> None:
    """Every change of status passes here. A pair not in the table is a bug, not a refusal."""
    assert source == target or (source, target) in _PAIRS, f"no edge {source.name} -> {target.name}"


def diagram() -> str:
    """The status table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2", "    [*] --> NEW"]
    stops: dict[tuple[S, str], list[str]] = {}
    for edge in EDGES:
        if edge.target in _STOPPING:
            stops.setdefault((edge.target, edge.when), []).append(edge.source.name)
            continue
        lines.append(f"    {edge.source.name} --> {edge.target.name}: {edge.when}")
    for (target, verb), sources in stops.items():
        lines.append(f"    note right of {target.name}: {verb}, from {', '.join(sources)}")
    return "\n".join(lines) + "\n"
