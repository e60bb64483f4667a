"""The fleet: how each entity of an execution fares, folded from the events the API shows.

Pure: events in, members out; how they are drawn is the screen's business. At the end each has a verdict: what became of
it, and whether anything is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.lanes import Op
from holdfast.core.state import FAR
from holdfast.core.subjects import Progress as Reached

#: what a member may be at; those after "running" stay, once the execution has ended
ENDS = ("done", "rolled back", "in doubt", "failed", "stopped", "not reached")
#: how the interpreter calls the number of the batch, in its variables
BATCH = "rollout.batch"


@dataclass(slots=True)
class Member:
    """One entity."""

    id: str
    type: str = ""
    reached: Reached = Reached.NEVER_REACHED
    #: the step it is at, or that is looked at or undone
    step: str = ""
    #: the last step that was begun
    last: str = ""
    #: pending, queued, running, retry, passed, verify, undo, or failed
    state: str = "pending"
    attempt: int = 0
    #: why the last attempt failed
    note: str = ""
    due: int = 0
    #: when what it is at began; 0 for nothing
    since: int = 0
    #: why it failed for good
    failure: str = ""
    #: jobs that had an effect or may have had: what became of it
    effects: dict[int, str] = field(default_factory=dict)
    #: entries of the ledger that rollback is over for
    undone: dict[int, str] = field(default_factory=dict)
    #: why something could not be undone
    kept: str = ""
    #: failed jobs that may have changed something
    doubts: set[int] = field(default_factory=set)
    #: jobs whose effect is left
    left: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Task:
    member: Member
    step: str
    kind: str
    about: int
    note: str = ""


class Fleet:
    """The fold. Empty for an execution that works upon no entities."""

    def __init__(self, label: Callable[[int], str]) -> None:
        self._label = label
        self.members: list[Member] = []
        #: steps that jobs of entities are for
        self.steps: set[int] = set()
        self.batch = 0
        #: the entity that others hold, while it waits for all of them
        self.waits_for = ""
        self.is_undoing = False
        self.is_ended = False
        self._by_id: dict[str, Member] = {}
        #: ids by the index of subjects
        self._order: list[str] = []
        self._tasks: dict[int, _Task] = {}

    def __len__(self) -> int:
        return len(self.members)

    def of(self, job: int) -> tuple[str, str]:
        """The entity of a job and the kind of that job; empty for a job that is about none."""
        task = self._tasks.get(job)
        return (task.member.id, task.kind) if task is not None else ("", "")

    def reason(self, job: int) -> str:
        """Why its last attempt failed, in the words of who was there."""
        task = self._tasks.get(job)
        return task.note if task is not None else ""

    # --- events -------------------------------------------------------------------------------------
    def apply(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "EntitiesFound":
                found = zip(event["ids"], event["types"], strict=True)
                self.members = [Member(id, type) for id, type in found if type != "group"]
                self._by_id = {member.id: member for member in self.members}
                self._order = list(event["ids"])
            case "EntitiesQueued" | "EntitiesWatched":
                self.waits_for = event["watch"]
            case "EntitiesLocked":
                self.waits_for = ""
            case "EntityLost" if event["entity"] in self._by_id:
                self._by_id[event["entity"]].reached = Reached.LOST
            case "LaneAdvanced" if self.members:
                self._advance(event["ops"])
            case "JobScheduled" if event.get("entity") in self._by_id:
                self._scheduled(event)
            case "EffectVerified" if event["job"] in self._tasks:
                self._tasks[event["job"]].member.effects[event["job"]] = event["effect"]
            case "RollbackPlanned":
                self.is_undoing = True
            case "EntrySettled" if event["job"] in self._tasks:
                self._settled(event)
            case "ExecutionCompleted" | "ExecutionFailed" | "ExecutionCancelled":
                self._ended(event)
            case "ExecutionResumed" | "ExecutionReplayed":
                self._revived()
            case _ if event.get("job") in self._tasks:
                self._job(self._tasks[event["job"]], event)

    def _advance(self, ops: list[list[Any]]) -> None:
        for op in ops:
            if op[0] == Op.SET and op[1] == BATCH:
                self.batch = op[2]
            elif op[0] == Op.SUBJECT:
                reached = Reached(op[2])
                for index in range(op[1], max(op[1], op[4] if len(op) > 4 else 0) + 1):
                    member = self._by_id.get(self._order[index])
                    if member is not None:
                        member.reached = reached
                        if reached is Reached.FAILED and not member.failure and len(op) > 3:
                            member.failure = op[3]

    def _scheduled(self, event: dict[str, Any]) -> None:
        member, kind = self._by_id[event["entity"]], event.get("kind", "EXECUTE")
        step = self._label(event["step"])
        self._tasks[event["job"]] = _Task(member, step, kind, event.get("about", 0))
        self.steps.add(event["step"])
        member.step, member.attempt, member.note = step, 0, ""
        member.since = event["at"]
        if kind == "EXECUTE":
            member.last = step
        member.state = {"VERIFY": "verify", "ROLLBACK": "undo"}.get(kind, "queued")

    def _job(self, task: _Task, event: dict[str, Any]) -> None:
        member, job, is_run = task.member, event["job"], task.kind == "EXECUTE"
        if (effect := event.get("effect")) and (effect != "NONE" or job in member.effects):
            member.effects[job] = effect
        match event["type"]:
            case "JobStarted":
                member.attempt = event["attempt"]
                if is_run:
                    member.state = "running"
            case "JobSucceeded" if is_run:
                member.state, member.since = "passed", 0
            case "JobFailed" if is_run:
                # A job that nobody knows about says so at length; what was seen is the better reason.
                message = event["failure"]["message"]
                member.failure = task.note if event["failure"]["kind"] == "outcome-unknown" and task.note else message
                member.state, member.since = "failed", 0
                if event.get("effect") != "NONE":
                    member.doubts.add(job)
            case "JobRescheduled":
                failure = event.get("failure")
                task.note = member.note = failure["message"] if failure else task.note
                if is_run and event["due"] < FAR:
                    member.state, member.due = "retry", event["due"]
            case "JobCancelled" if is_run:
                member.state, member.since = "stopped", 0

    def _settled(self, event: dict[str, Any]) -> None:
        member, outcome = self._tasks[event["job"]].member, event["outcome"]
        member.undone[event["job"]] = outcome
        if outcome == "UNDONE":
            member.effects[event["job"]] = "UNDONE"
        elif failure := event.get("failure"):
            member.kept = member.kept or failure["message"]
        member.since = 0

    def _ended(self, event: dict[str, Any]) -> None:
        self.is_ended = True
        for job in event.get("residue", ()):
            if job in self._tasks:
                self._tasks[job].member.left.add(job)
        for member in self.members:
            member.since = 0
            if event["type"] == "ExecutionCompleted":
                # What was meant to be done stays; what failed and was tolerated is in doubt.
                member.left = {job for job in member.doubts if member.effects.get(job, "NONE") in ("DONE", "UNKNOWN")}

    def _revived(self) -> None:
        self.is_ended = self.is_undoing = False
        for member in self.members:
            for kept in (member.left, member.doubts, member.undone):
                kept.clear()
            member.failure = member.kept = ""
            if member.state in ("failed", "stopped", "undo", "verify"):
                member.state = "pending"

    # --- looking ------------------------------------------------------------------------------------
    def place(self, member: Member) -> str:
        """The step it is at; at the end, how far it had come."""
        return member.last if self.is_ended or self._at(member) in ENDS else member.step

    def verdict(self, member: Member) -> str:
        """One of `ENDS`, or while it is under way a word for what it is at."""
        if member.reached is Reached.LOST:
            return "in doubt" if member.left or not self.is_ended else "stopped"
        if not self.is_ended:
            return self._at(member)
        if member.left:
            return "in doubt"
        if "UNDONE" in member.undone.values():
            return "rolled back"
        if member.reached is Reached.FAILED or member.failure:
            return "failed"
        if member.reached is Reached.NEVER_REACHED:
            return "not reached"
        return "done" if member.reached is Reached.DONE else "stopped"

    def _at(self, member: Member) -> str:
        if member.state == "pending" and self.is_undoing:
            return "not reached"
        if member.state in ("undo", "verify"):
            if member.undone and not member.since:
                return "rolled back" if set(member.undone.values()) == {"UNDONE"} else "in doubt"
            return member.state
        if member.state == "passed":
            return "done" if member.reached is Reached.DONE else "running"
        return member.state

    def remark(self, member: Member) -> str:
        """What there is to say of it on one line, beyond the verdict."""
        return " ".join(self._remark(member).split())

    def _remark(self, member: Member) -> str:
        failed = f"failed: {member.failure}" if member.failure else ""
        match self.verdict(member):
            case "in doubt":
                kept = f"not undone: {member.kept}" if member.kept else ""
                return "; ".join(part for part in (kept, failed) if part)
            case "rolled back":
                undone = [self._tasks[job].step for job, outcome in member.undone.items() if outcome == "UNDONE"]
                return "; ".join(part for part in (member.failure, f"undone: {', '.join(undone)}") if part)
            case "failed":
                return member.failure
            case "retry" | "verify" | "undo" if member.note:
                return f"attempt {member.attempt} failed: {member.note}"
            case "running" if member.attempt > 1:
                return f"attempt {member.attempt}" + (f", after: {member.note}" if member.note else "")
            case "not reached":
                return "untouched"
        return ""

    @property
    def counts(self) -> dict[str, int]:
        """How many are at what, in the order of interest."""
        found = Counter(self.verdict(member) for member in self.members)
        order = (*ENDS, "verify", "undo", "retry", "running", "queued", "pending")
        return {word: found[word] for word in (*order, *sorted(found.keys() - set(order))) if found[word]}

    @property
    def doubtful(self) -> list[Member]:
        return [member for member in self.members if self.verdict(member) == "in doubt"]
