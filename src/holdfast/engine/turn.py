"""One turn of the committer: a batch of requests decided, applied, claimed for and written as one commit.

A generator of wishes: it asks for locks, rows and finally the commit, and is sent the answers. States are
changed while deciding; `undo` forgets them if the commit does not come back, `settle` makes memory agree if it
does. Nothing is answered before `settle`.
"""

from __future__ import annotations

import hmac
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from holdfast.core import events as e
from holdfast.core.attempts import claim
from holdfast.core.codec import unpack_events
from holdfast.core.decide import decide
from holdfast.core.errors import ForgedToken, KeyReused, Refused, StaleAttempt
from holdfast.core.folding import fold
from holdfast.core.model import Effect, Failure, JobKind, JobStatus, LogLine, Status
from holdfast.core.reads import EntityKey, Key, Missing, Need, Published, StartKey, TooLong, WorkflowKey
from holdfast.core.requests import ClaimJob, CompleteJob, FailJob, StartExecution
from holdfast.core.rows import Arriving, JobRow, LogRow, Rows, item_of, queued, transit
from holdfast.core.sharing import ENDINGS, SHARED
from holdfast.core.snapshot import restore
from holdfast.core.state import Job, State, open_state, spec_of
from holdfast.failpoints import failpoint
from holdfast.store.records import Batch, Header, Locked, PublishedRow, StartRow
from holdfast.transport.messages import CancelNotice, Forward, Parcel

from .cached import Cached, is_asleep
from .dispatch import Held, JobKey, Session
from .editing import EditEntities, follow_changes
from .items import Ask, Item, KeepLogs, Publish, PublishAll, ResendJob
from .purging import Purge
from .sensing import PutSensor
from .wishes import LOST, Commit, Existing, Lock, Read, Wish
from .writing import build

if TYPE_CHECKING:
    from .committer import Committer


