"""From a function's signature to JSON Schemas and to converters of one job's input and result.

Everything that can be known at declaration is worked out there, so that a job pays one dictionary look-up
and, only where parameters have types, one msgspec conversion. It must not know who runs the function.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .context import Context
from .results import Unchanged

_PLAIN = (type(None), bool, int, float, str)
_AT = re.compile(r" - at `\$\.?(?P<path>.*)`$")


class BadSignature(Exception):
    """A signature that cannot be offered; `declare` turns it into BadBlock with the block's name."""


class InvalidInput(Exception):
    """The input does not fit the parameters; the message lists everything that is wrong."""


class Parameters:
    """The parameters of one block: schema, conversion, and which one takes the context."""

    __slots__ = (
        "_is_empty",
        "_names",
        "_required",
        "_struct",
        "context_name",
        "defaults",
        "rest_type",
        "schema",
        "takes_rest",
        "types",
    )

    def __init__(self, function: Callable[..., Any], hints: Mapping[str, Any]) -> None:
        self.context_name = ""
        self.takes_rest = False
        self.rest_type: Any = Any
        #: what a parameter is where nothing was given for it
        self.defaults: dict[str, Any] = {}
        fields: list[tuple[str, Any, Any]] = []
        required: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            name, hint = parameter.name, hints.get(parameter.name, Any)
            if hint is Context or hint == (Context | None):
                if self.context_name:
                    raise BadSignature(f"both `{self.context_name}` and `{name}` are annotated with Context")
                if parameter.kind is parameter.POSITIONAL_ONLY:
                    raise BadSignature(f"parameter `{name}` is positional-only; remove the `/`")
                self.context_name = name
            elif parameter.kind is parameter.VAR_KEYWORD:
                self.takes_rest, self.rest_type = True, hint
            elif parameter.kind is parameter.VAR_POSITIONAL:
                raise BadSignature(f"`*{name}` cannot be given by name; use a list parameter or **kwargs")
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                raise BadSignature(f"parameter `{name}` is positional-only; remove the `/`")
            else:
                if parameter.default is parameter.empty:
                    required.append(name)
                else:
                    self.defaults[name] = parameter.default
                fields.append((name, hint, _field(parameter.default)))
        self.types = {name: hint for name, hint, _ in fields}
        self._names = frozenset(self.types)
        self._required = frozenset(required)
        self._is_empty = not fields and not self.takes_rest
        self.schema = _object_schema(fields, self.takes_rest, self.rest_type)
        typed = any(hint is not Any for hint in self.types.values())
        # Without types there is nothing to convert: the input's own dictionary becomes the arguments.
        self._struct = msgspec.defstruct("Parameters", _ordered(fields)) if typed else None

    def convert(self, given: Any) -> dict[str, Any]:
        """The keyword arguments for one call; raises InvalidInput."""
        if not given:
            if self._is_empty and (given is None or given == {}):
                return {}
            if given is None:
                given = {}
        if type(given) is not dict:
            raise InvalidInput(f"the input must be a map of parameters, not {_kind(given)}")
        if not (given.keys() <= self._names):
            given = self._renamed(given)
        if not (self._required <= given.keys()):
            raise InvalidInput("; ".join(self._problems(given)))
        if self._struct is None:
            if self.rest_type is not Any:
                return {**given, **self._rest(given)}
            # A copy: the parcel's own input must stay what was sent, whatever the block does to kwargs.
            return dict(given)
        try:
            converted = msgspec.convert(given, self._struct, strict=True)
        except msgspec.ValidationError:
            raise InvalidInput("; ".join(self._problems(given))) from None
        arguments = msgspec.structs.asdict(converted)
        if self.takes_rest:
            arguments.update(self._rest(given))
        return arguments

    def _renamed(self, given: dict[Any, Any]) -> dict[str, Any]:
        """Keys are kebab-case in documents and identifiers in Python; anything else must be wanted."""
        renamed: dict[str, Any] = {}
        problems: list[str] = []
        for key, value in given.items():
            if not isinstance(key, str):
                problems.append(f"parameter names must be text, not {key!r}")
                continue
            name = key if key in self._names else key.replace("-", "_")
            if name in self._names and name not in renamed and (name == key or name not in given):
                renamed[name] = value
            elif self.takes_rest and key != self.context_name:
                renamed[key] = value
            else:
                problems.append(f"unknown parameter `{key}`{self._meant(key)}")
        if problems:
            known = {key: value for key, value in renamed.items() if key in self._names}
            raise InvalidInput("; ".join(problems + self._problems(known)))
        return renamed

    def _rest(self, given: dict[str, Any]) -> dict[str, Any]:
        rest = {key: value for key, value in given.items() if key not in self._names}
        if self.rest_type is Any:
            return rest
        problems: list[str] = []
        for key, value in rest.items():
            try:
                rest[key] = msgspec.convert(value, self.rest_type, strict=True)
            except msgspec.ValidationError as error:
                problems.append(_located(key, str(error)))
        if problems:
            raise InvalidInput("; ".join(problems))
        return rest

    def _problems(self, given: dict[str, Any]) -> list[str]:
        """All that is wrong, one parameter after the other. Only taken once something is."""
        problems: list[str] = []
        for name, hint in self.types.items():
            if name not in given:
                if name in self._required:
                    problems.append(f"parameter `{name}` is missing")
                continue
            try:
                msgspec.convert(given[name], hint, strict=True)
            except msgspec.ValidationError as error:
                problems.append(_located(name, str(error)))
        return problems

    def _meant(self, key: str) -> str:
        import difflib  # only when something is misspelt

        near = difflib.get_close_matches(key.replace("-", "_"), self._names, n=1)
        if near:
            return f"; did you mean `{near[0]}`?"
        return f"; it takes {', '.join(f'`{name}`' for name in self.types) or 'none'}"


