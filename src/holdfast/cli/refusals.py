"""How a command that could not do its work says so: for people on stderr, for programs as one JSON object.

It also knows the exit codes. Whatever is raised ends here, so `-o json` is valid JSON whatever happens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import click

from holdfast.core.errors import BadUsage, Refused
from holdfast.core.model import Problem

OK, FAILED, USAGE, UNSAFE, CANCELLED, TIMED_OUT, UNREACHABLE, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 70, 130

_BY_CODE = {
    "HF0501": UNREACHABLE,
    "HF0504": UNREACHABLE,
    "HF0703": UNREACHABLE,
    "HF0704": TIMED_OUT,
    "HF0751": USAGE,
    "HF0758": USAGE,
    "HF0801": UNREACHABLE,
}
#: files, requests and command lines that cannot be used
_USAGE = ("HF01", "HF02", "HF08")


def exit_code(code: str) -> int:
    return _BY_CODE.get(code, USAGE if code.startswith(_USAGE) else FAILED)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for JSON; also true of one that cannot be parsed."""
    following = zip(arguments, [*arguments[1:], ""], strict=True)
    return any(
        (word in ("-o", "--output", "--format") and value in ("json", "jsonl"))
        or word in ("-ojson", "-ojsonl", "--output=json", "--output=jsonl", "--format=json")
        for word, value in following
    )


def report(error: Exception, arguments: Sequence[str]) -> int:
    """Say what went wrong; the answer is the exit code."""
    refused = _as_refused(error)
    as_json = wants_json(arguments)
    if refused is None:
        text = f"{type(error).__name__}: {error}"
        if as_json:
            click.echo(dumps({"error": {"code": "HF0000", "message": text}}))
        click.echo(f"{_red('error')}: {text}", err=True)
        click.echo("  = help: this is a bug in Holdfast; `--traceback` shows where, please report it", err=True)
        return BUG
    if as_json:
        click.echo(dumps({"error": error_object(refused)}))
    show(refused)
    if refused.code == "HF0203" and (where := _where_archived(arguments)):
        click.echo(f"  = help: it was purged, and is in the archive: `{where}`", err=True)
    return exit_code(refused.code)


def _where_archived(arguments: Sequence[str]) -> str:
    """What shows the execution that was asked for, if it is not in the store but in an archive."""
    from .archive import where

    try:
        return where([word for word in arguments if not word.startswith("-")])
    except (Refused, OSError):
        return ""


def _as_refused(error: Exception) -> Refused | None:
    if isinstance(error, Refused):
        return error
    if isinstance(error, click.ClickException):
        return BadUsage(_usage(error))
    return None


def _usage(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        close = close_to(error.option_name, error.possibilities or ())
        return f"there is no option `{error.option_name}`" + (f"; did you mean `{close}`?" if close else _see(error))
    text = error.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    return text if "; " in text else text + _see(error)


def _see(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return f"; see `{ctx.command_path} --help`" if ctx is not None else ""


def error_object(refused: Refused) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = {"code": refused.code, "message": refused.message}
    if refused.problems:
        found["problems"] = [msgspec.to_builtins(problem) for problem in refused.problems]
    return found


def show(refused: Refused) -> None:
    """For people: problems with their place in the file, or one line and where to read on."""
    located = [problem for problem in refused.problems if problem.line or problem.file]
    if located or (refused.problems and refused.code == "HF0100"):
        show_problems(refused.problems)
        return
    click.echo(f"{_red('error')}{_bold(f'[{refused.code}]')}: {refused.message}", err=True)
    for problem in refused.problems:
        click.echo(f"  - [{problem.code}] {problem.message}", err=True)
        if problem.help:
            click.echo(f"    = help: {problem.help}", err=True)
    if not isinstance(refused, BadUsage):
        click.echo(_dim(f"  = help: `holdfast explain {refused.code}` says more"), err=True)


def show_problems(problems: Iterable[Problem], *, is_error: bool = True) -> None:
    """Each with its place in the file. They are progress, unless they are what was asked for."""
    from holdfast.language.problems import render, summary

    listed = list(problems)
    for problem in listed:
        click.echo(_coloured(render(problem)) + "\n", err=is_error)
    codes = sorted({problem.code for problem in listed})
    more = f"; `holdfast explain {codes[0]}` says more" if len(codes) == 1 else ""
    # An importer says the line with the file, where it knows no column.
    files = sorted({re.sub(r":[0-9]+$", "", problem.file) for problem in listed if problem.file})
    where = f" in {files[0]}" if len(files) == 1 else f" in {len(files)} files" if files else ""
    click.echo(_dim(f"{summary(listed)}{where}{more}"), err=is_error)


def _coloured(text: str) -> str:
    first, _, rest = text.partition("\n")
    head, _, message = first.partition(": ")
    kind, _, code = head.partition("[")
    colour = _red if kind == "error" else _yellow
    lines = [
        f"{line.partition('^')[0]}{colour('^' + line.partition('^')[2])}" if set(line[: line.find("^")]) <= set(" |\t")
        and "^" in line else line
        for line in rest.splitlines()
    ]  # fmt: skip
    return "\n".join([f"{colour(kind)}{_bold('[' + code)}: {_bold(message)}", *lines])


def close_to(word: str, candidates: Iterable[str]) -> str:
    """The candidate that was probably meant, or nothing."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(candidates), 1, 0.6)), "")


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _red(text: str) -> str:
    return click.style(text, fg="red", bold=True)


def _yellow(text: str) -> str:
    return click.style(text, fg="yellow", bold=True)


def _bold(text: str) -> str:
    return click.style(text, bold=True)


def _dim(text: str) -> str:
    return click.style(text, dim=True)
