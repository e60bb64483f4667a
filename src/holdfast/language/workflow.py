"""The doors of the language: definitions in, programs out.

A definition is plain data. Its canonical bytes are the same whether it came from YAML or JSON, and so is its
digest; positions exist only while a file is being checked.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from holdfast.core.errors import InvalidDefinition
from holdfast.core.model import Problem

from .compile import compile_document, read_document
from .interpret import YamlProgram
from .load import load, load_data
from .nodes import Document

_encoder = msgspec.json.Encoder(order="sorted")


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


def definition_of(document: Document) -> dict[str, Any]:
    """The plain data of a document."""
    data = document.root.plain()
    return {"steps": data} if isinstance(data, list) else data


def compile_definition(source: Any, file: str = "") -> YamlProgram:
    """A program from plain data or from a loaded document. Raises `InvalidDefinition` with all problems."""
    document = source if isinstance(source, Document) else load_data(source, file)
    return YamlProgram(compile_document(document)[0])


def load_workflow(text: str, file: str = "") -> tuple[dict[str, Any], YamlProgram, list[Problem]]:
    """From a file's text: the definition as plain data, its program, and warnings. Raises
    `InvalidDefinition` with all problems."""
    document = load(text, file)
    workflow, report = compile_document(document)
    return definition_of(document), YamlProgram(workflow), report.sorted


def examine(text: str, file: str = "") -> tuple[YamlProgram, list[Problem]]:
    """For whoever wants to find still more: everything wrong with a file so far, and its program, which must not
    be run unless that is warnings only. Raises `InvalidDefinition` where no step can be told from another."""
    workflow, report = read_document(load(text, file))
    return YamlProgram(workflow), report.sorted


def program_from_bytes(data: bytes) -> YamlProgram:
    """The program of a stored definition."""
    return compile_definition(msgspec.json.decode(data))
