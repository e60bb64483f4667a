"""A short run of the campaign, without its clock, and every input that once went wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .campaign import CORPUS, look, save
from .inputs import Input, make
from .judge import Wrong, failure_of, judge, shrunk

SAVED = sorted(CORPUS.glob("*.json"))


@pytest.mark.parametrize("seed", range(4))
def test_nothing_crashes_and_a_tenth_is_valid(seed: int) -> None:
    tally = look(seed, range(400), is_timed=False)
    assert tally.wrong == {}
    assert tally.inputs == 400
    assert tally.valid * 10 >= tally.inputs
    assert tally.valid_documents * 10 >= tally.documents
    assert tally.played


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_what_once_went_wrong_does_not(path: Path) -> None:
    given = Input(**json.loads(path.read_text()))
    judge(given, is_timed=False, always_play=True)


def test_there_is_something_to_replay() -> None:
    assert SAVED


def test_the_same_number_is_the_same_input() -> None:
    assert [make(5, number) for number in range(50)] == [make(5, number) for number in range(50)]
    assert len({make(5, number).text for number in range(50)}) > 40


def test_what_goes_wrong_is_found_made_small_and_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a bug planted: names with a `q` break the parser of expressions."""
    from holdfast.language import names

    whole = names.parse_template

    def broken(text: str, *rest: object) -> object:
        if "planted" in text:
            raise ZeroDivisionError
        return whole(text, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(names, "parse_template", broken)
    monkeypatch.setattr("tests.fuzz.campaign.CORPUS", tmp_path)
    text = "steps:\n- let x = 1\n- log one ${x} planted here\n- return ${x}\n"
    given = Input("document", text, "0/0")
    assert failure_of(given).startswith("ZeroDivisionError")
    small = shrunk(given)
    assert len(small.text) < len(text) / 2
    assert "planted" in small.text
    assert Input(**json.loads(save(small).read_text())) == small
    with pytest.raises(ZeroDivisionError):
        judge(small)


def test_a_refusal_without_a_place_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.core.errors import InvalidDefinition
    from holdfast.core.model import Problem

    def refuses(texts: object) -> object:
        raise InvalidDefinition("no", (Problem("HF0102", "something", "fuzz.yaml", 0, 0),))

    monkeypatch.setattr("tests.fuzz.judge.load_workflows", refuses)
    with pytest.raises(Wrong, match="has no place"):
        judge(Input("document", "steps: []", "0/0"))
