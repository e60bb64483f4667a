"""What a command line says about a workflow: which file or published name, which inputs, which modules.

`--input k=v` is read as the type that the workflow declares for `k`; without a declaration as a YAML scalar.
`k:=JSON` is JSON whatever is declared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.errors import BadUsage
from holdfast.core.model import Problem

from .refusals import close_to

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs
    from holdfast.language import YamlProgram

#: suffixes of files that hold workflows
SUFFIXES = (".yaml", ".yml", ".json")


class Source(NamedTuple):
    """A workflow file, read."""

    path: Path
    definition: dict[str, Any]
    program: YamlProgram
    warnings: list[Problem]


def is_file(text: str) -> bool:
    """Whether a word on the command line means a file, there or not; else it is a published name."""
    return "/" in text or text.endswith(SUFFIXES) or Path(text).is_file() or text == "-"


def read_text(name: str) -> str:
    """The text of a file, `-` for stdin."""
    if name == "-":
        return sys.stdin.read()
    path = Path(name)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        folder = path.parent if path.parent.is_dir() else Path()
        near = [str(folder / f.name) for f in folder.iterdir() if f.suffix in SUFFIXES] if folder.is_dir() else []
        close = close_to(name, near)
        hint = f"; did you mean `{close}`?" if close else ""
        raise BadUsage(f"there is no file {name}{hint}") from None
    except IsADirectoryError:
        raise BadUsage(f"{name} is a folder, not a workflow file") from None
    except UnicodeDecodeError as error:
        raise BadUsage(f"{name} is not UTF-8 text: {error}") from None
    except OSError as error:
        raise BadUsage(f"{name} cannot be read: {error.strerror}") from None


def load_source(name: str, title: str = "") -> Source:
    """A workflow file, checked. Raises `InvalidDefinition` with every problem in it."""
    from holdfast.language import compile_definition, load_workflow

    definition, program, warnings = load_workflow(read_text(name), "<stdin>" if name == "-" else name)
    wanted = title or ("" if definition.get("name") else Path(name).stem if name != "-" else "stdin")
    if wanted:
        definition = {**definition, "name": wanted}
        program = compile_definition(definition)
    return Source(Path(name), definition, program, warnings)


def published(verbs: Verbs, name: str) -> YamlProgram | None:
    """The program of a published workflow, to read inputs and draw progress by."""
    from holdfast.language import compile_definition

    plain, _, version = name.partition(":")
    definition = verbs.workflow(plain, int(version) if version.isdigit() else 0).definition
    return compile_definition(definition) if definition else None


def collect(pairs: Sequence[str], file: str, program: YamlProgram | None) -> dict[str, Any] | None:
    """The input of an execution: the file's values, then those of `--input`."""
    given: dict[str, Any] = _from_file(file) if file else {}
    declared = program.parameters if program is not None else None
    types = {parameter.name: parameter.type for parameter in declared or ()}
    for pair in pairs:
        name, value = _pair(pair, types)
        given[name] = value
    return given or None


def _from_file(name: str) -> dict[str, Any]:
    from holdfast.language import load

    found = load(read_text(name), name).root.plain()
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadUsage(f"{name} must hold a map of inputs, not a {type(found).__name__}")
    return found


def _pair(pair: str, types: dict[str, str]) -> tuple[str, Any]:
    name, mark, text = pair.partition("=")
    if not mark or not name.rstrip(":"):
        raise BadUsage(f"--input {pair!r} is not like `name=value` or `name:=JSON`")
    if name.endswith(":"):
        try:
            return name[:-1], json.loads(text)
        except ValueError as error:
            raise BadUsage(f"--input {name}{text!r} is not valid JSON: {error}") from None
    return name, typed(text, types.get(name, ""))


def typed(text: str, kind: str) -> Any:
    """A value as it was written, read as the declared type. What does not fit stays text: the workflow's own
    check says it better than we could."""
    from holdfast.core.errors import InvalidDefinition
    from holdfast.language import load
    from holdfast.language.load import Unstorable, scalar

    if kind in ("string", "duration"):
        return text
    if kind in ("list", "map", "any") and text[:1] in ("[", "{", '"', "'"):
        try:
            return load(text).root.plain()
        except InvalidDefinition:
            return text
    if kind == "boolean" and text.lower() in ("yes", "no", "on", "off"):
        return text.lower() in ("yes", "on")
    try:
        return scalar(text)
    except Unstorable:
        return text


def modules_of(given: Sequence[str], file: Path | None) -> list[str]:
    """Modules with blocks: those named, and `blocks.py` beside the workflow."""
    modules = list(given)
    if file is not None:
        beside = (file.parent / "blocks.py").resolve()
        if beside.is_file() and str(beside) not in {str(Path(m).resolve()) for m in modules if m.endswith(".py")}:
            modules.append(str(beside))
    return modules