def result_schema(hint: Any) -> dict[str, Any]:
    """JSON Schema of a result. What msgspec cannot say is left open: it is the value that counts."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        left = tuple(part for part in typing.get_args(hint) if part is not Unchanged)
        hint = typing.Union[left] if left else Any  # noqa: UP007  (built from a tuple)
    if hint is Unchanged or hint is typing.NoReturn:
        hint = Any
    try:
        return msgspec.json.schema(hint)
    except TypeError as error:
        if isinstance(hint, type):
            raise BadSignature(f"the result has a type that cannot be sent: {_first_cause(error)}") from None
        return {}


def hints_of(function: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """Resolved type hints; `names` are the locals around a function that was not declared at module level."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError:
        try:
            return typing.get_type_hints(function, localns=dict(names), include_extras=True)
        except Exception as error:
            raise BadSignature(f"its type hints cannot be resolved: {error}") from None
    except Exception as error:
        raise BadSignature(f"its type hints cannot be resolved: {error}") from None


def _field(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    # Other defaults stay out of the schema: they may be mutable, or not be JSON at all.
    if type(default) in _PLAIN:
        return msgspec.field(default=default)
    return msgspec.field(default_factory=lambda: default)


def _ordered(fields: list[tuple[str, Any, Any]]) -> list[Any]:
    """msgspec wants required fields first, Python allows keyword-only ones in any order."""
    needed = [(name, hint) for name, hint, default in fields if default is msgspec.NODEFAULT]
    return needed + [field for field in fields if field[2] is not msgspec.NODEFAULT]


def _object_schema(fields: list[tuple[str, Any, Any]], takes_rest: bool, rest: Any) -> dict[str, Any]:
    for name, hint, _ in [*fields, ("**", rest, None)]:
        try:
            msgspec.json.schema(hint)
        except TypeError as error:
            where = f"parameter `{name}`" if name != "**" else "the **kwargs parameter"
            raise BadSignature(f"{where} has a type JSON cannot hold: {_first_cause(error)}") from None
    full = msgspec.json.schema(msgspec.defstruct("Parameters", _ordered(fields)))
    definitions = full["$defs"]
    schema: dict[str, Any] = definitions.pop(full["$ref"].rpartition("/")[2])
    del schema["title"]
    order = {name: index for index, (name, _, _) in enumerate(fields)}
    schema["properties"] = dict(sorted(schema["properties"].items(), key=lambda item: order[item[0]]))
    if not schema["required"]:
        del schema["required"]
    schema["additionalProperties"] = takes_rest
    if definitions:
        schema["$defs"] = definitions
    return schema


def _first_cause(error: TypeError) -> str:
    """msgspec puts the sentence that names the type last."""
    return str(error).strip().splitlines()[-1]


def _located(name: str, text: str) -> str:
    match = _AT.search(text)
    path = match["path"] if match else ""
    text = text[: match.start()] if match else text
    dot = "" if not path or path.startswith("[") else "."
    return f"parameter `{name}{dot}{path}`: {text[:1].lower()}{text[1:]}"


def _kind(value: Any) -> str:
    names = {str: "text", bool: "a truth value", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), type(value).__name__)
