"""From text to a tree of nodes that know where they stand: strict YAML, and JSON on the same path.

It answers for what a document may contain (YAML 1.2 core scalars, no anchors, tags or duplicate keys,
bounded size and depth) and for reading on after a mistake. It knows nothing of steps. The tree is built from the
event stream, without recursion, so that no document can exhaust the stack.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from .nodes import Document, Node, Report, a_type, place_of
from .syntax import HALF, braces, diagnose

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_NODES = 50_000
MAX_DOCUMENTS = 1_000
#: mistakes after which it is read on, and text that is read again for it in all
MAX_REPAIRS = 20
REREAD_BYTES = 500_000
#: Integers that survive every store, JSON included.
MAX_INTEGER = 2**63 - 1

_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_INT = re.compile(r"[-+]?[0-9]+\Z")
_OCT = re.compile(r"0o[0-7]+\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_TOO_LARGE = f"the document is larger than {MAX_BYTES:,} bytes"
_MAYBE_NUMBER = frozenset("0123456789+-.")


class Unstorable(ValueError):
    """A scalar that could not be stored and read back alike."""


def scalar(text: str) -> Any:
    """A plain scalar by the YAML 1.2 core schema: `no`, `on`, dates and `12:30` stay strings."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _MAYBE_NUMBER:
        return text
    if len(text) > 400:
        return text
    if _INT.match(text):
        number = int(text)
    elif _OCT.match(text):
        number = int(text[2:], 8)
    elif _HEX.match(text):
        number = int(text[2:], 16)
    elif _FLOAT.match(text):
        value = float(text)
        if not math.isfinite(value):
            raise Unstorable(f"the number {text} is too large")
        return value
    elif _SPECIAL.match(text):
        raise Unstorable(f"`{text}` is not a finite number; quote it if it is text")
    else:
        return text
    if not -MAX_INTEGER - 1 <= number <= MAX_INTEGER:
        raise Unstorable("the integer does not fit into 64 bits; quote it if it is text")
    return number


def decode(data: bytes, file: str = "") -> str:
    """The text of a file. Raises `InvalidDefinition` where it is too large or not UTF-8."""
    report = Report(Document(file))
    if len(data) > MAX_BYTES:
        report.add(None, "HF0106", _TOO_LARGE)
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        report.add(None, "HF0119", "the text is UTF-16, not UTF-8", help="save the file as UTF-8")
    report.check()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        before = data[: error.start].decode().removeprefix("\ufeff")
        report = Report(Document(file, text))
        line, column = place_of(before, len(before))
        report.at(line, column, "HF0119", f"the byte 0x{data[error.start]:02X} is not UTF-8",
                  help="save the file as UTF-8")  # fmt: skip
        report.check()
        raise AssertionError("unreachable") from None


def load(text: str, file: str = "") -> Document:
    """Read one document of YAML (and with it JSON text). Raises `InvalidDefinition` with every problem found."""
    documents, report, _ = read(text, file)
    if len(documents) > 1:
        report.at(documents[1].line, 0, "HF0117", "there is more than one document", width=3,
                  label="the second begins here")  # fmt: skip
    report.check()
    return documents[0]


def load_all(text: str, file: str = "") -> list[Document]:
    """All documents of a text. Empty ones do not count. Raises `InvalidDefinition` with every problem found."""
    documents, report, _ = read(text, file)
    report.check()
    return documents


def read(text: str, file: str = "") -> tuple[list[Document], Report, bool]:
    """Documents as far as they can be read, all problems, and whether what was read is the whole of what was meant, so
    that it makes sense to look for more. After a mistake with one fix, it is read on as if that had been made."""
    text = text.removeprefix("\ufeff")
    report = Report(Document(file))
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        report.add(None, "HF0106", _TOO_LARGE)
        return [], report, False
    import yaml  # slow to import, and an engine that only goes on with what it has reads no text

    whole = Document(file, text)
    report = Report(whole)
    bad = _FORBIDDEN.search(text)
    if bad:
        line, column = place_of(text, bad.start())
        help = 'in double quotes it can be written as an escape, e.g. "\\x07"'
        if bad.group() == "\ufeff":
            help = "this is a byte order mark, left over where files were joined; remove it"
        report.at(line, column, "HF0118", f"the character U+{ord(bad.group()):04X} is not allowed in YAML", help=help)
        return [], report, False
    if text.lstrip()[:1] in ("{", "[") and _HALVES.search(text):
        whole = _join_halves(whole)
        report = Report(whole)
    is_sure = True
    room = REREAD_BYTES
    told: set[int] = set()
    while True:
        building = _Building(whole)
        error = None
        try:
            building.build(_events(whole.text))
        except yaml.MarkedYAMLError as raised:
            error = raised
        if error is None:
            report.take(building.report.found)
            return building.documents, report, is_sure and building.is_whole
        finding = diagnose(whole.lines, error)
        repair = finding.repair
        # A second mistake on a line that was put right may be one of ours.
        is_new = finding.line not in whole.original and finding.line not in told
        if is_new:
            told.add(finding.line)
            report.at(finding.line, finding.column, "HF0101", finding.message, width=finding.width,
                      label=finding.label, help=finding.help)  # fmt: skip
        room -= len(whole.text)
        if not is_new or repair is None or repair.line in whole.original or room < 0 or len(told) >= MAX_REPAIRS:
            report.take(building.report.found)
            return [], report, False
        is_sure = is_sure and repair.is_sure
        # One line for one line, so that all other places stay what they are.
        lines = list(whole.lines)
        original = {**whole.original, repair.line: lines[repair.line]}
        lines[repair.line] = repair.text
        whole = Document(file, "\n".join(lines), lines)
        whole.original = original
        found, report = report.found, Report(whole)
        report.take(found)


