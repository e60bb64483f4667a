"""Which version a reference stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import versions
from holdfast.core.model import BlockOffer, JobSpec


def offers(*listed: str) -> list[BlockOffer]:
    return [BlockOffer("ping", version) for version in listed]


@pytest.mark.parametrize(
    ("reference", "chosen"),
    [
        ("ping", "2.0.0"),
        ("ping:1", "1.10.0"),
        ("ping:1.9", "1.9.3"),
        ("ping:1.9.3", "1.9.3"),
        ("ping:1.9.1", "1.9.1"),
        ("ping:2.1.0-rc.2", "2.1.0-rc.2"),
        ("ping:2.1", None),
        ("ping:3", None),
        ("ping:1.10.1", None),
        ("ping:0", "0.3.0"),
    ],
)
def test_the_newest_that_fits_by_numbers(reference: str, chosen: str | None) -> None:
    known = offers("1.10.0", "2.0.0", "1.9.3", "1.9.1", "0.3", "2.1.0-rc.2", "2.1.0-rc.10")
    found = versions.choose(reference, known)
    assert (found.version if found else None) == chosen


def test_of_one_version_the_offer_that_came_last() -> None:
    known = [BlockOffer("ping", "1", digest="old"), BlockOffer("ping", "1.0.0", digest="new")]
    found = versions.choose("ping", known)
    assert found is not None
    assert (found.version, found.digest) == ("1.0.0", "new")
    found = versions.choose("ping:1.0.0", known[:1])
    assert found is not None
    assert found.version == "1.0.0"


def test_what_is_no_version_counts_only_where_nothing_else_is_there() -> None:
    strange = offers("nightly")
    assert versions.choose("ping", strange) is not None
    assert versions.choose("ping:nightly", strange) is not None
    assert versions.choose("ping:1", strange) is None
    found = versions.choose("ping", [*strange, *offers("0.0.1")])
    assert found is not None
    assert found.version == "0.0.1"


def test_a_block_without_a_release_says_so() -> None:
    known = offers("1.0.0-rc.1", "1.0.0-rc.2")
    assert versions.choose("ping", known) is None
    problem = versions.missing("ping", known)
    assert problem.code == "HF0771"
    assert "no released version; there is 1.0.0-rc.2, 1.0.0-rc.1" in problem.message
    assert "`ping:1.0.0-rc.2`" in problem.help


def test_what_there_is_is_listed() -> None:
    problem = versions.missing("ping:3", offers(*(f"1.{minor}.0" for minor in range(12))))
    assert "has no version 3; there is 1.11.0, 1.10.0, 1.9.0" in problem.message
    assert problem.message.endswith("and 4 more")
    assert versions.missing("ping:3", []).code == "HF0211"


def test_a_job_waits_for_one_version() -> None:
    assert versions.place_of(JobSpec("a/ping", "1")) == "a/ping:1.0.0"
    assert versions.place_of(JobSpec("ping")) == "ping"


@given(st.lists(st.tuples(*[st.integers(0, 30)] * 3), min_size=1, max_size=8))
def test_order_is_that_of_the_numbers(numbers: list[tuple[int, int, int]]) -> None:
    texts = [".".join(map(str, each)) for each in numbers]
    assert sorted(texts, key=versions.order) == [".".join(map(str, each)) for each in sorted(numbers)]
    found = versions.choose("ping", offers(*texts))
    assert found is not None
    assert found.version == ".".join(map(str, max(numbers)))


@given(st.text(max_size=12), st.text(max_size=12))
def test_no_text_makes_it_fail(one: str, other: str) -> None:
    versions.fits(one, other)
    assert versions.padded(versions.padded(one)) == versions.padded(one)
    assert sorted([one, other], key=versions.order)
