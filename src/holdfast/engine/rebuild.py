"""A state from the store, for looking at it: the same fold as the live path, on committed rows."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.codec import unpack_events
from holdfast.core.events import Event
from holdfast.core.folding import fold
from holdfast.core.snapshot import restore
from holdfast.core.state import State, open_state
from holdfast.store.queries import Queries


def transitions(queries: Queries, id: str, after: int = 0) -> Iterator[tuple[int, int, tuple[Event, ...]]]:
    """(number of the last event, time, events) per history row, in order, read in pages."""
    while rows := queries.history(id, after, 500):
        for row in rows:
            yield row.seq, row.at, unpack_events(row.body)
        after = rows[-1].seq


def rebuild(queries: Queries, id: str) -> State:
    """Snapshot parts are read in one statement and say which version they are; history only grows. So
    the two agree whatever is committed between the two readings."""
    parts = queries.parts(id)
    state = restore(parts) if parts else open_state(id)
    for _, at, events in transitions(queries, id, state.version):
        fold(state, at, events)
    return state
