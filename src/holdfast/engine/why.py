"""Waiting is always explained: which queue, how many workers, until when, for whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from holdfast.core.ids import short
from holdfast.core.locks import Hold, LockRow
from holdfast.core.model import JobStatus, Status, Wait
from holdfast.core.state import Job, State
from holdfast.core.views import Reason, WhyView, seconds
from holdfast.store.records import WorkerRow

from .agenda import Stumble

#: A worker that has said nothing for this long is shown as unreachable.
UNREACHABLE = 120_000_000


def worker_state(worker: WorkerRow, now: int) -> str:
    if worker.state == "offline" or worker.seen_at + worker.lease < now:
        return "offline"
    if worker.state == "online" and now - worker.seen_at > UNREACHABLE:
        return "unreachable"
    return worker.state


def clock(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def queue_reason(queue: str, block: str, workers: list[WorkerRow], busy: dict[str, int], now: int) -> str:
    """Why a job for that block is not being worked on."""
    offering = [w for w in workers if block in w.blocks and queue in w.queues]
    online = [w for w in offering if worker_state(w, now) == "online"]
    if online:
        slots = sum(w.slots for w in online)
        taken = sum(busy.get(w.incarnation, 0) for w in online)
        who = f"{len(online)} worker{'s' if len(online) > 1 else ''} online offer{'' if len(online) > 1 else 's'} it"
        return f"{who} ({taken} of {slots} slots busy)"
    if offering:
        last = max(offering, key=lambda w: w.seen_at)
        ago = seconds(max(0, now - last.seen_at))
        return f"no worker online offers `{block}` on queue `{queue}`; {last.name} did until {ago} ago"
    elsewhere = sorted({q for w in workers if block in w.blocks for q in w.queues})
    if elsewhere:
        return f"no worker offers `{block}` on queue `{queue}`, only on {', '.join(f'`{q}`' for q in elsewhere)}"
    return f"no worker online offers `{block}`; start one with `holdfast worker -m MODULE`"


def explain(
    state: State,
    workers: list[WorkerRow],
    busy: dict[str, int],
    label: Callable[[int], str],
    now: int,
    locks: Mapping[tuple[str, str], LockRow] = MappingProxyType({}),
) -> WhyView:
    """`locks` has those that it waits for."""
    name = short(state.id)
    reasons: list[Reason] = []
    if state.status.is_ended:
        return WhyView(state.id, state.status.name, _verdict(state, label), _residue(state, label))
    for job in state.jobs.values():
        reasons.append(_job(state, job, workers, busy, label, now))
    for timer in state.timers.values():
        left = seconds(max(0, timer.due - now))
        reasons.append(Reason("timer", f"sleeps until {clock(timer.due)} ({left} left)"))
    for lane in state.lanes.values():
        if lane.wait is Wait.SIGNAL:
            command = f"holdfast signal {name} {lane.signal}"
            reasons.append(Reason("signal", f"waits for the signal `{lane.signal}`", command=command))
    reasons += [_lock(state, hold, locks) for hold in state.locks.values() if not hold.fence]
    awaited = {sensor for sensors in state.awaits.values() for sensor in sensors}
    reasons += [_sensor(*sensor) for sensor in sorted(awaited)]
    if state.status is Status.CANCELLING:
        reasons.insert(0, Reason("cancelling", "was asked to stop; waits for the jobs that are still running"))
    if state.status is Status.ERROR and state.failure:
        text = f"failed ({state.failure.message}); waits for the jobs that are still running before the verdict"
        reasons.insert(0, Reason("error", text))
    summary = f"{state.status.name}: " + (reasons[0].text if reasons else "about to move")
    if len(reasons) > 1:
        summary += f" (and {len(reasons) - 1} more)"
    return WhyView(state.id, state.status.name, summary, reasons)


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
    spec = state.specs[job.spec]
    step = label(job.step)
    what = f"job {job.id} (step {step}, block {spec.block})"
    match job.status:
        case JobStatus.STARTED:
            since = seconds(max(0, now - job.started_at))
            text = f"{what} runs on worker {job.worker} for {since}, attempt {job.attempt}"
            return Reason("running", text, step)
        case JobStatus.RESCHEDULED:
            return Reason("back-off", f"{what} tries again at {clock(job.due)}", step)
        case _:
            reason = queue_reason(spec.queue, spec.block, workers, busy, now)
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


def _sensor(entity: str, kind: str, name: str) -> Reason:
    command = f"holdfast entity sensor set {entity} {name} VALUE"
    if kind == "config":
        command = f"holdfast entity config set {entity} {name} VALUE"
    return Reason("sensor", f"waits for {kind} {name} on {entity} to change", command=command)


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
    for id in state.residue:
        entry = state.ledger[id]
        block = state.specs[entry.spec].block
        done = "took effect" if entry.effect.name == "DONE" else "may have taken effect"
        step = label(entry.step)
        text = f"job {id} (step {step}, block {block}, attempt {entry.attempt}) {done}"
        reasons.append(Reason("residue", text, step))
    return reasons
