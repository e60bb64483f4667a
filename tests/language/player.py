"""Plays a program against the core's own fold, with blobs, a clock you hold and blocks that are functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core import events as e
from holdfast.core import program as p
from holdfast.core.codec import pack, unpack
from holdfast.core.folding import fold
from holdfast.core.lifecycle import QUIET_START
from holdfast.core.model import INLINE_LIMIT, Actor, BlobRef, BlockOffer, Failure, Status, blob_digest
from holdfast.core.reads import Reads
from holdfast.core.state import State, open_state
from holdfast.language import YamlProgram, load_workflow

Block = Callable[[Any], Any]


class Blobs:
    """The part of `Reads` that a program uses."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self.loads = 0
        self.keeps = 0

    def load(self, execution: str, value: Any) -> Any:
        if isinstance(value, BlobRef):
            self.loads += 1
            return unpack(self.data[value.digest])
        return value

    def keep(self, execution: str, value: Any) -> Any:
        self.keeps += 1
        if isinstance(value, BlobRef):
            return value
        data = pack(value)
        if len(data) <= INLINE_LIMIT:
            return value
        digest = blob_digest(data)
        self.data[digest] = data
        return BlobRef(digest, len(data))

    def whole(self, value: Any) -> Any:
        """Without references anywhere."""
        value = self.load("", value)
        if isinstance(value, list):
            return [self.whole(item) for item in value]
        if isinstance(value, dict):
            return {key: self.whole(item) for key, item in value.items()}
        return value


class _NoShortCut(YamlProgram):
    def straight_on(self, state: State, cause: p.JobEnded, reads: Reads) -> None:
        return None


class Player:
    def __init__(
        self, text: str, input: Any = None, blocks: dict[str, Block] | None = None, *, start: bool = True
    ) -> None:
        self.definition, self.program, self.warnings = load_workflow(text, "test.yaml")
        self.general = _NoShortCut(self.program.workflow)
        self.reads = Blobs()
        self.blocks = blocks or {}
        self.now = 1_000_000
        self.state: State = open_state("e1")
        #: every transition: its cause and what the program wanted
        self.calls: list[list[p.Command]] = []
        self.history: list[tuple[e.Event, ...]] = []
        self.logs: list[str] = []
        #: what the program was asked to do: (label, input)
        self.ran: list[tuple[str, Any]] = []
        checked, problems = self.program.check_input(input)
        assert not problems, problems
        specs, problems = self.program.pin({name: BlockOffer(name) for name in self.program.blocks})
        assert not [x for x in problems if not x.warning], problems
        self._apply(
            e.ExecutionStarted("default", self.program.name, 1, b"d", self.reads.keep("e1", checked), Actor()),
            e.BlocksPinned(specs),
            e.PhasesPassed(QUIET_START),
        )
        if start:
            self.tell(p.Begun())

    def _apply(self, *events: e.Event) -> None:
        # Through bytes, as the store would do it: what cannot be stored fails here.
        stored = msgspec.msgpack.Decoder(tuple[e.Event, ...], ext_hook=_blob).decode(pack(events))
        self.history.append(stored)
        fold(self.state, self.now, stored)

    def tell(self, cause: p.Cause, *before: e.Event) -> list[p.Command]:
        """One transition, the way `decide` makes it: the program sees the state before `before`."""
        seen = pack(msgspec.to_builtins(self.state.lanes, enc_hook=repr))
        commands = self.program.advance(self.state, cause, self.now, self.reads)  # type: ignore[arg-type]
        assert pack(msgspec.to_builtins(self.state.lanes, enc_hook=repr)) == seen, "advance changed the state"
        again = self.general.advance(self.state, cause, self.now, self.reads)  # type: ignore[arg-type]
        assert again == commands, "advance is not deterministic, or its short cut says something else"
        events = list(before)
        job, timer = self.state.next_job, self.state.next_timer
        for command in commands:
            match command:
                case p.Advance(lane=lane, ops=ops, logs=logs):
                    events.append(e.LaneAdvanced(lane, ops, logs))
                    self.logs += [line.message for line in logs]
                case p.ScheduleJob(lane=lane, step=step, spec=spec, input=given):
                    events.append(e.JobScheduled(job, lane, step, spec, given))
                    job += 1
                case p.SetTimer(lane=lane, due=due, depth=depth):
                    events.append(e.TimerSet(timer, lane, due, depth))
                    timer += 1
                case p.TakeAnotherTurn():
                    events.append(e.TurnTaken(self.state.turn + 1, True))
                case p.Complete(output=output):
                    events.append(e.ExecutionCompleted(self.reads.keep("e1", output)))
                case p.Fail(failure=failure, step=label):
                    events.append(e.ErrorRaised(failure, label))
        self.calls.append(commands)
        self._apply(*events)
        return commands

    # --- the world outside -------------------------------------------------------------------------
    def finish(self, job: int, result: Any = None) -> list[p.Command]:
        row = self.state.jobs[job]
        result = self.reads.keep("e1", result)
        return self.tell(p.JobEnded(row.lane, job, row.step, result), e.JobSucceeded(job, 1, result))

    def break_job(self, job: int, failure: Failure) -> list[p.Command]:
        row = self.state.jobs[job]
        return self.tell(p.JobEnded(row.lane, job, row.step, failure=failure), e.JobFailed(job, 1, failure))

    def signal(self, name: str, value: Any = None) -> list[p.Command]:
        return self.tell(p.SignalArrived(name, value), e.SignalReceived(name, value, Actor()))

    def turn(self) -> list[p.Command]:
        return self.tell(p.TurnGranted(), e.TurnTaken(self.state.turn, False))

    def fire(self) -> list[p.Command]:
        timer = min(self.state.timers.values(), key=lambda t: (t.due, t.id))
        self.now = max(self.now, timer.due)
        return self.tell(p.TimerEnded(timer.lane, timer.id), e.TimerFired(timer.id))

    def run(self, limit: int = 10_000) -> Player:
        """Until nothing more happens by itself."""
        for _ in range(limit):
            if self.state.status is not Status.RUNNING:
                break
            if self.state.is_turn_open:
                self.turn()
            elif self.state.jobs:
                id = min(self.state.jobs)
                job = self.state.jobs[id]
                block = self.state.specs[job.spec].block
                given = self.reads.whole(job.input)
                self.ran.append((self.program.label(job.step), given))
                self.finish(id, self.blocks[block](given) if block in self.blocks else {"ran": block})
            elif self.state.timers:
                self.fire()
            else:
                break
        return self

    @property
    def output(self) -> Any:
        assert self.state.status is Status.COMPLETED, (self.state.status, self.state.failure)
        return self.reads.whole(self.state.output)

    @property
    def failure(self) -> Failure:
        assert self.state.status is Status.ERROR, self.state.status
        assert self.state.failure is not None
        return self.state.failure


def _blob(code: int, data: memoryview) -> Any:
    return BlobRef(bytes(data[:16]), int.from_bytes(data[16:20], "big"))


def play(text: str, input: Any = None, blocks: dict[str, Block] | None = None) -> Player:
    return Player(text, input, blocks).run()


def program(text: str) -> YamlProgram:
    return load_workflow(text, "test.yaml")[1]
