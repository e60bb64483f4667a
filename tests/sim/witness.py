"""The witness: what really happened to the simulated devices, seen from outside of every engine.

A device does what it is told, once: each change has a number (its execution and job), and the device keeps those. It
refuses whoever comes with a fence behind one it has seen, and changes that somebody has looked at or undone: an
attempt that was given up cannot come back after that. That is what `verify` and `rollback` of a block promise; whether
the engine deserves that trust is what is checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.model import JobStatus
from holdfast.transport.messages import Parcel

from .base import Violation

if TYPE_CHECKING:
    from .world import World

#: (execution, job)
Change = tuple[str, int]
_FOR_GOOD = 1 << 30


class Deed:
    """What one job did to the world."""

    __slots__ = ("entity", "is_applied", "times")

    def __init__(self, entity: str) -> None:
        self.entity = entity
        self.is_applied = False
        self.times = 0


class Witness:
    """`parts`: what is a part of what; `groups` are wide: whatever is done to one is done to everything."""

    def __init__(self, world: World, parts: dict[str, str], groups: frozenset[str], once: frozenset[str]) -> None:
        self._world = world
        self._parts = parts
        self._groups = groups
        #: blocks that may not repeat
        self._once = once
        self.deeds: dict[Change, Deed] = {}
        self._of: dict[str, list[int]] = {}
        #: entity → the greatest fence under which anybody acted there
        self.fences: dict[str, int] = {}
        #: attempts up to this one can do nothing any more
        self._closed: dict[Change, int] = {}
        #: entity → attempts that were begun there, and whether each wants it for itself
        self._at_work: dict[str, dict[tuple[str, int, int], bool]] = {}

    # --- who is there -----------------------------------------------------------------------------------
    def begins(self, parcel: Parcel) -> None:
        """Somebody begins to work at an entity: nobody else may be there who does not go with it."""
        if not parcel.entity or parcel.kind in ("VERIFY", "ACQUIRE") or not self._counts(parcel.execution, parcel):
            return
        is_alone = not self._world.shadows[parcel.execution].state.policy.is_shared
        for place, others in self._at_work.items():
            if not others or not self._touch(place, parcel.entity):
                continue
            for key, other_is_alone in list(others.items()):
                if key[0] == parcel.execution or not (is_alone or other_is_alone):
                    continue
                if not self._is_out(*key):
                    del others[key]
                    continue
                raise Violation(
                    "I-20", f"{parcel.execution} begins at {parcel.entity}, where {key[0]} is at work (job {key[1]})"
                )
        here = self._at_work.setdefault(parcel.entity, {})
        here[parcel.execution, parcel.job, parcel.attempt] = is_alone

    def _touch(self, one: str, other: str) -> bool:
        return one == other or self._parts.get(one) == other or self._parts.get(other) == one

    def _is_out(self, execution: str, job: int, attempt: int) -> bool:
        """The history waits for what that attempt will say."""
        found = self._world.shadows[execution].state.jobs.get(job)
        return found is not None and found.status is JobStatus.STARTED and found.attempt == attempt

    def _counts(self, execution: str, parcel: Parcel) -> bool:
        state = self._world.shadows[execution].state
        is_held = bool(state.fence) and state.fence == parcel.fence and parcel.entity not in state.lost
        return is_held and self._is_out(execution, parcel.job, parcel.attempt)

    # --- what is done -----------------------------------------------------------------------------------
    def does(self, parcel: Parcel) -> bool:
        """An attempt changes something. False: it was refused, and nothing has changed."""
        change = (parcel.execution, parcel.job)
        if parcel.attempt <= self._closed.get(change, 0):
            self._world.reach("device refused what was given up")
            return False
        if not self._admits(parcel):
            return False
        deed = self._deed(change, parcel.entity)
        deed.times += 1
        deed.is_applied = True
        self._note(parcel, b"+")
        if deed.times > 1:
            self._world.reach("ran more than once")
            if parcel.block in self._once:
                raise Violation("I-16", f"{change[0]}/{change[1]} may not repeat and takes effect a second time")
        return True

    def undoes(self, parcel: Parcel) -> bool:
        assert parcel.forward is not None
        if not self._admits(parcel):
            return False
        change = (parcel.execution, parcel.forward.job)
        deed = self._deed(change, parcel.entity)
        for job in self._of[parcel.execution]:
            later = self.deeds[parcel.execution, job]
            if job > change[1] and later.is_applied and self._overlap(later.entity, deed.entity):
                raise Violation("I-32", f"{change[0]}/{change[1]} is undone beneath job {job}, which is still there")
        deed.is_applied = False
        self._closed[change] = _FOR_GOOD
        self._note(parcel, b"-")
        return True

    def looks(self, parcel: Parcel) -> bool:
        """Whether the change is there. The attempt it was asked about, and those before it, are over from here on."""
        assert parcel.forward is not None
        change = (parcel.execution, parcel.forward.job)
        self._closed[change] = max(self._closed.get(change, 0), parcel.forward.attempt)
        self._note(parcel, b"?")
        return self.is_applied(*change)

    def _admits(self, parcel: Parcel) -> bool:
        if not parcel.entity:
            return True
        seen = self.fences.get(parcel.entity, 0)
        if parcel.fence >= max(seen, 1):
            self.fences[parcel.entity] = parcel.fence
            return True
        if not parcel.fence or self._counts(parcel.execution, parcel):
            raise Violation(
                "I-21",
                f"{parcel.execution}/{parcel.job} comes to {parcel.entity} with fence {parcel.fence}, behind {seen}",
            )
        self._world.reach("device refused a stale fence")
        return False

    def _deed(self, change: Change, entity: str) -> Deed:
        deed = self.deeds.get(change)
        if deed is None:
            deed = self.deeds[change] = Deed(entity)
            self._of.setdefault(change[0], []).append(change[1])
        return deed

    def _overlap(self, one: str, other: str) -> bool:
        is_wide = not one or not other or one in self._groups or other in self._groups
        return is_wide or self._touch(one, other)

    def _note(self, parcel: Parcel, what: bytes) -> None:
        world = self._world
        world.trace.update(b"%d %d %d %s" % (world.now, parcel.job, parcel.attempt, what))
        if world.told is not None:
            place = parcel.entity or "somewhere"
            job = parcel.forward.job if parcel.forward is not None else parcel.job
            world.told.append(
                f"{world.now / 1e6:9.4f}  {what.decode()} {place} {parcel.execution[:20]}/{job} fence {parcel.fence}"
            )

    # --- what is there ----------------------------------------------------------------------------------
    def is_applied(self, execution: str, job: int) -> bool:
        deed = self.deeds.get((execution, job))
        return deed is not None and deed.is_applied

    def left_by(self, execution: str) -> list[int]:
        """Jobs whose effect is there now."""
        return sorted(job for job in self._of.get(execution, ()) if self.deeds[execution, job].is_applied)

    def ever_done_by(self, execution: str) -> list[int]:
        return sorted(job for job in self._of.get(execution, ()) if self.deeds[execution, job].times)
