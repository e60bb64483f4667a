"""Expressions at random: mostly of the grammar, over names that exist or do not, with values for them."""

from __future__ import annotations

from random import Random
from typing import Any

from holdfast.language.functions import FUNCTIONS

NAMES = ("x", "y", "count", "hosts", "cfg", "text", "flag", "nothing")
UNKNOWN = ("nowhere", "vars", "steps.a.output", "entity.sensor.s", "workflow.id", "input.x", "error.message", "a-b")
OPERATORS = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "??", "in")
TEXTS = ("", "a", "host-1", "10.0.0.1", "äöü", "\U0001f600", "a b c", "0x10", "1e3", "true", "null", "$1", "*?", "\\n")
PATTERNS = ("a*", "(a|b)+", "[a-z0-9]{2,5}", "^x.*$", "(a+)+", "\\d+", "(?:x|y)?", "[", "(", "a{3", "\\", ".{1,40}")
NUMBERS = ("0", "1", "-1", "7", "2.5", "1e308", "9223372036854775807", "0.1", "00", "1" * 19, "1e-320")


def name(random: Random) -> str:
    return random.choice(NAMES) if random.random() < 0.97 else random.choice(UNKNOWN)


def literal(random: Random) -> str:
    kind = random.random()
    if kind < 0.45:
        return random.choice(NUMBERS) if random.random() < 0.3 else str(random.randrange(20))
    if kind < 0.85:
        text = random.choice(PATTERNS if random.random() < 0.2 else TEXTS)
        quote = random.choice("'\"")
        return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote
    return random.choice(("true", "false", "null"))


def expression(random: Random, depth: int = 3) -> str:
    """Without `${…}` around it."""
    if depth <= 0:
        return literal(random) if random.random() < 0.5 else name(random)
    kind = random.randrange(13)
    if kind < 3:
        return literal(random)
    if kind < 5:
        return name(random)

    def inner() -> str:
        return expression(random, depth - 1 - random.randrange(2))

    if kind == 5:
        return f"{name(random)}.{random.choice(('a', 'b', 'name', 'size'))}"
    if kind == 6:
        return f"{name(random)}[{inner()}]"
    if kind == 7:
        return f"({inner()})"
    if kind == 8:
        return f"{random.choice(('!', '-'))}{inner()}"
    if kind == 9:
        return f"{inner()} ? {inner()} : {inner()}"
    if kind == 10:
        if random.random() < 0.5:
            return "[" + ", ".join(inner() for _ in range(random.randrange(4))) + "]"
        return "{" + ", ".join(f"{random.choice('abc')}: {inner()}" for _ in range(random.randrange(3))) + "}"
    if kind == 11:
        called = random.choice(_CALLABLE)
        low, high = _CALLABLE_ARITY[called]
        count = random.randint(low, min(high, low + 2))
        return f"{called}({', '.join(inner() for _ in range(count))})"
    space = " " if random.random() < 0.9 else ""
    return f"{inner()}{space}{random.choice(OPERATORS)}{space}{inner()}"


_CALLABLE_ARITY = {name: (each.least, each.most) for name, each in FUNCTIONS.items()}
_CALLABLE = tuple(_CALLABLE_ARITY)


def template(random: Random) -> str:
    parts = [
        "${" + expression(random) + "}" if random.random() < 0.6 else random.choice(("host ", "-", "$", "{}", " is "))
        for _ in range(random.randint(1, 3))
    ]
    return "".join(parts)


def heavy(random: Random) -> str:
    """Made to cost more than it looks."""
    kind = random.randrange(8)
    size = random.choice((10, 100, 1000, 4000))
    if kind == 0:
        return "(" * size + "1" + ")" * size
    if kind == 1:
        return "+".join(["x"] * size)
    if kind == 2:
        return "[" * size + "]" * random.choice((0, size))
    if kind == 3:
        return "${" * size
    if kind == 4:
        return f"matches('{'a' * min(size, 2000)}b', '(a*)*(a|b|ab)*c')"
    if kind == 5:
        return f"size(join(range({size}), '{'x' * random.choice((1, 100))}'))"
    if kind == 6:
        return "sum(range(10000)) " + " + sum(range(10000))" * min(size // 20, 40)
    return " * ".join(["9999999999"] * size)


def scope(random: Random) -> dict[str, Any]:
    return {each: value(random, 2) for each in NAMES[:-1]}


def value(random: Random, depth: int) -> Any:
    kind = random.randrange(8 if depth else 6)
    if kind == 0:
        return random.choice((0, 1, -1, 7, 2**63 - 1, -(2**63)))
    if kind == 1:
        return random.choice((0.0, 0.5, -1e300, 1e-300))
    if kind in (2, 3):
        return random.choice(TEXTS)
    if kind == 4:
        return random.random() < 0.5
    if kind == 5:
        return None
    if kind == 6:
        return [value(random, depth - 1) for _ in range(random.randrange(5))]
    return {random.choice(("a", "b", "name", "key")): value(random, depth - 1) for _ in range(random.randrange(4))}
