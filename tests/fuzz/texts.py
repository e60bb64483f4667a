"""Data as YAML, in more than one style."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./ =${}+*<>()|-]*[A-Za-z0-9_}).]\Z")
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def written(value: Any, random: Random) -> str:
    """As YAML: mostly in blocks, sometimes as JSON, which is YAML too."""
    if random.random() < 0.15:
        return json.dumps(value, ensure_ascii=random.random() < 0.5) + "\n"
    lines: list[str] = []
    _write(value, 0, lines, random)
    return "\n".join(lines) + "\n"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        is_plain = " #" not in value and ": " not in value and not value.startswith(("- ", "? ", "=", "<", "{"))
        if is_plain:
            return value
    return json.dumps(value, ensure_ascii=False)


def _write(value: Any, indent: int, lines: list[str], random: Random) -> None:
    pad = " " * indent
    if isinstance(value, dict) and value:
        for key, item in value.items():
            if isinstance(item, (dict, list)) and item and random.random() < 0.85:
                lines.append(f"{pad}{_scalar(key)}:")
                _write(item, indent + 2, lines, random)
            else:
                lines.append(f"{pad}{_scalar(key)}: {_scalar(item)}")
    elif isinstance(value, list) and value:
        for item in value:
            if isinstance(item, (dict, list)) and item and random.random() < 0.9:
                at = len(lines)
                _write(item, indent + 2, lines, random)
                lines[at] = f"{pad}- {lines[at][indent + 2 :]}"
            else:
                lines.append(f"{pad}- {_scalar(item)}")
    else:
        lines.append(pad + _scalar(value))
