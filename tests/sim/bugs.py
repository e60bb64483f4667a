"""Planted bugs: what the simulator must find, so that finding nothing means something.

One decorated function per bug, which patches the real code for as long as it is planted; production code carries
no flags. The decorator names the invariants by which it is to be found, any of them. To add one, write it here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

import holdfast.core.attempts as attempts_module
import holdfast.core.decide as decide_module
import holdfast.core.ending as ending_module
import holdfast.core.ledger as ledger_module
import holdfast.core.rows as rows_module
import holdfast.engine.engine as engine_module
import holdfast.engine.rounds as rounds_module
import holdfast.engine.turn as turn_module
import holdfast.engine.writing as writing_module
import tests.sim.locked as locked_module
from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.changes import JOBS
from holdfast.core.model import Effect, JobSpec, JobStatus, Status
from holdfast.core.state import State
from holdfast.engine.agenda import Agenda
from holdfast.engine.dispatch import Session, Waiter
from holdfast.engine.driver import Driver
from holdfast.engine.engine import Engine
from holdfast.engine.exchanges import Exchanges
from holdfast.engine.items import Ask
from holdfast.engine.reads import TurnReads
from holdfast.engine.reaper import Missed
from holdfast.engine.rounds import Rounds
from holdfast.engine.turn import Turn
from holdfast.transport.messages import Answer

from .base import Violation
from .campaign import run_seed
from .memory import Tables
from .workers import SimWorker

#: seconds of one core that a bug may take until it is found
LIMIT = 60.0


class Patch:
    """Attributes set for a while."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []
        self._entries: list[tuple[dict[Any, Any], Any, Any]] = []

    def __call__(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    def around(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """`wrapper` is called with the real one first."""
        real = owner.__dict__[name]
        self(owner, name, lambda *arguments, **named: wrapper(real, *arguments, **named))

    def entry(self, table: dict[Any, Any], key: Any, wrapper: Callable[..., Any]) -> None:
        """The same for an entry of a table of functions."""
        real = table[key]
        self._entries.append((table, key, real))
        table[key] = lambda *arguments: wrapper(real, *arguments)

    def undo(self) -> None:
        for table, key, value in reversed(self._entries):
            table[key] = value
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)


class Bug(NamedTuple):
    name: str
    plant: Callable[[Patch], None]
    invariants: tuple[str, ...]
    what: str


BUGS: dict[str, Bug] = {}
#: Found by a campaign of many minutes only, since worlds have entities too; what each was has a test of its own.
RARE = frozenset({"answers-who-has-greeted-again"})


def bug(*invariants: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = plant.__name__.replace("_", "-")
        BUGS[name] = Bug(name, plant, invariants, (plant.__doc__ or "").strip())
        return plant

    return register


@contextmanager
def plant(name: str | None) -> Iterator[None]:
    patch = Patch()
    try:
        if name is not None:
            BUGS[name].plant(patch)
        yield
    finally:
        patch.undo()


class Found(NamedTuple):
    violation: Violation | None
    seeds: int
    seconds: float


def hunt(name: str, first: int = 0, limit: float = LIMIT) -> Found:
    """Seeds until it is found, or until the time is over."""
    began = time.process_time()
    seed = first
    with plant(name):
        while time.process_time() - began < limit:
            try:
                run_seed(seed)
            except Violation as violation:
                return Found(violation, seed - first + 1, time.process_time() - began)
            seed += 1
    return Found(None, seed - first, time.process_time() - began)


def table(names: list[str], first: int) -> int:
    missed = 0
    print(f"{'bug':38} {'found by':9} {'seeds':>6} {'seconds':>8}")
    for name in names:
        found = hunt(name, first)
        invariant = found.violation.invariant if found.violation else "MISSED"
        is_right = invariant in BUGS[name].invariants
        missed += not is_right
        wrong = "" if is_right else f"   expected {', '.join(BUGS[name].invariants)}: {found.violation}"
        print(f"{name:38} {invariant:9} {found.seeds:6} {found.seconds:8.1f}{wrong}", flush=True)
    print(f"{len(names) - missed} of {len(names)} planted bugs found")
    return 1 if missed else 0


# --- repeating and verdicts ----------------------------------------------------------------------------
@bug("I-16")
def repeats_everything(patch: Patch) -> None:
    """Every block is taken to be repeatable."""
    patch(JobSpec, "may_repeat", property(lambda spec: True))


@bug("I-16")
def takes_lost_for_undelivered(patch: Patch) -> None:
    """A lost attempt is taken never to have reached its worker."""
    patch.entry(
        decide_module._ANSWER, r.LoseJob,
        lambda real, self, request: real(self, msgspec.structs.replace(request, undelivered=True)),
    )  # fmt: skip


@bug("I-32", "I-33")
def calls_failures_harmless(patch: Patch) -> None:
    """A failed attempt is taken to have done nothing."""
    patch(ledger_module, "effect_of_failure", lambda spec, said: Effect.NONE)


@bug("I-33", "I-34")
def forgets_the_unknown(patch: Patch) -> None:
    """The verdict counts only what certainly happened."""
    patch(ledger_module.Entry, "is_residue", property(lambda entry: entry.effect is Effect.DONE))


@bug("I-11", "I-33")
def does_not_wait_for_what_runs(patch: Patch) -> None:
    """The verdict is given while attempts are out."""

    def settle(real: Any, self: Any) -> None:
        over = [event.job for event in self.events if type(event) in (e.JobSucceeded, e.JobFailed, e.JobCancelled)]
        jobs, running = self.state.jobs, self.state.running
        self.state.running = sum(job in jobs and jobs[job].status is JobStatus.STARTED for job in over)
        real(self)
        self.state.running = running

    patch.around(ending_module.Ending, "_settle", settle)


@bug("I-17")
def retries_at_once(patch: Patch) -> None:
    """No back-off."""
    patch.around(attempts_module, "retry_at", lambda real, *a: None if real(*a) is None else a[-1])


@bug("I-17")
def retries_for_ever(patch: Patch) -> None:
    """The number of attempts is not limited."""

    def at(real: Any, retry: Any, *arguments: Any) -> Any:
        return real(msgspec.structs.replace(retry, attempts=99), *arguments)

    patch.around(attempts_module, "retry_at", at)


@bug("I-13", "I-17", "I-14")
def uses_attempt_numbers_twice(patch: Patch) -> None:
    """An attempt that was given up gives its number back."""

    def released(real: Any, state: State, event: e.Event) -> None:
        real(state, event)
        if type(event) is e.JobReleased and state.jobs[event.job].attempt > 0:
            state.jobs[event.job].attempt -= 1

    patch.around(rows_module, "apply", released)


# --- attempts and tokens -------------------------------------------------------------------------------
@bug("I-19")
def takes_any_attempt(patch: Patch) -> None:
    """A result counts whichever attempt it is of."""

    def current(self: Any, id: int, attempt: int) -> Any:
        job = self.state.jobs.get(id)
        return job if job is not None and job.status is JobStatus.STARTED else None

    patch(attempts_module.Attempts, "_current", current)


@bug("I-13")
def takes_any_token(patch: Patch) -> None:
    """Tokens are not compared."""

    class Lenient:
        compare_digest = staticmethod(lambda one, other: True)

    patch(turn_module, "hmac", Lenient)


@bug("I-13")
def claims_what_is_claimed(patch: Patch) -> None:
    """A job is handed out although somebody has it."""

    def claim(real: Any, state: State, id: int, worker: str) -> Any:
        job = state.jobs.get(id)
        if job is not None and job.status is JobStatus.STARTED:
            return [e.JobStarted(id, job.attempt + 1, worker)]
        return real(state, id, worker)

    patch.around(turn_module, "claim", claim)


# --- committing ----------------------------------------------------------------------------------------
@bug("I-1", "I-14", "I-29", "I-47")
def answers_before_the_commit(patch: Patch) -> None:
    """Callers hear of it before it is stored."""

    def build(real: Any, self: Turn) -> None:
        real(self)
        self.answer()

    patch.around(turn_module, "build", build)


@bug("I-1", "I-14", "I-29", "BUG")
def calls_a_failed_commit_done(patch: Patch) -> None:
    """Whoever asked is told that it was done, although the commit was refused."""

    def reject(self: Engine, items: Any, error: Exception) -> None:
        for item in items:
            item.reply(None, None)

    patch(Engine, "_reject", reject)


@bug("I-2", "I-3", "I-5")
def writes_over_others(patch: Patch) -> None:
    """The store does not compare versions."""
    patch(Tables, "compare", lambda self, batch, expected: None)


@bug("I-2", "I-3", "I-4", "I-5", "BUG")
def keeps_what_was_not_committed(patch: Patch) -> None:
    """After a commit that failed, its states stay in memory."""

    def undo(real: Any, self: Turn) -> None:
        cache = dict(self.committer.cache)
        real(self)
        self.committer.cache.update(cache)

    patch.around(Turn, "undo", undo)


@bug("I-1", "I-4", "I-14", "I-29")
def takes_unknown_for_done(patch: Patch) -> None:
    """A commit of unknown outcome is taken to have happened."""
    patch(Driver, "has_happened", lambda self, batch: True)


@bug("I-7", "I-45")
def takes_unknown_for_failed(patch: Patch) -> None:
    """A commit of unknown outcome is taken not to have happened."""
    patch(Driver, "has_happened", lambda self, batch: False)


@bug("I-1", "I-7")
def ignores_idempotency_keys(patch: Patch) -> None:
    """A start that is repeated makes another execution."""

    def start(real: Any, self: Turn, index: int, item: Ask, request: r.StartExecution) -> Any:
        item.key = ""
        return real(self, index, item, request)

    patch.around(Turn, "_start", start)


@bug("I-7")
def counts_signals_twice(patch: Patch) -> None:
    """The sender's key of a signal is not remembered."""

    def signal(real: Any, self: Any, request: r.SendSignal) -> None:
        keys, self.state.signal_keys = self.state.signal_keys, {}
        real(self, request)
        self.state.signal_keys = keys

    patch.entry(decide_module._ANSWER, r.SendSignal, signal)


@bug("I-36")
def loses_long_values(patch: Patch) -> None:
    """What is too long for an event is not written beside it."""

    def build(real: Any, self: Turn) -> None:
        real(self)
        self.batch.blobs.clear()

    patch.around(turn_module, "build", build)


@bug("I-36")
def believes_too_early_that_it_is_stored(patch: Patch) -> None:
    """A definition counts as stored before the commit that stores it."""

    def build(real: Any, self: Turn) -> None:
        real(self)
        self.committer.stored.update(digest for digest, _ in self.batch.definitions)

    patch.around(turn_module, "build", build)


@bug("I-4")
def saves_half_a_snapshot(patch: Patch) -> None:
    """Jobs that changed since the last one are left out."""

    def half(real: Any, state: State, parts: Any = None) -> Any:
        return real(state, None if parts is None else {part for part in parts if part & 3 != JOBS})

    patch.around(writing_module, "encode", half)


@bug("I-2")
def forgets_to_count_others_lines(patch: Patch) -> None:
    """Catching up with another engine leaves the number of log lines as it was."""

    def catch_up(real: Any, self: Turn, known: Any, locked: Any) -> None:
        before = {id: cached.logs for id, cached in self.states.items()}
        real(self, known, locked)
        for id, logs in before.items():
            self.states[id].logs = logs

    patch.around(Turn, "_catch_up", catch_up)


@bug("I-18")
def lets_time_run_backwards(patch: Patch) -> None:
    """A transition is dated by the clock, even if that was set back."""

    def apply(real: Any, self: Turn, id: str, cached: Any, decided: Any) -> None:
        real(self, id, cached, decided)
        cached.state.at = self.now

    patch.around(Turn, "_apply", apply)


# --- rows that follow ----------------------------------------------------------------------------------
def _nothing(real: Any, state: State, event: e.Event, rows: Any) -> None:
    """Instead of what follows from that event."""


@bug("I-18")
def forgets_a_timer(patch: Patch) -> None:
    """A timer is set, but not put on the agenda."""
    patch.entry(rows_module._FOLLOW, e.TimerSet, _nothing)


@bug("I-18")
def keeps_a_timer(patch: Patch) -> None:
    """A timer that fired stays on the agenda."""
    patch.entry(rows_module._FOLLOW, e.TimerFired, _nothing)


@bug("I-11")
def keeps_a_job(patch: Patch) -> None:
    """A job that succeeded stays in the queue."""
    patch.entry(rows_module._FOLLOW, e.JobSucceeded, _nothing)


@bug("I-18")
def fires_early(patch: Patch) -> None:
    """Timers fire half a second before they are due."""

    def fire(real: Any, self: Any, request: r.FireTimer) -> Any:
        self.now += 500_000
        return real(self, request)

    patch.entry(decide_module._ANSWER, r.FireTimer, fire)
    patch.around(Agenda, "take", lambda real, self, now, limit=256: real(self, now + 500_000, limit))


@bug("I-29")
def goes_on_after_a_cancel(patch: Patch) -> None:
    """Steps are entered although somebody asked to stop."""
    for module in (decide_module, ending_module, attempts_module):
        patch(module, "MOVING", frozenset({Status.RUNNING, Status.CANCELLING}))


# --- workers and rounds --------------------------------------------------------------------------------
@bug("I-45")
def takes_any_greeting(patch: Patch) -> None:
    """A worker that comes back from another engine is not asked what it holds."""

    def exchange(real: Any, self: Exchanges, exchange: Any, now: int, reply: Any) -> Any:
        session = self.dispatch.sessions.get(exchange.incarnation)
        if session is not None:
            session.greeting = exchange.greeting
        return real(self, exchange, now, reply)

    patch.around(Exchanges, "exchange", exchange)


@bug("I-45")
def answers_old_exchanges_anew(patch: Patch) -> None:
    """A copy of an exchange that was answered and forgotten is answered with whatever there is now."""

    def exchange(real: Any, self: Exchanges, exchange: Any, now: int, reply: Any) -> Any:
        session = self.dispatch.sessions.get(exchange.incarnation)
        if session is not None:
            session.forgotten = 0
        return real(self, exchange, now, reply)

    patch.around(Exchanges, "exchange", exchange)


@bug("I-45")
def answers_a_repeated_poll_with_nothing(patch: Patch) -> None:
    """Of two copies of a poll, one is answered with nothing and the other with the jobs."""

    def also(self: Waiter, reply: Any) -> None:
        self.answer(Answer(self.number))
        self.answer = lambda answer: reply(answer, None)

    patch(Waiter, "also", also)


@bug("I-45")
def answers_who_has_greeted_again(patch: Patch) -> None:
    """Jobs go into the answer to an exchange from before the last hello."""

    def finished(real: Any, self: Exchanges, bundle: Any) -> None:
        bundle.greeting = bundle.session.greeting
        real(self, bundle)

    patch.around(Exchanges, "finished", finished)


@bug("I-45")
def greets_twice_under_one_number(patch: Patch) -> None:
    """A worker says its hello again, perhaps to another engine, under the same number."""

    def greet(real: Any, self: SimWorker, tries: int) -> None:
        self.said -= tries > 0
        real(self, tries)

    patch.around(SimWorker, "_greet", greet)


@bug("I-47")
def gives_slots_back_twice(patch: Patch) -> None:
    """A claim that came to nothing frees two slots."""

    def give_back(real: Any, session: Session, value: Any, error: Exception | None) -> None:
        real(session, value, error)
        real(session, value, error)

    patch.around(engine_module, "_give_back", give_back)


@bug("I-47")
def keeps_slots_after_a_failed_commit(patch: Patch) -> None:
    """What was planned for a commit that failed stays planned."""

    def undo(real: Any, self: Turn) -> None:
        self.eager.clear()
        real(self)

    patch.around(Turn, "undo", undo)


@bug("I-45")
def never_reads_the_agenda(patch: Patch) -> None:
    """Timers that another engine set, or this one before it was restarted, are not looked for."""
    patch(Rounds, "_read_agenda", lambda self, now: None)


@bug("I-45")
def waits_for_the_dead(patch: Patch) -> None:
    """Nobody gives up what a silent worker holds."""
    patch(rounds_module, "given_up", lambda *arguments: [])
    patch(Exchanges, "silent", lambda self, now: [])


@bug("I-45")
def never_looks_at_the_queue(patch: Patch) -> None:
    """What another engine put into the queue is not looked for."""
    patch(Rounds, "reload", lambda self: [])


@bug("PATIENCE")
def takes_one_look_for_proof(patch: Patch) -> None:
    """An engine that is not seen once is taken for dead."""
    patch(Missed, "PATIENCE", 0)


@bug("PATIENCE")
def takes_a_set_clock_for_patience(patch: Patch) -> None:
    """Looks at other engines count as far apart when a clock was set between them."""

    def shift(real: Any, self: Rounds, delta: int) -> None:
        since = dict(self._missed._since)
        real(self, delta)
        self._missed._since = since

    patch.around(Rounds, "shift", shift)


@bug("I-20", "I-21", "I-25")
def grants_what_somebody_has(patch: Patch) -> None:
    """A lock is granted whoever holds it."""
    patch(locked_module, "ask", lambda row, execution, lane: (row.next_seq, row.fence + 1))


@bug("I-18", "I-45")
def does_not_wake_the_heir(patch: Patch) -> None:
    """Whoever inherits a lock is not told."""

    def pass_on(real: Any, state: State, entity: str, name: str, seq: int, heir: Any, fence: int, rows: Any) -> None:
        real(state, entity, name, seq, heir, fence, rows)
        if heir is not None:
            rows.agenda.pop((heir[0], f"lock/{entity}/{name}/{heir[1]}"), None)

    patch.around(rows_module, "_pass_on", pass_on)


@bug("I-20", "I-21", "I-23", "I-25", "I-45", "BUG")
def forgets_what_the_turn_did_to_a_lock(patch: Patch) -> None:
    """Later decisions of a batch see locks as they were before it."""
    patch(TurnReads, "follow", lambda self, state, decided, now: None)


@bug("I-4", "I-45", "BUG")
def ends_without_giving_locks_back(patch: Patch) -> None:
    """The end of an execution is no reason to release anything."""
    patch(decide_module, "closing", lambda state, events, now, reads: events)


@bug("I-45", "I-46")
def leaves_circles_tied(patch: Patch) -> None:
    """Lanes that wait for each other go on waiting."""
    patch(rounds_module, "victims", lambda claims: [])


from . import bugs_entities  # noqa: E402, F401  registers its own
