"""What has to hold for every input, and `shrunk`, which makes one that breaks it small."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from holdfast.core import requests as r
from holdfast.core.errors import InvalidDefinition, Refused
from holdfast.core.model import BlockOffer, Effect, JobStatus, Status, Wait
from holdfast.core.retention import BadRetention, parse_retention
from holdfast.language.evaluate import FUEL, STEPS_PER_FUEL, settle, spend
from holdfast.language.functions import FUNCTIONS
from holdfast.language.interpret import YamlProgram
from holdfast.language.operations import ExpressionError
from holdfast.language.problems import PROBLEMS
from holdfast.language.transforms import parse_transforms
from holdfast.language.workflow import Text, canonical, load_workflows, program_from_bytes
from tests.language.scopes import MapScope, excerpt_of
from tests.language.world import Boom, World

from . import expressions
from .inputs import Input

#: ms of CPU that no input may cost
LIMIT = 100.0
#: one in so many documents that compile is played
PLAYED = 12
#: transitions of one play
LONGEST = 150


class Wrong(AssertionError):
    """An input that breaks a promise."""


class Verdict(NamedTuple):
    compiles: bool
    #: ms of CPU of reading, checking and evaluating; playing is not in it
    cost: float
    plays: int = 0


def judge(given: Input, *, is_timed: bool = True, always_play: bool = False) -> Verdict:
    """Raises `Wrong`, or whatever came out of it."""
    work = _document if given.kind == "document" else _expression
    began = time.thread_time()
    found = work(given)
    cost = (time.thread_time() - began) * 1000
    if is_timed and cost > LIMIT:
        cost = min(cost, *(_again(work, given) for _ in range(4)))
        if cost > LIMIT:
            raise Wrong(f"took {cost:.0f} ms of CPU")
    plays = 0
    if isinstance(found, list) and found and (always_play or Random(given.seed + "p").randrange(PLAYED) == 0):
        play(given, found[-1])
        plays = 1
    return Verdict(found is not None, cost, plays)


def _again(work: Callable[[Input], Any], given: Input) -> float:
    """The least of several, because what is above it is somebody else's time."""
    gc.collect()
    began = time.thread_time()
    work(given)
    return (time.thread_time() - began) * 1000


# --- reading and checking ------------------------------------------------------------------------------
def _document(given: Input) -> list[YamlProgram] | None:
    try:
        found = load_workflows([Text(given.text, "fuzz.yaml")])
    except InvalidDefinition as invalid:
        _check_problems(given.text, invalid)
        return None
    for each in found:
        for problem in each.warnings:
            if not problem.warning:
                raise Wrong(f"{problem.code} is an error among the warnings")
    # What is stored says the same.
    for each in found[-1:] if len(given.text) % 4 == 0 else ():
        data = canonical(each.data)
        if _outline(program_from_bytes(data)) != _outline(each.program):
            raise Wrong("what is stored is another program")
    return [each.program for each in found]


def _outline(program: YamlProgram) -> Any:
    """What executions refer to by number."""
    workflow = program.workflow
    bodies = {key: [step.index for step in steps] for key, steps in workflow.bodies.items()}
    steps = [(step.kind, step.id, step.label, step.spec, step.keys, step.needs) for step in workflow.steps]
    return steps, bodies, workflow.specs


def _check_problems(text: str, invalid: InvalidDefinition) -> None:
    if not any(not problem.warning for problem in invalid.problems):
        raise Wrong("refused without an error")
    lines = len(text.splitlines()) + 1
    for problem in invalid.problems:
        if problem.code not in PROBLEMS:
            raise Wrong(f"the code {problem.code} is not documented")
        if not problem.message or "Traceback" in problem.message:
            raise Wrong(f"{problem.code} says nothing")
        if not 1 <= problem.line <= lines and problem.code not in _WHOLE:
            raise Wrong(f"{problem.code} ({problem.message}) has no place: line {problem.line} of {lines}")
        if problem.column < 1 and problem.code not in _WHOLE:
            raise Wrong(f"{problem.code} has no column")


#: problems of a text as a whole
_WHOLE = frozenset(("HF0106",))


def _expression(given: Input) -> Any:
    """Something where the text can be read, else nothing."""
    random = Random(given.seed + "e")
    if given.kind == "retention":
        try:
            return str(parse_retention(given.text)) or True
        except BadRetention as bad:
            if not str(bad):
                raise Wrong("refused without a word") from None
            return None
    values = expressions.scope(random)
    scope = MapScope(values)
    if given.kind == "regex":
        return _regex(given.text, scope, random)
    if not given.text.strip():
        return None
    excerpt, names, report = excerpt_of(given.text, set(values))
    if given.kind == "transform":
        filters = parse_transforms(excerpt, names)
        if report.errors:
            return None
        value: Any = random.choice((*values.values(), "a,b", [1, 2], [{"a": 1}, {"b": 2}]))
        for each in filters:
            try:
                value = each(scope, value)
            except ExpressionError:
                break
        _check_fuel(scope)
        return True
    made = {"template": names.template, "words": names.words, "test": names.test}[given.kind](excerpt)
    if report.errors:
        return None
    try:
        settle(scope, made.get(scope), None)
    except ExpressionError as error:
        if not str(error):
            raise Wrong("an error without a word") from None
    _check_fuel(scope)
    return True


