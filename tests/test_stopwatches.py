"""No test judges how long something took: a busy machine would fail it, and a quick bug pass. That is for `bench/`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}


def is_elapsed(node: ast.AST) -> bool:
    """The difference between now and a moment before: `time.monotonic() - began`."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.left, ast.Call)
        and isinstance(node.left.func, ast.Attribute)
        and node.left.func.attr in CLOCKS
    )


def bounds(node: ast.Compare) -> Iterator[ast.expr]:
    """What has to be less than something."""
    operands = [node.left, *node.comparators]
    for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
        if isinstance(op, ast.Lt | ast.LtE):
            yield left
        elif isinstance(op, ast.Gt | ast.GtE):
            yield right


def judged(source: str) -> list[int]:
    """Lines of assertions with an upper bound on a stopwatch, read there or kept in a variable."""
    tree = ast.parse(source)
    kept = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(map(is_elapsed, ast.walk(node.value)))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [
        check.lineno
        for check in ast.walk(tree)
        if isinstance(check, ast.Assert)
        for compare in ast.walk(check.test)
        if isinstance(compare, ast.Compare)
        for bound in bounds(compare)
        if any(is_elapsed(part) or (isinstance(part, ast.Name) and part.id in kept) for part in ast.walk(bound))
    ]


@pytest.mark.parametrize("text", [
    "assert time.monotonic() - began < 5",
    "assert 0.5 < asyncio.get_running_loop().time() - began <= 5",
    "assert 5 > time.perf_counter() - began, 'too slow'",
    "took = time.monotonic() - began\nassert took < 5",
    "took = round(time.time() - began, 1)\nassert is_done and took < 5",
])  # fmt: skip
def test_a_stopwatch_is_recognised(text: str) -> None:
    assert len(judged(text)) == 1


@pytest.mark.parametrize("text", [
    "assert time.monotonic() < deadline, 'it did not happen'",
    "assert time.monotonic() - began > 0.3",
    "took = time.monotonic() - began\nprint(took)",
])  # fmt: skip
def test_a_guard_and_a_pause_are_none(text: str) -> None:
    assert judged(text) == []


def test_no_test_judges_a_stopwatch() -> None:
    files = {path: judged(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}
    assert len(files) > 50
    assert [f"{path.relative_to(TESTS)}:{line}" for path, lines in files.items() for line in lines] == []
