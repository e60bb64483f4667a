"""Waiting is always explained: which queue, how many workers, until when, for whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from holdfast.core.entity_locks import Contention
from holdfast.core.ids import short
from holdfast.core.lanes import APPROVAL, DELAY, PAUSE, ROOT_LANE, WAITING, Lane
from holdfast.core.lifecycle import may
from holdfast.core.locks import Hold, LockRow
from holdfast.core.model import JobKind, JobStatus, Status, Undo, Wait
from holdfast.core.program import Program
from holdfast.core.state import FAR, Job, State, spec_of
from holdfast.core.verdict import reason_of
from holdfast.core.versions import order, place_of, split
from holdfast.core.views import Reason, WhyView, seconds
from holdfast.store.records import WorkerRow

from .agenda import Stumble
from .patience import is_taking
from .why_entities import begins

#: As many reasons are given at the most.
REASONS = 50
#: Of jobs whose effect remains so many are named; the ledger has all of them.
LEFT = 8


class Waiting(NamedTuple):
    """A lane that waits for something from outside."""

    since: int
    #: what it asks of people
    asks: str = ""
    #: number of the event with which it began
    event: int = 0


_LONG = Waiting(0)


def clock(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def offers(worker: WorkerRow, block: str) -> bool:
    """Whether it has that version of that block; any will do where none is named."""
    name, version = split(block)
    return block in worker.blocks or (not version and any(split(own)[0] == name for own in worker.blocks))


def queue_reason(queue: str, block: str, workers: list[WorkerRow], busy: dict[str, int], now: int) -> str:
    """Why a job for that block, `name:version`, is not being worked on."""
    offering = [w for w in workers if offers(w, block) and queue in w.queues]
    online = [w for w in offering if is_taking(w, now)]
    name, version = split(block)
    shown = f"`{name}` {version}" if version else f"`{name}`"
    if online:
        slots = sum(w.slots for w in online)
        taken = sum(busy.get(w.incarnation, 0) for w in online)
        who = f"{len(online)} worker{'s' if len(online) > 1 else ''} online offer{'' if len(online) > 1 else 's'} it"
        return f"{who} ({taken} of {slots} slots busy)"
    others = _other_versions(block, workers, now)
    known = f" (online: {', '.join(others)})" if others else ""
    if offering:
        last = max(offering, key=lambda w: w.seen_at)
        ago = seconds(max(0, now - last.seen_at))
        return f"no worker online offers {shown} on queue `{queue}`{known}; {last.name} did until {ago} ago"
    elsewhere = sorted({q for w in workers if offers(w, block) for q in w.queues})
    if elsewhere:
        return f"no worker offers {shown} on queue `{queue}`, only on {', '.join(f'`{q}`' for q in elsewhere)}"
    return f"no worker online offers {shown}{known}; start one with `holdfast worker -m MODULE`"


def _other_versions(block: str, workers: list[WorkerRow], now: int) -> list[str]:
    name, _ = split(block)
    found = {split(own)[1] for w in workers if is_taking(w, now) for own in w.blocks if split(own)[0] == name}
    return sorted(found - {""}, key=order)


def explain(
    state: State,
    workers: list[WorkerRow],
    busy: dict[str, int],
    program: Program,
    now: int,
    locks: Mapping[tuple[str, str], LockRow] = MappingProxyType({}),
    waits: Mapping[int, Waiting] = MappingProxyType({}),
    there: Contention | None = None,
) -> WhyView:
    """`locks` has those that it waits for, `waits` since when lanes wait and what they ask of people, if known; `there`
    is what is at the entity it watches."""
    reasons: list[Reason] = begins(state, there, now, clock)
    label = program.label
    if state.status.is_ended:
        found = [*_residue(state, label), *_ways_out(state, program)]
        return WhyView(state.id, state.status.name, _verdict(state, label), found)
    for job in state.jobs.values():
        if not job.status.is_final:
            reasons.append(_job(state, job, workers, busy, label, now))
    # After an error lanes only stand where they were.
    for lane in state.lanes.values() if state.status not in (Status.ERROR, Status.ROLLBACK) else ():
        reasons += _lane(state, lane, program, now, waits.get(lane.id, _LONG))
    reasons += [_lock(state, hold, locks) for hold in state.locks.values() if not hold.fence]
    reasons += _limits(state, program, now) if reasons else []
    if len(reasons) > REASONS:
        reasons[REASONS - 1 :] = [Reason("more", f"and {len(reasons) - REASONS + 1} more reasons like these")]
    if state.status is Status.CANCELLING:
        text = "was asked to stop; waits for the jobs that are still running"
        if state.is_cleaning:
            text = "was asked to stop; its `finally` steps run before it ends"
        reasons.insert(0, Reason("cancelling", text))
    if state.status in (Status.ERROR, Status.ROLLBACK):
        reasons.insert(0, _failing(state))
    summary = f"{state.status.name}: " + (reasons[0].text if reasons else "about to move")
    if len(reasons) > 1:
        summary += f" (and {len(reasons) - 1} more)"
    return WhyView(state.id, state.status.name, summary, reasons)


def here(program: Program, lane: Lane) -> tuple[int, str]:
    """The step at which a lane is, and what people call it."""
    frame = lane.frames[-1]
    step = program.step_at(frame.scope, frame.body, frame.position)
    return (-1, "") if step is None else (step, program.label(step))


def _lane(state: State, lane: Lane, program: Program, now: int, waiting: Waiting) -> list[Reason]:
    step, name = here(program, lane)
    where = f"step {name}" if name else "the workflow"
    ago = f" for {seconds(max(0, now - waiting.since))}" if waiting.since else ""
    reasons: list[Reason] = []
    if lane.stop is not None:
        text = f"{where} is being stopped ({lane.stop.message}); waits for what is in flight there"
        reasons.append(Reason("stopping", text, name))
    match lane.wait:
        case Wait.TIMER if WAITING in lane.timers:
            reasons.append(_timer(state, lane, program, step, name, now))
        case Wait.SIGNAL if lane.signal.startswith(APPROVAL):
            reasons.append(_approval(state, lane, name, ago, waiting.asks))
        case Wait.SIGNAL:
            command = f"holdfast signal {short(state.id)} {lane.signal}"
            reasons.append(Reason("signal", f"waits for the signal `{lane.signal}`{ago}", name, command))
        case Wait.SENSOR:
            reasons += [_sensor(*sensor, name, ago) for sensor in sorted(state.awaits.get(lane.id, ()))]
        case Wait.TURN:
            text = f"{where} is in a long stretch of internal steps and lets others go first"
            reasons.append(Reason("turn", text, name))
        case Wait.LANES if lane.fan is not None or lane.open > 1:
            reasons.append(_lanes(lane, name))
    return reasons


def _timer(state: State, lane: Lane, program: Program, step: int, name: str, now: int) -> Reason:
    due = state.timers[lane.timers[WAITING]].due
    until = f"until {clock(due)} ({seconds(max(0, due - now))} left)"
    if lane.phase == DELAY:
        return Reason("delay", f"the delay before step {name} lasts {until}", name)
    if lane.phase == PAUSE:
        times = max(lane.retries.values(), key=lambda times: times[-1], default=[])
        limit = program.limit_of(step)
        if limit is None:
            return Reason("repeat", f"step {name} is repeated after a pause {until}", name)
        bound = f" (limit {limit})" if limit else ""
        return Reason("retry", f"retry {len(times)}{bound} follows at {clock(due)}, after a pause {until}", name)
    return Reason("timer", f"sleeps {until}", name)


def _approval(state: State, lane: Lane, name: str, ago: str, asks: str) -> Reason:
    step = lane.signal.removeprefix(APPROVAL)
    said = f": {asks}" if asks else ""
    text = f"step {name} waits{ago} for the approval of somebody with the role operator{said}"
    return Reason("approval", text, name, f"holdfast approve {short(state.id)} {step}")


def _lanes(lane: Lane, name: str) -> Reason:
    failed = f", {lane.failed} failed" if lane.failed else ""
    if lane.fan is None:
        return Reason("lanes", f"step {name} waits for {lane.open} lanes{failed}", name)
    done = lane.fan.next - lane.open - lane.failed
    left = lane.fan.count - lane.fan.next
    more = f", {left} to come" if left else ""
    text = f"step {name}: {done} of {lane.fan.count} lanes done, {lane.open} under way{failed}{more}"
    return Reason("lanes", text, name)


def _limits(state: State, program: Program, now: int) -> list[Reason]:
    """Until when what it does must be done."""
    reasons = []
    for timer in state.timers.values():
        lane = state.lanes.get(timer.lane)
        if lane is None or timer.depth == WAITING:
            if lane is not None and lane.wait is Wait.LOCK:
                text = f"gives up waiting for the lock at {clock(timer.due)}"
                reasons.append(Reason("timeout", text))
            continue
        what = "all of it"
        if timer.depth >= 0 and timer.depth < len(lane.frames):
            frame = lane.frames[timer.depth]
            step = program.step_at(frame.scope, frame.body, frame.position)
            what = f"step {program.label(step)}" if step is not None else what
        left = seconds(max(0, timer.due - now))
        reasons.append(Reason("timeout", f"{what} has to be done by {clock(timer.due)} ({left} left)"))
    return reasons


def _failing(state: State) -> Reason:
    """What stands between an error and the verdict."""
    cause = f"failed ({state.failure.message})" if state.failure else "was cancelled"
    if state.status is Status.ROLLBACK:
        plan = [entry for entry in state.ledger.values() if entry.is_residue or entry.undo is not Undo.NOT_TRIED]
        settled = sum(entry.undo is not Undo.NOT_TRIED for entry in plan)
        return Reason("rollback", f"{cause}; undoes what it did: {settled} of {len(plan)} entries settled")
    if state.hooks:
        return Reason("error", f"{cause}; looks what became of jobs of unknown outcome before the verdict")
    if state.running or state.policy.rollback != "manual":
        return Reason("error", f"{cause}; waits for the jobs that are still running before the verdict")
    id, left = short(state.id), sum(entry.is_residue for entry in state.ledger.values())
    text = f"{cause} and left {left} effect{'' if left == 1 else 's'}; waits for somebody to say `rollback` or `fail`"
    return Reason("decision", text, command=f"holdfast rollback {id} | holdfast fail {id}")


def _ways_out(state: State, program: Program) -> list[Reason]:
    """What may be done with one that failed or was cancelled."""
    if not may("resume", state.status) or not state.started_at or not state.lanes:
        return []
    id = short(state.id)
    if state.has_undone:
        return [Reason("resume", "it cannot be resumed: what it did was undone; replay it, or start it again")]
    why = program.may_resume(state)
    if not why:
        return [Reason("resume", "it can be resumed", command=f"holdfast resume {id}")]
    root = state.lanes.get(ROOT_LANE)
    if root is not None and root.waypoints and program.is_replayable:
        text = f"it cannot be resumed ({why}), but replayed from its last waypoint"
        return [Reason("replay", text, command=f"holdfast replay {id} --from last")]
    text = f"it cannot be resumed: {why}. Once you know what really happened, --force does it all the same"
    return [Reason("resume", text, command=f"holdfast resume {id} --force --dry-run")]


def with_stumbles(view: WhyView, stumbles: list[tuple[str, Stumble]]) -> WhyView:
    """What trips a bug stands first: nobody but its authors can do anything about it."""
    if not stumbles:
        return view
    reasons = [
        Reason(
            "bug",
            f"{item} is due, but a bug in Holdfast keeps it from happening ({stumble.why}); tried"
            f" {stumble.tries} time{'s' if stumble.tries > 1 else ''}, the next time at {clock(stumble.until)}",
        )
        for item, stumble in stumbles
    ]
    more = len(reasons) + len(view.reasons) - 1
    summary = f"{view.status}: {reasons[0].text}" + (f" (and {more} more)" if more else "")
    return WhyView(view.id, view.status, summary, [*reasons, *view.reasons])


def _job(
    state: State, job: Job, workers: list[WorkerRow], busy: dict[str, int], label: Callable[[int], str], now: int
) -> Reason:
    spec = spec_of(state, job)
    step = label(job.step)
    what = f"job {job.id} (step {step}, block {spec.block})"
    if job.about:
        hook = "rollback" if job.kind is JobKind.ROLLBACK else "verify"
        what = f"job {job.id} ({hook} of job {job.about}, step {step}, block {spec.block})"
    elif job.kind is JobKind.ACQUIRE:
        what = f"job {job.id} (asks which entities step {step} needs, block {spec.block})"
    elif job.status is JobStatus.RESCHEDULED and job.due == FAR:
        return Reason("verify", f"{what} may have taken effect; somebody looks before it goes on", step)
    match job.status:
        case JobStatus.STARTED:
            since = seconds(max(0, now - job.started_at))
            text = f"{what} runs on worker {job.worker} for {since}, attempt {job.attempt}"
            return Reason("running", text, step)
        case JobStatus.RESCHEDULED:
            return Reason("back-off", f"{what} tries again at {clock(job.due)}", step)
        case _:
            reason = queue_reason(spec.queue, place_of(spec), workers, busy, now)
            waited = seconds(max(0, now - job.scheduled_at))
            return Reason("queue", f"{what} has waited {waited} in queue `{spec.queue}`: {reason}", step)


def _lock(state: State, hold: Hold, locks: Mapping[tuple[str, str], LockRow]) -> Reason:
    what = f"waits for lock {hold.name} on {hold.entity}"
    row = locks.get((hold.entity, hold.name), LockRow())
    if row.holder is None or row.holder.seq == hold.seq:
        return Reason("lock", f"{what}: it is its turn")
    holder = row.holder
    who = "another lane of this execution" if holder.execution == state.id else f"execution {short(holder.execution)}"
    ahead = sum(claim.seq < hold.seq for claim in row.waiters)
    count = f"{len(row.waiters)}" if row.is_whole else f"more than {len(row.waiters)}"
    is_beyond = not row.is_whole and all(claim.seq != hold.seq for claim in row.waiters)
    place = "behind them" if is_beyond else f"position {ahead + 1} of {count}"
    text = f"{what}: held by {who} since {clock(holder.since)}, {place}"
    return Reason("lock", text, command=f"holdfast why {short(holder.execution)}")


def _sensor(entity: str, kind: str, name: str, step: str, ago: str) -> Reason:
    command = f"holdfast entity sensor set {entity} {name} VALUE"
    if kind == "config":
        command = f"holdfast entity config set {entity} {name} VALUE"
    return Reason("sensor", f"waits{ago} for {kind} {name} on {entity} to change", step, command)


def _verdict(state: State, label: Callable[[int], str]) -> str:
    took = seconds(state.ended_at - state.created_at)
    failure = state.failure
    cause = f": {failure.message}" if failure else ""
    place = f" at step {state.failed_step}" if state.failed_step else ""
    match state.status:
        case Status.COMPLETED | Status.COMPLETED_ACK:
            return f"completed after {took}"
        case Status.CANCELLED | Status.CANCELLED_ACK:
            reason = f" ({state.cancel_reason})" if state.cancel_reason else ""
            left = "nothing was left behind" if not state.residue else f"{len(state.residue)} effects remain"
            return f"cancelled after {took}{reason}; {left}"
        case Status.FAILED_SAFE | Status.FAILED_SAFE_ACK:
            return f"failed safe{place} after {took}{cause}; nothing was left behind"
        case _:
            return f"failed unsafe{place} after {took}{cause}; {len(state.residue)} effects remain"


def _residue(state: State, label: Callable[[int], str]) -> list[Reason]:
    reasons = []
    for id in state.residue[:LEFT]:
        entry = state.ledger[id]
        block = state.specs[entry.spec].block
        done = "took effect" if entry.effect.name == "DONE" else "may have taken effect"
        step = label(entry.step)
        text = f"job {id} (step {step}, block {block}, attempt {entry.attempt}) {done}"
        why = reason_of(state, entry)
        on = f" on {entry.entity}" if entry.entity else ""
        reasons.append(
            Reason("residue", f"{text}{on}{f': {why}' if why else ''}", step, f"holdfast ledger {short(state.id)}")
        )
    if (more := len(state.residue) - LEFT) > 0:
        reasons.append(Reason("residue", f"{more} more are like that", "", f"holdfast ledger {short(state.id)} --left"))
    return reasons
