"""The ledger: for every job that changed, or may have changed, something outside — what became of it.

SAFE or UNSAFE is a predicate over the ledger, and rollback walks it backwards. It counts whatever *may*
have started: a claimed attempt without an answer is UNKNOWN, never assumed away.
"""

from __future__ import annotations

import msgspec

from .model import Effect, JobSpec


class Entry(msgspec.Struct, array_like=True, gc=False):
    """Only jobs with an effect have one; a job's later attempt replaces it (convergence), except that
    an unknown attempt of a block that may not repeat stays counted in `unknown`."""

    job: int
    step: int
    spec: int
    attempt: int
    effect: Effect
    unknown: int = 0

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
        if before.effect is Effect.UNKNOWN and not spec.may_repeat:
            entry.unknown += 1
        if entry.effect is Effect.NONE and before.effect is not Effect.NONE:
            # A later attempt that did nothing does not take back what an earlier one may have done.
            entry.effect = before.effect
    if entry.effect is Effect.NONE and entry.unknown == 0:
        return
    ledger[entry.job] = entry


def residue(ledger: dict[int, Entry]) -> tuple[int, ...]:
    """Jobs whose effect remains, in order of their start."""
    return tuple(job for job in sorted(ledger) if ledger[job].is_residue)
