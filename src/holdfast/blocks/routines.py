"""One function of a block: its run, or a hook. What it takes of a job, and where it runs.

A hook takes what the run was given, any part of it, by the same names; `verify` and `rollback` may also take `result`,
what the run returned. It must not know how a block is offered, nor who runs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from .context import Context
from .parameters import BadSignature, InvalidInput, Parameters, hints_of

F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    """Gives back what it is given."""

    def __call__(self, function: F, /) -> F: ...


RUN, ACQUIRE, VERIFY, ROLLBACK = "EXECUTE", "ACQUIRE", "VERIFY", "ROLLBACK"
#: hooks that change nothing outside
_LOOKING = (ACQUIRE, VERIFY)
_RESULT = "result"


class Routine:
    """`kind` is that of the jobs it is for."""

    __slots__ = ("context_name", "function", "is_async", "isolation", "kind")

    def __init__(self, kind: str, function: Callable[..., Any], isolation: str, context_name: str) -> None:
        self.kind = kind
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.isolation = isolation
        #: parameter that takes the context; empty if none does
        self.context_name = context_name

    def arguments(self, given: Any, result: Any) -> dict[str, Any]:
        """The keyword arguments for one call but for the context; raises InvalidInput."""
        raise NotImplementedError


class Run(Routine):
    __slots__ = ("_parameters",)

    def __init__(self, function: Callable[..., Any], isolation: str, parameters: Parameters) -> None:
        super().__init__(RUN, function, isolation, parameters.context_name)
        self._parameters = parameters

    def arguments(self, given: Any, result: Any) -> dict[str, Any]:
        return self._parameters.convert(given)


class Hook(Routine):
    __slots__ = ("_names", "_parameters", "_result_type", "_takes_rest", "_takes_result")

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        isolation: str,
        parameters: Parameters,
        names: Mapping[str, Any],
    ) -> None:
        """`isolation` and `parameters` are those of the block's run."""
        if not inspect.isfunction(function):
            raise BadSignature(f"it must be a function, not {type(function).__name__}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadSignature("it is a generator (it has `yield`); return a value")
        self._parameters = parameters
        self._names: list[str] = []
        self._takes_rest = self._takes_result = False
        self._result_type: Any = Any
        context = self._read(kind, function, hints_of(function, names))
        super().__init__(kind, function, _isolation(kind, function, isolation), context)

    def _read(self, kind: str, function: Callable[..., Any], hints: Mapping[str, Any]) -> str:
        known, context = self._parameters.types, ""
        for parameter in inspect.signature(function).parameters.values():
            name, hint = parameter.name, hints.get(parameter.name, Any)
            is_bare = parameter.annotation is parameter.empty
            is_context = hint is Context or hint == (Context | None)
            if parameter.kind is parameter.VAR_KEYWORD:
                # All that was given, whatever of it has a name of its own here.
                self._takes_rest = True
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise BadSignature(f"parameter `{name}` cannot be given by name; remove the `*` or the `/`")
            elif is_context or (is_bare and name in ("ctx", self._parameters.context_name) and name not in known):
                if context:
                    raise BadSignature(f"both `{context}` and `{name}` take the context")
                context = name
            elif name in known:
                if not is_bare and hint != known[name]:
                    raise BadSignature(f"parameter `{name}` has another type than in the run; leave the type out")
                self._names.append(name)
            elif name == _RESULT and kind != ACQUIRE:
                self._takes_result, self._result_type = True, hint
            elif self._parameters.takes_rest and parameter.default is not parameter.empty:
                self._names.append(name)
            else:
                takes = ", ".join(f"`{each}`" for each in [*known, *(() if kind == ACQUIRE else (_RESULT,))])
                raise BadSignature(f"the run has no parameter `{name}`; take any of {takes or 'none'}, and the context")
        return context

    def arguments(self, given: Any, result: Any) -> dict[str, Any]:
        whole = self._parameters.convert(given)
        if self._takes_rest:
            taken = whole
        else:
            taken = {name: whole[name] for name in self._names if name in whole}
        for name in self._names:
            if name not in taken and name in self._parameters.defaults:
                # Its own default might be another one than the run had.
                taken[name] = self._parameters.defaults[name]
        if self._takes_result:
            taken[_RESULT] = self._result(result)
        return taken

    def _result(self, result: Any) -> Any:
        # Nothing is known of it where the attempt was lost: whatever type is asked for, that is said.
        if result is None or self._result_type is Any:
            return result
        try:
            return msgspec.convert(result, self._result_type, strict=True)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"`result`: {error}") from None


def _isolation(kind: str, function: Callable[..., Any], isolation: str) -> str:
    """As the run, where that is possible. What may block needs a thread, and what changes things must be killable."""
    if isolation == "process":
        return isolation
    if inspect.iscoroutinefunction(function):
        return "async"
    return "thread" if isolation == "thread" or kind in _LOOKING else "process"
