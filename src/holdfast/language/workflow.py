"""The doors of the language: definitions in, programs out.

A definition is plain data. Its canonical bytes are the same whether it came from YAML or JSON, and so is its
digest; positions exist only while a file is being checked. A file may hold several workflows; those that come together
know each other by name, as a library.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from holdfast.core.errors import InvalidDefinition
from holdfast.core.model import Problem

from .compile import compile_document, read_document
from .compiled import Workflow
from .conditions import style_free
from .documents import check_names, hint_booleans, named, workflows_of
from .foreign import parameters_of, version_of
from .interpret import YamlProgram
from .load import MAX_DEPTH, MAX_NODES, load_data, read
from .nodes import Document, Report

Library = Mapping[str, Document]
_NONE: Library = {}
_encoder = msgspec.json.Encoder(order="sorted")


class Definition(NamedTuple):
    """One workflow that was read and checked."""

    #: the name it says it has; empty where it says none
    name: str
    document: Document
    #: plain data, in the form that is stored
    data: dict[str, Any]
    program: YamlProgram
    warnings: list[Problem]


class Published(Mapping[str, Document]):
    """Workflows that are published somewhere, as a library: each is read when somebody asks for it."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        #: the definition of that name, or nothing
        self._read = read
        self._found: dict[str, Document | None] = {}

    def _get(self, name: str) -> Document | None:
        if name not in self._found:
            data = self._read(name)
            self._found[name] = load_data(data, name) if data is not None else None
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._get(name) is not None

    def __getitem__(self, name: str) -> Document:
        found = self._get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(name for name, found in self._found.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Text(NamedTuple):
    """A file that was read."""

    text: str
    file: str = ""
    #: for its only workflow, where that has none
    name: str = ""


def canonical(definition: Any) -> bytes:
    """The one spelling of a definition: JSON with sorted keys. Raises `InvalidDefinition` for anything that is
    not JSON data."""
    if isinstance(definition, (list, tuple)):
        definition = {"steps": definition}
    try:
        return _encoder.encode(definition)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError, NotImplementedError):
        load_data(definition)
        raise InvalidDefinition("the definition is not JSON data") from None


def digest(definition: Any) -> bytes:
    """The key a definition is stored under."""
    data = definition if isinstance(definition, bytes) else canonical(definition)
    return blake2b(data, digest_size=16).digest()


class _Linked(NamedTuple):
    """What a workflow is stored as, and how large that is when it is read back."""

    data: dict[str, Any]
    values: int
    depth: int


class _Linker:
    """Puts into definitions what they use. Each is put together once, however many ways lead to it."""

    def __init__(self, library: Library, uses: Mapping[str, tuple[str, ...]]) -> None:
        self.library = library
        #: of those that were compiled already
        self.uses = uses
        self.made: dict[str, _Linked] = {}

    def link(self, document: Document, uses: Iterable[str]) -> _Linked:
        data = document.root.plain()
        data = {"steps": data} if isinstance(data, list) else data
        values, depth = _extent(data)
        pinned = data.get("uses") or {}
        missing = {name: self.named(name) for name in uses if name not in pinned}
        if missing:
            data = {**data, "uses": {**pinned, **{name: each.data for name, each in missing.items()}}}
            values += 1 + sum(each.values for each in missing.values())
            depth = max(depth, 2 + max(each.depth for each in missing.values()))
        return _Linked(data, values, depth)

    def named(self, name: str) -> _Linked:
        """A step type with what it uses itself."""
        made = self.made.get(name)
        if made is None:
            found = self.library[name]
            uses = self.uses[name] if name in self.uses else compile_document(found, self.library)[0].uses
            made = self.made[name] = self.link(found, uses)
        return made


def _extent(data: Any) -> tuple[int, int]:
    """How many values, and how deep they are nested."""
    values = deepest = 0
    level = [data]
    while level:
        values += len(level)
        deepest += 1
        maps = [item for each in level if isinstance(each, dict) for item in each.values()]
        level = maps + [item for each in level if isinstance(each, list) for item in each]
    return values, deepest


