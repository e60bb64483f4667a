"""One turn of the committer: a batch of requests decided, applied, claimed for and written as one commit.

A generator of wishes: it asks for locks, rows and finally the commit, and is sent the answers. States are
changed while deciding; `undo` forgets them if the commit does not come back, `settle` makes memory agree if it
does. Nothing is answered before `settle`.
"""

from __future__ import annotations

import hmac
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core import events as e
from holdfast.core.codec import chain, pack, unpack_events
from holdfast.core.decide import decide
from holdfast.core.errors import ForgedToken, KeyReused, Refused, StaleAttempt
from holdfast.core.model import Effect, Failure, JobStatus
from holdfast.core.program import Key, Missing, Need, Published, StartKey, TooLong, WorkflowKey
from holdfast.core.requests import ClaimJob, CompleteJob, FailJob, StartExecution
from holdfast.core.rows import AgendaGone, AgendaRow, JobGone, JobRow, LogRow, follow_up, queued
from holdfast.core.snapshot import encode, restore
from holdfast.core.state import Job, State, apply, fold, open_state
from holdfast.core.views import summary_of
from holdfast.failpoints import failpoint
from holdfast.store.records import Batch, Header, HistoryRow, Locked, PublishedRow, StartRow
from holdfast.transport.messages import CancelNotice, Parcel

from .dispatch import Held, JobKey, Session
from .items import Ask, Item, KeepLogs, Publish, ResendJob
from .wishes import LOST, Commit, Existing, Lock, Read, Wish

if TYPE_CHECKING:
    from .committer import Committer

#: A snapshot is worth its writing after this many events.
SNAPSHOT_EVERY = 256
#: Grace on top of a block's own timeout before the engine gives an attempt up.
TIMEOUT_GRACE = 15_000_000


class Cached:
    """A state in memory and what the store needs to know to go on from it."""

    __slots__ = ("digest", "logs", "snapshot", "state", "summary")

    def __init__(self, state: State, digest: bytes, snapshot: int, logs: int) -> None:
        self.state = state
        self.digest = digest
        self.snapshot = snapshot
        self.logs = logs
        #: packed; None means it has to be packed again
        self.summary: bytes | None = None


class Claim(msgspec.Struct):
    session: Session
    row: JobRow
    #: made once everything it shows has been read
    parcel: Parcel | None = None
    is_withdrawn: bool = False


