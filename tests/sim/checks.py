"""The registries of checks, in three kinds; `invariants` fills them, `world` and `shadow` run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.store.records import Batch, Header

if TYPE_CHECKING:
    from .shadow import Shadow
    from .world import World

EventCheck = Callable[["World", "Shadow", Any], None]
CommitCheck = Callable[["World", "Shadow", Header, Batch], None]
EndCheck = Callable[["World"], None]
EVENT_CHECKS: dict[type, list[EventCheck]] = {}
COMMIT_CHECKS: list[CommitCheck] = []
END_CHECKS: list[EndCheck] = []


def on_event(*kinds: type) -> Callable[[EventCheck], EventCheck]:
    """One event, before it is applied to the shadow of its execution."""

    def register(check: EventCheck) -> EventCheck:
        for kind in kinds:
            EVENT_CHECKS.setdefault(kind, []).append(check)
        return check

    return register


def on_commit(check: CommitCheck) -> CommitCheck:
    """One execution, after each commit that touched it."""
    COMMIT_CHECKS.append(check)
    return check


def on_end(check: EndCheck) -> EndCheck:
    """The world, when everything has healed and ended."""
    END_CHECKS.append(check)
    return check
