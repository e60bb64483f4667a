"""The examples of the step language, as tests use them: read from `examples/`, sometimes at another pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.model import Status
from holdfast.core.requests import ReplayExecution, ResumeExecution
from holdfast.core.views import ExecutionView
from holdfast.embedded import Embedded
from holdfast.engine.items import committed, future_reply
from holdfast.engine.rebuild import rebuild
from holdfast.language import Text
from holdfast.language.workflow import load_workflows

from .processes import ROOT


def example(name: str, pace: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The workflows of a file, in their order. `pace`: other durations for those it has."""
    text = (ROOT / "examples" / f"{name}.yaml").read_text()
    for before, after in (pace or {}).items():
        assert before in text, f"{name}.yaml no longer says {before}"
        text = text.replace(before, after)
    found = load_workflows([Text(text, f"{name}.yaml")])
    assert [problem for each in found for problem in each.warnings] == []
    return [each.data for each in found]


def publish(holdfast: Embedded, definitions: Sequence[Mapping[str, Any]]) -> list[str]:
    return [view.name for view in holdfast.service.publish_all(holdfast.actor, definitions)]


def begin(holdfast: Embedded, workflow: str | Mapping[str, Any], **input: Any) -> str:
    """Start it by its name or definition and come back at once."""
    how: dict[str, Any] = {"workflow": workflow} if isinstance(workflow, str) else {"definition": workflow}
    return holdfast.service.start(holdfast.actor, input=input, **how).id


def end(holdfast: Embedded, id: str, seconds: float = 60.0) -> ExecutionView:
    return holdfast.service.wait(holdfast.actor, id, seconds)


def sensor(holdfast: Embedded, name: str) -> Any:
    return holdfast.service.sensor(holdfast.actor, "default", name).value


def replay(holdfast: Embedded, id: str, start: str, *, is_forced: bool = False) -> None:
    future, reply = future_reply()
    holdfast.engine.ask(id, ReplayExecution(start, "a test", is_forced, holdfast.actor), reply)
    committed(future)


def resume(holdfast: Embedded, id: str, *, is_forced: bool = False) -> None:
    future, reply = future_reply()
    holdfast.engine.ask(id, ResumeExecution("a test", is_forced, holdfast.actor), reply)
    committed(future)


def events(holdfast: Embedded, id: str, *types: str) -> list[dict[str, Any]]:
    found = holdfast.service.events(holdfast.actor, id, limit=10_000)
    return [event for event in found if not types or event["type"] in types]


def retention(holdfast: Embedded, id: str) -> str:
    with holdfast.store.reading() as queries:
        return rebuild(queries, id).retention


def is_failed(view: ExecutionView) -> bool:
    return Status[view.status] in (Status.FAILED_SAFE, Status.FAILED_UNSAFE)
