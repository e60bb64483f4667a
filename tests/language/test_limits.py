"""Limits of retries, pauses between them, and concurrency: what is read, refused and calculated."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.durations import MAX_DURATION
from holdfast.language.limits import Backoff, Limit, exceeded, parse_backoff, parse_concurrency, parse_limit
from holdfast.language.problems import Unreadable
from holdfast.language.values import Mismatch

MS = 1_000
S = 1_000_000
M = 60 * S


# --- limits ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given_limit", "expected"),
    [
        ("10", (Limit(10),)), (10, (Limit(10),)), ("0", (Limit(0),)), ("7d", (Limit(None, 7 * 24 * 60 * M),)),
        ("5 in 1m", (Limit(5, M),)),
        (" 5  IN 1m 30s ", (Limit(5, 90 * S),)), (["2", "5 in 1m"], (Limit(2), Limit(5, M))),
        ([3, "1h"], (Limit(3), Limit(None, 60 * M))),
    ],
)  # fmt: skip
def test_limits(given_limit: Any, expected: tuple[Limit, ...]) -> None:
    assert parse_limit(given_limit) == expected


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("", "the value is empty", ""), ("ten", "`ten` is not a limit", "ten"),
        ("5 in", "`5 in` is not a duration", "5 in"),
        ("x in 1m", "`x` is not a number of retries", "x"), ("5 in 1", "`1` is not a duration; write `1s`", "1"),
        ("5 in 1m in 2m", "`5 in 1m in 2m` is not a limit", "5 in 1m in 2m"), ("-1", "`-1` is not a limit", "-1"),
        ("5 per 1m", "`5 per 1m` is not a duration", "5 per 1m"), ("1.5", "`1.5` is not a duration", "1.5"),
    ],
)  # fmt: skip
def test_what_is_no_limit(text: str, message: str, place: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse_limit(text)
    assert caught.value.message.startswith(message)
    assert text[caught.value.start : caught.value.end] == place


@pytest.mark.parametrize("given_limit", [[], True, None, 1.5, {"a": 1}, ["1", "x"]])
def test_other_values_are_no_limits(given_limit: Any) -> None:
    with pytest.raises(Unreadable):
        parse_limit(given_limit)


@pytest.mark.parametrize(
    ("limit", "seconds", "now", "expected"),
    [
        ("0", [], 0, "0 retries (limit 0)"),
        ("2", [], 0, None),
        ("2", [1], 2, None),
        ("2", [1, 2], 5, "2 retries, the first 4s ago (limit 2)"),
        ("1", [1], 2, "1 retry, the first 1s ago (limit 1)"),
        ("1m", [], 1000, None),
        ("1m", [10], 70, None),
        ("1m", [10, 20], 71, "the first retry was 1m1s ago (limit 1m)"),
        ("2 in 1m", [0, 10, 50], 71, None),
        ("2 in 1m", [0, 50, 60], 71, "2 retries in the last 1m (limit 2 in 1m)"),
        ("2 in 1m", [11, 70], 71, None),
        (["9", "2 in 1m"], [0, 50, 60], 71, "2 retries in the last 1m (limit 2 in 1m)"),
    ],
)
def test_when_a_limit_is_exceeded(limit: Any, seconds: list[int], now: int, expected: str | None) -> None:
    assert exceeded(parse_limit(limit), [at * S for at in seconds], now * S) == expected


@given(st.integers(0, 9))
def test_a_number_allows_exactly_so_many(number: int) -> None:
    done: list[int] = []
    while exceeded([Limit(number)], done, 100) is None:
        done.append(len(done))
    assert len(done) == number


# --- backoff ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("1s 1s 10s", S, [1, 1, 10, 10, 10]),
        ("1s 2s increasing 3x up to 1m", S, [1, 2, 6, 18, 54, 60, 60]),
        ("0 0 100ms increasing 4x", MS, [0, 0, 100, 400, 1600]),
        ("10ms", MS, [10, 10, 10]),
        ("10s increasing 2x up to 5m jitter 10%", S, [10, 20, 40, 80, 160, 300, 300]),
        ("10s increasing by 50%", MS, [10_000, 15_000, 22_500]),
        ("10s increasing 5s max 1m", S, [10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 60]),
        ("1s, 2s, 3s", S, [1, 2, 3, 3]),
        ({"initial": "10s", "factor": 2, "max": "1m"}, S, [10, 20, 40, 60]),
        ({"initial": ["1s", "2s"], "increase": "10s"}, S, [1, 2, 12, 22]),
        ({"initial": "1s 2s", "factor": "1.5x"}, MS, [1000, 2000, 3000, 4500]),
        ({"initial": "1s", "increase": "100%"}, S, [1, 2, 4]),
        ({"initial": 0, "jitter": "10%"}, S, [0, 0]),
        (["1s", "5s"], S, [1, 5, 5]),
    ],
)
def test_pauses(text: Any, unit: int, expected: list[int]) -> None:
    backoff = parse_backoff(text)
    assert [backoff.delay(k, 0.0) for k in range(len(expected))] == [pause * unit for pause in expected]


@pytest.mark.parametrize(
    ("text", "share", "expected"),
    [
        ("10s jitter 10%", 0.5, 10_500),
        ("10s jitter 0.1", 0.5, 10_500),
        ("10s jitter -100%", 0.75, 2_500),
        ("10s up to 10s jitter 100%", 0.25, 8_000),
        ("10s up to 10s jitter -50%", 0.5, 7_500),
        ("10s up to 5s jitter -50%", 0.5, 3_750),
    ],
)
def test_jitter(text: str, share: float, expected: int) -> None:
    assert parse_backoff(text).delay(0, share) == expected * MS


@pytest.mark.parametrize("order", list(permutations(["10s", "increasing 2x", "up to 5m", "jitter 10%"])))
def test_parts_of_a_backoff_in_any_order(order: tuple[str, ...]) -> None:
    assert parse_backoff(" ".join(order)) == Backoff((10 * S,), 2.0, 0, 0.1, 5 * M)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("increasing 2x", "the first pause is missing", "increasing 2x"),
        ("10", "`10` is not a duration; write `10s`", "10"),
        ("10s increasing", "a value is missing after `increasing`", "g"),
        ("10s increasing fast", "`fast` is not an increase", "fast"),
        ("10s incresing 2x", "unexpected `incresing`", "incresing"),
        ("10s up 5m", "`to` expected after `up`", "5m"),
        ("10s up to", "a value is missing after `up to`", "o"),
        ("10s jitter lots", "`lots` is not a jitter", "lots"),
        ("10s jitter -101%", "a jitter is between", "-101%"),
        ("10s jitter 1% jitter 2%", "`jitter` is given twice", "jitter 2%"),
        ("10s up to 1m max 2m", "`max` is given twice", "max 2m"),
        ("10s up to 1m 20s", "unexpected `20s`", "20s"),
        ("10s increasing 0x", "a factor of 0", "0x"),
    ],
)
def test_what_is_no_backoff(text: str, message: str, place: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse_backoff(text)
    assert caught.value.message.startswith(message)
    assert text[caught.value.start : caught.value.end] == place


@pytest.mark.parametrize(
    "given_backoff",
    [
        {},
        {"initial": []},
        {"initial": "1s", "facter": 2},
        {"initial": "1s", "factor": 2, "increase": "1s"},
        [],
        True,
        "",
    ],
)
def test_other_values_are_no_backoffs(given_backoff: Any) -> None:
    with pytest.raises(Unreadable):
        parse_backoff(given_backoff)


BACKOFFS = st.builds(
    Backoff,
    st.lists(st.integers(0, 10 * M), min_size=1, max_size=4).map(tuple),
    st.floats(0.1, 1000),
    st.integers(0, M),
    st.floats(-1, 10),
    st.none() | st.integers(0, 60 * M),
)


@given(BACKOFFS, st.integers(0, 100_000), st.floats(0, 1, exclude_max=True))
def test_a_pause_stays_in_its_bounds(backoff: Backoff, k: int, share: float) -> None:
    pause = backoff.delay(k, share)
    assert 0 <= pause <= min(MAX_DURATION, MAX_DURATION if backoff.max is None else backoff.max)


# --- concurrency -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("5", 3, 5), (5, 100, 5), ("all", 7, 7), ("unlimited", 7, 7), ("50%", 7, 3), ("-1", 7, 6), (-2, 7, 5),
        ("min(50%, 10)", 100, 10), ("min(50%, 10)", 10, 5), ("max(1, 10%)", 5, 1), ("max(1, 10%)", 50, 5),
        ("50% + 1", 10, 6), ("all - 1", 10, 9), ("50%-2", 10, 3), ("max(1, 50% - 20)", 10, 1),
        ("max(1, -10)", 5, 1), ("max(1, -10)", 15, 5), ("min(10, -1)", 5, 4), ("-50%", 10, 5),
        ("MAX( 1 , min(all, 3) )", 2, 2), ("33.3% + 0.7", 10, 4), ("all", 0, 1), ("10%", 0, 1), ("3.9", 9, 3),
    ],
)  # fmt: skip
def test_concurrency(text: Any, count: int, expected: int) -> None:
    assert parse_concurrency(text).resolve(count) == expected


@pytest.mark.parametrize(
    ("text", "count", "message"),
    [
        ("0", 5, "`0` of 5 targets is 0; at least 1 is needed"),
        ("-5", 5, "`-5` of 5 targets is 0"),
        ("10%", 5, "is 0"),
        ("-10", 1, "`-10` of 1 target is -9"),
    ],
)
def test_less_than_one_at_once_is_refused(text: str, count: int, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        parse_concurrency(text).resolve(count)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("", "the value is empty", ""), ("al", "unexpected `al`", "al"), ("5 5", "unexpected `5`", "5"),
        ("5 +", "a number is missing", "+"), ("--5", "unexpected `-`", "-"), ("5 + -2", "unexpected `-`", "-"),
        ("min 5", "`(` is missing after `min`", "5"), ("min(5", "`(` is never closed", "("),
        ("min(5 6)", "unexpected `6`", "6"),
        ("min()", "unexpected `)`", ")"), ("5x", "`5x` is not a number", "5x"), ("5 * 2", "`*` is not a number", "*"),
        ("min(" * 20 + "1" + ")" * 20, "the concurrency is nested too deeply", "min"),
    ],
)  # fmt: skip
def test_what_is_no_concurrency(text: str, message: str, place: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse_concurrency(text)
    assert caught.value.message.startswith(message)
    assert text[caught.value.start : caught.value.end] == place


@pytest.mark.parametrize(
    ("text", "fixed"), [("1", 1), ("1 + 1", 2), ("min(3, 4)", 3), ("all", None), ("max(1, 5%)", None)]
)
def test_whether_it_depends_on_the_count(text: str, fixed: int | None) -> None:
    assert parse_concurrency(text).fixed == fixed


@example("0.0 ", 0)
@given(st.text("0123456789%+-(), minaxlu.", max_size=30), st.integers(0, 1000))
def test_any_text_is_a_number_or_refused(text: str, count: int) -> None:
    try:
        made = parse_concurrency(text).resolve(count)
    except (Unreadable, Mismatch):
        return
    assert made >= 1


@given(st.text("0123456789smhd%x- .", max_size=20) | st.text(max_size=20))
def test_any_text_is_a_backoff_or_refused(text: str) -> None:
    try:
        made = parse_backoff(f"1s {text}")
    except Unreadable:
        return
    assert made.delay(3, 0.5) >= 0
