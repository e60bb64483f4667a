"""Regular expressions: agreement with Python's own where that has an answer, and a price for everything."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.language.problems import Unreadable
from holdfast.language.regex import MAX_PROGRAM, compile_regex, parse_replacement

GOLDEN = [
    ("abc", "xabcx"), ("a|b|cd", "cd"), ("(a+)(b*)", "xaab"), ("(a+?)(a*)", "aaa"), ("a{2,3}", "aaaa"),
    ("a{2,3}?", "aaaa"),
    ("a{2}", "aaa"), ("a{,2}b", "aab"), ("a{2,}", "aaaa"), ("a{x}", "a{x}"), ("{", "{"), ("^a$", "a"), ("^a$", "a\n"),
    ("^a$", "a\n\n"), ("^b", "a\nb"), ("(?m)^b$", "a\nb\nc"), ("(?i)abc", "xABc"), ("(?i)[a-c]+", "ABC"),
    ("(?i)[^a]", "Ab"),
    ("a.c", "a\nc"), ("(?s)a.c", "a\nc"), ("(?is)A.C", "a\nc"), ("(?i:a)b", "Ab"), ("(?i:a)b", "AB"),
    (r"\bfoo\b", "a foo b"),
    (r"\Boo", "foo"), (r"\d+", "ab12"), (r"\D+", "12ab"), (r"\w+", " héé_1"), (r"\W", "a b"), (r"\s+", "a \t\nb"),
    (r"\S+", " ab "),
    (r"[\d_]+", "a1_2"), (r"[^\d]", "1a"), (r"[\s\S]", "\n"), ("[]a]+", "a]"), ("[^]a]+", "a]bc"), ("[a-]+", "-a"),
    ("[-a]+", "-a"),
    (r"[\]\\]+", "]\\"), (r"\.\*\?\[\(\{\^\$\|", ".*?[({^$|"), (r"\x41\u00e9", "Aé"), (r"\t\n", "\t\n"),
    ("(a)|(b)", "b"),
    ("(?:(a)|b)*", "ab"), ("(a*)*", "b"), ("(a*)+", "b"), ("(a|ab)(c|bcd)", "abcd"), ("(a|ab)(c|bcd)$", "abcd"),
    ("", "abc"),
    ("()", "a"), ("a||b", "b"), ("(|a)b", "ab"), ("x*", "aaa"), (r"\Aa\Z", "a"),
    (r"(\w+)@(\w+)\.com", "me joe@example.com"),
    ("(?i)ß", "ẞ"), ("(?i)k", "\u212a"), ("[a-c-e]+", "a-e"), ("(((a)))", "a"), ("a??b", "ab"), ("(a??)(a??)b", "aab"),
]  # fmt: skip


def spans(match: re.Match[str] | None) -> tuple[int, int, tuple[str | None, ...]] | None:
    return None if match is None else (match.start(), match.end(), (match.group(), *match.groups()))


def agree(pattern: str, text: str) -> None:
    ours, theirs = compile_regex(pattern), re.compile(pattern)
    found = ours.search(text)
    assert (found and (found.start, found.end, found.groups)) == spans(theirs.search(text))
    whole = ours.fullmatch(text)
    assert (whole and (whole.start, whole.end, whole.groups)) == spans(theirs.fullmatch(text))
    assert ours.matches(text) is (theirs.fullmatch(text) is not None)
    all_found = [(match.start, match.end, match.groups) for match in ours.find_all(text)]
    assert all_found == [spans(match) for match in theirs.finditer(text)]
    assert ours.replace(text, "<$0>") == theirs.sub(r"<\g<0>>", text)
    assert ours.replace(text, "<$0>", all=False) == theirs.sub(r"<\g<0>>", text, count=1)
    assert compile_regex(pattern, dotall=True).matches(text) is (re.fullmatch(pattern, text, re.DOTALL) is not None)


@pytest.mark.parametrize(("pattern", "text"), GOLDEN)
def test_golden_pairs_agree_with_python(pattern: str, text: str) -> None:
    agree(pattern, text)


class Made(NamedTuple):
    text: str
    nullable: bool


_atoms = st.sampled_from(
    [Made(text, False) for text in
     ("a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\d", r"\s", r"\n", "[a-c]", r"[^\w]", "1")]
    + [Made(text, True) for text in ("^", "$", r"\b", r"\B", "", r"\A", r"\Z")]
)  # fmt: skip
_quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}", "*?", "+?", "??", "{1,2}?", "{2,}?"])


def _repeated(inner: Made, quantifier: str) -> Made:
    # Where a turn may be empty, backtracking engines disagree among themselves about what its groups have seen.
    if inner.nullable:
        return inner
    return Made(f"(?:{inner.text}){quantifier}", quantifier[0] in "*?" or quantifier.startswith("{0"))


def _above(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda both: Made(both[0].text + both[1].text, both[0].nullable and both[1].nullable)),
        pairs.map(lambda both: Made(f"(?:{both[0].text}|{both[1].text})", both[0].nullable or both[1].nullable)),
        inner.map(lambda one: Made(f"({one.text})", one.nullable)),
        st.builds(_repeated, inner, _quantifiers),
    )


_patterns = st.recursive(_atoms, _above, max_leaves=8)
_flags = st.sampled_from(["", "", "(?i)", "(?s)", "(?m)", "(?ims)"])
_texts = st.text("abcAB1 \n", max_size=10)


@given(_flags, _patterns, _texts)
def test_random_patterns_agree_with_python(flags: str, made: Made, text: str) -> None:
    # Python says that nothing is no place inside of nothing.
    assume(text or r"\B" not in made.text)
    agree(flags + made.text, text)


_any_repeat = st.recursive(
    st.sampled_from(["a", "b", "", "^", "$", r"\b"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "*?", "{0,3}", "{2,}"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        ),
    ),
    max_leaves=6,
)


@given(_any_repeat, st.text("ab ", max_size=6))
def test_loops_with_empty_turns_match_the_same_texts(pattern: str, text: str) -> None:
    ours = compile_regex(pattern)
    assert ours.matches(text) is (re.fullmatch(pattern, text) is not None)
    assert (ours.search(text) is None) is (re.search(pattern, text) is None)


@given(_patterns, _texts)
def test_splitting_puts_the_matches_between(made: Made, text: str) -> None:
    regex = compile_regex(made.text)
    parts = regex.split(text)
    between = [match.groups[0] or "" for match in regex.find_all(text)]
    assert len(parts) == len(between) + 1
    assert "".join(part + glue for part, glue in zip(parts, [*between, ""], strict=True)) == text


@pytest.mark.parametrize(
    ("text", "pattern", "limit", "parts"),
    [("a, b;c", "[,;] *", 0, ["a", "b", "c"]), ("a,b,c", ",", 2, ["a", "b,c"]), ("a,b", ",", 1, ["a,b"]),
     ("", ",", 0, [""])],
)  # fmt: skip
def test_splitting(text: str, pattern: str, limit: int, parts: list[str]) -> None:
    assert compile_regex(pattern).split(text, limit) == parts


@pytest.mark.parametrize(
    ("pattern", "text", "replacement", "expected"),
    [
        (r"(\w+)@(\w+)", "joe@home", "$2 at $1", "home at joe"),
        (r"(\w+)@(\w+)", "joe@home", r"\2 at \1", "home at joe"),
        ("a", "banana", "$$", "b$n$n$"), ("a", "ba", r"\$", "b$"), ("a", "ba", r"\\", "b\\"), ("a", "ba", r"\n", "b\n"),
        ("a|(b)", "ab", "[$1]", "[][b]"), ("a", "ba", "5$", "b5$"),
    ],
)  # fmt: skip
def test_replacing_with_groups(pattern: str, text: str, replacement: str, expected: str) -> None:
    assert compile_regex(pattern).replace(text, replacement) == expected


@pytest.mark.parametrize(
    ("pattern", "message", "place"),
    [
        ("(a", "`(` is never closed", "("), ("a)", "`)` without `(`", ")"), ("[a", "`[` is never closed", "["),
        ("*a", "nothing to repeat", "*"), ("a**", "a repeat of a repeat", "*"),
        ("a{2}{3}", "a repeat of a repeat", "{"),
        ("a*+", "possessive repeats", "+"), ("{2}", "nothing to repeat", "{"),
        (r"(a)\1", "back-references are not", r"\1"), ("(?=a)", "look-ahead is not", "(?="),
        ("a(?!b)", "look-ahead is not", "(?!"),
        ("(?<=a)b", "look-behind is not", "(?<="), ("(?<!a)b", "look-behind is not", "(?<!"),
        ("(?P<n>a)", "named groups", "(?P"),
        ("(?P=n)", "back-references", "(?P"), ("(?x)a", "there is no flag `x`", "x"),
        ("a(?i)b", "flags stand at the beg", "(?i"),
        ("(?#c)", "there is no such group", "(?#"), (r"\p{L}", "Unicode properties", r"\p"),
        (r"\y", r"there is no `\y`", r"\y"),
        ("a\\", "nothing follows", "\\"), (r"\x4", r"`\x` needs 2 hexadecimal", r"\x"),
        ("[z-a]", "the range `z-a` is empty", "z-a"),
        (r"[\d-z]", "a range goes from", r"\d-z"), (r"[\b]", r"`\b` is a place", r"\b"),
        ("a{3,2}", "the repeat ends below", "{3,2}"),
        ("a{1001}", "a repeat of more than 1,000", "{1001}"), ("a{99999999}", "a repeat of more than", "{99999999}"),
        ("(?:a{1000}){1000}", "the pattern is too large", "(?:a{1000}){1000}"),
        ("(" * 60 + "a" + ")" * 60, "more than 50 groups", "("),
        ("(?:" * 60 + "a" + ")" * 60, "the pattern is nested too deeply", "("),
        ("a" * 5000, "the pattern is longer", "a"),
        ("(?:(?:(?:(?:a{99}){99}){99}){99}){99}", "the pattern is too large", "(?:(?:(?:(?:a{99}){99}){99}){99}){99}"),
    ],
)  # fmt: skip
def test_what_is_refused_says_where(pattern: str, message: str, place: str) -> None:
    with pytest.raises(Unreadable) as caught:
        compile_regex(pattern)
    assert caught.value.message.startswith(message)
    assert pattern[caught.value.start : caught.value.end] == place


def test_a_replacement_names_groups_that_exist() -> None:
    with pytest.raises(Unreadable, match="there is no group 2") as caught:
        parse_replacement("a$2", 1)
    assert (caught.value.start, caught.value.end) == (1, 3)


@given(st.text("ab[]()?*+{}1,2|^$\\.dwsi:-", max_size=20), st.text("ab1 ", max_size=5))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    try:
        made = compile_regex(pattern)
    except Unreadable:
        return
    assert made.matches(text) is (made.fullmatch(text) is not None)


def price(pattern: str, text: str, call: str) -> int:
    paid: list[int] = []
    regex = compile_regex(pattern)
    match call:
        case "matches":
            regex.matches(text, paid.append)
        case "search":
            regex.search(text, 0, paid.append)
        case _:
            regex.replace(text, "", True, paid.append)
    return sum(paid)


@pytest.mark.parametrize("pattern", ["(?:a+)+b", "(?:a|a)*b", "(?:a?){30}a{30}b", "(?:.*.*.*)=x", "(?:a|aa)+$b"])
@pytest.mark.parametrize("call", ["matches", "search"])
def test_the_price_grows_with_the_text_and_not_faster(pattern: str, call: str) -> None:
    short, long = price(pattern, "a" * 500, call), price(pattern, "a" * 1000, call)
    assert long <= 2.2 * short
    # The same call always costs the same: nothing is remembered between calls.
    assert price(pattern, "a" * 500, call) == short


def test_payment_ends_the_work() -> None:
    class Broke(Exception):
        pass

    left = 10_000

    def pay(steps: int) -> None:
        nonlocal left
        left -= steps
        if left < 0:
            raise Broke

    for call in ("matches", "search"):
        left = 10_000
        with pytest.raises(Broke):
            getattr(compile_regex("(?:[ab]?){200}c"), call)("ab" * 50_000, pay=pay)
        # Not more was done than one position of the text beyond what was paid for.
        assert left > -16 * MAX_PROGRAM
