"""Arguments and options that several commands share, and how ids and names are completed in a shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def output_option(formats: Sequence[str], default: str) -> Callable[[F], F]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(list(formats)),
        default=default,
        show_default=True,
        help="Form of the output.",
    )


def id_argument(command: F) -> F:
    return click.argument("id", metavar="ID", shell_complete=complete_ids)(command)


def _ask(question: Callable[[Any], list[Any]]) -> list[Any]:
    """Ask for completions; a shell that completes must never see an error."""
    try:
        from .connect import find_server, reading
        from .settings import Settings

        settings = Settings()
        path = settings.store_path
        if find_server(settings) is None and path is not None and not path.exists():
            return []
        with reading(settings) as verbs:
            return question(verbs)
    except Exception:
        return []


def complete_ids(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    views = _ask(lambda verbs: verbs.executions(limit=200))
    found = [view for view in views if view.id.startswith(incomplete.lower())][:30]
    size = max(8, len(incomplete))
    return [CompletionItem(view.id[:size], help=f"{view.workflow} {view.status}") for view in found]


def complete_workflows(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    views = _ask(lambda verbs: verbs.workflows())
    return [CompletionItem(view.name) for view in views if view.name.startswith(incomplete)]


def complete_files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Files, and names of published workflows."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file"), *complete_workflows(ctx, parameter, incomplete)]


def complete_statuses(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from holdfast.core.model import Status

    return [name for name in ("open", "ended", "failed", *Status.__members__) if name.startswith(incomplete)]


def complete_codes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from .explain import topics

    return sorted({t.name for t in topics() if t.name.lower().startswith(incomplete.lower())})
