"""`holdfast retry`: a new execution that does another one again, or what failed of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.core.views import ExecutionView

from .act import goes_on
from .connect import reach_options, writing
from .inputs import collect
from .options import id_argument, output_option
from .recap import emit
from .run import Asked, Run, log_errors
from .settings import Settings
from .text import bold, dim, say, status

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs

    from .sessions import Session


@click.command("retry", short_help="A new execution for what failed in another one.")
@id_argument
@click.option("--failed", is_flag=True,
              help="Only upon entities that failed, were never reached, were stopped or were rolled back.")  # fmt: skip
@click.option("--force", is_flag=True, help="Also where something is left that nobody has acknowledged.")
@click.option("-i", "--input", "inputs", multiple=True, metavar="K=V",
              help="Replace an input; `K:=JSON` for JSON. Repeatable.")  # fmt: skip
@click.option("--input-file", default="", metavar="FILE", help="Replace inputs from a YAML or JSON file.")
@click.option("--key", default="", help="Idempotency key: the same key starts it once.")
@click.option("--follow", "--wait", "follow", is_flag=True, help="Follow it to its end, as `run` does.")
@click.option("--timeout", type=float, default=None, metavar="S", help="Stop following after S seconds.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE",
              help="With --follow: Python module or file with blocks.")  # fmt: skip
@output_option(("text", "json"), "text")
@reach_options
def retry_command(
    id: str, failed: bool, force: bool, inputs: tuple[str, ...], input_file: str, key: str, follow: bool,
    timeout: float | None, modules: tuple[str, ...], output: str, server: str, token: str, store: str,
) -> int:  # fmt: skip
    """Start a new execution with the definition and the input of one that has ended. The old one stays as it is, and
    each names the other.

    With `--failed` it works upon those entities only that the old one did not bring to their end; after a rollback also
    upon those whose changes were undone. Where the old one left something behind, acknowledge that first, or say
    `--force`; at a server that needs a token with the role admin.

    \b
      holdfast retry 9f3a --failed
      holdfast retry 9f3a --failed -i version=4.2 --follow
    """
    settings = Settings({"server": server, "token": token, "store": store, "modules": modules})
    again = _Again(id, failed, force, inputs, input_file, key)
    if follow:
        from .inputs import modules_of
        from .sessions import open_session

        log_errors()
        session = open_session(settings, modules_of(settings["modules"], None))
        asked = Asked("", timeout=timeout, resume=id, output=output)
        return _Retried(asked, settings, session, again).go()
    with writing(settings) as verbs:
        view = again.ask(verbs)
        is_live = goes_on(verbs)
    if output == "json":
        emit(view, output)
        return 0
    short = view.id[:8]
    say(f"{bold(view.workflow)} {short} retries {view.retry_of[:8]}: {status(view.status)}")
    if not view.is_ended:
        say(dim(f"follow it: holdfast watch {short}" if is_live else "it goes on when an engine runs: holdfast up"))
    return 0


class _Again(NamedTuple):
    """What was asked for."""

    id: str
    failed: bool
    force: bool
    inputs: tuple[str, ...]
    input_file: str
    key: str

    def ask(self, verbs: Verbs) -> ExecutionView:
        given = self._input(verbs)
        return verbs.retry(self.id, failed=self.failed, force=self.force, input=given, key=self.key)

    def _input(self, verbs: Verbs) -> dict[str, Any] | None:
        """Read by the types that the workflow declares, as `run` reads them."""
        if not self.inputs and not self.input_file:
            return None
        from holdfast.language import compile_definition

        definition = verbs.definition(verbs.show(self.id).id)
        return collect(self.inputs, self.input_file, compile_definition(definition) if definition else None)


class _Retried(Run):
    """A run that does another one again."""

    def __init__(self, asked: Asked, settings: Settings, session: Session, again: _Again) -> None:
        super().__init__(asked, settings, session, None)
        self._again = again

    def _start(self) -> ExecutionView:
        return self._again.ask(self.session.verbs)
