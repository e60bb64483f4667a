"""A program for tests of the core: branches of steps, each a job, a nap or a wish — no language involved."""

from __future__ import annotations

from typing import Any

from holdfast.core.codec import pack
from holdfast.core.lanes import Op
from holdfast.core.model import BlobRef, BlockOffer, Failure, JobSpec, Policy, Problem, Retry, Wait, blob_digest
from holdfast.core.program import (
    Advance,
    Begun,
    Complete,
    Fail,
    JobEnded,
    ScheduleJob,
    SetTimer,
    SignalArrived,
    TakeAnotherTurn,
    TimerEnded,
    TurnGranted,
)
from holdfast.core.reads import Published

ID = "ab" * 10 + "00" * 6
SPECS = (
    JobSpec("plain"),
    JobSpec("idem", idempotent=True, retry=Retry(3, 1_000_000, 2.0, 60_000_000, 0.0)),
    JobSpec("pure", pure=True, retry=Retry(2, 0, 1.0, 0, 0.0)),
)


class Scripted:
    """Each branch is a list of steps: ("job", spec), ("nap", µs), ("turn",), ("fail",). One branch runs in
    the root lane; several run in lanes below it."""

    name = "scripted"
    blocks = ("plain", "idem", "pure")
    retention = ("", "")
    cleans_up = False
    is_replayable = True
    policy = Policy()

    def __init__(self, *branches: list[tuple[Any, ...]]) -> None:
        self.branches = branches

    def check_input(self, input: Any) -> tuple[Any, list[Problem]]:
        return input, [Problem("HF0201", "no")] if input == "bad" else []

    def pin(self, blocks: Any) -> tuple[tuple[JobSpec, ...], list[Problem]]:
        return SPECS, []

    def gates(self, input: Any, now: int) -> tuple[Any, ...]:
        return ()

    def used_at(self, block: str) -> str:
        return ""

    def label(self, step: int) -> str:
        return f"step-{step}"

    def advance(self, state: Any, cause: Any, now: int, reads: Any) -> list[Any]:
        match cause:
            case Begun() if len(self.branches) == 1:
                return self.enter(state, 1, 0, 0, (), now)
            case Begun():
                spawn = tuple((Op.SPAWN, 2 + i, i, 0, i, {}) for i in range(len(self.branches)))
                commands: list[Any] = [Advance(1, (*spawn, (Op.WAIT, Wait.LANES)))]
                for i in range(len(self.branches)):
                    commands += self.enter(state, 2 + i, i, 0, (), now)
                return commands
            case JobEnded(failure=Failure() as failure):
                return [Fail(failure, self.label(cause.step))]
            case JobEnded():
                return self.go_on(state, cause.lane, ((Op.RESULT, cause.job, ""),), now)
            case TimerEnded():
                return self.go_on(state, cause.lane, (), now)
            case TurnGranted():
                waiting = [lane.id for lane in state.lanes.values() if lane.wait is Wait.TURN]
                return [c for lane in waiting for c in self.go_on(state, lane, (), now)]
            case SignalArrived():
                return []
        raise AssertionError(cause)

    def go_on(self, state: Any, lane: int, ops: tuple[Any, ...], now: int) -> list[Any]:
        at = state.lanes[lane]
        return self.enter(state, lane, at.branch, at.frames[-1].position + 1, ops, now)

    def enter(self, state: Any, lane: int, branch: int, position: int, ops: tuple[Any, ...], now: int) -> list[Any]:
        steps = self.branches[branch]
        moved = (*ops, (Op.MOVE, position)) if position else ops
        if position == len(steps):
            if lane == 1:
                return [Advance(1, moved), Complete({"branch": branch})]
            ended: list[Any] = [Advance(lane, (*moved, (Op.END, branch)))]
            others = [x for x in state.lanes.values() if x.id not in (1, lane)]
            if not others and 1 in state.lanes and state.lanes[1].open == 1:
                ended += [Advance(1, ((Op.GATHER, "", None),)), Complete("all")]
            return ended
        match steps[position]:
            case ("job", spec):
                return [
                    Advance(lane, (*moved, (Op.WAIT, Wait.JOB))),
                    ScheduleJob(lane, position, spec, {"n": position}),
                ]
            case ("nap", pause):
                return [Advance(lane, (*moved, (Op.WAIT, Wait.TIMER))), SetTimer(lane, now + pause)]
            case ("turn",):
                return [Advance(lane, (*moved, (Op.WAIT, Wait.TURN))), TakeAnotherTurn()]
            case _:
                return [Advance(lane, moved), Fail(Failure("fail", "on purpose"), self.label(position))]


class Rows:
    """Shared rows: one program, every block registered."""

    def __init__(self, program: Any, missing: frozenset[str] = frozenset()) -> None:
        self._program = program
        self._missing = missing

    def workflow(self, key: Any) -> Any:
        return Published(3, b"d" * 16) if key.name == "known" else None

    def program(self, digest: bytes) -> Any:
        return self._program

    def offers(self, name: str) -> tuple[BlockOffer, ...]:
        return () if name in self._missing else (BlockOffer(name),)

    def load(self, execution: str, value: Any) -> Any:
        return value

    def keep(self, execution: str, value: Any) -> Any:
        data = pack(value)
        return value if len(data) < 1000 else BlobRef(blob_digest(data), len(data))
