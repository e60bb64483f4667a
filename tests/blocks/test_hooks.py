"""Hooks of a block: what they may take, what is refused where they stand, and what the offer says of them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.blocks import Applied, Block, Context, Registry, block
from holdfast.blocks.parameters import InvalidInput
from holdfast.core.errors import BadBlock


def made(**options: Any) -> Block[..., Any]:
    @block(name="upgrade", **options)
    async def upgrade(image: str, ctx: Context, reboot: bool = True, delay=3) -> dict[str, str]:  # type: ignore[no-untyped-def]
        return {}

    return upgrade


def test_the_offer_says_which_hooks_there_are() -> None:
    upgrade = made(run_on="device", version="2")
    plain = upgrade.offer
    assert (plain.run_on, plain.version, plain.has_verify, plain.has_rollback) == ("device", "2.0.0", False, False)

    @upgrade.acquire
    async def acquire(image: str) -> list[str]:
        return []

    @upgrade.verify
    async def verify(image: str, result: Any, ctx: Context) -> Applied:
        return Applied()

    @upgrade.rollback(accepts_unknown=True)
    async def rollback(ctx: Context) -> None: ...

    offer = upgrade.offer
    assert (offer.has_acquire, offer.has_verify, offer.has_rollback, offer.accepts_unknown) == (True,) * 4
    assert not offer.is_pivot
    assert offer.digest
    assert offer.digest != plain.digest


def test_a_hook_stays_the_function_it_is() -> None:
    upgrade = made()

    @upgrade.verify
    def verify(image: str) -> bool:
        return image == "v2"

    assert verify("v2") is True


def test_an_edited_hook_is_other_code() -> None:
    def digest(says: bool) -> str:
        upgrade = made()
        if says:

            @upgrade.verify
            async def verify() -> bool:
                return True
        else:

            @upgrade.verify
            async def verify() -> bool:
                return False

        return upgrade.offer.digest

    assert digest(True) == digest(True)
    assert digest(True) != digest(False)


def test_a_hook_takes_any_part_of_what_the_run_takes() -> None:
    upgrade = made()

    @upgrade.rollback
    async def rollback(delay, image, result, ctx) -> None: ...  # type: ignore[no-untyped-def]

    @upgrade.verify
    async def verify(**given: Any) -> None: ...

    hook = upgrade.routines["ROLLBACK"]
    assert hook.context_name == "ctx"
    assert hook.arguments({"image": "v2"}, {"was": "v1"}) == {"image": "v2", "delay": 3, "result": {"was": "v1"}}
    assert hook.arguments({"image": "v2", "delay": 7}, None) == {"image": "v2", "delay": 7, "result": None}
    assert upgrade.routines["VERIFY"].arguments({"image": "v2"}, None)["image"] == "v2"
    with pytest.raises(InvalidInput, match="`image` is missing"):
        hook.arguments({}, None)


def test_a_result_is_converted_to_what_the_hook_says_it_is() -> None:
    upgrade = made()

    @upgrade.rollback
    async def rollback(result: dict[str, int]) -> None: ...

    hook = upgrade.routines["ROLLBACK"]
    assert hook.arguments({"image": "a"}, {"n": 1}) == {"result": {"n": 1}}
    assert hook.arguments({"image": "a"}, None) == {"result": None}
    with pytest.raises(InvalidInput, match="`result`"):
        hook.arguments({"image": "a"}, {"n": "one"})


def test_a_hook_runs_where_its_block_does_as_far_as_that_is_possible() -> None:
    def isolations(**options: Any) -> list[str]:
        @block(**options)
        def run() -> None: ...

        @block(name="loop")
        async def loop() -> None: ...

        made_of = run if options else loop

        @made_of.acquire
        def acquire() -> None: ...

        @made_of.rollback
        async def rollback() -> None: ...

        return [made_of.routines[kind].isolation for kind in ("EXECUTE", "ACQUIRE", "ROLLBACK")]

    assert isolations(isolation="process") == ["process"] * 3
    assert isolations(isolation="thread") == ["thread", "thread", "async"]
    assert isolations() == ["async", "thread", "async"]


def test_a_rollback_that_blocks_is_killable() -> None:
    upgrade = made()

    @upgrade.rollback
    def rollback() -> None: ...

    assert upgrade.routines["ROLLBACK"].isolation == "process"
    with pytest.raises(BadBlock, match="cannot import it"):
        Registry([upgrade])


class Wrong:
    """Each method declares one thing that is refused at once."""

    def unknown_parameter(self) -> None:
        upgrade = made()

        @upgrade.verify
        async def verify(imgae: str) -> None: ...

    def another_type(self) -> None:
        upgrade = made()

        @upgrade.rollback
        async def rollback(image: int) -> None: ...

    def result_of_nothing(self) -> None:
        upgrade = made()

        @upgrade.acquire
        async def acquire(result: Any) -> None: ...

    def twice(self) -> None:
        upgrade = made()

        @upgrade.verify
        async def one() -> None: ...

        @upgrade.verify
        async def two() -> None: ...

    def pure(self) -> None:
        upgrade = made(pure=True)

        @upgrade.rollback
        async def rollback() -> None: ...

    def pivot(self) -> None:
        upgrade = made(pivot=True)

        @upgrade.rollback(accepts_unknown=True)
        async def rollback() -> None: ...

    def generator(self) -> None:
        upgrade = made()

        @upgrade.verify
        def verify() -> Any:
            yield 1

    def positional(self) -> None:
        upgrade = made()

        @upgrade.verify
        async def verify(image: str, /) -> None: ...

    def two_contexts(self) -> None:
        upgrade = made()

        @upgrade.verify
        async def verify(ctx: Context, other: Context) -> None: ...


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("unknown_parameter", "no parameter `imgae`; take any of `image`, `reboot`, `delay`, `result`"),
        ("another_type", "another type than in the run"),
        ("result_of_nothing", "no parameter `result`"),
        ("twice", "has one already"),
        ("pure", "is pure"),
        ("pivot", "is a pivot"),
        ("generator", "is a generator"),
        ("positional", "cannot be given by name"),
        ("two_contexts", "take the context"),
    ],
)
def test_wrong_hooks_are_refused_where_they_stand(case: str, said: str) -> None:
    with pytest.raises(BadBlock) as caught:
        getattr(Wrong(), case)()
    assert said in caught.value.message
    assert "hook `" in caught.value.message
    assert caught.value.problems[0].file == __file__
    assert caught.value.problems[0].line > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": "1.2.3.4"}, "is not like `1.0.0`"),
        ({"version": "01.2.3"}, "is not like `1.0.0`"),
        ({"version": "v1"}, "is not like `1.0.0`"),
        ({"run_on": "no type"}, "no type of entities"),
        ({"pure": True, "pivot": True}, "pure and a pivot"),
    ],
)
def test_wrong_declarations_are_refused(options: Any, said: str) -> None:
    with pytest.raises(BadBlock, match=said):
        made(**options)


def test_a_name_may_have_a_package() -> None:
    @block(name="fb.example.io/ping", version="1.2")
    async def ping() -> None: ...

    assert (ping.offer.name, ping.offer.version) == ("fb.example.io/ping", "1.2.0")
    for bad in ("a/b/c", "/ping", "ping/", "a:b"):
        with pytest.raises(BadBlock, match="the name must be"):
            block(name=bad)(ping.function)


def test_versions_of_a_block_stand_side_by_side() -> None:
    def ping(version: str) -> Block[..., Any]:
        if version == "1.9.0":

            @block(name="ping", version="1.9.0")
            async def one() -> None: ...

            return one

        @block(name="ping", version="1.10.0")
        async def other() -> None: ...

        return other

    old, new = ping("1.9.0"), ping("1.10.0")
    registry = Registry([new, old], built_in=False)
    assert registry.get("ping", "1.9.0") is old
    assert registry.get("ping") is new
    assert registry.get("ping", "1.11.0") is None
    assert [(offer.name, offer.version) for offer in registry.offers()] == [("ping", "1.10.0"), ("ping", "1.9.0")]
