"""Planted bugs about entities, their locks, the ledger and the way back; see `bugs`."""

from __future__ import annotations

from typing import Any

import holdfast.core.acquiring as acquiring_module
import holdfast.core.decide as decide_module
import holdfast.core.ending as ending_module
import holdfast.core.entity_locks as entity_locks_module
import holdfast.core.ledger as ledger_module
import holdfast.core.rows as rows_module
import holdfast.core.rows_entities as rows_entities_module
import holdfast.core.sharing as sharing_module
import holdfast.core.undoing as undoing_module
from holdfast.core import events as e
from holdfast.core.attempts import Attempts
from holdfast.core.model import Effect, JobKind, Undo
from holdfast.core.undoing import WIDE
from holdfast.engine.entity_reads import EntityReads

from .bugs import Patch, bug
from .memory import MemoryTransaction


# --- locks -----------------------------------------------------------------------------------------------
@bug("I-20", "I-25")
def grants_entities_to_everybody(patch: Patch) -> None:
    """Whoever asks for entities gets them."""
    patch(acquiring_module, "first_block", lambda *arguments: None)


@bug("I-25")
def lets_newcomers_overtake(patch: Patch) -> None:
    """Only who holds an entity is in the way, not who waits for it."""
    patch(entity_locks_module, "is_before", lambda claim, ticket, priority: bool(claim.fence))


@bug("I-22", "I-4", "I-45", "BUG")
def keeps_entities_after_the_end(patch: Patch) -> None:
    """The end is no reason to give entities back."""
    patch(sharing_module, "_has_place", lambda state, events: False)


@bug("I-45")
def does_not_wake_who_waits_for_entities(patch: Patch) -> None:
    """Whoever lets go of an entity tells nobody."""
    patch(rows_entities_module, "wake", lambda executions, at, rows: None)


@bug("I-21")
def gives_the_same_fence_again(patch: Patch) -> None:
    """Numbers are rounded, so that some are given twice."""
    patch.around(EntityReads, "ticket", lambda real, self, key: max(1, real(self, key) // 3 * 3))


@bug("I-20", "I-21", "I-24", "I-25", "BUG")
def decides_on_contention_of_yesterday(patch: Patch) -> None:
    """Nobody notices that others came to an entity between looking and committing."""

    def commit(real: Any, self: Any, batch: Any) -> None:
        self._held.clear()
        real(self, batch)

    patch.around(MemoryTransaction, "commit", commit)


@bug("I-20", "I-21")
def lets_them_work_on_after_a_force_release(patch: Patch) -> None:
    """Jobs at an entity that was taken away go on, and count."""

    def take_away(real: Any, *arguments: Any) -> Any:
        made, failure, _ = real(*arguments)
        return [event for event in made if isinstance(event, e.EntityLost)], failure, []

    patch.around(acquiring_module, "take_away", take_away)


@bug("I-23")
def forgets_to_strike_the_lost_off(patch: Patch) -> None:
    """An entity that was taken away stays in the rows of its former owner."""

    def lost(real: Any, state: Any, event: Any, rows: Any) -> None:
        real(state, event, rows)
        rows.entities_lost.clear()

    patch.entry(rows_module._FOLLOW, e.EntityLost, lost)


# --- the ledger and the way back --------------------------------------------------------------------------
@bug("I-32", "I-33")
def takes_the_unseen_for_nothing(patch: Patch) -> None:
    """Where looking told nothing, nothing is taken to have happened."""
    patch(ledger_module, "verify", lambda ledger, entry, effect: ledger.pop(entry.job, None))


@bug("I-16", "I-33")
def repeats_what_nobody_could_see(patch: Patch) -> None:
    """An attempt of unknown outcome is repeated although looking told nothing."""

    def go_on(real: Any, self: Any, job: Any, effect: Effect, data: Any) -> None:
        real(self, job, Effect.NONE if effect is Effect.UNKNOWN else effect, data)

    patch.around(Attempts, "_go_on_with", go_on)


@bug("I-33")
def takes_a_failed_rollback_for_a_good_one(patch: Patch) -> None:
    """Whatever comes of a rollback, what it is about counts as undone."""
    patch.around(ending_module.Ending, "_undone", lambda real, self, job, failure: real(self, job, None))


@bug("I-32", "I-33", "I-34")
def undoes_everything_at_once(patch: Patch) -> None:
    """What is done to one entity is undone in any order."""

    def link(real: Any, ledger: Any, subjects: Any) -> int:
        first: int = real(ledger, subjects)
        for entry in ledger.values():
            entry.below = min(entry.below, 0)
        return first

    patch.around(undoing_module, "link", link)


@bug("I-32", "I-33", "I-34")
def knows_no_wide_entries(patch: Patch) -> None:
    """What was done to no entity in particular, or to a group, is undone beside everything else."""

    def link(real: Any, ledger: Any, subjects: Any) -> int:
        first: int = real(ledger, subjects)
        for entry in ledger.values():
            entry.below = 0 if entry.below == WIDE else entry.below
        return first

    patch.around(undoing_module, "link", link)


@bug("I-32")
def undoes_whatever_there_is(patch: Patch) -> None:
    """Also beyond a point of no return, and what perhaps never happened."""
    patch(undoing_module, "why_not", lambda *arguments: "")


@bug("I-32", "I-45")
def says_nothing_of_what_is_skipped(patch: Patch) -> None:
    """Entries below one that could not be undone are not settled."""

    def skip(self: Any, job: int, after: Any) -> None:
        while job:
            self.standing = undoing_module.settle(self.standing, self.ledger, job, Undo.SKIPPED_BELOW_FAILURE)
            job = after(self.ledger[job])

    patch(undoing_module.Walk, "_skip", skip)


@bug("I-33", "I-34")
def leaves_the_plan_out_of_the_verdict(patch: Patch) -> None:
    """After rollback everything counts as undone."""

    def end(real: Any, self: Any, left: Any, *more: Any) -> None:
        is_back = any(job.kind is JobKind.ROLLBACK for job in self.state.jobs.values())
        real(self, () if is_back else left, *more)

    patch.around(ending_module.Ending, "_end", end)


# --- what is left behind ----------------------------------------------------------------------------------
@bug("I-50")
def flags_nothing(patch: Patch) -> None:
    """Nobody is told which entities were left in doubt."""
    patch(rows_module, "flags_of", lambda state: [])


@bug("I-51")
def forgets_what_blocks_asked_of_the_inventory(patch: Patch) -> None:
    """It completes, and the inventory stays as it was."""
    patch(decide_module, "granting", lambda *arguments: [])