class Claim(msgspec.Struct):
    session: Session
    row: JobRow
    #: made once everything it shows has been read
    parcel: Parcel | None = None
    #: planned in this turn, for what it created
    is_eager: bool = False
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
        #: executions of which jobs wait in a queue after this turn
        self.queued: set[str] = set()
        #: what follows from the events of this turn
        self.rows = Rows()
        self.claims: list[Claim] = []
        self.resent: list[tuple[Session, Parcel]] = []
        #: workers a slot was planned at for what this turn created
        self.eager: list[Session] = []
        #: workers for whom a claim planned earlier turned out to be impossible
        self.withdrawn: list[Session] = []
        self.starts: dict[tuple[str, str], StartRow] = {}
        self.publishing: dict[tuple[str, str], PublishedRow] = {}
        #: executions somebody wants to be forgotten, and nobody asks anything of
        self.purging: set[str] = set()
        #: executions that reached an end in this turn
        self.ended: list[str] = []
        self.batch = Batch()
        self.headers: dict[str, Header] = {}
        self.results: list[tuple[Any, Exception | None]] = [(None, None)] * len(items)

    # --- the wishes, in order -------------------------------------------------------------------------
    def run(self) -> Generator[Wish, Any, None]:
        self.reads.begin_turn(self.rows, self.states)
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
        build(self)
        if not self.batch.is_empty:
            self._let_go((yield Commit(self.batch)))

    def _let_go(self, others: set[JobKey] | None) -> None:
        """Claims that were written by somebody else, who hands them out."""
        if others:
            for claim in self.claims:
                if (claim.row.execution, claim.row.job) in others:
                    claim.is_withdrawn = True
                    claim.session.planned -= 1
            self.claims = [claim for claim in self.claims if not claim.is_withdrawn]

    def _known(self) -> dict[str, int]:
        known: dict[str, int] = {}
        purges: list[Purge] = []
        for item in self.items:
            if isinstance(item, Ask) and item.execution not in known:
                cached = self.committer.cache.get(item.execution)
                if cached is not None:
                    self.states[item.execution] = cached
                    known[item.execution] = cached.state.version
                elif type(item.request) is not StartExecution or item.tries:
                    # A new id is made of chance: it is taken to be new, and the store says if it is not.
                    known[item.execution] = 0
            elif isinstance(item, Purge):
                purges.append(item)
        if purges:
            # Locked with the others, in one order. What anybody asks something of in this turn is not purged.
            asked = self._asked()
            for purge in purges:
                known |= {id: version for id, (version, _) in purge.wanted.items() if id not in asked}
                self.purging |= purge.wanted.keys() - asked
        return known

    def _asked(self) -> set[str]:
        return {item.execution for item in self.items if isinstance(item, Ask)}

    def _catch_up(self, known: dict[str, int], locked: dict[str, Locked | None]) -> None:
        for id, version in known.items():
            if id in self.purging:
                continue  # its header says whether it is as it was, and nothing of it has to be rebuilt
            found = locked.get(id)
            if found is None:
                if id in locked:
                    self.states.pop(id, None)  # it was known here, and another engine has purged it
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
            try:
                if isinstance(item, Ask):
                    if blocked and item.execution in blocked:
                        left.append(index)
                        continue
                    start = item.request if type(item.request) is StartExecution else None
                    need = self._start(index, item, start) if start else self._ask(index, item)
                elif isinstance(item, (Publish, PublishAll)):
                    need = self._publish(index, item)
                elif isinstance(item, (PutSensor, EditEntities)):
                    need = self._put_shared(index, item)
                elif isinstance(item, Purge):
                    need = self._purge(index, item)
                else:
                    self.batch.merge(item.batch)
                    continue
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

    def _start(self, index: int, item: Ask, request: StartExecution) -> tuple[Key, ...]:
        id = item.execution
        if item.key:
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
        for digest, data in item.blobs.items():
            self.reads.fresh[id, digest] = data
        if item.program is not None:
            self.reads.adopt(request.definition, item.program)
        cached = self.states.get(id) or self._open(id)
        decided = decide(cached.state, request, self.now, self.reads)
        if isinstance(decided, Need):
            return decided.keys
        self.created.add(id)
        if item.definition and request.definition not in self.committer.stored:
            self.batch.definitions.append((request.definition, item.definition))
        if item.key:
            row = StartRow(request.actor.tenant, item.key, id, item.content, self.now)
            self.starts[row.tenant, row.key] = row
        self._apply(id, cached, decided)
        return ()

    def _ask(self, index: int, item: Ask) -> tuple[Key, ...]:
        request, id = item.request, item.execution
        cached = self.states.get(id)
        if cached is None:
            cached = self._open(id)
        is_waking = type(request) in _WAKING
        if is_waking and not cached.state.version:
            # Nobody is there to be woken, nor ever will be.
            self._off_the_agenda(id, request)
            return ()
        if item.blobs:
            for digest, data in item.blobs.items():
                self.reads.fresh[id, digest] = data
        if isinstance(request, ClaimJob):
            self._claim(index, item, cached, request)
            return ()
        if isinstance(request, ResendJob):
            return self._resend(cached.state, request, item.session)
        if isinstance(request, KeepLogs):
            if cached.state.version:
                self._keep_logs(id, cached, request.lines)
            return ()
        if item.token is not None:
            self._check_token(item, cached.state)
        decided = decide(cached.state, request, self.now, self.reads)
        if isinstance(decided, Need):
            return decided.keys
        if is_waking:
            # Before what follows from it, which may be another one of the same name.
            self._off_the_agenda(id, request)
        if decided:
            self._apply(id, cached, decided)
            if type(decided[-1]) is e.ResultRefused:
                self.committer.counters.stale_results += 1
                late = decided[-1]
                self.results[index] = (
                    None,
                    StaleAttempt(
                        f"job {late.job} of {id}: attempt {late.attempt} was given up;"
                        " its result is kept as evidence and changes nothing"
                    ),
                )
        if isinstance(request, _OUTCOMES) and request.logs:
            self._keep_logs(id, cached, request.logs)
        return ()

    def _off_the_agenda(self, id: str, request: Any) -> None:
        """A wake-up has arrived, whatever came of it."""
        self.rows.agenda[id, item_of(request)] = None

    def _check_token(self, item: Ask, state: State) -> None:
        request = item.request
        assert isinstance(request, _OUTCOMES)
        expected = self.committer.token(state.id, state.epoch, request.job, request.attempt)
        if not hmac.compare_digest(expected, item.token or ""):
            raise ForgedToken(f"job {request.job} of {state.id}: that token is not of this attempt")

    def _claim(self, index: int, item: Ask, cached: Cached, request: ClaimJob) -> None:
        """A claim dispatch has planned; its worker may be gone since, or the job may."""
        session = self.dispatch.sessions.get(item.session)
        if session is None or not (decided := claim(cached.state, request.job, request.worker)):
            self.results[index] = (LOST, None)
            return
        self._apply(item.execution, cached, decided)
        self._hand_over(cached.state, queued(cached.state, request.job), session)

    def _open(self, id: str) -> Cached:
        cached = self.states[id] = Cached(open_state(id), b"", 0, 0)
        return cached

    def _keep_logs(self, id: str, cached: Cached, lines: Sequence[LogLine]) -> None:
        self.touched[id] = cached
        self.rows.logs += [LogRow(id, 0, self.now, line) for line in lines]

    def _apply(self, id: str, cached: Cached, decided: list[e.Event]) -> None:
        self.touched[id] = cached
        transit(cached.state, self.now, decided, self.rows)
        cached.events += decided
        is_sharing = False
        for event in decided:
            kind = type(event)
            if kind in _SUMMARISED:
                cached.summary = None
            if kind in SHARED:
                is_sharing = True
            elif kind is e.InventoryChanged:
                assert isinstance(event, e.InventoryChanged)
                follow_changes(self.reads, self.rows, cached.state.tenant, event, self.now)
        if is_sharing:
            self.reads.follow(cached.state, decided, self.now)

    def _publish(self, index: int, item: Publish | PublishAll) -> tuple[Key, ...]:
        items = item.items if isinstance(item, PublishAll) else [item]
        keys = {WorkflowKey(each.tenant, each.name): (each.tenant, each.name) for each in items}
        need = tuple(key for key, name in keys.items() if name not in self.publishing and key not in self.reads.rows)
        if not need:
            answers = [self._version(each) for each in items]
            self.results[index] = (answers if isinstance(item, PublishAll) else answers[0], None)
        return need

    def _version(self, item: Publish) -> tuple[int, bool]:
        """Of this definition, and whether it is new."""
        row = self.publishing.get((item.tenant, item.name))
        key = WorkflowKey(item.tenant, item.name)
        newest: Published | None = Published(row.version, row.definition) if row else self.reads.rows[key]
        if newest is not None and newest.definition == item.digest:
            return newest.version, False
        version = newest.version + 1 if newest else 1
        row = PublishedRow(item.tenant, item.name, version, item.digest, self.now, item.actor)
        self.publishing[item.tenant, item.name] = row
        self.reads.rows.pop(key, None)
        self.reads.rows[key] = Published(version, item.digest)
        self.batch.definitions.append((item.digest, item.data))
        self.batch.published.append(row)
        return version, True

    def _put_shared(self, index: int, item: PutSensor | EditEntities) -> tuple[Key, ...]:
        try:
            self.results[index] = (item.decide(self.reads, self.rows, self.now), None)
        except Missing as missing:
            return missing.keys
        return ()

    def _purge(self, index: int, item: Purge) -> tuple[Key, ...]:
        try:
            self.results[index] = (item.decide(self.reads.rows, self._asked(), self.batch), None)
        except Missing as missing:
            return missing.keys
        return ()

    # --- claims ---------------------------------------------------------------------------------------
    def _claim_new(self) -> tuple[Key, ...]:
        """Give what this batch created to workers with room: the claim rides in the same commit. Returns
        rows that have to be read first (long inputs); call again then."""
        keys: dict[Key, None] = {}
        choose, now = self.dispatch.choose, self.now
        for (execution, job), row in self.rows.jobs.items():
            if row is None or row.incarnation:
                continue
            session = choose(row.queue, row.block)
            if session is None:
                continue
            cached = self.touched[execution]
            decided = claim(cached.state, job, session.name)
            if decided:
                session.planned += 1
                self.eager.append(session)
                transit(cached.state, now, decided, self.rows)
                cached.events += decided
                self._hand_over(cached.state, row, session, is_eager=True)
        is_withdrawing = False
        for made in self.claims:
            if made.parcel is None:
                state = self.touched[made.row.execution].state
                try:
                    made.parcel = self._parcel(state, state.jobs[made.row.job], made.session)
                except Missing as missing:
                    keys.update(dict.fromkeys(missing.keys))
                except TooLong as error:
                    keys.update(dict.fromkeys(self._withdraw(made, error)))
                    is_withdrawing = True
        if is_withdrawing:
            self.claims = [made for made in self.claims if not made.is_withdrawn]
        return tuple(keys)

    def _withdraw(self, claim: Claim, error: TooLong) -> tuple[Key, ...]:
        """No worker can be sent this input: the job fails for good, and nothing has happened. Returns what has to
        be read first, as the locks that are given back with it."""
        cached = self.touched[claim.row.execution]
        failure = Failure("input-too-large", str(error), code="HF0701")
        request = FailJob(claim.row.job, claim.row.attempt, failure, Effect.NONE, is_permanent=True)
        decided = decide(cached.state, request, self.now, self.reads)
        if isinstance(decided, Need):
            return decided.keys
        claim.is_withdrawn = True
        if claim.is_eager:
            claim.session.planned -= 1
            self.eager.remove(claim.session)
        else:
            # Planned before this turn: given back when it is committed, or by whoever planned it if it is not.
            self.withdrawn.append(claim.session)
        self._apply(claim.row.execution, cached, decided)
        return ()

    def _hand_over(self, state: State, row: JobRow, session: Session, *, is_eager: bool = False) -> None:
        row.incarnation, row.attempt, row.since = session.incarnation, state.jobs[row.job].attempt, self.now
        self.rows.jobs[state.id, row.job] = row
        self.claims.append(Claim(session, row, is_eager=is_eager))

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
        spec = spec_of(state, job)
        input = self.reads.unpacked(state.id, job.input)
        token = "" if session.is_local else self.committer.token(state.id, state.epoch, job.id, job.attempt)
        # Of the visit, so that whoever gets it twice can tell: also when an operator has the step entered again.
        key = f"{state.id}/{job.step}/{job.lane}/{job.visit}"
        label = self.reads.label(state.definition, job.step)
        if not job.entity and job.kind is JobKind.EXECUTE:
            return Parcel(
                state.id, job.id, job.attempt, token, spec.block, input, spec.timeout, key, state.workflow, label, "",
                job.details, spec.version,
            )  # fmt: skip
        if job.kind is not JobKind.EXECUTE:
            key += f"/{job.kind.name.lower()}/{job.about}"
        return Parcel(
            state.id, job.id, job.attempt, token, spec.block, input, spec.timeout, key, state.workflow, label,
            job.entity, job.details, spec.version, job.kind.name, state.fence if job.entity else 0,
            self._forward(state, job.about) if job.about else None, self._entity(state, job.entity),
        )  # fmt: skip

    def _forward(self, state: State, about: int) -> Forward:
        """What became of the job that a VERIFY or ROLLBACK is about: all that the ledger knows."""
        entry = state.ledger.get(about)
        if entry is not None:
            result = self.reads.unpacked(state.id, entry.result)
            return Forward(about, entry.attempt, entry.effect.name, result)
        job = state.jobs.get(about)
        return Forward(about, job.attempt if job is not None else 0, Effect.UNKNOWN.name)

    def _entity(self, state: State, id: str) -> dict[str, Any]:
        """As the inventory has it now; read for the parcel, so that no history has to hold it."""
        row = self.reads.entity(EntityKey(state.tenant, id)) if id else None
        if row is None:
            return {}
        return {
            "type": row.type, "name": row.name, "parent": row.parent, "groups": list(row.groups), "labels": row.labels,
            "facts": row.facts,
        }  # fmt: skip

    # --- afterwards -----------------------------------------------------------------------------------
    def undo(self) -> None:
        """The commit did not happen, or nobody knows: forget everything this turn touched."""
        for id in self.states:
            self.committer.cache.pop(id, None)
        for session in self.eager:
            session.planned -= 1
        self.reads.forget()
        self.dispatch.reset_ready()

    def settle(self) -> None:
        """It is committed: make memory agree."""
        counters = self.committer.counters
        counters.commits += not self.batch.is_empty
        counters.items += len(self.items)
        counters.largest_batch = max(counters.largest_batch, len(self.items))
        counters.executions_started += len(self.created)
        counters.jobs_claimed += len(self.claims)
        if self.batch.blocks or self.batch.published:
            self.reads.forget()
        if len(self.committer.stored) > 10_000:
            self.committer.stored.clear()
        counters.executions_purged += len(self.batch.purged)
        self.committer.stored.update(digest for digest, _ in self.batch.definitions)
        for id, cached in self.states.items():
            if cached.state.status >= _COMPLETED or not cached.state.version:
                if cached.events and not ENDINGS.isdisjoint(map(type, cached.events)):
                    counters.executions_ended += 1
                    self.ended.append(id)
                self.committer.cache.pop(id, None)
            elif not cached.state.jobs and is_asleep(cached.state, self.now):
                self.committer.cache.pop(id, None)
            else:
                self.committer.remember(id, cached)
            if cached.events:
                for event in cached.events:
                    if type(event) in _REVIVED:
                        counters.executions_revived += 1
                counters.events += len(cached.events)
                cached.events = []
        for session in self.withdrawn:
            session.planned -= 1
        failpoint("engine.push.before")
        for made in self.claims:
            session, row = made.session, made.row
            session.planned -= 1
            deadline = self.committer.patience.deadline(row.since, row.timeout)
            session.held[row.execution, row.job] = Held(row.attempt, row.since, row.timeout, deadline)
            assert made.parcel is not None
            session.mailbox.append(made.parcel)
        for session, parcel in self.resent:
            session.mailbox.append(parcel)
        failpoint("engine.push.after")
        for waiting in self.batch.jobs:
            if not waiting.incarnation and self.dispatch.offers(waiting.queue, waiting.block):
                # What nobody here offers stays in the table until somebody does.
                self.dispatch.add(waiting)
        for execution, job in self.rows.stopping:
            self._tell(execution, job)

    def _tell(self, execution: str, job: int) -> None:
        """Push the notice to whoever runs the job here."""
        for session in self.dispatch.sessions.values():
            held = session.held.get((execution, job))
            if held is not None and not held.is_told:
                held.is_told = True
                reason = self.states[execution].state.cancel_reason or "cancelled"
                session.cancels.append(CancelNotice(execution, job, held.attempt, reason))

    def answer(self) -> None:
        for item, (value, error) in zip(self.items, self.results, strict=True):
            if value is None and error is None and isinstance(item, Ask):
                value = self.headers.get(item.execution)
            item.reply(value, error)


_COMPLETED = Status.COMPLETED
_OUTCOMES = (CompleteJob, FailJob)
_WAKING = frozenset(get_args(Arriving))
_REVIVED = frozenset((e.ExecutionResumed, e.ExecutionReplayed))
_SUMMARISED = frozenset(
    {
        *_REVIVED,
        e.ExecutionStarted,
        e.ErrorRaised,
        e.CancelRequested,
        e.ExecutionCompleted,
        e.ExecutionFailed,
        e.ExecutionCancelled,
        e.ExecutionAcked,
    }
)
