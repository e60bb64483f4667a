"""The list of routes for `docs/reference/rest.md`, written from the route objects so that it cannot be wrong."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.errors import Refused

from .auth import Role
from .routes import API, Route, Router

TITLES = {
    "workflows": "Workflows",
    "executions": "Executions",
    "planning": "Plan and retry",
    "reviving": "Resume, replay, approve",
    "verdicts": "Ledger, rollback, ack",
    "sharing": "Locks and sensors",
    "entities": "Entities",
    "system": "The system",
    "worker": "Workers' own routes",
    "compat": "For tools of the function-block notation",
    "page": "Pages for people",
}


def routes_markdown(router: Router) -> str:
    by_tag: dict[str, list[Route]] = {}
    for route in router:
        by_tag.setdefault(route.tag, []).append(route)
    parts = [f"### {TITLES[tag]}\n\n{_table(routes)}" for tag, routes in by_tag.items()]
    return "\n".join(parts)


def _table(routes: Iterable[Route]) -> str:
    lines = ["| Route | Role | What it does | Own refusals |", "|---|---|---|---|"]
    for route in routes:
        address = f"`{route.method} {route.path.removeprefix(API)}`"
        codes = ", ".join(_codes(route.refusals)) or "–"
        role = route.role.name.lower() if route.role is not Role.PUBLIC else "*none*"
        lines.append(f"| {address} | {role} | {route.summary} | {codes} |")
    return "\n".join(lines) + "\n"


def _codes(refusals: Iterable[type[Refused]]) -> list[str]:
    return sorted(refused.code for refused in refusals)
