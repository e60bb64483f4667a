"""What a command line says about a workflow: which file or published name, which inputs, which modules.

`--input k=v` is read as the type that the workflow declares for `k`; without a declaration as a YAML scalar.
`k:=JSON` is JSON whatever is declared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.core.errors import BadUsage, InvalidDefinition, UnknownWorkflow
from holdfast.core.model import Problem

from .refusals import close_to

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs
    from holdfast.language import Definition, Published, YamlProgram
    from holdfast.language.nodes import Document

    from .settings import Settings

T = TypeVar("T")

#: suffixes of files that hold workflows
SUFFIXES = (".yaml", ".yml", ".json")
#: what stdin is called in messages
STDIN = "<stdin>"


class Source(NamedTuple):
    """A workflow file, read."""

    path: Path
    definition: dict[str, Any]
    program: YamlProgram
    warnings: list[Problem]
    #: the other workflows of its file, or those it was read together with
    library: dict[str, Document]


def is_file(text: str) -> bool:
    """Whether a word on the command line means a file, there or not; else it is a published name."""
    name = split_name(text)[0]
    return "/" in name or name.endswith(SUFFIXES) or Path(name).is_file() or name == "-"


def split_name(text: str) -> tuple[str, str]:
    """`FILE#NAME`: a file, and which of its workflows is meant."""
    file, mark, name = text.rpartition("#")
    return (file, name) if mark and file and not Path(text).is_file() else (text, "")


def read_text(name: str) -> str:
    """The text of a file, `-` for stdin. Raises `InvalidDefinition` where it is no text or too much of it."""
    from holdfast.language import decode
    from holdfast.language.load import MAX_BYTES

    if name == "-":
        return decode(sys.stdin.buffer.read(MAX_BYTES + 1), STDIN)
    path = Path(name)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        folder = path.parent if path.parent.is_dir() else Path()
        near = [str(folder / f.name) for f in folder.iterdir() if f.suffix in SUFFIXES] if folder.is_dir() else []
        close = close_to(name, near)
        hint = f"; did you mean `{close}`?" if close else ""
        raise BadUsage(f"there is no file {name}{hint}") from None
    except IsADirectoryError:
        raise BadUsage(f"{name} is a folder, not a workflow file") from None
    except OSError as error:
        raise BadUsage(f"{name} cannot be read: {error.strerror}") from None
    return decode(data, name)


def load_source(name: str, title: str = "", library: Published | None = None) -> Source:
    """One workflow of a file, checked: the one of that title, or the last; of the only one it is the new title. Raises
    `InvalidDefinition` with every problem in the file."""
    from holdfast.language import choose

    file, wanted = split_name(name)
    found = _load([file], title if not wanted else "", library)
    chosen = choose(found, wanted or (title if len(found) > 1 else ""), _shown(file))
    return _source(chosen, file, found)


def load_sources(names: Sequence[str], title: str = "", library: Published | None = None) -> list[Source]:
    """All workflows of all these files, each checked. Raises `InvalidDefinition` with every problem in all of them."""
    found = _load(names, title, library)
    if title and len(found) > 1:
        raise BadUsage(f"--name goes with one workflow, and {_shown(names[0])} holds {len(found)}")
    return [_source(each, each.document.file, found) for each in found]


def with_types(settings: Settings, load: Callable[[Published | None], T]) -> T:
    """What `load` makes of files; where they use step types that are not in them, with those that are published. A
    store is never made for that."""
    from .connect import find_server, reading

    try:
        return load(None)
    except InvalidDefinition as invalid:
        lacks_types = any(problem.code == "HF0110" and not problem.warning for problem in invalid.problems)
        path = settings.store_path
        has_store = path is None or path.exists() or find_server(settings) is not None
        if not lacks_types or not has_store:
            raise
    with reading(settings) as verbs:
        return load(_library(verbs))


def _library(verbs: Verbs) -> Published:
    """What is published where these verbs reach, for workflows that use it."""
    from holdfast.language import Published

    def read(name: str) -> Any:
        try:
            return verbs.workflow(name).definition
        except UnknownWorkflow:
            return None

    return Published(read)


def _load(names: Sequence[str], title: str, library: Published | None) -> list[Definition]:
    from holdfast.language import Text, define, load_workflows
    from holdfast.language.documents import named

    texts = [Text(read_text(name), _shown(name), Path(name).stem if name != "-" else "stdin") for name in names]
    known = library if library is not None else {}
    found = load_workflows(texts, known)
    if title and len(found) == 1 and found[0].name != title:
        found = [define(named(found[0].document, title), library=known)._replace(warnings=found[0].warnings)]
    return found


def _source(chosen: Definition, file: str, found: Sequence[Definition]) -> Source:
    library = {each.name: each.document for each in found if each is not chosen}
    return Source(Path(file), chosen.data, chosen.program, chosen.warnings, library)


def _shown(name: str) -> str:
    return STDIN if name == "-" else name


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
