"""Entities from Ansible's inventories: the JSON of `ansible-inventory --list`, or YAML with all, children, hosts, vars.

A host's variables are its facts: those of its groups from the outermost to the innermost, then its own. A host is in
every group its groups are in. Ansible itself is never needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.core.inventory import GROUP, Imported

from .gather import HIDDEN, Gathering
from .yaml_text import Lines, Unparsed, parse

#: Hosts one pattern like `web[01:50]` may stand for.
_RANGE_LIMIT = 10_000
_RANGE = re.compile(r"\[(\w+):(\w+)(?::(\d+))?\]")
_EVERYBODY = ("all", "ungrouped")


class _Group:
    def __init__(self, name: str) -> None:
        self.name = name
        self.vars: dict[str, Any] = {}
        self.parents: dict[str, None] = {}
        self.children: dict[str, None] = {}
        self.hosts: dict[str, None] = {}
        self.place: tuple[str, int] = ("", 0)


class _Inventory:
    def __init__(self, into: Gathering) -> None:
        self.into = into
        self.groups: dict[str, _Group] = {"all": _Group("all")}
        self.hosts: dict[str, dict[str, Any]] = {}
        self.places: dict[str, tuple[str, int]] = {}
        self._depths: dict[str, int] = {}

    def group(self, name: str) -> _Group:
        return self.groups.setdefault(name, _Group(name))

    def host(self, name: str, file: str, line: int) -> dict[str, Any]:
        self.places.setdefault(name, (file, line))
        return self.hosts.setdefault(name, {})

    # --- from the tree to entities ------------------------------------------------------------------------
    def finish(self) -> None:
        if not self._check_circles():
            return
        above = {name: self._above(name) for name in self.groups}
        member_of: dict[str, dict[str, None]] = {name: {} for name in self.hosts}
        for name, group in self.groups.items():
            for host in group.hosts:
                if host in member_of:
                    member_of[host] |= {name: None} | above[name]
        for group in self.groups.values():
            if group.name not in _EVERYBODY:
                children = [child for child in group.children if child not in _EVERYBODY]
                facts: dict[str, Any] = {"children": children} if children else {}
                self.into.add(Imported(group.name, GROUP, group.name, facts=facts), *group.place)
        for host, own in self.hosts.items():
            file, line = self.places[host]
            groups = sorted(member_of[host], key=lambda name: (self._depth(name), self._priority(name), name))
            merged = dict(self.groups["all"].vars)
            for name in groups:
                merged |= self.groups[name].vars
            merged |= own
            listed = tuple(name for name in groups if name not in _EVERYBODY)
            facts = self.into.kept(merged, host, file, line)
            self.into.add(Imported(host, self.into.type, host, groups=listed, facts=facts), file, line)

    def _above(self, name: str) -> dict[str, None]:
        found: dict[str, None] = {}
        pending = [name]
        while pending:
            for parent in self.groups[pending.pop()].parents:
                if parent not in found:
                    found[parent] = None
                    pending.append(parent)
        return found

    def _depth(self, name: str) -> int:
        if name not in self._depths:
            parents = [parent for parent in self.groups[name].parents if parent != "all"]
            self._depths[name] = 0 if name == "all" else 1 + max((self._depth(each) for each in parents), default=0)
        return self._depths[name]

    def _priority(self, name: str) -> int:
        try:
            return int(self.groups[name].vars.get("ansible_group_priority", 1))
        except (TypeError, ValueError):
            return 1

    def _check_circles(self) -> bool:
        for name, group in self.groups.items():
            if name in self._above(name):
                self.into.wrong(*group.place, f"group {name!r} would be within itself")
                return False
        return True


def read_ansible(into: Gathering, files: Mapping[str, str]) -> None:
    """`files`: inventories, and variables in `group_vars/` and `host_vars/` beside them."""
    inventory = _Inventory(into)
    beside = {}
    for file, text in files.items():
        folder = re.search(r"(?:^|/)(group_vars|host_vars)/([^/]+)", file)
        if folder:
            beside[file] = (folder[1], re.sub(r"\.(ya?ml|json)\Z", "", folder[2]))
            continue
        document = _parsed(into, file, text)
        if document is not None:
            _tree(inventory, file, *document)
    for file, (kind, name) in sorted(beside.items()):
        document = _parsed(into, file, files[file])
        if document is None:
            continue
        values = document[0]
        if values is None:
            continue
        if not isinstance(values, dict):
            into.wrong(file, 1, "variables are a map")
        elif kind == "group_vars" and name in inventory.groups:
            inventory.groups[name].vars |= values
        elif kind == "host_vars" and name in inventory.hosts:
            inventory.hosts[name] |= values
    inventory.finish()


def _parsed(into: Gathering, file: str, text: str) -> tuple[Any, Lines] | None:
    try:
        value, lines = parse(text)
    except Unparsed as error:
        help = ""
        if re.match(r"\s*(?:[#;].*\n\s*)*\[[\w:-]+\]", text):
            help = "an INI inventory: let Ansible translate it, `ansible-inventory -i FILE --list > hosts.json`"
        into.wrong(file, error.line, error.message, source=error.source, help=help)
        return None
    for key, line in lines.twice():
        into.wrong(file, line, f"the key {key!r} occurs twice in one map")
    return value, lines


def _tree(inventory: _Inventory, file: str, value: Any, lines: Lines) -> None:
    into = inventory.into
    if not isinstance(value, dict):
        help = "see `ansible-inventory --list`, or a YAML file with `all:`"
        into.wrong(file, 1, "an inventory is a map of groups", help=help)
        return
    if isinstance(value.get("_meta"), dict):
        hostvars = value["_meta"].get("hostvars")
        for name, own in (hostvars if isinstance(hostvars, dict) else {}).items():
            inventory.host(str(name), file, 0).update(own if isinstance(own, dict) else {})
    for name, body in value.items():
        if name not in ("_meta", "plugin"):
            _group(inventory, file, lines, (str(name),), str(name), body, 0)


def _group(
    inventory: _Inventory, file: str, lines: Lines, path: tuple[str, ...], name: str, body: Any, depth: int
) -> None:
    into = inventory.into
    group = inventory.group(name)
    line = lines.at(*path)
    if not group.place[0]:
        group.place = (file, line)
    if name != "all" and depth == 0:
        group.parents["all"] = None
    if body is None:
        return
    if isinstance(body, list):  # the oldest form: only hosts
        body = {"hosts": body}
    if not isinstance(body, dict):
        into.wrong(file, line, f"group {name!r} is a map with hosts, children and vars")
        return
    if depth > 50:
        into.wrong(file, line, f"group {name!r} is nested too deeply")
        return
    for key in body:
        if key not in ("hosts", "children", "vars"):
            into.wrong(file, lines.at(*path, str(key)), f"group {name!r} has hosts, children and vars, not {key!r}")
    if isinstance(body.get("vars"), dict):
        group.vars |= body["vars"]
    _hosts(inventory, file, lines, path, group, body.get("hosts"))
    children = body.get("children")
    named = dict.fromkeys(children) if isinstance(children, list) else children if isinstance(children, dict) else {}
    for child, inner in named.items():
        below = inventory.group(str(child))
        below.parents[name] = None
        group.children[str(child)] = None
        _group(inventory, file, lines, (*path, "children", str(child)), str(child), inner, depth + 1)


def _hosts(inventory: _Inventory, file: str, lines: Lines, path: tuple[str, ...], group: _Group, hosts: Any) -> None:
    into = inventory.into
    if isinstance(hosts, str):
        hosts = {hosts: None}
    named = dict.fromkeys(hosts) if isinstance(hosts, list) else hosts if isinstance(hosts, dict) else {}
    places = lines.below(*path, "hosts")
    for pattern, own in named.items():
        line = places.get(str(pattern), lines.at(*path, "hosts"))
        if own is not None and own is not HIDDEN and not isinstance(own, dict):
            into.wrong(file, line, f"the variables of host {str(pattern)!r} are a map")
            continue
        try:
            names = list(expanded(str(pattern)))
        except ValueError as error:
            into.wrong(file, line, str(error))
            continue
        for name in names:
            group.hosts[name] = None
            inventory.host(name, file, line).update(own if isinstance(own, dict) else {})


def expanded(pattern: str) -> Iterator[str]:
    """`web[01:03]` is web01, web02 and web03; `rack-[a:c]` goes by letters."""
    found = _RANGE.search(pattern)
    if found is None:
        yield pattern
        return
    first, last, step = found[1], found[2], int(found[3] or 1)
    if step < 1:
        raise ValueError(f"the range in {pattern!r} never ends")
    if first.isdigit() and last.isdigit():
        width = len(first) if first.startswith("0") else 0
        middle = [
            str(n).zfill(width) for n in range(int(first), min(int(last), int(first) + _RANGE_LIMIT * step) + 1, step)
        ]
    elif len(first) == len(last) == 1 and first.isalpha() and last.isalpha():
        middle = [chr(n) for n in range(ord(first), ord(last) + 1, step)]
    else:
        raise ValueError(f"{pattern!r} has a range that is neither of numbers nor of letters")
    if not middle or len(middle) > _RANGE_LIMIT:
        raise ValueError(f"{pattern!r} stands for {'no host' if not middle else 'too many hosts'}")
    for each in middle:
        yield from expanded(f"{pattern[: found.start()]}{each}{pattern[found.end() :]}")
