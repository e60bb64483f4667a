"""What an execution left behind, in words: one sentence for the whole, one reason for every entry of the ledger."""

from __future__ import annotations

from .ledger import Entry
from .model import Effect, Status, Undo
from .state import State, in_doubt
from .undoing import why_not

#: Names a sentence lists before it only counts.
NAMED = 5


def verdict_of(state: State, doubts: tuple[int, ...] | None = None) -> str:
    """Empty for one that has not ended, or left what it should have. `doubts`: what is in doubt, where it is known."""
    if not state.status.is_ended:
        return ""
    if doubts is None:
        doubts = in_doubt(state)
    if not doubts and state.status is Status.COMPLETED:
        return ""
    name = state.status.name.removesuffix("_ACK")
    if not doubts:
        if name == "COMPLETED":
            return ""
        undone = sum(entry.undo is Undo.UNDONE for entry in state.ledger.values()) if state.has_undone else 0
        return f"{name}: {_count(undone, 'effect')} undone, nothing is left" if undone else f"{name}: nothing is left"
    entities = sorted({state.ledger[job].entity for job in doubts} - {""})
    loose = sum(not state.ledger[job].entity for job in doubts)
    parts = []
    if entities:
        shown = ", ".join(entities[:NAMED]) + (f" and {len(entities) - NAMED} more" if len(entities) > NAMED else "")
        every = len(state.subjects) or len({entry.entity for entry in state.ledger.values()} - {""})
        parts.append(f"{len(entities)} of {every} entit{'y' if every == 1 else 'ies'} in doubt: {shown}")
    if loose:
        parts.append(f"{_count(loose, 'effect')} not undone{' that belong to no entity' if entities else ''}")
    return f"{name}: {'; '.join(parts)}"


def reason_of(state: State, entry: Entry) -> str:
    """Why what it did is still there; empty if it is not, or should be."""
    if not entry.is_residue:
        return ""
    if entry.reason:
        return entry.reason
    if entry.undo is Undo.SKIPPED_BELOW_FAILURE:
        return "a later effect on the same was not undone"
    if state.status in (Status.COMPLETED, Status.COMPLETED_ACK) or not state.status.is_ended:
        return "nobody knows whether it took effect" if entry.effect is Effect.UNKNOWN else ""
    if state.policy.rollback != "auto":
        return f"nothing was rolled back: `rollback: {state.policy.rollback}`"
    is_lost = bool(entry.entity) and entry.entity in state.lost
    why = why_not(entry, state.specs[entry.spec], is_lost)
    return why or "a later effect on the same cannot be undone"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
