"""Options of a start that say what it works upon and when it may begin, as the verb takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from holdfast.core.errors import BadUsage

from .inputs import read_text

F = TypeVar("F", bound=Callable[..., Any])


def upon_options(command: F) -> F:
    """`--on`, `--entities-from`, `--not-before`, `--after`, `--priority`."""
    for option in reversed(
        (
            click.option("--on", multiple=True, metavar="ID|SELECTOR",
                         help="Work upon that entity, or upon those that a selector finds. Repeatable."),
            click.option("--entities-from", default="", metavar="FILE",
                         help="Work upon the entities in a file, one id per line; `-` for stdin."),
            click.option("--not-before", default="", metavar="TIME", help="Begin then, e.g. 2030-01-31T22:00:00Z."),
            click.option("--after", multiple=True, metavar="ID",
                         help="Begin once that execution has ended. Repeatable."),
            click.option("--priority", type=int, default=None, metavar="N",
                         help="In the queues of locks; the higher goes first."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def upon(
    on: Sequence[str], entities_from: str, not_before: str, after: Sequence[str], priority: int | None
) -> dict[str, Any]:
    """Only what was said."""
    from holdfast.language.selectors import is_selector

    ids = [text for text in on if not is_selector(text)]
    if entities_from:
        ids += _listed(entities_from)
    gates: dict[str, Any] = {}
    if not_before:
        gates["not-before"] = not_before
    if after:
        gates["after"] = list(after)
    said = {
        "entities": list(dict.fromkeys(ids)),
        "select": [text for text in on if is_selector(text)],
        "gates": gates,
    }
    return {name: value for name, value in said.items() if value} | ({} if priority is None else {"priority": priority})


def _listed(name: str) -> list[str]:
    lines = [line.strip() for line in read_text(name).splitlines()]
    ids = [line for line in lines if line and not line.startswith("#")]
    if not ids:
        raise BadUsage(f"there is no id of an entity in {name}; write one per line")
    return ids
