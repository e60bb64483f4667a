"""All routes of the API, in the order of the documents."""

from __future__ import annotations

from . import (
    compat,
    entities,
    entity_locks,
    executions,
    page,
    planning,
    reviving,
    sharing,
    system,
    verdicts,
    workflows,
    working,
)
from .routes import Router

TABLES = (
    workflows.routes,
    executions.routes,
    reviving.routes,
    verdicts.routes,
    planning.routes,
    sharing.routes,
    entity_locks.routes,
    entities.routes,
    system.routes,
    working.routes,
    compat.routes,
    page.routes,
)


def make_router() -> Router:
    return Router(route for table in TABLES for route in table.routes)
