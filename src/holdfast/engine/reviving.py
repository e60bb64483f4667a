"""Verbs for executions that wait for people or have ended: resume, replay, approve. Part of `Service`.

Before resume and replay one may ask what they would do: `plan` decides as the engine would, on what is committed,
and writes nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import AmbiguousApproval, CannotResume, InvalidRequest, NothingToApprove, Refused, WrongStatus
from holdfast.core.events import LaneAdvanced, SensorAwaited, SensorLeft
from holdfast.core.ids import short
from holdfast.core.lanes import APPROVAL, ASKS, ROOT_LANE, START, Lane, Op
from holdfast.core.lifecycle import may
from holdfast.core.model import Actor, Status, Wait
from holdfast.core.preview import preview
from holdfast.core.program import Program
from holdfast.core.reads import Need, TicketKey
from holdfast.core.requests import MeetGate, ReplayExecution, ResumeExecution
from holdfast.core.state import State
from holdfast.core.views import ApprovalView, ExecutionView, RefusalView, StandingView, StandView, WaypointView
from holdfast.language import program_from_bytes
from holdfast.store.queries import Queries
from holdfast.store.records import Header

from .inventory import InventoryVerbs
from .items import Reply, committed, future_reply
from .reads import TurnReads
from .rebuild import rebuild, transitions
from .sharing import SharedVerbs
from .why import Waiting, here

if TYPE_CHECKING:
    from holdfast.core.requests import Request

#: Executions looked through for approvals that wait, newest first.
APPROVALS = 2000
#: Where a person may be asked: at a gate, and at a step.
_ASKING = (Status.BLOCKED_WAITING, Status.RUNNING)
#: Waypoints and lanes that an answer about one execution lists.
SHOWN = 50


class RevivingVerbs(SharedVerbs, InventoryVerbs):
    @abstractmethod
    def resolve(self, actor: Actor, id: str) -> str: ...

    @abstractmethod
    def show(self, actor: Actor, id: str) -> ExecutionView: ...

    @abstractmethod
    def _program(self, queries: Queries, digest: bytes) -> Program: ...

    # --- resume and replay ----------------------------------------------------------------------------
    def resume(
        self, actor: Actor, id: str, *, force: bool = False, reason: str = "", accept_changes: bool = False
    ) -> ExecutionView:
        return self._revive(actor, id, resuming(actor, force, reason, accept_changes))

    def replay(self, actor: Actor, id: str, start: str, *, force: bool = False, reason: str = "") -> ExecutionView:
        return self._revive(actor, id, replaying(actor, start, force, reason))

    def _revive(self, actor: Actor, id: str, request: Request) -> ExecutionView:
        id = self.resolve(actor, id)
        future, reply = future_reply()
        self.engine.ask(id, request, reply)
        committed(future)
        return self.show(actor, id)

    def plan(self, actor: Actor, id: str, request: ResumeExecution | ReplayExecution) -> ExecutionView:
        """The execution as it is, with what would be done."""
        id = self.resolve(actor, id)
        view = self.show(actor, id)
        reads = TurnReads(program_from_bytes, is_shared=True)
        with self.store.reading() as queries:
            state = rebuild(queries, id)
            reads.adopt(state.definition, self._program(queries, state.definition))
            now = self.store.now()
            while isinstance(found := preview(state, request, now, reads), Need):
                # What is decided and thrown away takes no place in a queue.
                reads.learn({key: 1 if isinstance(key, TicketKey) else queries.shared(key) for key in found.keys})
        return msgspec.structs.replace(view, plan=found)

    # --- where it stands ------------------------------------------------------------------------------
    def standing(self, actor: Actor, id: str) -> StandingView:
        id = self.resolve(actor, id)
        with self.store.reading() as queries:
            state = rebuild(queries, id)
            program = self._program(queries, state.definition)
        parents = {lane.parent for lane in state.lanes.values()}
        leaves = [lane for lane in state.lanes.values() if lane.id not in parents]
        if state.status in (Status.COMPLETED, Status.COMPLETED_ACK):
            leaves = []
        root = state.lanes.get(ROOT_LANE)
        marks = list(root.waypoints) if root is not None else []
        return StandingView(
            id,
            state.status.name,
            state.run,
            [_standing(lane, program) for lane in leaves[:SHOWN]],
            [_waypoint(step, program) for step in marks[-SHOWN:]],
            self._refusal(state, program) if state.status.is_ended else None,
            max(len(leaves), len(marks)) > SHOWN,
            state.has_undone,
        )

    def _refusal(self, state: State, program: Program) -> RefusalView | None:
        """Why it could not be resumed; what is shared with others does not matter for that."""
        if not may("resume", state.status):
            return RefusalView(WrongStatus.code, f"it is {state.status.name}: nothing is left to do")
        if not state.started_at or not state.lanes:
            return RefusalView(CannotResume.code, "it never began")
        if state.has_undone:
            return RefusalView(CannotResume.code, "what it did before was undone: replay it, or start it again")
        why = program.may_resume(state)
        return RefusalView(CannotResume.code, why) if why else None

    # --- approvals ------------------------------------------------------------------------------------
    def approve(self, actor: Actor, id: str, step: str = "", *, approved: bool = True, note: str = "") -> ExecutionView:
        """Without a step: the one that waits, if it is exactly one."""
        id = self.resolve(actor, id)
        future, reply = future_reply()
        self.submit_approval(actor, id, step, approved, note, reply)
        committed(future)
        return self.show(actor, id)

    def submit_approval(self, actor: Actor, id: str, step: str, approved: bool, note: str, reply: Reply) -> None:
        """`id` is a whole one of the actor's tenant."""
        checked("note", note)
        with self.store.reading() as queries, queries.consistent():
            state = rebuild(queries, id)
            if state.status is Status.BLOCKED_WAITING:
                self.engine.ask(id, MeetGate(approved, note, _gate(state, step), actor), reply)
                return
            waiting = _asked(state)
            program = self._program(queries, state.definition)
            waits = waits_of(queries, state, approvals_only=True)
        found = [lane for lane in waiting if not step or step in (_step(lane), here(program, lane)[1])]
        if not found:
            there = ", ".join(f"`{name}`" for name in sorted({_step(lane) for lane in waiting}))
            what = f"does not wait for approval of `{step}`" if step else "waits for no approval"
            hint = f"it waits for approval of {there}" if waiting else f"`holdfast why {short(id)}` says what it does"
            raise NothingToApprove(f"execution {id} {what}; {hint}")
        if not step and len({lane.signal for lane in found}) > 1:
            there = ", ".join(sorted({_step(lane) for lane in found}))
            raise AmbiguousApproval(f"execution {id} waits for several approvals: {there}; say which")
        lane = found[0]
        value = {"approved": approved, "by": actor.name, "note": note}
        # Two people may answer at the same time: the second answer must not count for the next time it asks.
        self.engine.signal(id, lane.signal, value, actor, reply, f"{lane.signal}/{waits[lane.id].event}")

    def approvals(self, actor: Actor) -> list[ApprovalView]:
        """What waits for somebody's word, in the newest executions that have not ended."""
        found: list[ApprovalView] = []
        with self.store.reading() as queries:
            before, left = "", APPROVALS
            while left > 0:
                page = queries.headers(actor.tenant, statuses=_ASKING, workflow="", before=before, limit=200)
                for header in page:
                    found += self._approvals_of(queries, header)
                left -= len(page)
                if len(page) < 200:
                    break
                before = page[-1].id
        return found

    def _approvals_of(self, queries: Queries, header: Header) -> list[ApprovalView]:
        if header.status is Status.BLOCKED_WAITING:
            return [
                ApprovalView(header.id, header.workflow, str(number), gate.what, header.created_at, is_gate=True)
                for number, gate in enumerate(rebuild(queries, header.id).gates)
                if gate.kind == "approval" and not gate.is_met
            ]
        try:
            program = self._program(queries, header.definition)
        except Refused:
            return []  # after an upgrade, one that does not compile any more; it says so itself
        if not any(step.kind == "approve" for step in getattr(program, "steps", ())):
            return []
        state = rebuild(queries, header.id)
        waits = waits_of(queries, state, approvals_only=True)
        return [
            ApprovalView(header.id, header.workflow, _step(lane), waits[lane.id].asks, waits[lane.id].since)
            for lane in _asked(state)
            if lane.id in waits
        ]


