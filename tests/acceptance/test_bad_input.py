"""Bad workflows against a whole engine: nothing invalid is stored, and an endless loop is only one among others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.errors import InvalidDefinition
from holdfast.core.ids import to_key
from holdfast.embedded import Embedded
from tests.acceptance.test_walk import until

Open = Callable[..., Embedded]


def _rows(holdfast: Embedded) -> int:
    with holdfast.store.reading() as queries:
        return sum(len(queries.rows(f"SELECT 1 FROM {table}")) for table in ("definitions", "workflows", "executions"))


@pytest.mark.parametrize(
    "definition",
    [
        {"name": "w", "steps": ["log ${nowhere}"]},
        {"name": "w", "stpes": ["log x"]},
        {"name": "w", "steps": [{"step": "log x", "next": "gone"}]},
        {"name": "w", "steps": ["w"]},
        {"name": "w", "steps": ["log " + "${" * 500]},
        {"name": "w", "steps": [{"step": "log x", "timeout": []}]},
        {"name": "w", "steps": [[[["log x"] * 3] * 3] * 3] * 5000},
        {"name": "w", "lock": "a", "retention": "disabled", "steps": ["no-op"]},
    ],
    ids=lambda definition: str(definition)[:40],
)  # fmt: skip
def test_nothing_is_stored_that_is_not_valid(open_holdfast: Open, definition: dict[str, Any]) -> None:
    holdfast = open_holdfast(with_worker=False)
    before = _rows(holdfast)
    for ask in (
        lambda: holdfast.service.publish(holdfast.actor, definition),
        lambda: holdfast.service.publish_all(holdfast.actor, [{"name": "good", "steps": ["no-op"]}, definition]),
        lambda: holdfast.service.start(holdfast.actor, definition=definition),
    ):
        with pytest.raises(InvalidDefinition) as caught:
            ask()
        assert any(problem.path or problem.code == "HF0106" for problem in caught.value.problems)
    assert _rows(holdfast) == before


@pytest.mark.parametrize(
    "steps",
    [
        ["let x = 1", "goto start"],
        [{"id": "a", "step": "goto a"}],
        ["workflow replayable from here", "retry replay"],
        [{"step": "foreach x in 1..100000", "concurrency": "all", "steps": ["goto start"]}],
    ],
    ids=["goto", "itself", "retry", "lanes"],
)
def test_an_endless_loop_leaves_the_engine_to_others(open_holdfast: Open, steps: list[Any]) -> None:
    holdfast = open_holdfast()
    endless = holdfast.service.start(holdfast.actor, definition={"name": "endless", "steps": steps})

    def turns() -> int:
        with holdfast.store.reading() as queries:
            return len(queries.rows("SELECT 1 FROM history WHERE execution = ?", (to_key(endless.id),)))

    until(lambda: turns() >= 3)
    done = []
    for _ in range(5):
        view = holdfast.service.start(holdfast.actor, definition={"name": "other", "steps": ["test.noop"] * 3})
        assert holdfast.service.wait(holdfast.actor, view.id, 30).status == "COMPLETED"
        done.append(turns())
    assert len(set(done)) > 1, "the loop went on meanwhile"
    holdfast.service.cancel(holdfast.actor, endless.id)
    assert holdfast.service.wait(holdfast.actor, endless.id, 30).status.startswith("CANCELLED")
