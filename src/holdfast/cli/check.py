"""`holdfast check` and `holdfast schema`: what is wrong with workflow files, and what may be in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from holdfast.core import versions
from holdfast.core.errors import InvalidDefinition, Refused
from holdfast.core.model import Problem

from .connect import traceback_option
from .inputs import STDIN, modules_of, read_text
from .refusals import OK, USAGE, dumps, show_problems
from .text import bold, dim, plural, say, style


@click.command("check", short_help="Find what is wrong with workflow files.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE",
              help="Check the inputs of blocks in that module too.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@click.option("-o", "--output", "--format", "output", type=click.Choice(["text", "json", "github"]), default="text",
              show_default=True, help="Form of the output.")  # fmt: skip
@traceback_option
def check_command(files: tuple[str, ...], modules: tuple[str, ...], strict: bool, output: str) -> int:
    """Check workflow files without running them; `-` is stdin. Exit code 2 if there is an error, or with `--strict` a
    warning.

    Everything is checked: keys, step types, expressions, names, and the inputs of blocks that are built in,
    installed, in `blocks.py` beside the file, or given with `-m`. Workflows of all files know each other by name, as
    they do when they are published together.
    """
    found = _check(files, modules)
    everything = [problem for problems in found.values() for problem in problems]
    errors = sum(not problem.warning for problem in everything)
    if output == "json":
        listed = [{"file": file, "problems": _plain(problems)} for file, problems in found.items()]
        click.echo(dumps({"errors": errors, "warnings": len(everything) - errors, "files": listed}))
    elif output == "github":
        for problem in everything:
            click.echo(_annotation(problem))
    else:
        for file, problems in found.items():
            if not problems:
                say(f"{style('ok', fg='green')}  {bold(file)}")
        if everything:
            show_problems(everything, is_error=False)
    if output != "json" and not everything and (output == "github" or len(found) > 1):
        say(dim(f"{plural(len(found), 'file')} ok"))
    return USAGE if errors or (strict and everything) else OK


def _check(files: Sequence[str], modules: Sequence[str]) -> dict[str, list[Problem]]:
    from pathlib import Path

    from holdfast.language import Text, examine

    found: dict[str, list[Problem]] = {STDIN if file == "-" else file: [] for file in files}
    texts: list[Text] = []
    for file in dict.fromkeys(files):
        shown = STDIN if file == "-" else file
        try:
            texts.append(Text(read_text(file), shown))
        except InvalidDefinition as invalid:
            found[shown] = [*invalid.problems]
        except Refused as refused:
            found[shown] = [Problem(refused.code, refused.message, file=shown)]
    for file, programs, problems in examine(texts):
        listed = [*problems]
        beside = modules_of(modules, Path(file) if file != STDIN else None)
        for program in programs:
            listed += _misfits_to_tell(program, problems, beside, file)
        found[file] = sorted(listed, key=lambda problem: (problem.line, problem.column))
    return found


def _misfits_to_tell(program: Any, problems: Sequence[Problem], modules: Sequence[str], file: str) -> list[Problem]:
    """An expression that cannot be read leaves no value, a misspelt key no input: what merely follows from an error of
    the step itself is not told. A parameter that stands there under a wrong name is wrong in any case."""
    misfits = _misfits(program, modules, file)
    errors = [problem.path for problem in problems if not problem.warning]
    broken = [step.path for step in program.steps
              if step.spec >= 0 and any(path.startswith(step.path) for path in errors)]  # fmt: skip
    return [misfit for misfit in misfits
            if misfit.code == "HF0140" or not any(misfit.path.startswith(path) for path in broken)]  # fmt: skip


def _misfits(program: Any, modules: Sequence[str], file: str) -> list[Problem]:
    """Steps that do not fit their blocks; a block that nobody here knows is a warning: a worker may."""
    from .sessions import registry_of

    try:
        registry = registry_of(modules)
    except Refused as refused:
        return [*refused.problems] or [Problem(refused.code, refused.message, file=file)]
    known = registry.offers()
    chosen = {block: versions.choose(block, [o for o in known if o.name == versions.split(block)[0]])
              for block in program.blocks}  # fmt: skip
    offers = {block: offer for block, offer in chosen.items() if offer is not None}
    problems = [_unknown(name, program, registry, file) for name in program.blocks if name not in offers]
    _, misfits = program.pin(offers)
    return problems + [problem if problem.file else msgspec.structs.replace(problem, file=file) for problem in misfits]


def _unknown(reference: str, program: Any, registry: Any, file: str) -> Problem:
    """At the first step that uses it."""
    name = versions.split(reference)[0]
    known = [offer for offer in registry.offers() if offer.name == name]
    help = "give its module with `-m`, or let it be: a worker may offer it"
    message = versions.missing(reference, known).message if known else f"block `{reference}` is not known here"
    code = "HF0771" if known else "HF0211"
    help += "" if known else _close(reference, registry)
    path = program.used_at(reference)
    node = next((step.node for step in program.steps if step.path == path and step.node is not None), None)
    line = column = -1
    source = ""
    if node is not None and 0 <= node.line < len(node.document.lines):
        line = node.line
        source, column = node.document.written(line, node.column)
    return Problem(
        code, message, file, line + 1, column + 1, source=source[:400], path=path, help=help, warning=True
    )  # fmt: skip


def _close(name: str, registry: Any) -> str:
    from .refusals import close_to

    close = close_to(name, [block.name for block in registry])
    return f". Did you mean `{close}`?" if close else ""


def _plain(problems: Sequence[Problem]) -> list[Any]:
    return [msgspec.to_builtins(problem) for problem in problems]


def _annotation(problem: Problem) -> str:
    """A line that GitHub shows beside the code."""
    kind = "warning" if problem.warning else "error"
    line, column = max(problem.line, 1), max(problem.column, 1)
    place = f"file={_property(problem.file)},line={line},col={column}"
    if problem.line and problem.width > 1:
        place += f",endColumn={column + problem.width}"
    text = problem.message + (f" ({problem.help})" if problem.help else "")
    return f"::{kind} {place},title={problem.code}::{_escaped(text)}"


def _escaped(text: str) -> str:
    for char, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(char, code)
    return text


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


@click.command("schema", short_help="JSON Schema of workflow files, for editors.")
@traceback_option
def schema_command() -> None:
    """JSON Schema of workflow files. Editors use it to complete and check while you type.

    \b
      holdfast schema > workflow.schema.json
      # yaml-language-server: $schema=workflow.schema.json
    """
    from holdfast.language.schema import json_schema

    click.echo(dumps(json_schema()))
