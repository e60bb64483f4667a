"""Verbs for what an execution leaves behind: ledger, rollback or fail by somebody's word, ack. Part of `Service`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.model import Actor
from holdfast.core.requests import AckExecution, GiveUp, RollBack
from holdfast.core.verdict import ledger_view
from holdfast.core.views import ExecutionView, LedgerView

from .items import committed, future_reply
from .rebuild import rebuild, transitions
from .reviving import RevivingVerbs, checked
from .showing import shown_line

if TYPE_CHECKING:
    from holdfast.core.requests import Request


class VerdictVerbs(RevivingVerbs):
    def ack(self, actor: Actor, id: str, note: str = "") -> ExecutionView:
        """Somebody has seen how it ended. A note is needed where something is left."""
        return self._decide(actor, id, acking(actor, note))

    def rollback(self, actor: Actor, id: str, reason: str = "") -> ExecutionView:
        """Undo what an execution did that waits in ERROR for a decision."""
        return self._decide(actor, id, rolling_back(actor, reason))

    def fail(self, actor: Actor, id: str, reason: str = "") -> ExecutionView:
        """End an execution as it is that waits in ERROR for a decision."""
        return self._decide(actor, id, giving_up(actor, reason))

    def _decide(self, actor: Actor, id: str, request: Request) -> ExecutionView:
        id = self.resolve(actor, id)
        future, reply = future_reply()
        self.engine.ask(id, request, reply)
        committed(future)
        return self.show(actor, id)

    def ledger(self, actor: Actor, id: str) -> LedgerView:
        id = self.resolve(actor, id)
        with self.store.reading() as queries, queries.consistent():
            state = rebuild(queries, id)
            program = self._program(queries, state.definition)
            history = ((at, events) for _, at, events in transitions(queries, id))
            view = ledger_view(state, program.label, history)
            view.lines = [shown_line(queries, id, line) for line in view.lines]
        return view


def acking(actor: Actor, note: str) -> AckExecution:
    checked("note", note)
    return AckExecution(note, actor)


def rolling_back(actor: Actor, reason: str) -> RollBack:
    checked("reason", reason)
    return RollBack(actor, reason)


def giving_up(actor: Actor, reason: str) -> GiveUp:
    checked("reason", reason)
    return GiveUp(actor, reason)
