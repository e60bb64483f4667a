"""The command `holdfast`: which commands there are, where each lives, and how everything ends.

Only click is imported here, because `holdfast --help` and shell completion are felt; the module of a
command is imported when that command is called. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from holdfast.core.version import VERSION as __version__

from .streams import OutputLost, ReaderGone, end_with_reader, install


class Entry(NamedTuple):
    #: module below `holdfast.cli`; the command is the attribute of its own name there
    module: str
    text: str


COMMANDS: dict[str, dict[str, Entry]] = {
    "Run": {
        "run": Entry("run", "Run a workflow here and now, durably."),
        "up": Entry("up", "Serve this project: engine, worker and API."),
        "worker": Entry("up", "Work for a server elsewhere."),
        "demo": Entry("demo", "See a fleet upgraded, fail on purpose, and put back."),
    },
    "Look": {
        "ps": Entry("look", "List executions, newest first."),
        "show": Entry("look", "Everything about one execution."),
        "watch": Entry("follow", "Follow an execution as it moves."),
        "why": Entry("look", "Why is it where it is, and what would move it?"),
        "logs": Entry("follow", "What its steps and blocks said."),
        "events": Entry("follow", "Its history, fact by fact."),
        "jobs": Entry("look", "Its jobs: what was done outside, by whom, with what effect."),
        "ledger": Entry("verdict", "What an execution changed outside, and what is left of it."),
    },
    "Act": {
        "signal": Entry("act", "Send a signal to an execution."),
        "cancel": Entry("act", "Stop an execution in good order."),
        "resume": Entry("again", "Carry on where an execution failed or was stopped."),
        "replay": Entry("again", "Do again what follows a step."),
        "retry": Entry("retry", "A new execution for what failed in another one."),
        "approve": Entry("approve", "Approve a step that waits for it."),
        "reject": Entry("approve", "Reject a step that waits for approval."),
        "approvals": Entry("approve", "What waits for somebody's approval."),
        "rollback": Entry("verdict", "Undo what an execution did that waits for a decision."),
        "fail": Entry("verdict", "End an execution as it is that waits for a decision."),
        "ack": Entry("verdict", "Acknowledge how an execution ended."),
        "purge": Entry("keep", "Forget executions that have ended."),
        "publish": Entry("act", "Publish workflows under their names."),
    },
    "Write": {
        "init": Entry("init", "Begin a project with a sample workflow."),
        "check": Entry("check", "Find what is wrong with workflow files."),
        "plan": Entry("plan", "What a run would do, and the worst that can come of it."),
        "schema": Entry("check", "JSON Schema of workflow files, for editors."),
        "explain": Entry("explain", "Explain an error code, a step type, a key or a status."),
    },
    "Operate": {
        "workflows": Entry("lists", "Published workflows."),
        "blocks": Entry("lists", "Registered blocks, and who offers them."),
        "workers": Entry("lists", "Workers, and what they are doing."),
        "queues": Entry("lists", "Queues, and how long jobs wait in them."),
        "locks": Entry("locks", "Locks: who holds them, who waits, and taking one away."),
        "entity": Entry("entity", "Entities, their sensors and configuration."),
        "inventory": Entry("inventory", "Import entities from elsewhere, and export them."),
        "retention": Entry("keep", "Which ended executions are kept, and what goes next."),
        "archive": Entry("archive", "Read back what was purged."),
        "token": Entry("token", "Create, list and revoke API tokens."),
        "verify": Entry("verify", "Check every invariant of a store."),
        "doctor": Entry("doctor", "Check this machine and this project."),
        "completion": Entry("shell", "Completion for your shell."),
        "version": Entry("shell", "The version of Holdfast."),
    },
}

#: commands that are over when whoever reads them (`head`, a pager) has seen enough. All others have something to
#: do, or a verdict to give, whoever looks.
LOOKING = frozenset(
    ("ps", "show", "why", "logs", "events", "jobs", "approvals", "schema", "explain", "workflows", "blocks", "workers",
     "queues", "retention", "completion", "version")
)  # fmt: skip

EXIT_CODES = """\
\b
Exit codes:
  0  completed                    4  cancelled
  1  failed safe, or refused      5  timed out waiting
  2  usage, or invalid file       6  server or store unreachable
  3  failed or cancelled unsafe   130  interrupted; the run goes on later"""


class Commands(click.Group):
    """The group of all commands: help without importing any of them, suggestions for misspelt ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in COMMANDS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for commands in COMMANDS.values():
            if cmd_name in commands:
                module = importlib.import_module(f"holdfast.cli.{commands[cmd_name].module}")
                command: click.Command = getattr(module, f"{cmd_name}_command")
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from .refusals import close_to

            close = close_to(args[0], self.list_commands(ctx))
            hint = f"did you mean `holdfast {close}`?" if close else "`holdfast --help` lists all commands"
            raise click.UsageError(f"there is no command `{args[0]}`; {hint}", ctx)
        if args[0] in LOOKING:
            end_with_reader()
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
            return answer
        except ReaderGone:
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(10), entry.text) for name, entry in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=entry.text)
            for commands in COMMANDS.values()
            for name, entry in commands.items()
            if name.startswith(incomplete)
        ]


@click.group(
    cls=Commands,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    options_metavar="",
    subcommand_metavar="COMMAND [ARGUMENTS]",
)
@click.version_option(__version__, "-V", "--version", message="holdfast %(version)s", help="Show the version.")
@click.option(
    "-C", "--project", metavar="DIR", default="", help="Work as if started in DIR.", envvar="HOLDFAST_PROJECT"
)
@click.option("--traceback", is_flag=True, help="Show where in the code an error came from.", hidden=True)
@click.pass_context
def cli(ctx: click.Context, project: str, traceback: bool) -> None:
    """Durable workflows for people who change real infrastructure.

    \b
      holdfast demo               see it work, in fifteen seconds
      holdfast init               begin a project here
      holdfast run hello.yaml     run a workflow
    """
    if project:
        try:
            os.chdir(project)
        except OSError as error:
            raise click.UsageError(f"there is no project {project}: {error.strerror}", ctx) from None


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the answer is its exit code."""
    wants_traceback = "--traceback" in arguments or bool(os.environ.get("HOLDFAST_TRACEBACK"))
    try:
        answer = cli.main(list(arguments), prog_name="holdfast", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except OutputLost as lost:
        click.echo(f"error: the output cannot be written: {lost}", err=True)
        return 1
    except Exception as error:
        from .refusals import report

        if wants_traceback:
            import traceback

            traceback.print_exc()
        return report(error, arguments)


def main() -> None:
    install()
    code = run(sys.argv[1:])
    sys.exit(code)


if __name__ == "__main__":
    main()
