"""`holdfast completion` and `holdfast version`."""

from __future__ import annotations

import click

from .refusals import dumps

_WHERE = {
    "bash": 'eval "$(holdfast completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(holdfast completion zsh)"       # in ~/.zshrc',
    "fish": "holdfast completion fish | source       # in ~/.config/fish/config.fish",
}


@click.command("completion", short_help="Completion for your shell.")
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options, execution ids and workflow names.

    \b
      bash   eval "$(holdfast completion bash)"       in ~/.bashrc
      zsh    eval "$(holdfast completion zsh)"        in ~/.zshrc
      fish   holdfast completion fish | source        in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    root = ctx.find_root().command
    found = get_completion_class(shell)
    assert found is not None, shell
    maker = found(root, {}, "holdfast", "_HOLDFAST_COMPLETE")
    # `source()` of bash asks the installed bash for its version, which fails where there is none.
    click.echo(maker.source_template % maker.source_vars())


@click.command("version", short_help="The version of Holdfast.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")
def version_command(output: str) -> None:
    """The version of Holdfast and of what it stands on."""
    import platform

    from holdfast import __version__

    if output == "text":
        click.echo(f"holdfast {__version__}")
        return
    import apsw

    click.echo(
        dumps({"holdfast": __version__, "python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()})
    )
