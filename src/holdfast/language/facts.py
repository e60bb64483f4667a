"""What `workflow.` knows of the execution while it runs. Time is that of the transition; what an expression makes
of it is recorded, so nothing is asked twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from .evaluate import ABSENT

if TYPE_CHECKING:
    from .walk import Walk


def _iso(walk: Walk) -> str:
    return datetime.fromtimestamp(walk.run.now / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _random(walk: Walk) -> float:
    """In [0, 1): different from place to place and from moment to moment, but the same when it is decided again."""
    state = walk.run.state
    seed = f"{state.id}/{state.version}/{walk.id}/{len(walk.ops)}/{walk.fuel}"
    return int.from_bytes(blake2b(seed.encode(), digest_size=6).digest(), "big") / 2**48


def _current(key: str) -> Callable[[Walk], Any]:
    def get(walk: Walk) -> Any:
        return _step(walk, walk.position, key)

    return get


def _previous(key: str) -> Callable[[Walk], Any]:
    def get(walk: Walk) -> Any:
        return walk.output if key == "output" else _step(walk, walk.position - 1, key)

    return get


def _step(walk: Walk, position: int, key: str) -> Any:
    if not 0 <= position < len(walk.body):
        return ABSENT
    step = walk.body[position]
    if key == "name":
        return step.label
    if key == "step_id":
        return step.id or ABSENT
    return position if key == "step_index" else ABSENT


FACTS: dict[str, Callable[[Walk], Any]] = {
    "id": lambda walk: walk.run.state.id,
    "name": lambda walk: walk.run.state.workflow,
    "version": lambda walk: walk.run.state.workflow_version,
    "run": lambda walk: walk.run.state.run,
    "input": lambda walk: walk.given(),
    "output": lambda walk: walk.output,
    "link": lambda walk: f"/executions/{walk.run.state.id}",
    "util.now": lambda walk: walk.run.now // 1000,
    "util.now_utc": lambda walk: walk.run.now // 1000,
    "util.now_iso": _iso,
    "util.now_instant": _iso,
    "util.random": _random,
    **{f"current_step.{key}": _current(key) for key in ("name", "step_id", "step_index")},
    **{f"previous_step.{key}": _previous(key) for key in ("name", "step_id", "step_index", "output")},
}
