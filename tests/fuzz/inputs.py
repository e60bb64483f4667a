"""Which input belongs to which number: the same seed and number always give the same text."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

from . import expressions
from .documents import FILTER_WORDS, RETENTIONS, document
from .mutate import mutated

ROOT = Path(__file__).parents[2]


class Input(NamedTuple):
    #: "document", or how an expression is read: "template", "words", "test", "transform", "retention", "regex"
    kind: str
    text: str
    #: for whatever is chosen while it is evaluated or played
    seed: str


def given() -> list[str]:
    """Texts that people wrote."""
    folders = (ROOT / "examples", ROOT / "tests" / "language" / "data")
    return [path.read_text() for folder in folders for path in sorted(folder.rglob("*.yaml"))]


_GIVEN = given()


def make(seed: int, number: int) -> Input:
    name = f"{seed}/{number}"
    random = Random(name)
    kind = random.random()
    if kind < 0.25:
        return Input("document", document(random, 0.0), name)
    if kind < 0.35:
        return Input("document", document(random, random.choice((0.01, 0.03, 0.1, 0.4))), name)
    if kind < 0.47:
        text = random.choice(_GIVEN) if random.random() < 0.3 else document(random, 0.0)
        return Input("document", mutated(text, random), name)
    if kind < 0.68:
        text = expressions.template(random)
        reading = "template"
    elif kind < 0.78:
        text = expressions.template(random).replace("}${", random.choice(("} + ${", "} ?? ${", "} ${")))
        reading = "words"
    elif kind < 0.88:
        text = expressions.expression(random, 4)
        reading = "test"
    elif kind < 0.93:
        text = " | ".join(random.choice(FILTER_WORDS) for _ in range(random.randint(1, 4)))
        reading = "transform"
    elif kind < 0.95:
        text, reading = random.choice(RETENTIONS), "retention"
    elif kind < 0.98:
        text, reading = _pattern(random, 3), "regex"
    else:
        return Input("template", "${" + expressions.heavy(random) + "}", name)
    if random.random() < 0.15:
        text = mutated(text, random)
    return Input(reading, text, name)


def _pattern(random: Random, depth: int) -> str:
    """A regular expression."""
    if depth == 0 or random.random() < 0.3:
        return random.choice((*"abc.", "\\d", "\\w", "[a-c]", "[^x]", "\\.", "^", "$", "\\b", "é", "(?i)"))
    kind = random.randrange(5)
    if kind == 0:
        return "(" + random.choice(("", "?:")) + _pattern(random, depth - 1) + ")"
    if kind == 1:
        return _pattern(random, depth - 1) + "|" + _pattern(random, depth - 1)
    if kind == 2:
        return f"({_pattern(random, depth - 1)})" + random.choice(("*", "+", "?", "{2}", "{1,30}", "{0,200}", "*?"))
    return "".join(_pattern(random, depth - 1) for _ in range(random.randint(1, 3)))
