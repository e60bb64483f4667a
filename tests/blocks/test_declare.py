"""What @block makes of a function, and what it refuses."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Annotated, Any

import msgspec
import pytest

from holdfast.blocks import Block, Context, Unchanged, block
from holdfast.blocks.parameters import InvalidInput
from holdfast.core.errors import BadBlock
from holdfast.core.model import Retry


@dataclasses.dataclass
class Interface:
    name: str
    mtu: int = 1500


@block
async def set_mtu(
    host: str,
    interfaces: list[Interface],
    ctx: Context,
    limit: Annotated[int, msgspec.Meta(ge=1)] = 5,
    since: datetime.datetime | None = None,
) -> dict[str, int] | Unchanged:
    """Set the MTU.

    On every interface.
    """
    return {i.name: i.mtu for i in interfaces}


def test_a_bare_decorator_takes_everything_from_the_function() -> None:
    assert isinstance(set_mtu, Block)
    offer = set_mtu.offer
    assert (offer.name, offer.version, offer.isolation) == ("set-mtu", "1.0.0", "async")
    assert offer.description == "Set the MTU.\n\nOn every interface."
    assert not offer.pure
    assert not offer.idempotent
    assert offer.parameters["required"] == ["host", "interfaces"]
    assert list(offer.parameters["properties"]) == ["host", "interfaces", "limit", "since"]
    assert offer.parameters["properties"]["limit"] == {"type": "integer", "minimum": 1, "default": 5}
    assert offer.parameters["additionalProperties"] is False
    assert offer.parameters["$defs"]["Interface"]["required"] == ["name"]
    assert offer.result == {"type": "object", "additionalProperties": {"type": "integer"}}
    msgspec.json.encode(offer)


def test_arguments_of_the_decorator_are_offered() -> None:
    @block(name="net.fetch", version="2.1.0", idempotent=True, timeout="1m30s", retry={"attempts": 4, "delay": "2s"})
    async def fetch() -> None: ...

    assert fetch.offer.name == "net.fetch"
    assert fetch.offer.version == "2.1.0"
    assert fetch.offer.idempotent
    assert fetch.offer.timeout == 90_000_000
    assert fetch.offer.retry == Retry(attempts=4, delay=2_000_000)


@pytest.mark.parametrize(
    ("given", "microseconds"), [(2, 2_000_000), (0.5, 500_000), ("500ms", 500_000), ("1h", 3_600_000_000)]
)
def test_a_timeout_is_seconds_or_text(given: float | str, microseconds: int) -> None:
    @block(timeout=given)
    async def wait() -> None: ...

    assert wait.offer.timeout == microseconds


def test_isolation_follows_from_the_kind_of_function() -> None:
    @block
    async def one() -> None: ...

    @block
    def two() -> None: ...

    @block(pure=True)
    def three() -> None: ...

    @block(isolation="thread")
    def four() -> None: ...

    assert [b.isolation for b in (one, two, three, four)] == ["async", "process", "thread", "thread"]


def test_a_block_can_be_called_as_the_function_it_is() -> None:
    @block(pure=True)
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(1) == 2
    assert add.function.__name__ == "add"
    with pytest.raises(AttributeError, match="cannot be changed"):
        add.name = "other"


def test_input_is_converted_to_the_declared_types() -> None:
    given = {"host": "r1", "interfaces": [{"name": "eth0"}], "since": "2026-01-02T03:04:05Z"}
    arguments = set_mtu.parameters.convert(given)
    assert arguments["interfaces"] == [Interface("eth0", 1500)]
    assert arguments["since"].year == 2026
    assert arguments["limit"] == 5
    assert "ctx" not in arguments


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({}, ["parameter `host` is missing", "parameter `interfaces` is missing"]),
        ({"host": 1, "interfaces": []}, ["parameter `host`: expected `str`, got `int`"]),
        (
            {"host": "a", "interfaces": [{"name": "x", "mtu": "big"}]},
            ["parameter `interfaces[0].mtu`: expected `int`, got `str`"],
        ),
        ({"host": "a", "interfaces": [], "limit": 0}, ["parameter `limit`: expected `int` >= 1"]),
        ({"hots": "a", "interfaces": []}, ["unknown parameter `hots`; did you mean `host`?", "`host` is missing"]),
        ({"host": "a", "interfaces": [], "zzz": 1}, ["it takes `host`, `interfaces`, `limit`, `since`"]),
        ({"host": "a", "interfaces": [], "ctx": 1}, ["unknown parameter `ctx`"]),
        ([1], ["must be a map of parameters, not a list"]),
        ("x", ["must be a map of parameters, not text"]),
    ],
)
def test_wrong_input_is_told_all_at_once(given: Any, problems: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        set_mtu.parameters.convert(given)
    for problem in problems:
        assert problem in str(caught.value)


def test_keys_may_be_kebab_case() -> None:
    @block
    async def save(max_size: int, dry_run: bool = False) -> None: ...

    assert save.parameters.convert({"max-size": 3, "dry-run": True}) == {"max_size": 3, "dry_run": True}


def test_untyped_parameters_are_passed_as_they_are() -> None:
    @block
    async def loose(a, b=2) -> None: ...  # type: ignore[no-untyped-def]

    given = {"a": object()}
    assert loose.parameters.convert(given) == given
    assert loose.parameters.convert(given) is not given
    with pytest.raises(InvalidInput, match="`a` is missing"):
        loose.parameters.convert(None)


def test_kwargs_accept_any_further_key() -> None:
    @block
    async def render(template: str, **values: int) -> None: ...

    assert render.offer.parameters["additionalProperties"] is True
    assert render.parameters.convert({"template": "t", "a-b": 1}) == {"template": "t", "a-b": 1}
    with pytest.raises(InvalidInput, match="parameter `x`: expected `int`, got `str`"):
        render.parameters.convert({"template": "t", "x": "y"})


class Socket:
    pass


def _bad(case: str) -> None:
    match case:
        case "name":
            block(name="no blanks")(_nothing)
        case "version":
            block(version="latest")(_nothing)
        case "timeout":
            block(timeout="soon")(_nothing)
        case "negative":
            block(timeout=-1)(_nothing)
        case "retry":
            block(retry={"tries": 3})(_nothing)
        case "attempts":
            block(retry=0)(_nothing)
        case "isolation":
            block(isolation="docker")(_nothing)  # type: ignore[call-overload]
        case "async":
            block(isolation="async")(_plain)
        case "thread":
            block(isolation="thread")(_nothing)
        case "star":

            @block
            async def star(*hosts: str) -> None: ...
        case "positional":

            @block
            async def positional(host: str, /) -> None: ...
        case "type":

            @block
            async def custom(connection: Socket) -> None: ...
        case "result":

            @block
            async def opened() -> Socket: ...
        case "contexts":

            @block
            async def twice(a: Context, b: Context) -> None: ...
        case "generator":

            @block
            def stream() -> Any:
                yield 1
        case "class":
            block(Socket)
        case "again":
            block(set_mtu)
        case "hint":

            @block
            async def unresolved(a: NoSuchThing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def _nothing() -> None: ...


def _plain() -> None: ...


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("name", "the name must be letters and digits"),
        ("version", "not like `1.0.0`"),
        ("timeout", "timeout 'soon' is no duration"),
        ("negative", "must not be negative"),
        ("retry", "retry has no `tries`; it takes attempts"),
        ("attempts", "attempts of at least 1"),
        ("isolation", "'docker' is none of async, thread, process"),
        ("async", "needs an `async def`"),
        ("thread", "needs a plain `def`"),
        ("star", r"`\*hosts` cannot be given by name"),
        ("positional", "positional-only"),
        ("type", "parameter `connection` has a type JSON cannot hold.*Socket"),
        ("result", "the result has a type that cannot be sent.*Socket"),
        ("contexts", "both `a` and `b` are annotated with Context"),
        ("generator", "it is a generator"),
        ("class", "needs a function, not type"),
        ("again", "is a block already"),
        ("hint", "type hints cannot be resolved.*NoSuchThing"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_where_it_stands(case: str, said: str) -> None:
    with pytest.raises(BadBlock, match=said) as caught:
        _bad(case)
    assert caught.value.code == "HF0806"
    if case != "class":
        assert "test_declare.py:" in str(caught.value)
