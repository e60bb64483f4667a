"""Nodes that know where they stand, and the report that collects what is wrong with them.

The tree is the same for YAML (lines and columns) and for JSON (only paths). Nothing here reads text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import InvalidDefinition
from holdfast.core.model import Problem

from .problems import PROBLEMS, summary

if TYPE_CHECKING:
    from .tree import Expr

#: More problems than this help nobody.
MAX_PROBLEMS = 100

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")


class Document:
    """One document of a file, or one JSON body: where problems are said to be."""

    __slots__ = ("file", "line", "lines", "name", "original", "root", "text")

    def __init__(self, file: str = "", text: str = "", lines: list[str] | None = None) -> None:
        self.file = file
        #: of the whole file, also where it holds several documents
        self.text = text
        self.lines = (LINE_BREAK.split(text) if text else []) if lines is None else lines
        #: lines as they were written, where the loader read on as if a mistake had been put right
        self.original: dict[int, str] = {}
        self.root: Node
        #: where its `---` stands, from 0
        self.line = 0
        #: the name it is published under; empty where it does not say
        self.name = ""

    def sibling(self) -> Document:
        """Another document of the same file."""
        other = Document(self.file, self.text, self.lines)
        other.original = self.original
        return other

    def written(self, line: int, column: int) -> tuple[str, int]:
        """The source line as its author wrote it, and where in it that column is."""
        if not 0 <= line < len(self.lines):
            return "", column
        source = self.lines[line]
        original = self.original.get(line)
        if original is None:
            return source, column
        # What is alike at both ends was not touched.
        head = 0
        while head < min(len(source), len(original)) and source[head] == original[head]:
            head += 1
        if column >= head:
            behind = len(source) - column
            tail = 0
            while tail < min(len(source), len(original)) and source[-1 - tail] == original[-1 - tail]:
                tail += 1
            if behind <= tail:
                column = len(original) - behind
            elif column > head and source[head] in "'\"":
                column -= 1
        return original, max(0, min(column, len(original)))


class Node:
    """A scalar, a list of nodes or a map of nodes, with its place. Lines and columns count from 0."""

    __slots__ = ("column", "document", "end", "end_column", "end_line", "key", "line", "marks", "parent",
                 "start", "style", "tree", "value")  # fmt: skip

    def __init__(self, document: Document, value: Any, parent: Node | None, key: str | int) -> None:
        self.document = document
        #: plain scalar, list[Node] or dict[str, Node]
        self.value = value
        self.parent = parent
        self.key = key
        self.line = self.column = self.end_line = self.end_column = self.start = self.end = -1
        self.style = ""
        #: the expression it is, where that is not to be read from its text
        self.tree: Expr | None = None
        #: of a map: where each key stands (line, column)
        self.marks: dict[str, tuple[int, int]] = {}

    @property
    def path(self) -> str:
        parts: list[str] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            if isinstance(node.key, int):
                parts.append(f"[{node.key}]")
            elif _PLAIN_KEY.fullmatch(node.key):
                parts.append(f".{node.key}")
            else:
                parts.append(f"['{node.key}']")
            node = node.parent
        return "$" + "".join(reversed(parts))

    def plain(self) -> Any:
        """The data without its places."""
        value = self.value
        if isinstance(value, dict):
            return {key: node.plain() for key, node in value.items()}
        if isinstance(value, list):
            return [node.plain() for node in value]
        return value

    @property
    def kind(self) -> str:
        """`a string`, `an integer`, `null`, …"""
        return a_type(self.value)

    def position(self, offset: int, snippet: str) -> tuple[int, int]:
        """Line and column of `snippet`, which begins at `offset` of this node's text."""
        if self.line < 0:
            return -1, -1
        lines = self.document.lines
        if self.end_line == self.line:
            column = self.column + offset + (self.style in "'\"" and self.style != "")
            if lines[self.line].startswith(snippet, column):
                return self.line, column
        elif self.style == "|" and isinstance(self.value, str):
            line = self.line + 1 + self.value.count("\n", 0, offset)
            within = offset - (self.value.rfind("\n", 0, offset) + 1)
            if line < len(lines):
                text = self.value.split("\n")[line - self.line - 1]
                indent = len(lines[line]) - len(text)
                if indent >= 0 and lines[line].startswith(snippet, indent + within):
                    return line, indent + within
        # Folded, escaped or wrapped: look for the words themselves.
        at = self.document.text.find(snippet, self.start, self.end) if snippet and self.end > 0 else -1
        if at < 0:
            return self.line, self.column
        return place_of(self.document.text, at)


