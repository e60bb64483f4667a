"""The operator: says the word where an execution waits for one, as people do, a while later."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.model import Status
from holdfast.core.requests import AckExecution, GiveUp, RollBack

from .base import MS, SECOND
from .clients import ACTOR, Word

if TYPE_CHECKING:
    from .shadow import Shadow
    from .world import World

_SHUT = (Status.FAILED_UNSAFE, Status.CANCELLED, Status.COMPLETED)


class Operator:
    def __init__(self, world: World) -> None:
        self._world = world
        #: executions it has seen to, and how
        self._seen: dict[str, str] = {}

    def look(self, shadow: Shadow) -> None:
        """After each commit that touched it."""
        state = shadow.state
        if state.status is Status.ERROR and state.policy.rollback == "manual":
            if not state.running and not state.hooks and self._seen.get(shadow.id) != "word":
                self._seen[shadow.id] = "word"
                self._later(shadow, self._say)
        elif state.policy.on_unsafe == "quarantine" and state.status in _SHUT and self._seen.get(shadow.id) != "ack":
            self._seen[shadow.id] = "ack"
            self._later(shadow, self._acknowledge)

    def _later(self, shadow: Shadow, act: object) -> None:
        world = self._world
        world.open_operations += 1
        world.later(int((100 + 900 * world.random()) * MS), partial(self._do, shadow, act))

    def _do(self, shadow: Shadow, act: object) -> None:
        self._world.open_operations -= 1
        assert callable(act)
        act(shadow)

    def _say(self, shadow: Shadow) -> None:
        world = self._world
        if world.random() < 0.7:
            world.reach("rolled back by word")
            Word(world, shadow.id, RollBack(actor=ACTOR))
        else:
            world.reach("given up by word")
            Word(world, shadow.id, GiveUp(actor=ACTOR))

    def _acknowledge(self, shadow: Shadow) -> None:
        self._world.reach("acknowledged")
        Word(self._world, shadow.id, AckExecution("seen to", ACTOR))

    def was_refused(self, execution: str, request: object) -> None:
        """Nothing of it can be undone, or somebody else was there first; if it still waits, it is given up."""
        shadow = self._world.shadows[execution]
        if isinstance(request, RollBack) and shadow.state.status is Status.ERROR:
            self._world.later(SECOND // 10, lambda: Word(self._world, execution, GiveUp(actor=ACTOR)))
