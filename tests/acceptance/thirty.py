"""A workflow of thirty steps with everything in it, its blocks, and what a run of it must have left behind.

Every run of a block leaves a line with the key of its visit in a witness file outside. Some fail as planned, before
they have done anything; handlers take only those, so that whatever nobody knows still stops the execution.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast import Context, NothingDone, block
from holdfast.core.model import Status
from holdfast.core.state import State

#: may the blocks run twice?
KINDS = {"repeatable": "thirty.witness-idempotent", "plain": "thirty.witness"}


@block(name="thirty.witness")
async def witness(ctx: Context, path: str, key: str, value: Any = None, fails: bool = False) -> Any:
    if fails:
        raise NothingDone(f"planned: {key}")
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.write(file, f"{ctx.idempotency_key} {key}\n".encode())
    os.close(file)
    return value


@block(name="thirty.witness-idempotent", idempotent=True)
async def witness_idempotent(ctx: Context, path: str, key: str, value: Any = None, fails: bool = False) -> Any:
    return await witness(ctx, path, key, value, fails)


def definition(kind: str) -> dict[str, Any]:
    """Thirty steps, those in bodies included; conditions of handlers are about the error."""

    def bear(key: str, **more: Any) -> dict[str, Any]:
        given = {name: more.pop(name) for name in ("value", "fails") if name in more}
        return {"block": KINDS[kind], "input": {"path": "${witness}", "key": key, **given}, **more}

    planned = {"error-field": "message", "glob": "planned*"}
    return {
        "name": f"thirty-{kind}",
        "inputs": {"witness": "string"},
        "lock": "thirty",
        "steps": [
            bear("first", value=2),
            "let x = ${output} + 1",
            "set-sensor progress = 1",
            {
                "type": "workflow",
                "lock": "inner",
                "replayable": "from start",
                "steps": [
                    bear("nested", value="${x * 2}"),
                    "let y = ${output}",
                    "sleep 5ms",
                    bear("nested-again", value="${y + 1}"),
                ],
            },
            "let nested = ${output}",
            {"step": "foreach n in 1..3", "concurrency": 2,
             "steps": [bear("each-${n}", value="${n * 10}"), "let z = ${output}", "return ${z + x}"]},
            "let each = ${output}",
            "let tries = 0",
            {
                "steps": [
                    "let tries = ${tries} + 1",
                    {**bear("flaky", value="${tries}", fails="${tries < 3}"),
                     "on-error": [{"step": "retry from again limit 5 backoff 2ms", "condition": planned}]},
                ],
                "id": "again",
            },
            {**bear("broken", fails=True), "on-error": [
                {**bear("handler", value="handled"), "condition": planned},
                {"step": "let handled = ${output}", "condition": planned},
            ]},
            {**bear("guarded", value=1), "finally": [bear("cleanup"), "set-sensor progress = 2"]},
            {"switch": "${nested}", "cases": [
                {"step": "let size = small", "condition": {"less-than": 5}},
                {"step": "let size = large"},
            ]},
            {"if": "${size} == large", "steps": [bear("large"), "let size = ${size}!"]},
            "sleep 5ms",
            {"parallel": [bear("left", value="l"), [bear("right", value="r"), "sleep 2ms"]]},
            bear("last", value="end"),
            "return ${[x, nested, each, tries, handled, size, output]}",
        ],
        "finally": [bear("finally")],
    }  # fmt: skip


OUTPUT = [3, 7, [13, 23, 33], 3, "handled", "large!", "end"]
#: what a run leaves outside
MARKS = (
    "first", "nested", "nested-again", "each-1", "each-2", "each-3", "flaky", "handler", "guarded", "cleanup", "large",
    "left", "right", "last", "finally",
)  # fmt: skip


def lines(path: Path) -> list[tuple[str, str]]:
    """Visit and mark of every run."""
    text = path.read_text() if path.exists() else ""
    return [(visit, mark) for visit, mark in (line.split() for line in text.splitlines())]


def judge(state: State, path: Path) -> tuple[str, list[str]]:
    """How it ended, and what should not have been."""
    kind = state.workflow.removeprefix("thirty-")
    may_repeat = kind == "repeatable"
    ran = Counter(lines(path))
    marks = Counter(mark for _, mark in ran)
    wrong: list[str] = []
    if not may_repeat and (twice := [each for each, count in ran.items() if count > 1]):
        wrong.append(f"ran twice within a visit: {twice}")
    if several := [mark for mark, visits in marks.items() if visits > 1]:
        wrong.append(f"more visits than the workflow has: {several}")
    if state.status is Status.COMPLETED:
        if state.output != OUTPUT:
            wrong.append(f"another output: {state.output}")
        if set(marks) != set(MARKS):
            wrong.append(f"marks differ: {set(marks) ^ set(MARKS)}")
        return "completed", wrong
    failure = state.failure
    if may_repeat or state.status is not Status.FAILED_UNSAFE or failure is None:
        wrong.append(f"{state.status.name}: {failure}")
    elif failure.code != "HF0311" or "job " not in failure.message or not state.residue:
        wrong.append(f"stopped, but not for a job whose outcome is unknown: {failure}")
    return "unknown", wrong
