"""What may be forgotten: the cut in a group, when it moves, and what is never forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import pack
from holdfast.core.errors import BadConfiguration
from holdfast.core.model import Status
from holdfast.core.retention import Count, Forever, Max, Rule, Span, keep
from holdfast.core.views import Summary
from holdfast.engine.retention import ALL, NONE, cut, expiry, is_forgettable, keeping, rule_of
from holdfast.store.keeping import Place
from tests.core.test_retention import rules
from tests.store.rows import an_id, header

DAY = 86400 * 1_000_000


class Members:
    """A group in memory, newest first."""

    def __init__(self, ended: list[int]) -> None:
        self.places: list[Place] = sorted(((at, n.to_bytes(2, "big")) for n, at in enumerate(ended)), reverse=True)

    def nth(self, number: int) -> Place | None:
        return self.places[number - 1] if number <= len(self.places) else None


times = st.lists(st.integers(900, 1_000), max_size=10)


@given(rules(words=False), times)
def test_what_lies_before_the_cut_is_what_the_rule_does_not_keep(rule: Rule, ended: list[int]) -> None:
    members = Members(ended)
    found = cut(rule, 1_000, members.nth)
    assert NONE <= found <= ALL
    assert [place >= found for place in members.places] == keep(rule, [at for at, _ in members.places], 1_000)


@given(rules(words=False), times)
def test_nothing_more_may_go_before_the_expiry_and_something_may_then(rule: Rule, ended: list[int]) -> None:
    members = Members(ended)
    ends = [at for at, _ in members.places]
    kept = [place for place in members.places if place >= cut(rule, 1_000, members.nth)]
    if not kept:
        return
    at = expiry(rule, 1_000, kept[-1], members.nth)
    count = keep(rule, ends, 1_000).count(True)
    if at is None:
        assert keep(rule, ends, 1 << 61).count(True) == count, "time alone changes nothing"
    else:
        assert at > 1_000
        assert keep(rule, ends, at - 1).count(True) == count
        assert keep(rule, ends, at).count(True) < count


# --- what is never forgotten ----------------------------------------------------------------------------
@pytest.mark.parametrize("status", list(Status))
def test_only_what_has_ended_and_is_safe_or_acknowledged_may_go(status: Status) -> None:
    summary = pack(Summary())
    is_free = status.is_ended and status is not Status.FAILED_UNSAFE
    assert is_forgettable(header(an_id(1), status=status, summary=summary)) is is_free


def test_a_cancelled_one_that_left_something_behind_stays_until_it_is_acknowledged() -> None:
    left = pack(Summary(residue=(3,)))
    assert not is_forgettable(header(an_id(1), status=Status.CANCELLED, summary=left))
    assert is_forgettable(header(an_id(1), status=Status.CANCELLED, summary=pack(Summary())))
    assert is_forgettable(header(an_id(1), status=Status.CANCELLED_ACK, summary=left))
    assert not is_forgettable(header(an_id(1), status=Status.CANCELLED, summary=b"\xc1")), "nobody can tell"


def test_a_completed_one_with_failures_in_doubt_stays_until_it_is_acknowledged() -> None:
    doubts = pack(Summary(doubts=1))
    assert not is_forgettable(header(an_id(1), status=Status.COMPLETED, summary=doubts))
    assert is_forgettable(header(an_id(1), status=Status.COMPLETED_ACK, summary=doubts))


# --- what the system says -------------------------------------------------------------------------------
def test_the_default_is_thirty_days_and_at_least_three() -> None:
    assert set(_rules(keeping().system)) == {Span(30 * DAY), Count(3)}
    assert keeping("7d").system == Span(7 * DAY)


def _rules(rule: Rule) -> tuple[Rule, ...]:
    assert isinstance(rule, Max)
    return rule.rules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("30 dyas", "did you mean"),
        ("system", "stand for this very setting"),
        ("max(context, 3)", "stand for this very setting"),
        ("parent", "stand for this very setting"),
        ("disabled", "`disabled` is for a workflow to say"),
        ("3 hash x", "`hash` is for a workflow to say"),
        ("", ""),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_with_a_code(text: str, said: str) -> None:
    if not text:
        assert keeping(text) == keeping("max(30d, 3)")
        return
    with pytest.raises(BadConfiguration) as caught:
        keeping(text)
    assert caught.value.code == "HF0804"
    assert said in caught.value.message
    assert "workflow.retention.default" in caught.value.message


def test_a_rule_resolves_system_when_it_is_asked_for() -> None:
    assert rule_of("", Count(7)) == Count(7)
    assert rule_of("system", Count(7)) == Count(7)
    assert rule_of("min(5, system)", Count(7)) == Count(5)
    assert rule_of("2", Count(7)) == Count(2)
    assert rule_of("of the future", Count(7)) == Forever(), "what cannot be read is no reason to forget anything"
