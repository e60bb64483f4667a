"""YAML and JSON of other tools: values as those tools read them, and the lines on which the keys stand."""

from __future__ import annotations

import json
from typing import Any

import yaml

from .gather import HIDDEN

#: Values that a text may stand for, aliases counted each time.
MAX_VALUES = 2_000_000


class Unparsed(Exception):
    """The text is neither; `line` says where it stops to be."""

    def __init__(self, message: str, line: int = 0, source: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.source = source


class Lines:
    """Where the keys of a document stand: `at("all", "hosts", "r1")`."""

    def __init__(self, node: yaml.Node | None = None) -> None:
        self._node = node

    def at(self, *path: str) -> int:
        node, line = self._node, 0
        for name in path:
            if not isinstance(node, yaml.MappingNode):
                return line
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value == name:
                    node, line = value, key.start_mark.line + 1
                    break
            else:
                return line
        return line

    def below(self, *path: str) -> dict[str, int]:
        """Lines of all keys of a map, at once."""
        node = self._node
        for name in path:
            if not isinstance(node, yaml.MappingNode):
                return {}
            node = next((v for k, v in node.value if isinstance(k, yaml.ScalarNode) and k.value == name), None)
        if not isinstance(node, yaml.MappingNode):
            return {}
        return {key.value: key.start_mark.line + 1 for key, _ in node.value if isinstance(key, yaml.ScalarNode)}

    def twice(self) -> list[tuple[str, int]]:
        """Keys that occur twice in one map, of all maps: readers of YAML keep the last one without a word."""
        found: list[tuple[str, int]] = []
        pending, seen = [self._node], set()
        while pending:
            node = pending.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, yaml.MappingNode):
                here: set[str] = set()
                for key, value in node.value:
                    pending.append(value)
                    if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                        if key.value in here:
                            found.append((key.value, key.start_mark.line + 1))
                        here.add(key.value)
            elif isinstance(node, yaml.SequenceNode):
                pending.extend(node.value)
        return sorted(found, key=lambda each: each[1])


class _Constructor(yaml.constructor.SafeConstructor):
    pass


def _tagged(constructor: Any, suffix: str, node: yaml.Node) -> Any:
    if suffix in ("vault", "vault-encrypted"):
        return HIDDEN
    if isinstance(node, yaml.ScalarNode):
        return constructor.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return constructor.construct_sequence(node, deep=True)
    return constructor.construct_mapping(node, deep=True)


_Constructor.add_multi_constructor("!", _tagged)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str) -> tuple[Any, Lines]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text), Lines()
        except RecursionError:
            raise Unparsed("it is nested too deeply") from None
        except ValueError as error:
            if isinstance(error, json.JSONDecodeError) and text.lstrip().startswith('{"'):
                raise Unparsed(f"not valid JSON: {error.msg}", error.lineno) from None
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            return None, Lines()
        if _size(node, {}) > MAX_VALUES:
            raise Unparsed(f"it stands for more than {MAX_VALUES:,} values")
        return _Constructor().construct_document(node), Lines(node)
    except RecursionError:
        raise Unparsed("it is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        lines = text.splitlines()
        source = lines[line - 1] if 0 < line <= len(lines) else ""
        raise Unparsed(f"not valid YAML: {error.problem or error.context}", line, source) from None
    except (yaml.YAMLError, ValueError) as error:
        raise Unparsed(f"not valid YAML: {str(error).splitlines()[0]}") from None


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Values it stands for; an alias costs what it stands for, so that a small file cannot be a huge one."""
    size = known.get(id(node))
    if size is None:
        known[id(node)] = MAX_VALUES + 1  # an alias to what it is part of has no end
        size = 1
        if isinstance(node, yaml.MappingNode):
            size += sum(_size(key, known) + _size(value, known) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            size += sum(_size(item, known) for item in node.value)
        known[id(node)] = size
    return size