def definition_of(document: Document, library: Library = _NONE, uses: Iterable[str] = ()) -> dict[str, Any]:
    """The plain data of a document, with whatever it uses of the library inside: what is stored needs nothing else."""
    return _Linker(library, {}).link(document, uses).data


class Signature(NamedTuple):
    """How a workflow is called, as far as its definition says so."""

    description: str
    shorthand: str
    parameters: dict[str, Any]


def signature(definition: Any) -> Signature:
    """Looks only at the top of a stored definition and compiles nothing."""
    keys = {style_free(key): value for key, value in definition.items()} if isinstance(definition, dict) else {}
    declared = keys.get("parameters", keys.get("inputs"))
    if "parameterschema" in keys or version_of(definition):
        declared = parameters_of(definition)
    texts = [keys.get(key) for key in ("description", "shorthand")]
    description, shorthand = (text if isinstance(text, str) else "" for text in texts)
    return Signature(description, shorthand, declared if isinstance(declared, dict) else {})


def compile_definition(source: Any, file: str = "", library: Library = _NONE) -> YamlProgram:
    """The program of one workflow, from plain data or a loaded document. Raises `InvalidDefinition` with all
    problems."""
    return define(source, file, library).program


def define(source: Any, file: str = "", library: Library = _NONE) -> Definition:
    """One workflow, from plain data or a loaded document. Raises `InvalidDefinition` with all problems."""
    found = define_all([source], file, library)
    if len(found) > 1:
        raise InvalidDefinition(f"one workflow is needed here, and the definition holds {len(found)}")
    return found[0]


def define_all(sources: Iterable[Any], file: str = "", library: Library = _NONE) -> list[Definition]:
    """Workflows that come together, from plain data or loaded documents; each document may hold several."""
    documents = [source if isinstance(source, Document) else load_data(source, file) for source in sources]
    report = Report(documents[0] if documents else Document(file))
    found = _unfold(documents, report, {})
    return _checked(found, report, library)


def load_workflow(
    text: str, file: str = "", name: str = "", library: Library = _NONE
) -> tuple[dict[str, Any], YamlProgram, list[Problem]]:
    """One workflow of a file's text, the one of that name or else the last, to which the others are a library: the
    definition as plain data, its program, and warnings. Raises `InvalidDefinition` with all problems."""
    found = choose(load_workflows([Text(text, file)], library), name, file)
    return found.data, found.program, found.warnings


def choose(found: list[Definition], name: str = "", file: str = "") -> Definition:
    """The workflow of that name, or the last."""
    if not name:
        return found[-1]
    chosen = next((each for each in found if each.name == name), None)
    if chosen is None:
        names = ", ".join(f"`{each.name}`" for each in found if each.name) or "none that has a name"
        raise InvalidDefinition(f"{file or 'the text'} holds no workflow `{name}`; it holds {names}")
    return chosen


def load_workflows(
    texts: Iterable[Text],
    library: Library = _NONE,
    order: Callable[[list[Definition]], list[Definition]] = list,
) -> list[Definition]:
    """All workflows of all these files, each checked with all the others as its library, in the order in which they
    can be published. Raises `InvalidDefinition` with the problems of all files."""
    found, report = _read_all(texts)
    return order(_checked(found, report, library))


class Examined(NamedTuple):
    """A file, everything wrong with it so far, and its programs, which must not be run unless that is warnings only."""

    file: str
    programs: list[YamlProgram]
    problems: list[Problem]


def examine(texts: Iterable[Text], library: Library = _NONE) -> list[Examined]:
    """For whoever wants to find still more. Each file is looked at by itself, but knows the names of the others."""
    files = [(text.file, *_read_all([text])) for text in texts]
    library = ChainMap({document.name: document for _, found, _ in files for document in found}, library)  # type: ignore[arg-type]
    examined: list[Examined] = []
    for file, found, report in files:
        compiled = _compile_all(found, report, library)
        examined.append(Examined(file, [YamlProgram(workflow) for workflow, _ in compiled], report.sorted))
    return examined


