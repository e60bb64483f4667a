"""Mutations of texts: bytes, tokens, lines, and the structure of YAML."""

from __future__ import annotations

import re
from random import Random

_TOKEN = re.compile(r"\$\{|\}|[\w.-]+|\s+|.", re.DOTALL)
DICTIONARY = (
    "${", "}", "${}", "[", "]", "{", "}", ":", ": ", "- ", "'", '"', "|", ">", "&a ", "*a", "!!int ", "---\n",
    "...\n", "#", "\t", "\x00", "\ufeff", "\u2028", "\U0010ffff", "steps:", "steps", "on-error:", "goto start",
    "goto ", "retry", "foreach", " in ", " do ", "workflow", "lock:", "target:", "condition:", "${error}",
    "${steps.s1.output}", "yes", "null", "1e999", "99999999999999999999", "0x", "next: start",
    "repeat: 1000000", "concurrency: 0", "limit", "let ", "=", "== ", "?", "%", "<<: ", "uses:", "inputs:",
    "type: workflow", "replayable: automatically", "retention: disabled", "(" * 50, "- " * 50,
)  # fmt: skip


def mutated(text: str, random: Random) -> str:
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 8))):
        text = random.choice(_MUTATIONS)(text, random)
    return text[:200_000]


def _insert(text: str, random: Random) -> str:
    at = random.randint(0, len(text))
    return text[:at] + random.choice(DICTIONARY) + text[at:]


def _byte(text: str, random: Random) -> str:
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(random.choice((1, 1, 4))):
        if data:
            data[random.randrange(len(data))] = random.randrange(256)
    return data.decode("utf-8", "replace")


def _cut(text: str, random: Random) -> str:
    at = random.randint(0, len(text))
    return text[:at] + text[min(len(text), at + random.choice((1, 2, 10, 100))) :]


def _token(text: str, random: Random) -> str:
    tokens = _TOKEN.findall(text)
    if not tokens:
        return text
    at = random.randrange(len(tokens))
    kind = random.randrange(4)
    if kind == 0:
        del tokens[at]
    elif kind == 1:
        tokens.insert(at, tokens[random.randrange(len(tokens))])
    elif kind == 2:
        tokens[at] = random.choice(DICTIONARY)
    else:
        other = random.randrange(len(tokens))
        tokens[at], tokens[other] = tokens[other], tokens[at]
    return "".join(tokens)


def _line(text: str, random: Random) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    kind = random.randrange(5)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(random.randint(0, len(lines)), lines[at])
    elif kind == 2:
        lines[at] = " " * random.choice((1, 2, 4)) + lines[at]
    elif kind == 3:
        lines[at] = lines[at][random.choice((1, 2)) :]
    else:
        block = lines[at : at + random.randint(1, 6)]
        lines[at:at] = block * random.choice((1, 1, 3, 20))
    return "\n".join(lines)


def _key(text: str, random: Random) -> str:
    """A key gets the value of another."""
    found = list(re.finditer(r"([\w-]+): *(.*)", text))
    if len(found) < 2:
        return _insert(text, random)
    one, other = random.sample(found, 2)
    return text[: one.start(2)] + other[2] + text[one.end(2) :]


def _nest(text: str, random: Random) -> str:
    """Everything a few levels deeper."""
    depth = random.choice((1, 2, 30, 60))
    if random.random() < 0.5:
        return "".join(" " * level + "- steps:\n" for level in range(depth)) + text
    return "steps: " + "[" * depth + "no-op" + "]" * random.choice((depth, depth - 1)) + "\n"


_MUTATIONS = (_insert, _insert, _byte, _cut, _token, _token, _token, _line, _line, _key, _key, _nest)
