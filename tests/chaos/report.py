"""What a campaign found: figures, and what should not have been."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: hears what a campaign is doing, line by line
Progress = Callable[[str], None]


@dataclass
class Report:
    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.ok, "figures": self.figures, "violations": self.violations}

    def text(self) -> str:
        lines = [f"{self.name}: {'ok' if self.ok else f'{len(self.violations)} violations'}"]
        lines += _table(self.figures, 1)
        lines += [f"  VIOLATION {text}" for text in self.violations[:50]]
        return "\n".join(lines)


def _table(figures: dict[str, Any], depth: int) -> list[str]:
    lines = []
    for name, value in figures.items():
        if isinstance(value, dict):
            lines += [f"{'  ' * depth}{name}", *_table(value, depth + 1)]
        else:
            shown = f"{value:.3f}" if isinstance(value, float) else str(value)
            lines.append(f"{'  ' * depth}{name:<34} {shown}")
    return lines
