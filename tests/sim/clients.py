"""Clients: they start, signal and cancel, and ask again when they hear nothing, as clients do.

A start with an idempotency key is asked again, under another id, until somebody answers; one without is not,
since nobody could tell the two apart. What was acknowledged is what the promises are about.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import EngineBug, Refused, ServerUnreachable, TooBusy, UnknownExecution
from holdfast.core.ids import make_id
from holdfast.core.model import Actor
from holdfast.core.requests import AckExecution, CancelExecution, FreeEntity, GiveUp, RollBack
from holdfast.engine.items import Reply
from holdfast.engine.wishes import Existing
from holdfast.store.records import Header

from .base import MS, SECOND, Violation
from .models import Model
from .models_entities import Upon

if TYPE_CHECKING:
    from .hosts import SimEngine
    from .world import World

ACTOR = Actor("client")
#: tries after which a client gives up; a world that makes it do so has failed it
PATIENCE = 40


class Operation:
    """One thing a client wants, until it has an answer."""

    name = "operation"

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_over = False
        self.tries = 0
        world.open_operations += 1
        self.again(0)

    def ask(self, engine: SimEngine, reply: Reply) -> None:
        raise NotImplementedError

    def succeeded(self, value: Any) -> None: ...

    def may_repeat(self) -> bool:
        return True

    def again(self, tries: int) -> None:
        if self.is_over or tries != self.tries:
            return
        if self.tries and not self.may_repeat():
            self.close("unanswered")
            return
        if self.tries >= PATIENCE:
            self.close("gave up")
            return
        if self.tries:
            self.world.reach(f"{self.name} asked again")
        self.tries += 1
        world = self.world
        host = world.hosts[int(world.random() * len(world.hosts))]
        world.network.call("client", host, self._ask, partial(self.heard, self.tries))
        world.later(SECOND, partial(self.again, self.tries))

    def _ask(self, engine: SimEngine, reply: Reply) -> None:
        try:
            self.ask(engine, reply)
        except Refused as refused:
            reply(None, refused)

    def heard(self, tries: int, value: Any, error: Exception | None) -> None:
        if isinstance(error, EngineBug):
            raise Violation("BUG", f"a client was refused because of a bug: {error}")
        if error is None:
            # Also when it comes late, after another try was answered: it is an acknowledgement all the same.
            self.succeeded(value)
            self.close("ok")
        elif self.is_over:
            pass
        elif isinstance(error, ServerUnreachable | TooBusy) or error.status >= 500:  # type: ignore[attr-defined]
            # Certainly not done: nothing is lost by asking again, whatever it is.
            if tries == self.tries:
                self.tries -= not self.may_repeat()
                self.world.later(200 * MS, partial(self.again, self.tries))
        else:
            self.refused(error)

    def refused(self, error: Exception) -> None:
        self.close("refused")

    def close(self, how: str) -> None:
        if not self.is_over:
            self.is_over = True
            self.world.open_operations -= 1
            self.world.operations[f"{self.name} {how}"] += 1


class Start(Operation):
    name = "start"

    def __init__(self, world: World, model: Model, key: str, upon: Upon) -> None:
        self.model = model
        self.upon = upon
        self.key = key
        self.execution = ""
        super().__init__(world)

    def may_repeat(self) -> bool:
        return bool(self.key)

    def ask(self, engine: SimEngine, reply: Reply) -> None:
        n = self.world.next_id()
        id = make_id(n, n.to_bytes(10, "big"))
        self.world.note_asked(self, id)
        engine.start_execution(
            definition=self.model.definition, program=self.model.program, actor=ACTOR, key=self.key, id=id,
            entities=self.upon.entities, select=self.upon.select, reply=reply,
        )  # fmt: skip

    def refused(self, error: Exception) -> None:
        raise Violation("I-7", f"a start under a new id was refused: {error}")

    def succeeded(self, value: Header | Existing) -> None:
        id = value.execution if isinstance(value, Existing) else value.id
        if isinstance(value, Existing):
            self.world.reach("start found by its key")
        self.world.started(self, id)
        if not self.execution:
            self.execution = id
            for name in self.model.signals:
                delay = int(self.world.random() * 2 * SECOND)
                self.world.later(delay, partial(Signal, self.world, id, name))


class Signal(Operation):
    name = "signal"

    def __init__(self, world: World, execution: str, signal: str) -> None:
        self.execution = execution
        self.signal = signal
        super().__init__(world)

    def ask(self, engine: SimEngine, reply: Reply) -> None:
        engine.signal(self.execution, self.signal, 1, ACTOR, reply, key=self.signal)

    def succeeded(self, value: Any) -> None:
        self.world.signalled(self.execution, self.signal)

    def refused(self, error: Exception) -> None:
        if isinstance(error, UnknownExecution):
            raise Violation("I-1", f"{self.execution} was acknowledged, and is not known")
        super().refused(error)


class Cancel(Operation):
    name = "cancel"

    def __init__(self, world: World, execution: str) -> None:
        self.execution = execution
        super().__init__(world)

    def ask(self, engine: SimEngine, reply: Reply) -> None:
        engine.ask(self.execution, CancelExecution("sim", ACTOR), reply)

    def succeeded(self, value: Any) -> None:
        self.world.cancelled(self.execution)

    def refused(self, error: Exception) -> None:
        if isinstance(error, UnknownExecution):
            raise Violation("I-1", f"{self.execution} was acknowledged, and is not known")
        self.world.cancel_refused(self.execution)
        super().refused(error)


class Free(Operation):
    """An operator takes an entity away from its holder."""

    name = "force-release"

    def __init__(self, world: World, execution: str, entity: str, fence: int) -> None:
        self.execution = execution
        self.request = FreeEntity(entity, fence, "operator")
        super().__init__(world)

    def may_repeat(self) -> bool:
        # Asked again it is refused: it is not held any more.
        return False

    def ask(self, engine: SimEngine, reply: Reply) -> None:
        engine.ask(self.execution, self.request, reply)

    def succeeded(self, value: Any) -> None:
        self.world.reach("entity taken away")


class Word(Operation):
    """What an execution that waits for somebody is told."""

    name = "word"

    def __init__(self, world: World, execution: str, request: RollBack | GiveUp | AckExecution) -> None:
        self.execution = execution
        self.request = request
        super().__init__(world)

    def ask(self, engine: SimEngine, reply: Reply) -> None:
        engine.ask(self.execution, self.request, reply)

    def refused(self, error: Exception) -> None:
        super().refused(error)
        self.world.operator.was_refused(self.execution, self.request)