#: a character beyond the first 65,536, as JSON escapes it: two halves, which YAML does not know
_HALVES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def _join_halves(document: Document) -> Document:
    """The same text with one escape for one character, if it is JSON; in YAML, `\\ud83d` may as well be plain text."""
    try:
        msgspec.json.decode(document.text)
    except (msgspec.DecodeError, RecursionError):
        return document
    lines = list(document.lines)
    original = {}
    for at, line in enumerate(lines):
        joined = _HALVES.sub(_join, line)
        if joined != line:
            lines[at], original[at] = joined, line
    found = Document(document.file, "\n".join(lines), lines)
    found.original = original
    return found


def _join(match: re.Match[str]) -> str:
    code = 0x10000 + ((int(match[2], 16) - 0xD800) << 10) + (int(match[3], 16) - 0xDC00)
    return f"{match[1]}\\U{code:08X}"


def load_data(data: Any, file: str = "") -> Document:
    """The same tree from plain data, e.g. a JSON body; problems then carry a path instead of a line."""
    document = Document(file)
    report = Report(document)
    root = Node(document, None, None, "")
    document.root = root
    pending: list[tuple[Node, Any, int]] = [(root, data, 1)]
    count = 0
    while pending:
        node, value, depth = pending.pop()
        count += 1
        if count > MAX_NODES:
            report.add(None, "HF0106", f"the document has more than {MAX_NODES:,} values")
            break
        if depth > MAX_DEPTH:
            report.add(node, "HF0107", f"nested more than {MAX_DEPTH} levels deep")
            break
        match value:
            case dict():
                node.value = {}
                for key, item in value.items():
                    if not isinstance(key, str):
                        report.add(node, "HF0105", f"the key {key!r} is not a string")
                        continue
                    if _unstorable(key):
                        report.add(node, "HF0118", "a key holds a character that cannot be stored")
                        continue
                    child = node.value[key] = Node(document, None, node, key)
                    pending.append((child, item, depth + 1))
            case list() | tuple():
                node.value = [Node(document, None, node, index) for index in range(len(value))]
                pending.extend((child, item, depth + 1) for child, item in zip(node.value, value, strict=True))
            case None | bool():
                node.value = value
            case str():
                node.value = value
                if _unstorable(value):
                    report.add(node, "HF0118", "the text holds a character that cannot be stored")
            case int():
                node.value = value
                if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
                    report.add(node, "HF0118", "the integer does not fit into 64 bits")
            case float():
                node.value = value
                if not math.isfinite(value):
                    report.add(node, "HF0118", "the number is not finite")
            case _:
                report.add(node, "HF0108", f"a {type(value).__name__} is not JSON data")
    report.check()
    return document


