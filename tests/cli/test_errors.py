"""The error index has one whole section for every code there is, and none for any other."""

from __future__ import annotations

import re
from pathlib import Path

import holdfast
from holdfast.cli.explain import sections
from holdfast.cli.refusals import exit_code
from holdfast.core import errors
from holdfast.language import PROBLEMS

CLASSES = {cls.code: cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.Refused)}
#: used in problems and failures, without a class
VALUES = {"HF0211", "HF0311", "HF0743", "HF0756", "HF0759", "HF0771", *(f"HF073{n}" for n in "12345679")}


def test_every_code_has_a_section() -> None:
    assert set(sections()) == set(CLASSES) | set(PROBLEMS) | VALUES


def test_titles_are_those_of_the_classes_and_problems() -> None:
    for code, section in sections().items():
        if code in CLASSES:
            assert section.title == (CLASSES[code].__doc__ or "").strip().splitlines()[0].rstrip("."), code
        elif code in PROBLEMS:
            assert section.title == PROBLEMS[code].title, code
        assert section.means, code
        assert section.cause, code
        assert section.remedy, code


def test_every_code_in_the_source_is_known() -> None:
    used: set[str] = set()
    for path in Path(holdfast.__file__).parent.rglob("*.py"):
        used |= set(re.findall(r"\bHF0\d{3}\b", path.read_text()))
    assert used <= set(sections())


def test_commands_in_the_index_exist() -> None:
    from holdfast.cli.main import COMMANDS

    text = Path(holdfast.__file__).parent.joinpath("cli", "errors.md").read_text()
    known = {name for commands in COMMANDS.values() for name in commands} | {"COMMAND"}
    assert set(re.findall(r"`holdfast ([a-zA-Z]+)", text)) <= known


def test_exit_codes() -> None:
    assert {code: exit_code(code) for code in ("HF0100", "HF0203", "HF0301", "HF0504", "HF0704", "HF0801")} == {
        "HF0100": 2, "HF0203": 2, "HF0301": 1, "HF0504": 6, "HF0704": 5, "HF0801": 6,
    }  # fmt: skip
