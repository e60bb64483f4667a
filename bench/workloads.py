"""What is run, in the words of the peers' benches. Blocks are neither pure nor idempotent unless a name says so."""

from __future__ import annotations

from typing import Any

#: `test.noop` declares nothing: neither pure nor idempotent.
NOOP = "test.noop"
STEPS_IN_CRASH = 4


def sequence(steps: int, block: str = NOOP) -> dict[str, Any]:
    return {"name": f"sequence-{steps}", "steps": [block] * steps}


def wide(width: int, block: str = NOOP) -> dict[str, Any]:
    return {"name": f"wide-{width}", "steps": [{"parallel": [block] * width}]}


def asleep(duration: str = "1h") -> dict[str, Any]:
    return {"name": "asleep", "steps": [f"sleep {duration}"]}


def touching(steps: int = STEPS_IN_CRASH, *, idempotent: bool = True) -> dict[str, Any]:
    """Each step leaves a line with its time in a file outside. The peers repeat a step that was cut off, so only
    steps that may be repeated compare; others end as `outcome-unknown`, by design."""
    block = "bench.touch-idempotent" if idempotent else "bench.touch"
    return {
        "name": f"{block}-{steps}",
        "inputs": {"path": "string"},
        "steps": [
            {"block": block, "input": {"path": "${path}", "key": "${workflow.id}." + str(step)}}
            for step in range(steps)
        ],
    }
