"""A state in parts, so that saving one costs what changed and not what there is.

Part `head` is everything of bounded size; lanes, jobs, ledger entries and subjects come in groups. `encode` gives
only the dirty parts; an empty group is an empty part, to be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .changes import GROUP_BITS, part
from .codec import pack, unpack_entries, unpack_head, unpack_jobs, unpack_lanes, unpack_subjects
from .state import State
from .subjects import OUT

#: in the order of `changes.LANES`, `JOBS`, `LEDGER`, `SUBJECTS`
_GROUPED = ("lanes", "jobs", "ledger", "subjects")
_SKIPPED = ("dirty", "out", *_GROUPED)
_HEAD = tuple(name for name in State.__struct_fields__ if name not in _SKIPPED)


def head(state: State) -> bytes:
    return pack({name: getattr(state, name) for name in _HEAD})


def encode(state: State, parts: Iterable[int] | None = None) -> dict[str, bytes]:
    """These parts (all of them by default), encoded, by name. Empty bytes: that group has nothing in it."""
    if parts is None:
        parts = {part(kind, id) for kind, name in enumerate(_GROUPED) for id in getattr(state, name)}
    encoded = {"head": head(state)}
    for number in sorted(parts):
        name, group = _GROUPED[number & 3], number >> 2
        items: dict[int, Any] = getattr(state, name)
        ids = range(group << GROUP_BITS, (group + 1) << GROUP_BITS)
        found = [items[id] for id in ids if id in items]
        encoded[f"{name}/{group}"] = pack(found) if found else b""
    return encoded


def restore(parts: dict[str, bytes]) -> State:
    state: State = unpack_head(parts["head"])
    for name, data in parts.items():
        kind, _, _ = name.partition("/")
        if not data or kind == "head":
            continue
        if kind == "lanes":
            state.lanes.update((lane.id, lane) for lane in unpack_lanes(data))
        elif kind == "jobs":
            state.jobs.update((job.id, job) for job in unpack_jobs(data))
        elif kind == "ledger":
            state.ledger.update((entry.job, entry) for entry in unpack_entries(data))
        else:
            state.subjects.update((subject.index, subject) for subject in unpack_subjects(data))
    state.out = sum(subject.progress in OUT for subject in state.subjects.values())
    state.dirty.clear()
    return state


def canonical(state: State) -> bytes:
    """The whole state as bytes that are equal exactly when the states are."""
    return pack(sorted(encode(state).items()))


def copy_state(state: State) -> State:
    """One that can be changed without changing this one."""
    return restore(encode(state))
