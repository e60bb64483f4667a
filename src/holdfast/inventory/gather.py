"""What every importer needs: entities as they are found, problems with their places, values that can be kept.

Secrets are never taken over: a value under a name like `password` is left out with a warning, unless it is a
reference (`secret://…`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

import msgspec

from holdfast.core.inventory import GROUP, Imported
from holdfast.core.model import Problem

_SECRET = re.compile(
    r"(?:^|[_.-])(?:pass|passwd|password|passphrase|secrets?|tokens?|api_?key|private_?key|credentials?|snmp_community)$",
    re.IGNORECASE,
)
_INTEGER = 2**63 - 1
_DEPTH = 20
#: More problems than this help nobody.
_MANY = 100


class Hidden:
    """A value that is encrypted where it stands."""


HIDDEN = Hidden()


class Gathering:
    """Entities in the order in which they are made: groups, then whatever is part of nothing, then parts."""

    def __init__(self, type: str = "device", files: Mapping[str, str] | None = None) -> None:
        #: of entities that do not say theirs
        self.type = type
        self.entities: dict[str, Imported] = {}
        self.problems: list[Problem] = []
        self._places: dict[str, tuple[str, int]] = {}
        self._groups: dict[str, tuple[str, int]] = {}
        self._told: set[tuple[str, str]] = set()
        self._files = files or {}

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if not problem.warning]

    def wrong(self, file: str, line: int, message: str, *, source: str = "", help: str = "") -> None:
        if len(self.errors) < _MANY:
            if not source and line:
                lines = self._files.get(file, "").splitlines()
                source = lines[line - 1] if line <= len(lines) else ""
            shown = source[:200]
            self.problems.append(Problem("HF0758", message, file, line, 1, max(len(shown), 1), shown, help=help))

    def warn(self, file: str, line: int, message: str, help: str = "") -> None:
        # Without the source line: it may hold what was left out.
        place = f"{file}:{line}" if line else file
        self.problems.append(Problem("HF0759", message, place, help=help, warning=True))

    def add(self, entity: Imported, file: str, line: int) -> None:
        known = self._places.get(entity.id)
        if known is not None:
            where = f"{known[0]}:{known[1]}" if known[1] else known[0]
            self.wrong(file, line, f"{entity.id!r} occurs twice; the first time at {where}")
            return
        if why := unfit(entity.id):
            self.wrong(file, line, f"{entity.id[:60]!r} cannot be the id of an entity: {why}")
            return
        self._places[entity.id] = (file, line)
        place = f"{file}:{line}" if line else file
        self.entities[entity.id] = msgspec.structs.replace(entity, place=place)
        for group in entity.groups or ():
            self._groups.setdefault(group, (file, line))

    def kept(self, values: Mapping[str, Any], what: str, file: str, line: int) -> dict[str, Any]:
        """Facts as they can be stored, without secrets and without what is null."""
        made = self._map(values, what, file, line, "", 0)
        return {key: value for key, value in made.items() if value is not None}

    def _map(self, values: Mapping[Any, Any], what: str, file: str, line: int, path: str, depth: int) -> dict[str, Any]:
        made = {}
        for raw, value in values.items():
            key = raw if isinstance(raw, str) else _word(raw)
            name = f"{path}{key}"
            if value is HIDDEN or (_is_secret(key, value)):
                self._leave_out(what, name, value is HIDDEN, file, line)
                continue
            if depth > _DEPTH:
                self.warn(file, line, f"{name} of {what} is nested too deeply and was left out")
                continue
            made[key] = self._value(value, what, file, line, name, depth)
        return made

    def _value(self, value: Any, what: str, file: str, line: int, name: str, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._map(value, what, file, line, f"{name}.", depth + 1)
        if isinstance(value, (list, tuple, set)):
            if depth > _DEPTH:
                return None
            items = value if not isinstance(value, set) else sorted(value, key=str)
            return [self._value(item, what, file, line, name, depth + 1) for item in items if item is not HIDDEN]
        return scalar(value)

    def _leave_out(self, what: str, name: str, is_encrypted: bool, file: str, line: int) -> None:
        # Once per name: a fleet with one password each is one piece of news.
        if (file, name) in self._told:
            return
        self._told.add((file, name))
        why = "encrypted" if is_encrypted else "a secret"
        help = "refer to it instead: `secret://env/NAME`, which is looked up where the work is done"
        self.warn(file, line, f"`{name}` of {what} is {why} and was left out, here and wherever else it occurs", help)

    def finished(self) -> list[Imported]:
        """With an entity for every group that is only named; wholes before their parts."""
        for group, (file, line) in self._groups.items():
            known = self.entities.get(group)
            if known is None:
                self.add(Imported(group, GROUP, group), file, line)
            elif known.type != GROUP:
                self.wrong(file, line, f"{group!r} is a group and a {known.type} too", help="give one another name")
        self._check_parents()
        return sorted(self.entities.values(), key=lambda one: (one.type != GROUP, self._depth(one)))

    def _check_parents(self) -> None:
        for entity in list(self.entities.values()):
            file, line = self._places[entity.id]
            seen = {entity.id}
            above = self.entities.get(entity.parent or "")
            while above is not None:
                if above.id in seen:
                    self.wrong(file, line, f"{entity.id!r} would be a part of itself")
                    return
                seen.add(above.id)
                above = self.entities.get(above.parent or "")

    def _depth(self, entity: Imported) -> int:
        depth = 0
        above = self.entities.get(entity.parent or "")
        while above is not None and depth < 64:
            depth += 1
            above = self.entities.get(above.parent or "")
        return depth


def unfit(id: str) -> str:
    """Why a text cannot be the id of an entity; empty if it can."""
    if not id.strip():
        return "it is empty"
    if len(id) > 200:
        return "it has more than 200 characters"
    if not id.isprintable() or id != id.strip():
        return "it has spaces around it or characters that cannot be seen"
    if any(char in id for char in "?#%\\"):
        return "it has one of ? # % \\"
    return ""


def _is_secret(key: str, value: Any) -> bool:
    if value is None or isinstance(value, bool) or not _SECRET.search(key):
        return False
    if isinstance(value, (Mapping, list)):
        return True
    return not str(value).startswith("secret://") and str(value) != ""


def scalar(value: Any) -> Any:
    """A value as it can be stored everywhere."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return value if -_INTEGER - 1 <= value <= _INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _word(key: Any) -> str:
    if key is None or isinstance(key, bool):
        return {True: "true", False: "false", None: "null"}[key]
    return str(scalar(key))