def program_from_bytes(data: bytes, library: Library = _NONE) -> YamlProgram:
    """The program of a stored definition."""
    return compile_definition(msgspec.json.decode(data), "", library)


# --- inside ------------------------------------------------------------------------------------------
def _read_all(texts: Iterable[Text]) -> tuple[list[Document], Report]:
    """The workflows of those files that could be read well enough to look for more, and all problems so far."""
    everything = Report(Document())
    found: list[Document] = []
    known: dict[str, Document] = {}
    for text, file, name in texts:
        documents, report, is_whole = read(text, file)
        everything.take(report.found)
        if is_whole:
            found += _unfold(documents, everything, known, name)
    return found, everything


def _unfold(
    documents: list[Document], everything: Report, known: dict[str, Document], name: str = ""
) -> list[Document]:
    """The workflows of the documents of one file."""
    found: list[Document] = []
    for document in documents:
        report = Report(document)
        found += workflows_of(document, report)
        everything.take(report.found)
    if len(found) == 1 and not found[0].name and name:
        found = [named(found[0], name)] if isinstance(found[0].root.value, (dict, list)) else found
    many = found if len(found) > 1 else [each for each in found if each.name]
    for document in many:
        report = Report(document)
        check_names([document], report, known)
        everything.take(report.found)
    return found


def _compile(document: Document, library: Library) -> tuple[Workflow, Report]:
    workflow, report = read_document(document, library)
    hint_booleans(document, report)
    return workflow, report


def _compile_all(found: list[Document], everything: Report, library: Library) -> list[tuple[Workflow, list[Problem]]]:
    """Each with the others as its library; what is wrong with them is added to the report."""
    together = _together(found, library)
    compiled: list[tuple[Workflow, list[Problem]]] = []
    for document in found:
        try:
            workflow, report = _compile(document, together)
        except InvalidDefinition as invalid:  # no step can be told from another
            everything.take(invalid.problems)
            continue
        everything.take(report.found)
        compiled.append((workflow, report.sorted))
    return compiled


def _together(found: list[Document], library: Library) -> Library:
    """What comes together knows each other; the library may be far away, so it is not copied."""
    return ChainMap({document.name: document for document in found if document.name}, library)  # type: ignore[arg-type]


def _checked(found: list[Document], report: Report, library: Library) -> list[Definition]:
    early = [problem for problem in report.found if problem.warning]
    compiled = _compile_all(found, report, library)
    report.check()
    together = _together(found, library)
    linker = _Linker(together, {d.name: w.uses for d, (w, _) in zip(found, compiled, strict=True) if d.name})
    linked = [linker.link(document, workflow.uses) for document, (workflow, _) in zip(found, compiled, strict=True)]
    for document, made in zip(found, linked, strict=True):
        _check_extent(document, made, report)
    report.check()
    return [
        Definition(document.name, document, made.data, YamlProgram(workflow),
                   [*early, *warnings] if document is found[0] else warnings)
        for document, made, (workflow, warnings) in zip(found, linked, compiled, strict=True)
    ]  # fmt: skip


def _check_extent(document: Document, made: _Linked, everything: Report) -> None:
    """With all it uses inside, it must still be something that can be read back."""
    report = Report(document)
    if made.values > MAX_NODES:
        report.add(document.root, "HF0106",
                   f"with the step types it uses, the workflow has more than {MAX_NODES:,} values",
                   help="each type brings what it uses itself; let fewer types use each other")  # fmt: skip
    elif made.depth > MAX_DEPTH:
        report.add(document.root, "HF0107",
                   f"with the step types it uses, the workflow is nested more than {MAX_DEPTH} levels deep",
                   help="each type brings what it uses itself; make the chain of types shorter")  # fmt: skip
    everything.take(report.found)
