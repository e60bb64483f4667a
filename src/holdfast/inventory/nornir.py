"""Entities from Nornir's files: `hosts.yaml`, with `groups.yaml` and `defaults.yaml` where they exist.

As Nornir resolves them: a host's own values, then those of its groups in their order (each with the groups it is in),
then the defaults. `data` and the connection's attributes become facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.inventory import GROUP, Imported

from .gather import Gathering
from .yaml_text import Lines, Unparsed, parse

_OWN = ("hostname", "port", "username", "password", "platform")
_KEYS = (*_OWN, "groups", "data", "connection_options")


def read_nornir(into: Gathering, files: Mapping[str, str]) -> None:
    """`files` by name; the folder before the name does not matter."""
    parts: dict[str, tuple[str, dict[str, Any], Lines]] = {}
    for file, text in files.items():
        kind = file.rpartition("/")[2].rpartition(".")[0]
        if kind in ("hosts", "groups", "defaults") or len(files) == 1:
            part = _read(into, file, text)
            if part is not None:
                parts["hosts" if len(files) == 1 else kind] = part
    if "hosts" not in parts:
        if not into.errors:
            into.wrong(next(iter(files), "hosts.yaml"), 0, "there is no hosts.yaml")
        return
    groups = parts.get("groups", ("", {}, Lines()))
    defaults = parts["defaults"][1] if "defaults" in parts else {}
    _Resolving(into, groups, defaults).all(*parts["hosts"])


def _read(into: Gathering, file: str, text: str) -> tuple[str, dict[str, Any], Lines] | None:
    try:
        value, lines = parse(text)
    except Unparsed as error:
        into.wrong(file, error.line, error.message, source=error.source)
        return None
    for key, line in lines.twice():
        into.wrong(file, line, f"the key {key!r} occurs twice in one map")
    if value is None:
        value = {}
    if not isinstance(value, dict):
        into.wrong(file, 1, "it is a map by name")
        return None
    return file, value, lines


class _Resolving:
    def __init__(self, into: Gathering, groups: tuple[str, dict[str, Any], Lines], defaults: dict[str, Any]) -> None:
        self.into = into
        self.group_file, self.groups, self.group_lines = groups
        self.defaults = defaults
        self._known: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {}

    def all(self, file: str, hosts: dict[str, Any], lines: Lines) -> None:
        places = lines.below()
        for name in self.groups:
            self._group(str(name), ())
        for name in self.groups:
            line = self.group_lines.at(str(name))
            self.into.add(Imported(str(name), GROUP, str(name)), self.group_file, line)
        for name, body in hosts.items():
            line = places.get(str(name), 0)
            if not self._is_fit(str(name), body, file, line):
                continue
            body = body or {}
            merged, groups = self._inherited(self._named(body, str(name), file, line), (), file, line)
            facts = self.into.kept({**self._said(self.defaults), **merged, **self._said(body)}, str(name), file, line)
            label = body.get("hostname")
            entity = Imported(str(name), self.into.type, str(label or name), groups=groups, facts=facts)
            self.into.add(entity, file, line)

    def _is_fit(self, name: str, body: Any, file: str, line: int) -> bool:
        if body is not None and not isinstance(body, dict):
            self.into.wrong(file, line, f"{name!r} is a map")
            return False
        for key in body or ():
            if key not in _KEYS:
                help = f"it has {', '.join(_KEYS)}; other values belong below `data`"
                self.into.wrong(file, line, f"{name!r} has no {key!r} in Nornir", help=help)
                return False
        return True

    def _said(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What one of them says by itself."""
        data = body.get("data")
        said: dict[str, Any] = dict(data) if isinstance(data, dict) else {}
        said |= {key: body[key] for key in _OWN if body.get(key) is not None}
        if isinstance(body.get("connection_options"), dict):
            said["connection_options"] = body["connection_options"]
        return said

    def _named(self, body: Mapping[str, Any], name: str, file: str, line: int) -> list[str]:
        groups = body.get("groups") or []
        if not isinstance(groups, list):
            self.into.wrong(file, line, f"the groups of {name!r} are a list")
            return []
        return [str(group) for group in groups]

    def _inherited(
        self, names: list[str], within: tuple[str, ...], file: str, line: int
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        merged: dict[str, Any] = {}
        groups: dict[str, None] = {}
        for name in names:
            groups[name] = None
            if name not in self.groups:
                if self.group_file:
                    help = f"groups.yaml has {', '.join(map(str, list(self.groups)[:8])) or 'none'}"
                    self.into.wrong(file, line, f"there is no group {name!r}", help=help)
                continue
            said, above = self._group(name, within)
            # The first group that says something wins.
            merged = {**said, **merged}
            groups |= dict.fromkeys(above)
        return merged, tuple(groups)

    def _group(self, name: str, within: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
        if name in self._known:
            return self._known[name]
        line = self.group_lines.at(name)
        if name in within:
            self.into.wrong(self.group_file, line, f"group {name!r} would be within itself")
            return {}, ()
        body = self.groups[name]
        if not self._is_fit(name, body, self.group_file, line):
            self._known[name] = ({}, ())
            return {}, ()
        body = body or {}
        above = self._named(body, name, self.group_file, line)
        merged, groups = self._inherited(above, (*within, name), self.group_file, line)
        self._known[name] = ({**merged, **self._said(body)}, groups)
        return self._known[name]
