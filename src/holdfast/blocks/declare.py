"""The `@block` decorator: a function becomes a block, described well enough to be offered to an engine.

Whatever is wrong with a declaration is said here, at import, as BadBlock. It must not know registries,
workers or how a block is run.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

import msgspec

from holdfast.core.errors import BadBlock
from holdfast.core.model import BlockOffer, Problem, Retry
from holdfast.core.versions import is_version, padded

from .parameters import BadSignature, Parameters, hints_of, result_schema
from .routines import ACQUIRE, ROLLBACK, RUN, VERIFY, Decorator, F, Hook, Routine, Run

P = ParamSpec("P")
R = TypeVar("R")
Isolation = Literal["async", "thread", "process"]
ISOLATIONS = ("async", "thread", "process")

_PLAIN_NAME = r"[A-Za-z][A-Za-z0-9]*([._-][A-Za-z0-9]+)*"
#: the package comes first, if the name has one
_NAME = re.compile(rf"({_PLAIN_NAME}/)?{_PLAIN_NAME}")
_ENTITY_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?\s*(?:ms|us|s|m|h|d)\s*)+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|us|s|m|h|d)")
_UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_RETRY_KEYS = ("attempts", "delay", "factor", "max_delay", "jitter")


class Block(Generic[P, R]):
    """Registered code that does outside work. Calling it calls the function, so it can be tested as one."""

    # Read once per job on the hot path, hence plain attributes; `frozen` by convention and by __setattr__.
    function: Callable[P, R]
    offer: BlockOffer
    name: str
    isolation: str
    parameters: Parameters
    #: by the kind of the jobs they are for; the run and whatever hooks it was given
    routines: dict[str, Routine]
    #: file and line of the function, to tell two declarations of one name apart
    file: str
    line: int

    def __init__(self, function: Callable[P, R], offer: BlockOffer, parameters: Parameters) -> None:
        functools.update_wrapper(self, function)
        self.__dict__.update(
            function=function,
            offer=offer,
            name=offer.name,
            isolation=offer.isolation,
            routines={RUN: Run(function, offer.isolation, parameters)},
            parameters=parameters,
        )
        self.__dict__["file"], self.__dict__["line"] = _place(function)

    def __setattr__(self, name: str, value: Any) -> None:
        if "parameters" in self.__dict__:
            raise AttributeError(f"block `{self.name}` cannot be changed; declare another one")
        object.__setattr__(self, name, value)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<block {self.name} {self.offer.version} ({self.isolation})>"

    # --- hooks ------------------------------------------------------------------------------------
    def acquire(self, function: F, /) -> F:
        """Says which entities the block needs: ids, or `Acquired(ids=…, select=…)`. Asked before anything runs."""
        return self._hook(ACQUIRE, function, sys._getframe(1).f_locals)

    def verify(self, function: F, /) -> F:
        """Looks whether a run of unknown outcome took effect: `Applied(data)`, `NotApplied()` or `Unknown()`; or
        `True`, `False` and `None`."""
        return self._hook(VERIFY, function, sys._getframe(1).f_locals)

    @overload
    def rollback(self, function: F, /) -> F: ...

    @overload
    def rollback(self, /, *, accepts_unknown: bool) -> Decorator: ...

    def rollback(self, function: Callable[..., Any] | None = None, /, *, accepts_unknown: bool = False) -> Any:
        """Undoes what the run did. It may be called more than once. `accepts_unknown`: it is right even where nobody
        knows whether there is anything to undo."""
        names = dict(sys._getframe(1).f_locals)

        def hook(function: F) -> F:
            return self._hook(ROLLBACK, function, names, accepts_unknown=accepts_unknown)

        return hook if function is None else hook(function)

    def _hook(self, kind: str, function: F, names: Mapping[str, Any], *, accepts_unknown: bool = False) -> F:
        word = kind.lower()
        try:
            if kind in self.routines:
                raise BadSignature("the block has one already")
            if self.offer.pure and kind != ACQUIRE:
                raise BadSignature("the block is pure: it changes nothing that could be looked for or undone")
            if self.offer.is_pivot and kind == ROLLBACK:
                raise BadSignature("the block is a pivot: it is never undone")
            routine = Hook(kind, function, self.isolation, self.parameters, names)
        except BadSignature as error:
            raise _bad(function, f"hook `{word}` of block `{self.name}`: {error}") from None
        self.routines[kind] = routine
        said: dict[str, Any] = {f"has_{word}": True}
        if accepts_unknown:
            said["accepts_unknown"] = True
        self.__dict__["offer"] = msgspec.structs.replace(self.offer, **said, digest=self._digest())
        return function

    def _digest(self) -> str:
        """Of the source of all its functions: a block with an edited hook is other code."""
        parts = [_source(routine.function) for _, routine in sorted(self.routines.items())]
        if not all(parts):
            return ""
        return blake2b("\0".join(parts).encode(errors="replace"), digest_size=8).hexdigest()


@overload
def block(function: Callable[P, R], /) -> Block[P, R]: ...


@overload
def block(
    *,
    name: str | None = None,
    version: str = "1.0.0",
    pure: bool = False,
    idempotent: bool = False,
    timeout: float | str | None = None,
    retry: Retry | int | Mapping[str, Any] | None = None,
    isolation: Isolation | None = None,
    description: str | None = None,
    run_on: str = "",
    pivot: bool = False,
) -> Callable[[Callable[P, R]], Block[P, R]]: ...


def block(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "1.0.0",
    pure: bool = False,
    idempotent: bool = False,
    timeout: float | str | None = None,
    retry: Retry | int | Mapping[str, Any] | None = None,
    isolation: Isolation | None = None,
    description: str | None = None,
    run_on: str = "",
    pivot: bool = False,
) -> Any:
    """Declare a block, bare or with arguments.

    `pure`: changes nothing outside, may run any number of times. `idempotent`: running it again with the
    same input has no further effect. Say neither and an attempt of unknown outcome is never repeated. `run_on`: the
    type of the entities it runs on, one job for each. `pivot`: a point of no return; it is never undone.

    What it needs, whether it took effect and how it is undone say its hooks: `@NAME.acquire`, `@NAME.verify` and
    `@NAME.rollback` on functions that take what the block takes, any part of it, by the same names.
    """
    # Names of the place of declaration, for type hints of functions that are not at module level.
    names = dict(sys._getframe(1).f_locals)

    def declare(function: Callable[..., Any]) -> Block[..., Any]:
        shown = name if name is not None else getattr(function, "__name__", repr(function)).strip("_").replace("_", "-")
        try:
            return _declare(
                function, shown, version, pure, idempotent, timeout, retry, isolation, description, run_on, pivot, names
            )
        except BadSignature as error:
            raise _bad(function, f"block `{shown}`: {error}") from None

    return declare if function is None else declare(function)


def _declare(
    function: Callable[..., Any],
    name: str,
    version: str,
    pure: bool,
    idempotent: bool,
    timeout: float | str | None,
    retry: Retry | int | Mapping[str, Any] | None,
    isolation: str | None,
    description: str | None,
    run_on: str,
    pivot: bool,
    names: Mapping[str, Any],
) -> Block[..., Any]:
    if isinstance(function, Block):
        raise BadSignature("is a block already; apply @block once")
    if not inspect.isfunction(function):
        raise BadSignature(f"@block needs a function, not {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadSignature("it is a generator (it has `yield`); return a value, or use ctx.heartbeat")
    if len(name) > 128 or not _NAME.fullmatch(name):
        raise BadSignature(
            "the name must be letters and digits, joined by `-`, `_` or `.`, at most 128, with or without a package"
            " and `/` before it"
        )
    if not is_version(version):
        raise BadSignature(f"version {version!r} is not like `1.0.0`")
    if run_on and not _ENTITY_TYPE.fullmatch(run_on):
        raise BadSignature(f"run_on {run_on!r} is no type of entities, like `device`, `interface`, `group` or `global`")
    if pivot and pure:
        raise BadSignature("it is pure and a pivot at once; what changes nothing is no point of no return")
    is_async = inspect.iscoroutinefunction(function)
    if isolation is None:
        # A sync block that changes things must be killable, and only a process is.
        isolation = "async" if is_async else "thread" if pure else "process"
    if isolation not in ISOLATIONS:
        raise BadSignature(f"isolation {isolation!r} is none of {', '.join(ISOLATIONS)}")
    if isolation == "async" and not is_async:
        raise BadSignature("isolation `async` needs an `async def`; a plain function would block the worker")
    if isolation == "thread" and is_async:
        raise BadSignature("isolation `thread` needs a plain `def`; `async def` runs as `async` or `process`")
    hints = hints_of(function, names)
    offer = BlockOffer(
        name=name,
        version=padded(version),
        description=inspect.cleandoc(description if description is not None else function.__doc__ or ""),
        pure=pure,
        idempotent=idempotent,
        timeout=0 if timeout is None else duration(timeout, "timeout"),
        retry=_retry(retry),
        isolation=isolation,
        parameters=(parameters := Parameters(function, hints)).schema,
        result=result_schema(hints.get("return", Any)),
        digest=_source_digest(function),
        run_on=run_on,
        is_pivot=pivot,
    )
    return Block(function, offer, parameters)


def _source(function: Callable[..., Any]) -> str:
    """Empty where there is none."""
    try:
        return "".join(inspect.getsourcelines(function)[0])
    except (OSError, TypeError):
        return ""


def _source_digest(function: Callable[..., Any]) -> str:
    """Which code this is, so that an edited block is not mistaken for the old one. Empty where no source is."""
    source = _source(function)
    return blake2b(source.encode(errors="replace"), digest_size=8).hexdigest() if source else ""


def duration(value: float | str, what: str) -> int:
    """Seconds, or text like `30s`, `5m`, `1h30m`, in µs."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadSignature(f"{what} must be seconds or text like `30s`, not {value!r}")
    if isinstance(value, str):
        text = value.strip()
        if not _DURATION.fullmatch(text):
            raise BadSignature(f"{what} {value!r} is no duration; write `500ms`, `30s`, `5m`, `2h` or `1d`")
        return round(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    if not 0 <= value < 1e10:
        raise BadSignature(f"{what} must not be negative, infinite or absurdly long, got {value!r}")
    return round(value * 1_000_000)


def _retry(given: Retry | int | Mapping[str, Any] | None) -> Retry:
    if given is None:
        return Retry()
    if isinstance(given, int) and not isinstance(given, bool):
        retry = Retry(attempts=given)
    elif isinstance(given, Retry):
        retry = given
    elif isinstance(given, Mapping):
        values = {str(key).replace("-", "_"): value for key, value in given.items()}
        if unknown := sorted(values.keys() - set(_RETRY_KEYS)):
            raise BadSignature(f"retry has no `{unknown[0]}`; it takes {', '.join(_RETRY_KEYS)}")
        for key in ("delay", "max_delay"):
            if key in values:
                values[key] = duration(values[key], f"retry {key}")
        if "delay" in values:
            values.setdefault("max_delay", max(values["delay"], Retry().max_delay))
        try:
            retry = msgspec.convert([values.get(key, getattr(Retry(), key)) for key in _RETRY_KEYS], Retry)
        except msgspec.ValidationError as error:
            raise BadSignature(f"retry cannot be read: {error}") from None
    else:
        raise BadSignature(f"retry must be a Retry, a number of attempts or a map, not {given!r}")
    if retry.attempts < 1 or retry.delay < 0 or retry.factor < 1 or not 0 <= retry.jitter <= 1:
        raise BadSignature("retry needs attempts of at least 1, factor of at least 1 and jitter from 0 to 1")
    return retry


def _place(function: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)


def _bad(function: Callable[..., Any], message: str) -> BadBlock:
    file, line = _place(function.function if isinstance(function, Block) else function)
    problem = Problem(code=BadBlock.code, message=message, file=file, line=line)
    return BadBlock(f"{message} ({file}:{line})" if file else message, (problem,))
