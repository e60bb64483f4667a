"""What a campaign found: figures for people, violations for the build."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Report:
    name: str
    figures: dict[str, object] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations
