"""Events as people read them, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.core.lanes import FINALLY, HANDLER, START, Op
from holdfast.core.model import Wait

from .text import brief, clock, dim, table

#: fields that say nothing
_QUIET = (("effect", "NONE"), ("visit", 1), ("depth", -1))
_HIDDEN = frozenset(
    ("seq", "at", "type", "ops", "specs", "definition", "format", "tenant", "logs", "lane", "spec", "mark", "path",
     "run", "claim")
)  # fmt: skip


def event_table(events: list[dict[str, Any]], indent: str = "") -> str:
    rows = [
        [dim(str(event["seq"])), dim(clock(event["at"])), event["type"], dim(event_text(event))] for event in events
    ]
    return table((), rows, right=(0,), indent=indent)


def with_runs(events: Iterable[dict[str, Any]], run: int = 1) -> int:
    """Say of each event that begins a run which one; `run` is the one before these events."""
    for event in events:
        if event["type"] in ("ExecutionResumed", "ExecutionReplayed"):
            run += 1
            event["run"] = run
    return run


def event_text(event: dict[str, Any]) -> str:
    """The fields of an event on one line."""
    told = _TOLD.get(event["type"])
    if told is not None:
        return brief(" · ".join(part for part in told(event) if part), 110)
    parts = []
    for name, value in event.items():
        if name in _HIDDEN or value in (None, "", {}, [], False) or (name, value) in _QUIET:
            continue
        if name == "failure":
            parts.append(brief(value.get("message", ""), 70))
        elif name == "statuses":
            parts.append(" → ".join(value))
        elif name == "actor":
            parts.append(f"by {value.get('name', '')}")
        elif name == "due":
            parts.append(f"due {clock(value)}")
        else:
            parts.append(f"{name} {brief(value, 50)}")
    return brief("  ".join(parts), 110)


# --- kinds that say more, or say it shorter ------------------------------------------------------------
def _advanced(event: dict[str, Any]) -> list[str]:
    said = [text for op in event["ops"] if (text := _op(op))]
    return [f"lane {event['lane']}", ", ".join(said), *(f'says "{brief(x["message"], 60)}"' for x in event["logs"])]


def _op(op: list[Any]) -> str:
    """What an op did, where that is worth a word."""
    match op[0]:
        case Op.SET:
            return f"{op[1]} = {brief(op[2], 30)}"
        case Op.WAIT if op[1]:
            return f"waits: {Wait(op[1]).name.lower()}"
        case Op.SPAWN:
            return f"opens lane {op[1]}"
        case Op.END:
            return "ends"
        case Op.LISTEN:
            return f"listens for `{op[1]}`"
        case Op.CONSUME:
            return f"takes signal `{op[1]}`"
        case Op.HANDLE:
            return {HANDLER: "handles the error", FINALLY: "enters `finally`"}.get(op[2], "")
        case Op.WAYPOINT:
            return "waypoint" if op[2] else "forgets its waypoints"
        case Op.REPLAY:
            return f"goes back to {_step(op[1])}"
        case Op.RETRY:
            return "retries"
        case Op.REPEAT if op[2]:
            return f"passage {op[2]} done"
        case Op.FAN:
            return f"{op[2]} targets"
        case Op.FAIL:
            return f"fails: {brief(_message(op[1]), 50)}"
        case Op.REOPEN:
            return "goes on"
        case Op.STOP:
            return f"is stopped: {brief(_message(op[1]), 50)}"
        case _:
            return ""


def _message(failure: Any) -> str:
    if isinstance(failure, dict):
        return str(failure.get("message", ""))
    return str(failure[1]) if isinstance(failure, list) and len(failure) > 1 else ""


def _step(index: int) -> str:
    return "the start" if index == START else f"step {index}"


def _pinned(event: dict[str, Any]) -> list[str]:
    return [f"{spec['block']} {spec['version']}" for spec in event["specs"]]


def _revived(event: dict[str, Any]) -> list[str]:
    run = f"run {event['run']}" if "run" in event else ""
    start = f"from {_step(event['step'])}" if event["type"] == "ExecutionReplayed" else ""
    force = "forced" if event.get("is_forced") else ""
    return [run, f"by {event['actor']['name']}", start, force, brief(event.get("reason", ""), 60)]


def _lock(event: dict[str, Any]) -> list[str]:
    heir = event.get("heir")
    next_one = f"goes to {heir[0][:8]}" if heir else ""
    owner = f"from {event['owner'][:8]}" if event.get("owner") else ""
    by = f"by {event['by']}" if event.get("by") else ""
    return [f"{event['name']} on {event['entity']}", owner, next_one, by]


def _sensor(event: dict[str, Any]) -> list[str]:
    name = f"{event['kind']} {event['name']} on {event['entity']}"
    if event["type"] == "SensorAwaited":
        return [name]
    value = "cleared" if event.get("is_gone") else f"= {brief(event.get('value'), 50)}"
    woken = event.get("woken") or ()
    return [f"{name} {value}", f"wakes {len(woken)}" if woken else ""]


def _retention(event: dict[str, Any]) -> list[str]:
    return [event["rule"], f"hash {event['hash']}" if event.get("hash") else ""]


def _sent(event: dict[str, Any]) -> list[str]:
    return [f"`{event['name']}` to {event['target'][:8]}", brief(event["value"], 50) if event.get("value") else ""]


_TOLD: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "LaneAdvanced": _advanced,
    "BlocksPinned": _pinned,
    "ExecutionResumed": _revived,
    "ExecutionReplayed": _revived,
    "LockTaken": _lock,
    "LockQueued": _lock,
    "LockGranted": _lock,
    "LockReleased": _lock,
    "LockForced": _lock,
    "SensorChanged": _sensor,
    "SensorAwaited": _sensor,
    "SensorLeft": lambda event: [f"lane {event['lane']}"],
    "RetentionSet": _retention,
    "SignalSent": _sent,
}
