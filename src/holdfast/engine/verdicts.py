"""Verbs for what an execution leaves behind: ledger, rollback or fail by somebody's word, ack. Part of `Service`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from holdfast.core import events as e
from holdfast.core.model import Actor, JobKind
from holdfast.core.requests import AckExecution, GiveUp, RollBack
from holdfast.core.state import State, in_doubt
from holdfast.core.verdict import reason_of, verdict_of
from holdfast.core.views import ExecutionView, LateView, LedgerLine, LedgerView, error_view

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


def ledger_view(
    state: State, label: Callable[[int], str], history: Iterable[tuple[int, tuple[e.Event, ...]]]
) -> LedgerView:
    """`history` yields (time, events) per transition."""
    about: dict[int, int] = {}
    late: dict[int, list[LateView]] = {}
    for at, events in history:
        for event in events:
            if isinstance(event, e.JobScheduled) and event.kind in (JobKind.VERIFY, JobKind.ROLLBACK):
                about[event.job] = event.about
            elif isinstance(event, e.ResultRefused):
                found = LateView(event.job, event.attempt, at, event.is_success, event.value, error_view(event.failure))
                late.setdefault(about.get(event.job, event.job), []).append(found)
    lines = [
        LedgerLine(
            entry.job,
            label(entry.step),
            state.specs[entry.spec].block,
            entry.entity,
            entry.attempt,
            entry.effect.name,
            entry.undo.name,
            reason_of(state, entry),
            entry.is_residue,
            entry.is_failed,
            entry.is_verified,
            late.get(entry.job, []),
        )
        for _, entry in sorted(state.ledger.items())
    ]
    return LedgerView(
        state.id, state.status.name, verdict_of(state), [*in_doubt(state)], lines, state.acked_by, state.ack_note
    )


def acking(actor: Actor, note: str) -> AckExecution:
    checked("note", note)
    return AckExecution(note, actor)


def rolling_back(actor: Actor, reason: str) -> RollBack:
    checked("reason", reason)
    return RollBack(actor, reason)


def giving_up(actor: Actor, reason: str) -> GiveUp:
    checked("reason", reason)
    return GiveUp(actor, reason)
