"""From the documents of a file to workflows: one document is one workflow, or a list of named ones.

It answers for the forms a document may have at its top (a map, only the steps, `id` with `type: workflow`, a list
under `brooklyn.initializers`) and for the name a workflow is published under. It knows nothing of steps. What it gives
are documents again, in the one form that the compiler reads, with every place kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from .conditions import style_free
from .foreign import is_foreign, name_of
from .nodes import Document, Node, Report
from .problems import did_you_mean

INITIALIZERS = "brooklyn.initializers"
EFFECTOR = "workflow-effector"
#: what else may stand in such a list where this form comes from, and what to do about it
_OTHER_ENTRIES = {
    "workflow-sensor": "publish the steps as a workflow that ends with `set-sensor`, and start it when it is due",
    "workflow-policy": "publish the steps as a workflow, and start it when it is due",
    "workflow-initializer": "publish the steps as a workflow, and start it once",
}
#: words that YAML 1.1 took for booleans
_BOOLEANS = {"yes": "true", "no": "false", "on": "true", "off": "false"}
#: keys below which there is data and not language
_DATA_KEYS = frozenset(("input", "output", "default", "value", "equals"))


def workflows_of(document: Document, report: Report) -> list[Document]:
    """The workflows that a document holds; what cannot be one is reported."""
    root = document.root
    if isinstance(root.value, dict) and INITIALIZERS in root.value:
        return _initializers(document, report)
    found = _workflow(document, root, report)
    return [found] if found is not None else []


def named(document: Document, name: str) -> Document:
    """The same workflow under another name."""
    root = document.root
    keys = {"steps": root} if isinstance(root.value, list) else dict(root.value)
    node = Node(document, name, root, "name")
    found = _again(document, root, {**keys, _spelt(keys, "name"): node})
    found.name = name
    return found


def check_names(documents: Iterable[Document], report: Report, known: dict[str, Document]) -> None:
    """Several workflows that come together each need a name of their own. `known` takes them by name."""
    for document in documents:
        if not document.name:
            report.add(document.root, "HF0109", "one of several workflows needs a `name`",
                       help="add `name:`; it is published under it")  # fmt: skip
            continue
        first = known.setdefault(document.name, document)
        if first is not document:
            where = f"{first.file}:" if first.file != document.file else "line "
            label = f"the other is at {where}{first.root.line + 1}" if first.root.line >= 0 else ""
            report.add(_name_node(document), "HF0112", f"two workflows are called `{document.name}`", label=label)


def _spelt(keys: dict[str, Node], wanted: str) -> str:
    """The key, in whatever style it is spelt."""
    return next((key for key in keys if style_free(key) == wanted), wanted)


def _name_node(document: Document) -> Node:
    name = document.root.value.get(_spelt(document.root.value, "name"))
    return name if isinstance(name, Node) and name.line >= 0 else document.root


def _workflow(document: Document, root: Node, report: Report) -> Document | None:
    if not isinstance(root.value, dict):
        return _again(document, root, root.value)
    if is_foreign(root):
        found = _again(document, root, root.value)
        found.name = name_of(root)
        return found
    keys = dict(root.value)
    type = keys.pop(_spelt(keys, "type"), None)
    if type is not None and type.value != "workflow":
        hint = did_you_mean(type.value, ("workflow",)) if isinstance(type.value, str) else ""
        if type.value == EFFECTOR:
            hint = f"leave it out; only the entries of a list under `{INITIALIZERS}` have it"
        report.add(type, "HF0116", "the `type` of a workflow is `workflow`", help=hint or "leave it out")
        return None
    id_key, name_key = _spelt(keys, "id"), _spelt(keys, "name")
    id = keys.pop(id_key, None)
    if id is not None:
        if not isinstance(id.value, str) or not id.value.strip():
            report.add(id, "HF0108", f"`id` is a text, not {id.kind}")
            return None
        name = keys.get(name_key)
        if name is not None and name.value != id.value:
            report.add(name, "HF0132", f"the workflow is published under its id `{id.value}`, not under this name",
                       help="`description` says what it is for", warning=True)  # fmt: skip
        keys[name_key] = id
    found = _again(document, root, keys)
    if id is not None and id_key in root.marks:
        found.root.marks[name_key] = root.marks[id_key]
    name = keys.get(name_key)
    if name is not None and isinstance(name.value, str):
        found.name = name.value
    return found


def _initializers(document: Document, report: Report) -> list[Document]:
    root = document.root
    entries = root.value[INITIALIZERS]
    for key in root.value:
        if key != INITIALIZERS:
            report.add(root, "HF0102", f"unknown key `{key}` beside `{INITIALIZERS}`", key=key,
                       label="not taken from a blueprint",
                       help="remove it; Holdfast takes the workflows, entities come from the inventory")  # fmt: skip
    if not isinstance(entries.value, list) or not entries.value:
        report.add(entries, "HF0108", f"`{INITIALIZERS}` is a list of workflows, not {entries.kind}"
                   if not isinstance(entries.value, list) else f"`{INITIALIZERS}` has no workflows")  # fmt: skip
        return []
    found: list[Document] = []
    for entry in entries.value:
        if not isinstance(entry.value, dict):
            report.add(entry, "HF0108", f"a workflow in `{INITIALIZERS}` is a map, not {entry.kind}")
            continue
        type_key = _spelt(entry.value, "type")
        type = entry.value.get(type_key)
        if type is None:
            report.add(entry, "HF0109", "the entry has no `type`", help=f"add `type: {EFFECTOR}`")
        elif type.value != EFFECTOR:
            word = type.value if isinstance(type.value, str) else ""
            advice = _OTHER_ENTRIES.get(word) or did_you_mean(word, (EFFECTOR, *_OTHER_ENTRIES))
            advice = advice or "publish what it does as a workflow of its own"
            report.add(type, "HF0116", f"only `{EFFECTOR}` can be loaded from `{INITIALIZERS}`", help=advice)
        else:
            keys = {key: node for key, node in entry.value.items() if key != type_key}
            plain = _workflow(document, _again(document, entry, keys).root, report)
            if plain is not None:
                found.append(plain)
    return found


def _again(document: Document, root: Node, value: object) -> Document:
    """A document with that value at its top, at the place of `root`."""
    found = document.sibling()
    found.line, found.name = document.line, document.name
    top = found.root = Node(found, value, root.parent, root.key)
    top.line, top.column, top.start = root.line, root.column, root.start
    top.end_line, top.end_column, top.end = root.end_line, root.end_column, root.end
    top.style, top.marks = root.style, dict(root.marks)
    return found


def hint_booleans(document: Document, report: Report) -> None:
    """`yes` in data is text, and a block that wants a boolean would not take it: say so where it can be seen."""
    if not document.text:
        return  # JSON has no such words
    pending: list[tuple[Node, bool]] = [(document.root, False)]
    while pending:
        node, is_data = pending.pop()
        value = node.value
        if isinstance(value, dict):
            kind = value.get("type")
            is_boolean = kind is not None and kind.value in ("boolean", "bool")
            for key, item in value.items():
                if not (is_boolean and key == "default"):
                    pending.append((item, is_data or key in _DATA_KEYS))
        elif isinstance(value, list):
            pending += [(item, is_data) for item in value]
        elif is_data and isinstance(value, str) and not node.style and node.line >= 0:
            meant = _BOOLEANS.get(value.lower()) if len(value) <= 3 and value in (
                value.lower(), value.upper(), value.capitalize()) else None  # fmt: skip
            if meant:
                report.add(node, "HF0136", f"`{value}` is text here, not a boolean", warning=True,
                           help=f"write `{meant}`, or '{value}' in quotes if the text is meant")  # fmt: skip
