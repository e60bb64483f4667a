"""What must hold in every simulated world, whatever went wrong in it."""

from __future__ import annotations

from holdfast.core.codec import chain, unpack_events
from holdfast.core.model import JobStatus, Status
from holdfast.core.snapshot import canonical, restore
from holdfast.core.state import State, fold, open_state

from .world import World


def check_rows(world: World) -> dict[str, State]:
    """I-2, I-3, I-4, I-5, I-11, I-12: histories without gaps, chained; rows that follow from them. May be
    asked at any moment."""
    states = {}
    tables = world.tables
    for id, rows in tables.history.items():
        state, digest, seq = open_state(id), b"", 0
        for row in rows:
            events = unpack_events(row.body)
            assert row.seq == seq + len(events), f"I-2 {id}: gap at {row.seq}"
            assert row.digest == chain(digest, row.seq, row.at, row.body), f"I-3 {id}: chain broken at {row.seq}"
            assert row.at >= state.at, f"I-18 {id}: time runs backwards"
            fold(state, row.at, events)
            digest, seq = row.digest, row.seq
        header = tables.headers[id]
        assert (header.version, header.digest, header.status) == (seq, digest, state.status), f"I-5 {id}"
        if tables.parts.get(id):
            saved = restore(tables.parts[id])
            if saved.version == state.version:
                assert canonical(saved) == canonical(state), f"I-4 {id}"
        places = {job for execution, job in tables.jobs if execution == id}
        queued = {job.id for job in state.jobs.values() if job.status in (JobStatus.SENT, JobStatus.STARTED)}
        assert places == queued, f"I-12 {id}: rows {places}, history {queued}"
        for job in state.jobs.values():
            row_of = tables.jobs.get((id, job.id))
            if job.status is JobStatus.STARTED:
                assert row_of is not None
                assert row_of.incarnation, f"I-13 {id}/{job.id}: started but unclaimed"
                assert row_of.attempt == job.attempt, f"I-13 {id}/{job.id}"
        states[id] = state
    return states


def check_end(world: World) -> dict[str, int]:
    """After everything has healed: promises 1, 2, 3 and 5."""
    states = check_rows(world)
    ends: dict[str, int] = {}
    for id in world.acked:
        assert id in states, f"I-1: {id} was acknowledged and is gone"
    for id, state in states.items():
        assert state.status.is_ended, f"I-45 {id} never ended"
        ends[state.status.name] = ends.get(state.status.name, 0) + 1
        kind = state.workflow
        touched = {job: n for (execution, job), n in world.effects.items() if execution == id}
        if kind == "plain":
            assert all(n == 1 for n in touched.values()), f"I-16 {id}: a plain job ran twice: {touched}"
        if state.status is Status.COMPLETED:
            assert state.output == 1, f"{id}: output {state.output}"
            assert set(touched) == set(range(1, 6)), f"I-15 {id}: completed, but only {sorted(touched)} ran"
        elif kind != "pure" and touched:
            # The residue may name more than ran: what was claimed and never heard of may have run.
            assert set(touched) <= set(state.residue), f"I-33 {id}: ran {sorted(touched)}, said {state.residue}"
        if state.status is Status.FAILED_SAFE:
            assert kind == "pure" or not touched, f"I-33 {id}: called safe, but {sorted(touched)} ran"
    for (execution, job, attempt), n in world.attempts.items():
        assert n == 1, f"I-13 attempt {attempt} of {execution}/{job} was begun {n} times"
    assert not world.tables.jobs, "work is left although everything has ended"
    assert not world.tables.agenda, "something is due although everything has ended"
    return ends
