"""JSON, YAML and shell words: what is written reads back, and only what can be stored comes out."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.language.notations import from_json, from_yaml, to_address, to_json, to_shell, to_yaml
from holdfast.language.operations import ExpressionError

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "no", "yes", "1", "0x1", "1e3", "a: b", "- a", "# c", "a #b", "null", "~", "'", '"', "a\nb", " a", "a ",
     "12:30", "a b"]
)  # fmt: skip
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(DATA)
def test_json_reads_back(value: Any) -> None:
    assert from_json(to_json(value)) == value


@given(DATA)
def test_yaml_reads_back(value: Any) -> None:
    assert from_yaml(to_yaml(value)) == value


def test_yaml_is_written_for_people() -> None:
    value = {"name": "web", "ports": [80, 443], "empty": [], "on": "yes", "deep": [{"a": 1, "b": "x: y"}], "none": None}
    assert to_yaml(value) == (
        'name: web\nports:\n  - 80\n  - 443\nempty: []\n"on": "yes"\ndeep:\n  -\n    a: 1\n    b: "x: y"\nnone: null\n'
    )


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (from_json, "{", "the text is not JSON"), (from_json, "", "the text is not JSON"),
        (from_json, "NaN", "not JSON"),
        (from_json, "18446744073709551615", "64 bits"), (from_json, "[" * 150 + "]" * 150, "nested too deeply"),
        (from_json, "[" * 100_000, "the text is not JSON"), (from_yaml, "a: b: c", "the text is not YAML in line 1"),
        (from_yaml, "a: &x 1\nb: *x", "the text is not YAML"), (from_yaml, "a: 1\na: 2", "in line 2"),
        (from_yaml, "a: .inf", "not a finite number"), (from_yaml, "[" * 50 + "]" * 50, "nested"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(read: Any, text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        read(text)


@given(_texts)
def test_an_address_reads_back(text: str) -> None:
    assert to_address(text) == quote(text, safe="")
    assert unquote(to_address(text)) == text


@given(_texts.filter(lambda text: "\0" not in text))
def test_a_shell_reads_one_word(text: str) -> None:
    assert shlex.split(to_shell(text)) == [text]
