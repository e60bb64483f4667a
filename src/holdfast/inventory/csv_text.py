"""Entities from a table: a header, then one entity in each row.

`id` (or `name`), `type`, `parent`, `groups` (split at `;`), `labels` (`k=v;k=v`) and `label.NAME` have their meaning;
every other column is a fact. Empty cells say nothing.
"""

from __future__ import annotations

import csv
import re
from typing import Any

from holdfast.core.inventory import Imported

from .gather import Gathering

_OWN = ("id", "name", "type", "parent", "groups", "labels")
_NUMBER = re.compile(r"[-+]?(?:\d+|\d*\.\d+|\d+\.)(?:[eE][-+]?\d+)?\Z")
_WORDS = {"true": True, "false": False, "null": None}


def read_csv(into: Gathering, file: str, text: str, *, typed: bool = False) -> None:
    text = text.removeprefix("\ufeff")
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",;\t|", key=first.count) if not first.count(",") else ","
    rows = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    try:
        header = next((row for row in rows if any(cell.strip() for cell in row)), None)
        if header is None:
            into.wrong(file, 1, "the file is empty", help="the first row names the columns: id,type,site,…")
            return
        columns = _columns(into, file, rows.line_num, header)
        if columns is None:
            return
        line = rows.line_num + 1
        for row in rows:
            if any(cell.strip() for cell in row):
                _entity(into, file, line, columns, row, typed)
            line = rows.line_num + 1
    except csv.Error as error:
        into.wrong(file, rows.line_num, f"not valid CSV: {error}")


def _columns(into: Gathering, file: str, line: int, header: list[str]) -> list[str] | None:
    names = []
    for number, cell in enumerate(header, 1):
        name = cell.strip()
        word = name.lower().replace(" ", "_")
        if word in _OWN or word == "group":
            name = "groups" if word == "group" else word
        elif re.match(r"(?:facts?|labels?)\.", word):
            kind, _, rest = name.partition(".")
            name = ("label." if kind.lower().startswith("label") else "fact.") + rest
        else:
            name = f"fact.{name}"
        if not cell.strip():
            into.wrong(file, line, f"column {number} has no name", source=",".join(header))
        elif name in names:
            into.wrong(file, line, f"two columns are called {cell.strip()!r}", source=",".join(header))
        names.append(name)
    if into.errors:
        return None
    if "id" not in names and "name" not in names:
        help = f"there is: {', '.join(cell.strip() for cell in header[:8])}"
        into.wrong(file, line, "no column is called `id` or `name`", source=",".join(header), help=help)
        return None
    return names


def _entity(into: Gathering, file: str, line: int, columns: list[str], row: list[str], typed: bool) -> None:
    if len(row) > len(columns):
        message = f"the row has {len(row)} cells, the header {len(columns)}"
        into.wrong(file, line, message, source=",".join(row), help="put texts with a comma in quotes")
        return
    own: dict[str, str] = {}
    labels: dict[str, str] = {}
    facts: dict[str, Any] = {}
    for name, cell in zip(columns, row, strict=False):
        value = cell.strip()
        if not value:
            continue
        if name.startswith("label."):
            labels[name.removeprefix("label.")] = value
        elif name.startswith("fact."):
            facts[name.removeprefix("fact.")] = _typed(value) if typed else value
        else:
            own[name] = value
    for pair in filter(None, (part.strip() for part in own.get("labels", "").split(";"))):
        key, is_pair, value = pair.partition("=")
        if not is_pair or not key.strip():
            into.wrong(file, line, f"a label is written name=value, not {pair!r}", source=",".join(row))
            continue
        labels[key.strip()] = value.strip()
    id = own.get("id") or own.get("name", "")
    if not id:
        into.wrong(file, line, "the row has neither an id nor a name", source=",".join(row))
        return
    groups = None
    if "groups" in columns:
        groups = tuple(dict.fromkeys(group.strip() for group in own.get("groups", "").split(";") if group.strip()))
    entity = Imported(
        id, own.get("type") or into.type, own.get("name"),
        own.get("parent", "") if "parent" in columns else None, groups,
        labels, into.kept(facts, id, file, line),
    )  # fmt: skip
    into.add(entity, file, line)


def _typed(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    # 007 is a name, not a number.
    if _NUMBER.match(text) and not re.match(r"[-+]?0\d", text):
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
    return text