def resuming(actor: Actor, force: bool, reason: str, accept_changes: bool = False) -> ResumeExecution:
    checked("reason", reason)
    return ResumeExecution(reason, force, actor, accept_changes)


def replaying(actor: Actor, start: str, force: bool, reason: str) -> ReplayExecution:
    checked("reason", reason)
    checked("step", start)
    if not start.strip():
        raise InvalidRequest("from: give a step's id, its number from 0, `start`, `last` or `end`")
    return ReplayExecution(start.strip(), reason, force, actor)


def checked(what: str, text: str) -> None:
    if len(text) > 2000:
        raise InvalidRequest(f"the {what} has {len(text)} characters; 2000 are allowed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"the {what} is not valid Unicode text") from None


def _asked(state: State) -> list[Lane]:
    """Lanes that wait for approval, in the order in which they are served. Those of an ended execution only stand."""
    if state.status.is_ended:
        return []
    return [lane for lane in state.lanes.values() if lane.wait is Wait.SIGNAL and lane.signal.startswith(APPROVAL)]


def _gate(state: State, name: str) -> int:
    """The gate that is called so, by its number or by what it asks; any that waits for a word where nothing is said."""
    if name.isdecimal() or not name:
        return int(name or -1)
    named = [number for number, gate in enumerate(state.gates) if gate.kind == "approval" and gate.what == name]
    if not named:
        asked = ", ".join(
            f"`{gate.what or number}`" for number, gate in enumerate(state.gates) if gate.kind == "approval"
        )
        raise NothingToApprove(
            f"no gate of execution {state.id} asks {name!r}; there is {asked or 'none for approval'}"
        )
    return named[0]


def _step(lane: Lane) -> str:
    return lane.signal.removeprefix(APPROVAL)


def waits_of(queries: Queries, state: State, *, approvals_only: bool = False) -> dict[int, Waiting]:
    """By lane that waits for something from outside: since when, and what it asks of people. The history knows that;
    the state need not."""
    kinds = (Wait.SIGNAL,) if approvals_only else (Wait.SIGNAL, Wait.SENSOR)
    waiting = {lane.id for lane in (_asked(state) if approvals_only else state.lanes.values()) if lane.wait in kinds}
    since: dict[int, Waiting] = {}
    for last, at, events in transitions(queries, state.id) if waiting and not state.status.is_ended else ():
        for number, event in enumerate(events, last - len(events) + 1):
            if isinstance(event, SensorAwaited):
                since.setdefault(event.lane, Waiting(at, "", number))
            elif isinstance(event, SensorLeft):
                since.pop(event.lane, None)
            elif isinstance(event, LaneAdvanced) and any(op[0] == Op.LISTEN for op in event.ops):
                said = [line.message for line in event.logs if line.message.startswith(ASKS)]
                since[event.lane] = Waiting(at, said[-1].removeprefix(ASKS) if said else "", number)
    return {lane: found for lane, found in since.items() if lane in waiting}


def _standing(lane: Lane, program: Program) -> StandView:
    label = here(program, lane)[1]
    error = lane.failure.message if lane.failure is not None else ""
    return StandView(lane.id, label, lane.wait.name.lower(), error)


def _waypoint(step: int, program: Program) -> WaypointView:
    if step == START:
        return WaypointView("start", "")
    label = program.label(step)
    if program.find_step(label) == step:
        return WaypointView(label, label)
    place = program.place(step)
    is_outside = place is not None and place[:2] == (-1, 0)
    return WaypointView(str(place[2]) if place is not None and is_outside else "last", label)
