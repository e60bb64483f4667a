"""Small parts of definitions, read and reported in place: texts, maps, durations, limits, retention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.retention import BadRetention, parse_retention, settle

from .names import Excerpt, Names, Value
from .nodes import Node, Report
from .problems import Unreadable
from .values import Mismatch, parse_duration, yes_or_no

_Read = TypeVar("_Read")


def text_of(report: Report, node: Node | None, key: str, default: str, limit: int = 10_000) -> str:
    if node is None:
        return default
    if not isinstance(node.value, str) or not node.value.strip():
        report.add(node, "HF0108", f"`{key}` is a text, not {node.kind}")
        return default
    if len(node.value) > limit:
        report.add(node, "HF0116", f"`{key}` is longer than {limit} characters")
    return node.value


def literal_map(report: Report, node: Node | None, key: str) -> dict[str, Any]:
    if node is None:
        return {}
    if not isinstance(node.value, dict):
        report.add(node, "HF0108", f"`{key}` is a map, not {node.kind}")
        return {}
    plain: dict[str, Any] = node.plain()
    return plain


def excerpt_of(given: Node | Excerpt) -> Excerpt:
    if isinstance(given, Excerpt):
        return given
    return Excerpt(given.value if isinstance(given.value, str) else str(given.value), given)


def plain_of(given: Node | Excerpt) -> Any:
    return given.unquoted().text if isinstance(given, Excerpt) else given.plain()


def yes_of(report: Report, given: Node | Excerpt, key: str, default: bool = False) -> bool:
    try:
        return yes_or_no(plain_of(given))
    except Mismatch:
        excerpt_of(given).report(report, "HF0116", f"`{key}` is yes or no")
        return default


def micros(report: Report, given: Node | Excerpt) -> int:
    """A literal duration."""
    at = excerpt_of(given)
    value = plain_of(given)
    if isinstance(value, str) and "${" in value:
        at.report(report, "HF0126", "the duration cannot be an expression here")
        return 0
    try:
        return parse_duration(value if isinstance(value, str) else str(value))
    except Mismatch as mismatch:
        at.report(report, "HF0114", str(mismatch), help="e.g. `10ms`, `5s`, `3m`, `2h`, `1d`, `1h30m`")
        return 0


def span(names: Names, given: Node | Excerpt) -> Value:
    """A duration, literal (and then checked) or an expression."""
    at = excerpt_of(given)
    if "${" in at.text:
        return names.template(at.unquoted())
    micros(names.shared.report, given)
    return Value(at.unquoted().text)


def readable(report: Report, given: Node | Excerpt, read: Callable[[Any], _Read], default: _Read, what: str) -> _Read:
    """Something with a grammar of its own."""
    value = plain_of(given)
    at = excerpt_of(given)
    if isinstance(value, str) and "${" in value:
        at.report(report, "HF0126", f"{what} cannot be an expression here")
        return default
    try:
        return read(value)
    except Unreadable as error:
        whole = isinstance(value, str)
        at.report(report, "HF0116", error.message, error.start if whole else 0, error.end if whole else None,
                  help=error.help)  # fmt: skip
        return default


def retention_of(report: Report, node: Node | None, has_lock: bool) -> tuple[str, str]:
    """The rule and the hash, as texts."""
    if node is None:
        return "", ""
    text = str(node.value) if not isinstance(node.value, (dict, list)) and node.value is not None else ""
    if not text:
        report.add(node, "HF0108", f"`retention` is a number, a duration or a rule, not {node.kind}")
        return "", ""
    check_retention(report, Excerpt(text, node))
    try:
        found = parse_retention(text)
    except BadRetention:
        return "", ""
    if found.is_disabled and has_lock:
        report.add(node, "HF0115", "`retention: disabled` cannot be together with `lock`",
                   help="a lock must be found again after a crash: use `retention: 0`")  # fmt: skip
    return settle(found), found.hash


def check_retention(report: Report, at: Excerpt) -> None:
    if "${" in at.text.partition("hash")[0]:
        return
    try:
        parse_retention(at.text)
    except BadRetention as bad:
        at.report(report, "HF0116", bad.message, bad.start, bad.end, help=bad.help)