def _unstorable(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _events(text: str) -> Iterator[Any]:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    events: Iterator[Any] = yaml.parse(text, Loader=loader)
    return events


class _Building:
    """One pass over the events. The limits are those of the whole text, however many documents it has."""

    def __init__(self, whole: Document) -> None:
        self.whole = whole
        self.report = Report(whole)
        self.documents: list[Document] = []
        #: False where a value could not be taken, so that what is missing may follow from that
        self.is_whole = True

    def build(self, events: Iterator[Any]) -> None:
        self._read(events)
        if len(self.documents) > 1:
            self.documents = [document for document in self.documents if not _is_empty(document)] or self.documents[:1]
        if not self.documents:
            self.report.at(0, 0, "HF0117", "the document is empty", help="a workflow needs at least `steps`")

    def _read(self, events: Iterator[Any]) -> None:
        """A stack entry is an open container and, for maps, the key that waits for its value; a refused key still
        takes its value, into a node that nobody sees."""
        report = self.report
        document = self.whole
        stack: list[Node] = []
        keys: list[tuple[str, int, int] | None] = []
        count = 0
        for event in events:
            kind = type(event).__name__
            if kind == "ScalarEvent" or kind == "SequenceStartEvent" or kind == "MappingStartEvent":
                count += 1
                mark = event.start_mark
                line, column = mark.line, mark.column
                if count > MAX_NODES:
                    return self._stop(line, column, "HF0106", f"the text has more than {MAX_NODES:,} values")
                if event.anchor or event.tag:
                    what = f"the anchor `&{event.anchor}`" if event.anchor else f"the tag `{_tag(event.tag)}`"
                    report.at(line, column, "HF0104", f"{what} is not supported", label="remove this")
                parent = stack[-1] if stack else None
                if parent is not None and isinstance(parent.value, dict) and keys[-1] is None:
                    keys[-1] = self._key(parent, event, kind)
                    if kind == "ScalarEvent":
                        continue
                    node = Node(document, None, None, "")  # a map or list as a key: already reported
                else:
                    key: str | int = ""
                    if parent is None:
                        node = Node(document, None, None, "")
                        document.root = node
                    elif isinstance(parent.value, list):
                        node = Node(document, None, parent, len(parent.value))
                        parent.value.append(node)
                    else:
                        key, key_line, key_column = keys[-1]  # type: ignore[misc]
                        keys[-1] = None
                        node = Node(document, None, parent, key)
                        if key_line >= 0:
                            parent.value[key] = node
                            parent.marks[key] = (key_line, key_column)
                node.line, node.column, node.start = line, column, mark.index
                if kind == "ScalarEvent":
                    end = event.end_mark
                    node.end_line, node.end_column, node.end = end.line, end.column, end.index
                    style = node.style = event.style
                    value = event.value
                    if not style and not event.tag:
                        try:
                            value = scalar(value)
                        except Unstorable as error:
                            self.is_whole = False
                            report.add(node, "HF0118", str(error))
                    elif style == '"' and _unstorable(value):
                        # Only the parser in Python lets it pass.
                        report.add(node, "HF0118", "the text holds half of a character", help=HALF)
                    node.value = value
                else:
                    node.value = [] if kind == "SequenceStartEvent" else {}
                    stack.append(node)
                    keys.append(None)
                    if len(stack) > MAX_DEPTH:
                        return self._stop(line, column, "HF0107", f"nested more than {MAX_DEPTH} levels deep")
            elif kind == "SequenceEndEvent" or kind == "MappingEndEvent":
                node = stack.pop()
                keys.pop()
                end = event.end_mark
                node.end_line, node.end_column, node.end = end.line, end.column, end.index
            elif kind == "AliasEvent":
                self.is_whole = False
                mark = event.start_mark
                report.at(mark.line, mark.column, "HF0104", f"the alias `*{event.anchor}` is not supported",
                          width=len(event.anchor) + 1, help="write the value out")  # fmt: skip
                if stack and isinstance(stack[-1].value, dict):
                    keys[-1] = None if keys[-1] is not None else ("", -1, -1)
            elif kind == "DocumentStartEvent":
                document = self.whole.sibling()
                document.root = Node(document, None, None, "")
                document.line = event.start_mark.line
                self.documents.append(document)
                if len(self.documents) > MAX_DOCUMENTS:
                    return self._stop(document.line, 0, "HF0106", f"the text has more than {MAX_DOCUMENTS:,} documents")
        return None

    def _stop(self, line: int, column: int, code: str, message: str) -> None:
        self.is_whole = False
        self.report.at(line, column, code, message)

    def _key(self, parent: Node, event: Any, kind: str) -> tuple[str, int, int]:
        if kind != "ScalarEvent" or (event.value == "<<" and not event.style):
            self.is_whole = False
        return _key(self.report, parent, event, kind)


def _is_empty(document: Document) -> bool:
    root = document.root
    return root.value is None and not root.style and root.start == root.end


def _key(report: Report, parent: Node, event: Any, kind: str) -> tuple[str, int, int]:
    mark = event.start_mark
    line, column = mark.line, mark.column
    if kind != "ScalarEvent":
        help = braces(report.document.lines[line], column) if kind == "MappingStartEvent" else ""
        if help:
            report.at(line, column - 1, "HF0101", "a plain value cannot begin with `{{`", width=2, help=help)
        else:
            report.at(line, column, "HF0105", "a list or map cannot be a key")
        return "", -1, -1
    text: str = event.value
    if not event.style:
        if text == "<<":
            report.at(line, column, "HF0104", "merge keys are not supported", width=2,
                      help="write the keys out")  # fmt: skip
            return "", -1, -1
        try:
            typed: Any = scalar(text)
        except Unstorable:
            typed = 0
        if not isinstance(typed, str):
            shown = text or "an empty key"
            report.at(line, column, "HF0105", f"the key `{shown}` is {a_type(typed)}, not a string",
                      width=len(text), help=f'quote it: "{text}"')  # fmt: skip
            return "", -1, -1
    if text in parent.value or text in parent.marks:
        first = parent.marks.get(text, (0, 0))[0] + 1
        report.at(line, column, "HF0103", f"the key `{text}` occurs twice", width=len(text),
                  label=f"first on line {first}")  # fmt: skip
        return "", -1, -1
    return text, line, column


def _tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")
