"""A scope that is a map, and the names that go with it: for tests of parts of the language on their own."""

from __future__ import annotations

from typing import Any

from holdfast.core.model import BlobRef, Problem
from holdfast.language.evaluate import ABSENT, FUEL
from holdfast.language.load import load
from holdfast.language.names import Excerpt, LaneNames, Names, Shared
from holdfast.language.nodes import Document, Node, Report


class MapScope:
    def __init__(self, values: dict[str, Any], error: Any = ABSENT, entity: dict[tuple[str, str], Any] | None = None):
        self.values = values
        self.fuel = FUEL
        self._error = error
        self._entity = entity or {}

    def lookup(self, name: str) -> Any:
        return self.values.get(name, ABSENT)

    def variable(self, name: str) -> Any:
        return self.values.get(name, ABSENT)

    def given(self) -> Any:
        return self.values

    def previous(self) -> Any:
        return self.values.get("output")

    def step(self, id: str) -> Any:
        return ABSENT

    def about(self, key: str) -> Any:
        return {"id": "e1"}.get(key, ABSENT)

    def entity(self, kind: str, name: str) -> Any:
        return self._entity.get((kind, name), ABSENT)

    def error(self) -> Any:
        return self._error

    def load(self, value: Any) -> Any:
        return self.values["blobs"][value.digest] if isinstance(value, BlobRef) else value


def names_in(document: Document, variables: set[str], in_handler: bool = False) -> tuple[Names, Report]:
    report = Report(document)
    shared = Shared(report, frozenset(), frozenset(), frozenset())
    return Names(shared, LaneNames(variables=variables), 0, in_handler=in_handler), report


def read(text: str, variables: dict[str, Any], in_handler: bool = False) -> tuple[Node, Names, Report]:
    """A YAML text as a node, with names for it."""
    document = load(text)
    names, report = names_in(document, set(variables), in_handler)
    return document.root, names, report


def excerpt_of(text: str, variables: set[str], in_handler: bool = False) -> tuple[Excerpt, Names, Report]:
    document = Document("", f"{text}\n")
    node = Node(document, text, None, "")
    document.root = node
    node.line = node.column = node.start = 0
    node.end_line, node.end_column, node.end = 0, len(text), len(text)
    names, report = names_in(document, variables, in_handler)
    return Excerpt(text, node), names, report


def marked(problem: Problem) -> str:
    """What the caret stands under."""
    return problem.source[problem.column - 1 : problem.column - 1 + problem.width]