class Turn:
    """One batch in the making."""

    def __init__(self, committer: Committer, items: Sequence[Item], now: int) -> None:
        self.committer = committer
        self.reads = committer.reads
        self.dispatch = committer.dispatch
        self.items = items
        self.now = now
        #: states this turn may look at; pinned here, whatever the cache forgets meanwhile
        self.states: dict[str, Cached] = {}
        self.touched: dict[str, Cached] = {}
        self.created: set[str] = set()
        self.events: dict[str, list[e.Event]] = {}
        self.jobs: dict[JobKey, JobRow | None] = {}
        self.agenda: dict[tuple[str, str], AgendaRow | None] = {}
        self.logs: list[LogRow] = []
        self.claims: list[Claim] = []
        self.resent: list[tuple[Session, Parcel]] = []
        #: workers a slot was planned at for what this turn created
        self.eager: list[Session] = []
        self.starts: dict[tuple[str, str], StartRow] = {}
        self.publishing: dict[tuple[str, str], PublishedRow] = {}
        self.stopped: list[State] = []
        self.batch = Batch()
        self.headers: dict[str, Header] = {}
        self.results: list[tuple[Any, Exception | None]] = [(None, None)] * len(items)

    # --- the wishes, in order -------------------------------------------------------------------------
    def run(self) -> Generator[Wish, Any, None]:
        self.reads.begin_turn()
        known = self._known()
        if known:
            self._catch_up(known, (yield Lock(known)))
        waiting = list(range(len(self.items)))
        while waiting:
            waiting, keys = self._decide_all(waiting)
            if keys:
                self.reads.learn((yield Read(tuple(keys))))
        failpoint("engine.claim.before")
        while unread := self._claim_new():
            self.reads.learn((yield Read(unread)))
        failpoint("engine.claim.after")
        self._build()
        if not self.batch.is_empty:
            yield Commit(self.batch)

    def _known(self) -> dict[str, int]:
        known = {}
        for item in self.items:
            if isinstance(item, Ask) and item.execution not in known:
                cached = self.committer.cache.get(item.execution)
                if cached is not None:
                    self.states[item.execution] = cached
                    known[item.execution] = cached.state.version
                elif type(item.request) is not StartExecution or item.tries:
                    # A new id is made of chance: it is taken to be new, and the store says if it is not.
                    known[item.execution] = 0
        return known

    def _catch_up(self, known: dict[str, int], locked: dict[str, Locked | None]) -> None:
        for id, version in known.items():
            found = locked.get(id)
            if found is None:
                continue
            cached = self.states.get(id)
            if cached is None or not version:
                state = restore(found.parts) if found.parts else open_state(id)
                cached = self.states[id] = Cached(state, found.digest, found.snapshot, found.logs)
            for row in found.rows:
                fold(cached.state, row.at, unpack_events(row.body))
            if found.rows:
                cached.summary = None
            cached.digest, cached.snapshot, cached.logs = found.digest, found.snapshot, found.logs
            assert cached.state.version == found.version, f"history of {id} does not reach its version"

    # --- deciding -------------------------------------------------------------------------------------
    def _decide_all(self, indexes: list[int]) -> tuple[list[int], dict[Key, None]]:
        """Decide these items in order; what lacks a row is left for the next pass, and with it
        everything later for the same execution."""
        left: list[int] = []
        keys: dict[Key, None] = {}
        blocked: set[str] = set()
        for index in indexes:
            item = self.items[index]
            if isinstance(item, Ask) and item.execution in blocked:
                left.append(index)
                continue
            try:
                need = self._decide(index, item)
            except Refused as refused:
                self.committer.counters.refused += 1
                self.results[index] = (None, refused)
                continue
            if need:
                left.append(index)
                keys.update(dict.fromkeys(need))
                if isinstance(item, Ask):
                    blocked.add(item.execution)
        return left, keys

    def _decide(self, index: int, item: Item) -> tuple[Key, ...]:
        if isinstance(item, Ask):
            return self._ask(index, item)
        if isinstance(item, Publish):
            return self._publish(index, item)
        self.batch.merge(item.batch)
        return ()

    def _ask(self, index: int, item: Ask) -> tuple[Key, ...]:
        request = item.request
        if item.key and type(request) is StartExecution:
            start = StartKey(request.actor.tenant, item.key)
            same = self.starts.get((start.tenant, start.key))
            if same is None:
                if start not in self.reads.rows:
                    return (start,)
                same = self.reads.rows[start]
            if same is not None:
                if same.content != item.content:
                    raise KeyReused(
                        f"the idempotency key {item.key!r} already started execution {same.execution} with"
                        " other content; use a new key for something new"
                    )
                self.results[index] = (Existing(same.execution), None)
                return ()
        if item.blobs:
            for digest, data in item.blobs.items():
                self.reads.fresh[item.execution, digest] = data
        if item.program is not None and type(request) is StartExecution:
            self.reads.adopt(request.definition, item.program)
        cached = self.states.get(item.execution)
        if cached is None:
            cached = self.states[item.execution] = Cached(open_state(item.execution), b"", 0, 0)
        if item.token is not None:
            assert isinstance(request, CompleteJob | FailJob)
            expected = self.committer.token(item.execution, cached.state.epoch, request.job, request.attempt)
            if not hmac.compare_digest(expected, item.token):
                raise ForgedToken(f"job {request.job} of {item.execution}: that token is not of this attempt")
        if isinstance(request, ResendJob):
            return self._resend(cached.state, request, item.session)
        if isinstance(request, KeepLogs):
            if cached.state.version:
                self.touched.setdefault(item.execution, cached)
                self.logs += [LogRow(item.execution, 0, self.now, line) for line in request.lines]
            return ()
        if type(request) is ClaimJob and item.session not in self.dispatch.sessions:
            # Its worker went away between matching and now.
            self.results[index] = (LOST, None)
            return ()
        decided = decide(cached.state, request, self.now, self.reads)
        if isinstance(decided, Need):
            return decided.keys
        if type(request) is StartExecution:
            self.created.add(item.execution)
            if item.definition and request.definition not in self.committer.stored:
                self.batch.definitions.append((request.definition, item.definition))
            if item.key:
                row = StartRow(request.actor.tenant, item.key, item.execution, item.content, self.now)
                self.starts[row.tenant, row.key] = row
        if decided:
            self._apply(item.execution, cached, decided)
            if type(decided[-1]) is e.ResultRefused:
                self.committer.counters.stale_results += 1
                late = decided[-1]
                self.results[index] = (
                    None,
                    StaleAttempt(
                        f"job {late.job} of {item.execution}: attempt {late.attempt} was given up;"
                        " its result is kept as evidence and changes nothing"
                    ),
                )
        if type(request) is ClaimJob:
            if decided:
                self._hand_over(cached.state, request.job, self.dispatch.sessions[item.session])
            else:
                self.results[index] = (LOST, None)
            return ()
        if isinstance(request, CompleteJob | FailJob) and request.logs:
            self.touched.setdefault(item.execution, cached)
            self.logs += [LogRow(item.execution, 0, self.now, line) for line in request.logs]
        return ()

    def _apply(self, id: str, cached: Cached, decided: list[e.Event]) -> None:
        state = cached.state
        if id not in self.touched:
            self.touched[id] = cached
            self.events[id] = []
        state.at = max(state.at, self.now)
        for event in decided:
            apply(state, event)
            for row in follow_up(state, event):
                match row:
                    case JobRow():
                        self.jobs[id, row.job] = row
                    case JobGone():
                        self.jobs[id, row.job] = None
                    case AgendaRow():
                        self.agenda[id, row.item] = row
                    case AgendaGone():
                        self.agenda[id, row.item] = None
                    case LogRow():
                        self.logs.append(row)
            kind = type(event)
            if kind is e.CancelRequested:
                self.stopped.append(state)
            if kind in _SUMMARISED:
                cached.summary = None
        self.events.setdefault(id, []).extend(decided)

    def _publish(self, index: int, item: Publish) -> tuple[Key, ...]:
        row = self.publishing.get((item.tenant, item.name))
        key = WorkflowKey(item.tenant, item.name)
        if row is None and key not in self.reads.rows:
            return (key,)
        newest: Published | None = Published(row.version, row.definition) if row else self.reads.rows[key]
        if newest is not None and newest.definition == item.digest:
            self.results[index] = ((newest.version, False), None)
            return ()
        version = newest.version + 1 if newest else 1
        row = PublishedRow(item.tenant, item.name, version, item.digest, self.now, item.actor)
        self.publishing[item.tenant, item.name] = row
        self.reads.rows.pop(key, None)
        self.reads.rows[key] = Published(version, item.digest)
        self.batch.definitions.append((item.digest, item.data))
        self.batch.published.append(row)
        self.results[index] = ((version, True), None)
        return ()

    # --- claims ---------------------------------------------------------------------------------------
    def _claim_new(self) -> tuple[Key, ...]:
        """Give what this batch created to workers with room: the claim rides in the same commit. Returns
        rows that have to be read first (long inputs); call again then."""
        keys: dict[Key, None] = {}
        for (execution, job), row in self.jobs.items():
            if row is None or row.incarnation:
                continue
            session = self.dispatch.choose(row.queue, row.block)
            if session is None:
                continue
            cached = self.touched[execution]
            decided = decide(cached.state, ClaimJob(job, session.name, session.incarnation), self.now, self.reads)
            assert not isinstance(decided, Need)
            if decided:
                session.planned += 1
                self.eager.append(session)
                self._apply(execution, cached, decided)
                self._hand_over(cached.state, job, session)
        for claim in self.claims:
            if claim.parcel is None:
                state = self.touched[claim.row.execution].state
                try:
                    claim.parcel = self._parcel(state, state.jobs[claim.row.job], claim.session)
                except Missing as missing:
                    keys.update(dict.fromkeys(missing.keys))
                except TooLong as error:
                    self._withdraw(claim, error)
        self.claims = [claim for claim in self.claims if not claim.is_withdrawn]
        return tuple(keys)

    def _withdraw(self, claim: Claim, error: TooLong) -> None:
        """No worker can be sent this input: the job fails for good, and nothing has happened."""
        claim.is_withdrawn = True
        claim.session.planned -= 1
        if claim.session in self.eager:
            self.eager.remove(claim.session)
        cached = self.touched[claim.row.execution]
        failure = Failure("input-too-large", str(error), code="HF0701")
        request = FailJob(claim.row.job, claim.row.attempt, failure, Effect.NONE, is_permanent=True)
        decided = decide(cached.state, request, self.now, self.reads)
        assert not isinstance(decided, Need), "what the program needs was read when the job was scheduled"
        self._apply(claim.row.execution, cached, decided)

    def _hand_over(self, state: State, id: int, session: Session) -> None:
        job = state.jobs[id]
        row = queued(state, id)
        row.incarnation, row.attempt, row.since = session.incarnation, job.attempt, self.now
        self.jobs[state.id, id] = row
        self.claims.append(Claim(session, row))

    def _resend(self, state: State, request: ResendJob, incarnation: str) -> tuple[Key, ...]:
        """The claim is committed, but the worker never got it: the same parcel under the same token."""
        session = self.dispatch.sessions.get(incarnation)
        job = state.jobs.get(request.job)
        if session is None or job is None or job.attempt != request.attempt:
            return ()
        if job.status is not JobStatus.STARTED:
            return ()
        try:
            self.resent.append((session, self._parcel(state, job, session)))
        except Missing as missing:
            return missing.keys
        return ()

    def _parcel(self, state: State, job: Job, session: Session) -> Parcel:
        spec = state.specs[job.spec]
        program = self.reads.program(state.definition)
        input = self.reads.load(state.id, job.input)
        token = "" if session.is_local else self.committer.token(state.id, state.epoch, job.id, job.attempt)
        return Parcel(
            state.id, job.id, job.attempt, token, spec.block, input, spec.timeout, f"{state.id}/{job.id}",
            state.workflow, program.label(job.step) if program else "", "", job.details,
        )  # fmt: skip

    # --- writing --------------------------------------------------------------------------------------
    def _build(self) -> None:
        batch = self.batch
        for line in self.logs:
            cached = self.touched[line.execution]
            cached.logs += 1
            line.number = cached.logs
        for id, cached in self.touched.items():
            self._write_execution(id, cached)
        for key, row in self.jobs.items():
            if row is None:
                batch.jobs_gone.append(key)
            else:
                batch.jobs.append(row)
        for item, due in self.agenda.items():
            if due is None:
                batch.agenda_gone.append(item)
            else:
                batch.agenda.append(due)
        batch.logs += self.logs
        batch.starts += self.starts.values()
        for (execution, digest), data in self.reads.fresh.items():
            if execution in self.touched:
                batch.blobs.append((execution, digest, data))

    def _write_execution(self, id: str, cached: Cached) -> None:
        state = cached.state
        events = self.events.get(id)
        if events:
            body = pack(events)
            cached.digest = chain(cached.digest, state.version, state.at, body)
            self.batch.history.append(HistoryRow(id, state.version, state.at, body, cached.digest))
        if state.status.is_ended:
            if cached.snapshot:
                self.batch.parts_gone.append(id)
                cached.snapshot = 0
        elif state.version - cached.snapshot >= SNAPSHOT_EVERY:
            parts = state.dirty if cached.snapshot else None
            self.batch.parts += [(id, part, data) for part, data in encode(state, parts).items()]
            state.dirty.clear()
            cached.snapshot = state.version
        if cached.summary is None:
            cached.summary = pack(summary_of(state))
        header = Header(
            id, state.tenant, state.workflow, state.workflow_version, state.definition, state.status,
            state.version, cached.digest, cached.snapshot, cached.logs, state.run, state.created_at, state.at,
            state.started_at, state.ended_at, state.jobs_done, state.jobs_total, cached.summary,
            id in self.created,
        )  # fmt: skip
        self.headers[id] = header
        self.batch.headers.append(header)

    # --- afterwards -----------------------------------------------------------------------------------
    def undo(self) -> None:
        """The commit did not happen, or nobody knows: forget everything this turn touched."""
        for id in self.states:
            self.committer.cache.pop(id, None)
        for session in self.eager:
            session.planned -= 1
        self.reads.forget_offers()
        self.dispatch.reset_ready()

    def settle(self) -> None:
        """It is committed: make memory agree."""
        counters = self.committer.counters
        counters.commits += not self.batch.is_empty
        counters.items += len(self.items)
        counters.largest_batch = max(counters.largest_batch, len(self.items))
        counters.executions_started += len(self.created)
        counters.jobs_claimed += len(self.claims)
        if self.batch.blocks:
            self.reads.forget_offers()
        if len(self.committer.stored) > 10_000:
            self.committer.stored.clear()
        self.committer.stored.update(digest for digest, _ in self.batch.definitions)
        for id, cached in self.states.items():
            if cached.state.status.is_ended or not cached.state.version:
                counters.executions_ended += bool(self.events.get(id))
                self.committer.cache.pop(id, None)
            else:
                self.committer.remember(id, cached)
        counters.events += sum(map(len, self.events.values()))
        failpoint("engine.push.before")
        for claim in self.claims:
            session, row = claim.session, claim.row
            session.planned -= 1
            deadline = row.since + (row.timeout + TIMEOUT_GRACE if row.timeout else self.committer.stuck_after)
            session.held[row.execution, row.job] = Held(row.attempt, row.since, row.timeout, deadline)
            assert claim.parcel is not None
            session.mailbox.append(claim.parcel)
        for session, parcel in self.resent:
            session.mailbox.append(parcel)
        failpoint("engine.push.after")
        for waiting in self.batch.jobs:
            if not waiting.incarnation and self.dispatch.offers(waiting.queue, waiting.block):
                # What nobody here offers stays in the table until somebody does.
                self.dispatch.add(waiting)
        for state in self.stopped:
            self._tell(state)

    def _tell(self, state: State) -> None:
        """Push the cancel to whoever runs a job of this execution here."""
        for job in state.jobs.values():
            if job.status is not JobStatus.STARTED:
                continue
            for session in self.dispatch.sessions.values():
                held = session.held.get((state.id, job.id))
                if held is not None and not held.is_told:
                    held.is_told = True
                    reason = state.cancel_reason or "cancelled"
                    session.cancels.append(CancelNotice(state.id, job.id, held.attempt, reason))

    def answer(self) -> None:
        for item, (value, error) in zip(self.items, self.results, strict=True):
            if value is None and error is None and isinstance(item, Ask):
                value = self.headers.get(item.execution)
            item.reply(value, error)


_SUMMARISED = frozenset(
    {
        e.ExecutionStarted,
        e.ErrorRaised,
        e.CancelRequested,
        e.ExecutionCompleted,
        e.ExecutionFailed,
        e.ExecutionCancelled,
    }
)
