"""Declared inputs of a workflow: types, defaults, what may be left out."""

from __future__ import annotations

from typing import Any

from .compiled import Parameter
from .definition import take_keys
from .load import Unstorable, scalar
from .names import RESERVED_NAMES, Excerpt
from .nodes import Node, Report
from .parts import text_of
from .short import NAME
from .steps import PARAMETER_KEYS
from .values import Mismatch, coerce, type_of, yes_or_no


class InputCompiler:
    report: Report

    def _parameters(self, node: Node | None) -> tuple[Parameter, ...] | None:
        if node is None:
            return None
        if not isinstance(node.value, dict):
            self.report.add(node, "HF0108", f"`inputs` is a map of name → type, not {node.kind}")
            return None
        found = []
        for name, item in node.value.items():
            if not NAME.match(name) or name in RESERVED_NAMES or name == "output":
                self.report.add(node, "HF0113", f"`{name}` is not a name for an input", key=name)
                continue
            found.append(self._parameter(name, item))
        return tuple(found)

    def _parameter(self, name: str, node: Node) -> Parameter:
        report = self.report
        if node.value is None:
            return Parameter(name)
        if isinstance(node.value, str):
            return self._short_parameter(name, Excerpt(node.value, node))
        if not isinstance(node.value, dict):
            report.add(node, "HF0108", f"the input `{name}` is a type or a map, not {node.kind}")
            return Parameter(name)
        keys = take_keys(report, node, PARAMETER_KEYS, f"the input `{name}`", "not a key of an input")
        kind = "string"
        if "type" in keys:
            text = keys["type"].value
            known = type_of(text) if isinstance(text, str) else None
            if known is None:
                report.add(keys["type"], "HF0116", f"`{text}` is not a type",
                           help="one of string, integer, number, boolean, list, map, any, duration")  # fmt: skip
            kind = known or "any"
        default = None
        if "default" in keys:
            default = self._default(kind, keys["default"].plain(), keys["default"])
        required = "default" not in keys
        if "required" in keys:
            required = self._yes_or_no(keys["required"], "required", required)
        enum: tuple[Any, ...] = ()
        if "enum" in keys:
            if not isinstance(keys["enum"].value, list) or not keys["enum"].value:
                report.add(keys["enum"], "HF0108", "`enum` is a list of values")
            else:
                enum = tuple(self._default(kind, item.plain(), item) for item in keys["enum"].value)
                if default is not None and default not in enum:
                    report.add(keys["default"], "HF0116", "the default is not among the values of `enum`")
        description = text_of(report, keys.get("description"), "description", "")
        return Parameter(name, kind, default, required and default is None, description, enum)

    def _short_parameter(self, name: str, text: Excerpt) -> Parameter:
        """`integer`, `integer?` (may be left out) or `integer = 3`."""
        word, equals, rest = text.text.partition("=")
        word = word.strip()
        optional = word.endswith("?")
        kind = type_of(word.removesuffix("?").strip())
        if kind is None:
            text.report(self.report, "HF0116", f"`{word}` is not a type", 0, len(word),
                        help="one of string, integer, number, boolean, list, map, any, duration")  # fmt: skip
            return Parameter(name, "any")
        if not equals:
            return Parameter(name, kind, required=not optional)
        rest = rest.strip()
        try:
            value = rest if kind in ("string", "duration") else scalar(rest) if rest else None
        except Unstorable:
            value = rest
        return Parameter(name, kind, self._default(kind, value, text.node), required=False)

    def _default(self, kind: str, value: Any, node: Node) -> Any:
        if value is None:
            return None
        try:
            return coerce(kind, value)
        except Mismatch as mismatch:
            self.report.add(node, "HF0116", str(mismatch))
            return value

    def _yes_or_no(self, node: Node, key: str, default: bool) -> bool:
        try:
            return yes_or_no(node.value)
        except Mismatch:
            self.report.add(node, "HF0116", f"`{key}` is yes or no")
            return default