def place_of(text: str, index: int) -> tuple[int, int]:
    """Line and column of a place in a text."""
    breaks = list(LINE_BREAK.finditer(text, 0, index))
    return len(breaks), index - (breaks[-1].end() if breaks else 0)


def type_name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "list"
        case dict():
            return "map"
        case _:
            return type(value).__name__


def a_type(value: Any) -> str:
    """With its article."""
    name = type_name(value)
    if name == "null":
        return name
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


class Report:
    """Collects every problem of a document, so that all are told at once."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Problem] = []
        #: errors and warnings are counted apart: warnings must never crowd out an error
        self._room = {True: MAX_PROBLEMS, False: MAX_PROBLEMS}

    def _has_room(self, warning: bool) -> bool:
        self._room[warning] -= 1
        return self._room[warning] >= 0

    def add(
        self,
        node: Node | None,
        code: str,
        message: str,
        *,
        key: str | None = None,
        offset: int | None = None,
        snippet: str = "",
        label: str = "",
        help: str = "",
        warning: bool = False,
    ) -> None:
        """Report at `node`, at its key `key`, or at `snippet`, which begins at `offset` of its text."""
        assert code in PROBLEMS, code
        if not self._has_room(warning):
            return
        path = node.path if node else ""
        line = column = -1
        width = 1
        if node is not None and node.line >= 0:
            if key is not None and key in node.marks:
                (line, column), width = node.marks[key], len(key)
            elif offset is not None:
                line, column = node.position(offset, snippet)
                width = max(len(snippet), 1)
            else:
                line, column = node.line, node.column
                if node.end_line == node.line:
                    width = max(node.end_column - node.column, 1)
                elif node.style == "" and isinstance(node.value, (list, dict)):
                    width = 1
        if key is not None and node is not None:
            path += f".{key}"
        self.found.append(self._problem(code, message, line, column, width, label, help, path, warning))

    def _problem(
        self, code: str, message: str, line: int, column: int, width: int,
        label: str, help: str, path: str, warning: bool,
    ) -> Problem:  # fmt: skip
        source = ""
        if 0 <= line < len(self.document.lines):
            source, column = self.document.written(line, column)
            width = max(1, min(width, len(source) - column))
            if len(source) > 400:
                source = source[:400]
        return Problem(
            code, message, self.document.file, line + 1, column + 1, width,
            source, label, help, path, warning,
        )  # fmt: skip

    def at(self, line: int, column: int, code: str, message: str, *, width: int = 1, label: str = "",
           help: str = "") -> None:  # fmt: skip
        assert code in PROBLEMS, code
        if self._has_room(False):
            self.found.append(self._problem(code, message, line, column, width, label, help, "", False))

    def take(self, problems: Iterable[Problem]) -> None:
        """Problems that were found elsewhere, e.g. in another document of the file."""
        self.found += [problem for problem in problems if self._has_room(problem.warning)]

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.found if not problem.warning]

    @property
    def sorted(self) -> list[Problem]:
        unique = {(p.file, p.code, p.line, p.column, p.path, p.message): p for p in self.found}
        order = {file: at for at, file in enumerate(dict.fromkeys(p.file for p in self.found))}
        return sorted(unique.values(), key=lambda p: (order[p.file], p.line, p.column, p.path, p.code))

    def check(self) -> None:
        """Raise if there is any error."""
        if self.errors:
            listed = self.sorted
            files = {problem.file for problem in listed if problem.file}
            where = f" in {files.pop()}" if len(files) == 1 else f" in {len(files)} files" if files else ""
            first = next(problem for problem in listed if not problem.warning)
            raise InvalidDefinition(f"{summary(listed)}{where}: {first.message}", tuple(listed))
