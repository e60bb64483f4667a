"""From text to a tree of nodes that know where they stand: strict YAML, and JSON on the same path.

It answers for what a document may contain (YAML 1.2 core scalars, no anchors, tags or duplicate keys,
bounded size and depth). It knows nothing of steps. The tree is built from the event stream, without
recursion, so that no document can exhaust the stack.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .nodes import LINE_BREAK, Document, Node, Report, a_type

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_NODES = 50_000
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


def load(text: str, file: str = "") -> Document:
    """Read YAML (and with it JSON text). Raises `InvalidDefinition` with every problem found."""
    if text.startswith("\ufeff"):
        text = text[1:]
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        report = Report(Document(file))
        report.add(None, "HF0106", f"the document is larger than {MAX_BYTES:,} bytes")
        report.check()
    import yaml  # slow to import, and an engine that only goes on with what it has reads no text

    document = Document(file, text)
    report = Report(document)
    bad = _FORBIDDEN.search(text)
    if bad:
        line, column = _place(document, bad.start())
        report.at(line, column, "HF0118", f"the character U+{ord(bad.group()):04X} is not allowed in YAML",
                  help='in double quotes it can be written as an escape, e.g. "\\x07"')  # fmt: skip
        report.check()
    try:
        _build(document, report, _events(text))
    except yaml.MarkedYAMLError as error:
        _syntax(report, error)
    report.check()
    return document


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


def _build(document: Document, report: Report, events: Iterator[Any]) -> None:
    """One pass over the events. A stack entry is an open container and, for maps, the key that waits for
    its value; a refused key still takes its value, into a node that nobody sees."""
    stack: list[Node] = []
    keys: list[tuple[str, int, int] | None] = []
    count = documents = 0
    for event in events:
        kind = type(event).__name__
        if kind == "ScalarEvent" or kind == "SequenceStartEvent" or kind == "MappingStartEvent":
            count += 1
            mark = event.start_mark
            line, column = mark.line, mark.column
            if count > MAX_NODES:
                report.at(line, column, "HF0106", f"the document has more than {MAX_NODES:,} values")
                return
            if event.anchor or event.tag:
                what = f"the anchor `&{event.anchor}`" if event.anchor else f"the tag `{_tag(event.tag)}`"
                report.at(line, column, "HF0104", f"{what} is not supported", label="remove this")
            parent = stack[-1] if stack else None
            if parent is not None and isinstance(parent.value, dict) and keys[-1] is None:
                keys[-1] = _key(report, parent, event, kind)
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
                        report.add(node, "HF0118", str(error))
                node.value = value
            else:
                node.value = [] if kind == "SequenceStartEvent" else {}
                stack.append(node)
                keys.append(None)
                if len(stack) > MAX_DEPTH:
                    report.at(line, column, "HF0107", f"nested more than {MAX_DEPTH} levels deep")
                    return
        elif kind == "SequenceEndEvent" or kind == "MappingEndEvent":
            node = stack.pop()
            keys.pop()
            end = event.end_mark
            node.end_line, node.end_column, node.end = end.line, end.column, end.index
        elif kind == "AliasEvent":
            mark = event.start_mark
            report.at(mark.line, mark.column, "HF0104", f"the alias `*{event.anchor}` is not supported",
                      width=len(event.anchor) + 1, help="write the value out")  # fmt: skip
            if stack and isinstance(stack[-1].value, dict):
                keys[-1] = None if keys[-1] is not None else ("", -1, -1)
        elif kind == "DocumentStartEvent":
            documents += 1
            if documents > 1:
                mark = event.start_mark
                report.at(mark.line, mark.column, "HF0117", "a file holds one workflow", width=3,
                          label="a second document begins here")  # fmt: skip
                return
    if not documents:
        report.at(0, 0, "HF0117", "the document is empty", help="a workflow needs at least `steps`")


def _key(report: Report, parent: Node, event: Any, kind: str) -> tuple[str, int, int]:
    mark = event.start_mark
    line, column = mark.line, mark.column
    if kind != "ScalarEvent":
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


def _place(document: Document, index: int) -> tuple[int, int]:
    breaks = list(LINE_BREAK.finditer(document.text, 0, index))
    return len(breaks), index - (breaks[-1].end() if breaks else 0)


_COLON = re.compile(r"^(?P<lead>\s*(?:- )*(?:[\w-]+: )?)(?P<value>[^'\"\[{|>].*)$")


def _syntax(report: Report, error: yaml.MarkedYAMLError) -> None:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = report.document.lines
    if line >= len(lines):  # libyaml points behind the end
        line = max(len(lines) - 1, 0)
        column = len(lines[line]) if lines else 0
    source = lines[line] if lines else ""
    text = error.problem or "not valid YAML"
    context = f" {error.context}" if error.context else ""
    help = label = ""
    if "mapping values are not allowed" in text:
        text, context, label = "an unquoted value cannot contain `: `", "", "this colon starts a second value"
        match = _COLON.match(source)
        if match:
            quoted = match["value"].rstrip().replace("'", "''")
            help = f"quote the value:\n{match['lead'].lstrip()}'{quoted}'"
        else:
            help = "quote the value, or check the indentation"
    elif "\t" in source[: column + 1] and "cannot start any token" in text:
        text, context, help = "a tab cannot be used for indentation", "", "use spaces"
    elif "cannot start any token" in text:
        help = f"a plain value cannot begin with `{source[column : column + 1]}`; quote it"
    elif "did not find expected ',' or" in text and "${" in source:
        help = "inside of `[ ]` and `{ }`, texts that hold `${…}` have to be quoted"
    elif "did not find expected key" in text or "did not find expected '-' indicator" in text:
        help = "check the indentation: keys of one map, and the dashes of one list, start in the same column"
    elif "unexpected end of stream" in text:
        help = "a quote, bracket or brace is never closed"
    report.at(line, column, "HF0101", f"{text}{context}", label=label, help=help)
