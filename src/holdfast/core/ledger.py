"""The ledger: for every job that changed, or may have changed, something outside — what became of it.

SAFE or UNSAFE is a predicate over the ledger, and rollback walks it backwards. It counts whatever *may*
have started: a claimed attempt without an answer is UNKNOWN, never assumed away.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .model import Effect, JobSpec, Undo


class Entry(msgspec.Struct, array_like=True, gc=False):
    """Only jobs with an effect have one; a job's later attempt replaces it (convergence), except that
    an unknown attempt of a block that may not repeat stays counted in `unknown`."""

    job: int
    step: int
    spec: int
    attempt: int
    effect: Effect
    unknown: int = 0
    entity: str = ""
    lane: int = 0
    #: what it was given and what came of it, where a hook of its block may want to know
    input: Any = None
    result: Any = None
    undo: Undo = Undo.NOT_TRIED
    #: why it could not be undone
    reason: str = ""
    #: the job failed, whatever it left
    is_failed: bool = False
    #: somebody has looked what came of it
    is_verified: bool = False
    #: next in its chain of the plan of rollback, and next in the whole plan; see `core.undoing`
    below: int = 0
    then: int = 0

    @property
    def is_residue(self) -> bool:
        return self.effect in (Effect.DONE, Effect.UNKNOWN) or self.unknown > 0


def effect_of_success(spec: JobSpec, said: Effect | None) -> Effect:
    if spec.pure:
        return Effect.NONE
    return Effect.DONE if said is None else said


def effect_of_failure(spec: JobSpec, said: Effect | None) -> Effect:
    """A block that reports failure may have got half way; only its own word makes that NONE."""
    if spec.pure:
        return Effect.NONE
    return Effect.UNKNOWN if said is None else said


def record(ledger: dict[int, Entry], entry: Entry, spec: JobSpec) -> None:
    """Fold one attempt's effect into the ledger."""
    before = ledger.get(entry.job)
    if before is not None:
        entry.unknown = before.unknown
        if before.attempt == entry.attempt:
            entry.is_verified = before.is_verified  # more is said of the same attempt
        elif before.effect is Effect.UNKNOWN and not spec.may_repeat:
            entry.unknown += 1
        if entry.effect is Effect.NONE and before.effect is not Effect.NONE:
            # A later attempt that did nothing does not take back what an earlier one may have done.
            entry.effect = before.effect
    if entry.effect is Effect.NONE and entry.unknown == 0:
        return
    ledger[entry.job] = entry


def verify(ledger: dict[int, Entry], entry: Entry, effect: Effect) -> None:
    """Somebody has looked what came of an attempt of unknown outcome."""
    if entry.effect is not Effect.UNKNOWN or effect is Effect.UNKNOWN:
        return
    if effect is Effect.NONE and entry.unknown == 0:
        del ledger[entry.job]
    else:
        entry.effect = effect


def residue(ledger: dict[int, Entry]) -> tuple[int, ...]:
    """Jobs whose effect remains, in order of their start."""
    return tuple(job for job in sorted(ledger) if ledger[job].is_residue)
