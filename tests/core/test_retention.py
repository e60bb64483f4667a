"""Retention: its grammar, what words stand for, and which ended executions it keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.durations import MAX_DURATION, micros, spell
from holdfast.core.retention import (
    BadRetention,
    Count,
    Forever,
    Max,
    Min,
    Retention,
    Rule,
    Span,
    Word,
    keep,
    parse_retention,
    reach,
    resolve,
    settle,
)

SECOND = 1_000_000
HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", Retention(Count(3))),
        ("0", Retention(Count(0))),
        ("24h", Retention(Span(24 * HOUR))),
        ("1h30m", Retention(Span(HOUR * 3 // 2))),
        (" 1h 30m ", Retention(Span(HOUR * 3 // 2))),
        ("forever", Retention(Forever())),
        ("Forever", Retention(Forever())),
        ("all", Retention(Forever())),
        ("unlimited", Retention(Forever())),
        ("parent", Retention(Word("parent"))),
        ("disabled", Retention(Count(0), is_disabled=True)),
        ("disabled hash x", Retention(Count(0), "x", True)),
        ("max(24h,5)", Retention(Max((Span(24 * HOUR), Count(5))))),
        ("any(2, 24h)", Retention(Max((Count(2), Span(24 * HOUR))))),
        ("MAX(context,6h)", Retention(Max((Word("context"), Span(6 * HOUR))))),
        ("min(2, max(parent, 1h), system)", Retention(
            Min((Count(2), Max((Word("parent"), Span(HOUR))), Word("system"))))),
        ("2 hash start-stop", Retention(Count(2), "start-stop")),
        ("hash start-stop 2", Retention(Count(2), "start-stop")),
        ("hash ${a + b}-X 2", Retention(Count(2), "${a + b}-X")),
        ("forever hash ${workflow.name} Failed", Retention(Forever(), "${workflow.name} Failed")),
        ("hash only", Retention(Word("context"), "only")),
    ],
)  # fmt: skip
def test_the_grammar(text: str, expected: Retention) -> None:
    assert parse_retention(text) == expected


@pytest.mark.parametrize(
    ("text", "message", "place", "help"),
    [
        ("", "the retention is empty", "", "write `30d`"),
        ("  ", "the retention is empty", " ", "write `30d`"),
        ("forevr", "`forevr` is not a retention", "forevr", "did you mean `forever`?"),
        ("3 days", "unexpected `days` after the rule", "days", "did you mean `3d`?"),
        ("3days", "`3days` is not a retention", "3days", "did you mean `3d`?"),
        ("2w", "`2w` is not a retention", "2w", "write `14d`"),
        ("3 24h", "unexpected `24h` after the rule", "24h", "join rules with `max"),
        ("max(3, 24h) xyz", "unexpected `xyz` after the rule", "xyz", "join rules"),
        ("3)", "unexpected `)` after the rule", ")", ""),
        ("max 3", "`(` is missing after `max`", "3", "write `max(3, 30d)`"),
        ("max(3, 24h", "`(` is never closed", "(", ""),
        ("max(3, )", "a rule is missing", ")", "a rule is"),
        ("max()", "a rule is missing", ")", "a rule is"),
        ("max(3 24h)", "`,` or `)` expected, found `24h`", "24h", ""),
        ("max(3, disabled)", "`disabled` stands alone", "disabled", ""),
        ("hard 3", "there is no `hard` retention", "hard", "leave the word out"),
        ("3 hard", "`hard` cannot follow a rule", "hard", "leave it out"),
        ("3 disabled", "`disabled` cannot follow a rule", "disabled", "keep one"),
        ("-3", "a rule cannot be negative", "-3", "`0`"),
        ("3.5", "`3.5` is not a retention", "3.5", ""),
        ("hash a 3 hash b", "`hash` occurs twice", "hash", ""),
        ("3 hash ", "a name is missing after `hash`", "hash", ""),
        ("hash", "a name is missing after `hash`", "hash", ""),
        ("200000d", "`200000d` is longer than 100 years", "200000d", "forever"),
        ("9999999999999", "the number is too large", "9999999999999", "forever"),
        ("min(" * 30 + "3" + ")" * 30, "rules may be nested 20 levels deep", "min", ""),
        ("3 hash " + "x" * 1000, "the retention is longer than 1,000 characters", "3", ""),
        ("(3)", "parentheses need a name", "(", "write `min(…)`"),
    ],
)  # fmt: skip
def test_what_is_no_retention(text: str, message: str, place: str, help: str) -> None:
    with pytest.raises(BadRetention) as caught:
        parse_retention(text)
    assert caught.value.message.startswith(message)
    assert text[caught.value.start : caught.value.end] == place
    assert help in caught.value.help


@pytest.mark.parametrize(
    ("text", "context", "parent", "system", "expected"),
    [
        ("max(context, 10s)", "1", None, "max(30d, 3)", "max(1, 10s)"),
        ("context", None, None, "max(30d, 3)", "max(3, 30d)"),
        ("context", None, "7", "3", "7"),
        ("parent", "9", None, "3", "3"),
        ("parent", "9", "7", "3", "7"),
        ("system", "9", "7", "3", "3"),
        ("max(context, 10s)", "max(1, 10s)", None, "3", "max(1, 10s)"),
        ("min(max(context, 5), 1h)", "min(max(9, 5), 1h)", None, "3", "min(9, 1h)"),
        ("min(2, 3, 1h, 2h)", None, None, "3", "min(2, 1h)"),
        ("max(2, 3, 1h, 2h)", None, None, "3", "max(3, 2h)"),
        ("max(3, forever)", None, None, "3", "forever"),
        ("min(3, forever)", None, None, "3", "3"),
        ("min(3, 0)", None, None, "3", "0"),
        ("0s", None, None, "3", "0"),
        ("max(min(10, 1h), 3, 1m)", None, None, "3", "max(3, min(10, 1h), 1m)"),
    ],
)
def test_words_are_expanded_at_once(
    text: str, context: str | None, parent: str | None, system: str, expected: str
) -> None:
    def read(given: str | None) -> Rule | None:
        return None if given is None else parse_retention(given).expr

    default = parse_retention(system).expr
    assert str(resolve(parse_retention(text).expr, read(context), read(parent), default)) == expected


def test_a_system_rule_cannot_refer_to_itself() -> None:
    with pytest.raises(ValueError, match="refers to itself"):
        resolve(Word("system"), None, None, Max((Count(1), Word("context"))))


def test_words_are_not_kept_by() -> None:
    with pytest.raises(ValueError, match="resolved first"):
        keep(Word("parent"), [1], 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "....."),
        ("2", "kk..."),
        ("forever", "kkkkk"),
        ("30s", "kk..."),
        ("31s", "kkk.."),
        ("0s", "....."),
        ("min(2, 11s)", "k...."),
        ("max(1, 31s)", "kkk.."),
        ("max(4, 31s)", "kkkk."),
        ("min(max(1, 25s), 5)", "kk..."),
    ],
)
def test_what_is_kept(text: str, expected: str) -> None:
    ended = [100 * SECOND - age * SECOND for age in (10, 20, 30, 40, 50)]
    kept = keep(parse_retention(text).expr, ended, 100 * SECOND)
    assert "".join("k" if kept_one else "." for kept_one in kept) == expected


def rules(words: bool) -> st.SearchStrategy[Rule]:
    leaf: st.SearchStrategy[Rule] = (
        st.builds(Count, st.integers(0, 6)) | st.builds(Span, st.integers(0, 60)) | st.builds(Forever)
    )
    if words:
        leaf |= st.builds(Word, st.sampled_from(["context", "parent", "system"]))
    return st.recursive(
        leaf,
        lambda inner: (
            st.builds(Min, st.lists(inner, min_size=1, max_size=3).map(tuple))
            | st.builds(Max, st.lists(inner, min_size=1, max_size=3).map(tuple))
        ),
        max_leaves=8,
    )


def plainly(rule: Rule, place: int, age: int) -> bool:
    match rule:
        case Count(number=number):
            return place < number
        case Span(micros=length):
            return length > 0 and age < length
        case Forever():
            return True
        case Min(rules=inner):
            return all(plainly(one, place, age) for one in inner)
        case Max(rules=inner):
            return any(plainly(one, place, age) for one in inner)
        case Word():
            raise AssertionError


@given(rules(words=True), st.sampled_from(["", "x", "${workflow.name} Failed"]))
def test_the_text_of_a_rule_reads_back(rule: Rule, hash: str) -> None:
    retention = Retention(rule, hash)
    assert parse_retention(str(retention)) == retention


@given(rules(words=False), st.lists(st.integers(0, 70), max_size=8).map(sorted))
def test_keeping_is_the_plain_reading_of_the_rule(rule: Rule, ages: list[int]) -> None:
    now = 1_000
    expected = [plainly(rule, place, age) for place, age in enumerate(ages)]
    ended = [now - age for age in ages]
    assert keep(rule, ended, now) == expected
    assert keep(resolve(rule, None, None, Count(3)), ended, now) == expected


@given(rules(words=True), rules(words=False), rules(words=False), rules(words=False))
def test_resolving_ends_and_stays_small(rule: Rule, context: Rule, parent: Rule, system: Rule) -> None:
    once = resolve(rule, context, parent, system)
    assert resolve(once, context, parent, system) == once
    # The same change over and over, as in a loop, must not grow the rule.
    rule_of_loop = Max((Min((Word("context"), Span(50))), Count(4)))
    looped = resolve(rule_of_loop, once, parent, system)
    assert resolve(rule_of_loop, looped, parent, system) == looped


@given(st.text(max_size=40) | st.text("0123456789()mhdsinaxy, forevtcp", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        made = parse_retention(text)
    except BadRetention:
        return
    assert parse_retention(str(made)) == made


@given(st.integers(0, MAX_DURATION))
def test_durations_read_back(length: int) -> None:
    assert micros(spell(length)) == length


# --- what an execution is kept with ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "before", "settled"),
    [
        ("3", "", "3"),
        ("context", "", "system"),
        ("parent", "2", "system"),
        ("max(context, 10s)", "1", "max(1, 10s)"),
        ("max(context, 10s)", "max(1, 10s)", "max(1, 10s)"),
        ("max(context, 1h)", "system", "max(1h, system)"),
        ("max(context, 1h)", "max(1h, system)", "max(1h, system)"),
        ("min(system, 5)", "", "min(5, system)"),
        ("max(1d, min(context, parent), 3)", "", "max(max(3, 1d), system)"),
        ("hash x", "7d", "7d"),
        ("disabled", "7d", "disabled"),
        ("max(context, 1)", "disabled", "1"),
    ],
)
def test_a_rule_is_kept_without_what_only_its_moment_knew(text: str, before: str, settled: str) -> None:
    assert settle(parse_retention(text), before) == settled
    assert settle(parse_retention(settled), before="forever") == settled, "and means the same ever after"


@given(rules(words=True), rules(words=True), rules(words=False))
def test_a_kept_rule_means_what_was_said_and_does_not_grow(rule: Rule, before: Rule, system: Rule) -> None:
    context = settle(Retention(before))
    kept = settle(Retention(rule), context)
    expected = resolve(rule, resolve(before, None, None, system), None, system)
    assert resolve(parse_retention(kept).expr, None, None, system) == expected
    for _ in range(3):
        again = settle(Retention(rule), kept)
        assert settle(Retention(rule), again) == again
        kept = again


@given(rules(words=False), st.lists(st.integers(0, 20 * SECOND), max_size=12), st.integers(0, 30 * SECOND))
def test_what_is_reached_is_what_is_kept(rule: Rule, ended: list[int], now: int) -> None:
    ended = sorted(ended, reverse=True)
    reached = [
        any((n is None or place < n) and (length is None or at > now - length) for n, length in reach(rule))
        for place, at in enumerate(ended)
    ]
    assert reached == keep(rule, ended, now)
    assert reached == sorted(reached, reverse=True), "the newest ones, without a gap"