def _check_fuel(scope: MapScope) -> None:
    if scope.fuel < -FUEL:
        raise Wrong(f"fuel went down to {scope.fuel}")


def _regex(pattern: str, scope: MapScope, random: Random) -> Any:
    text = random.choice(("", "abc", "a" * 300, "abcabc" * 40, "äb.c\n" * 20, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaax"))
    name, arguments = random.choice((("matches", ()), ("find_all", ()), ("replace_regex", ("<$1>",))))

    def pay(steps: int) -> None:
        spend(scope, 1 + steps // STEPS_PER_FUEL, None)

    try:
        FUNCTIONS[name].run(pay, None, text, pattern, *arguments)
    except ExpressionError as error:
        if not str(error):
            raise Wrong("an error without a word") from None
        return True if error.code == "HF0161" else None
    return True


# --- playing -------------------------------------------------------------------------------------------
def play(given: Input, program: YamlProgram) -> None:
    """One execution of it, with blocks that answer, fail or are lost at random, and people who signal or not."""
    random = Random(given.seed + "w")
    world = World(_Blocks(random), _Offers(random))  # type: ignore[arg-type]
    digest = b"fuzz"
    world.programs[digest] = program
    try:
        world.ask("e1", r.StartExecution("e1", _inputs(program, random), definition=digest))
    except Refused:
        return
    state = world.states["e1"]
    for _ in range(LONGEST):
        if state.status.is_ended:
            break
        if not _something(world, random):
            _check_waiting(world)
            if state.status is Status.CANCELLING:
                raise Wrong("it is being cancelled and waits for nothing")
            world.ask("e1", r.CancelExecution("enough"))
    for id in world.states:
        world.check(id)


def _something(world: World, random: Random) -> bool:
    """Let something happen; whether there was anything."""
    state = world.states["e1"]
    sent = [job.id for job in state.jobs.values() if job.status is JobStatus.SENT]
    chance = random.random()
    if sent and chance < 0.1:
        job = random.choice(sent)
        world.claim("e1", job)
        world.lose("e1", job)
        return True
    listening = [lane.signal for lane in state.lanes.values() if lane.wait is Wait.SIGNAL]
    if listening and chance < 0.3:
        world.ask("e1", r.SendSignal(random.choice(listening), _result(random)))
        return True
    if sent:
        world.work("e1", random.choice(sent))
        return True
    return world.step()


def _check_waiting(world: World) -> None:
    state = world.states["e1"]
    waits = {lane.wait for lane in state.lanes.values()}
    if not waits & {Wait.SIGNAL, Wait.SENSOR, Wait.LOCK, Wait.JOB}:
        raise Wrong(f"it waits for nothing: {state.status.name}, {sorted(wait.name for wait in waits)}")


def _inputs(program: YamlProgram, random: Random) -> dict[str, Any]:
    declared = program.workflow.parameters
    return {} if declared is None else {each.name: _result(random) for each in declared if random.random() < 0.4}


def _result(random: Random) -> Any:
    return random.choice((None, 1, "text", [1, 2], {"stdout": "ok", "exit_code": 0}, "x" * 1500, {"a": {"b": 1}}))


class _Blocks(dict[str, Any]):
    """Any block: it answers or fails."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def get(self, name: str, default: Any = None) -> Any:
        return self._run

    def _run(self, given: Any) -> Any:
        chance = self.random.random()
        if chance < 0.2:
            raise Boom("boom", self.random.choice((None, Effect.NONE, Effect.DONE)))
        return _result(self.random)


class _Offers(dict[str, BlockOffer]):
    def __init__(self, random: Random) -> None:
        self.random = random

    def get(self, name: str, default: Any = None) -> BlockOffer:
        chance = self.random.random()
        return BlockOffer(name, idempotent=chance < 0.5, pure=chance < 0.2)


# --- making failures small -----------------------------------------------------------------------------
def failure_of(given: Input) -> str:
    """What goes wrong with it, in a word that stays the same while it shrinks; empty: nothing."""
    try:
        judge(given, always_play=True)
    except Wrong as wrong:
        return f"Wrong: {str(wrong)[:24]}"
    except RecursionError:
        return "RecursionError"
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{place.tb_lineno}" if place else ""
        return f"{type(error).__name__} {where}"
    return ""


def shrunk(given: Input, seconds: float = 20.0) -> Input:
    """Lines, then pieces, left out as long as the same thing goes wrong."""
    wanted = failure_of(given)
    if not wanted:
        return given
    end = time.monotonic() + seconds
    for separator in ("\n", " ", ""):
        parts = given.text.split(separator) if separator else list(given.text)
        size = max(1, len(parts) // 2)
        while size and time.monotonic() < end:
            at = 0
            while at < len(parts) and time.monotonic() < end:
                tried = given._replace(text=separator.join(parts[:at] + parts[at + size :]))
                if failure_of(tried) == wanted:
                    parts, given = parts[:at] + parts[at + size :], tried
                else:
                    at += size
            size //= 2
    return given
