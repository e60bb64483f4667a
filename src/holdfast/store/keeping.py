"""Questions of whoever forgets: groups of ended executions, and who stands where in one.

A group is (tenant, entity, hash or workflow's name). A place in it is (ended-at, stored key), and its order is that of
the index `executions_kept`, so no answer costs more than what it returns, or than the number it counts to.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from holdfast.core.ids import from_key, to_key

from .queries import HEADER, Queries, header_of
from .records import Header

#: µs that an idempotency key of a start is kept, whatever becomes of its execution
KEY_KEPT = 24 * 3600 * 1_000_000
#: when it ended, and its stored key
Place: TypeAlias = tuple[int, bytes]

# As in the migration: an index serves only those who say what it says.
_KEY = "coalesce(nullif(retention_hash, ''), workflow)"
_KEPT = "status >= 20 AND status <> 22 AND retention <> 'disabled'"
_UNKEPT = "status >= 20 AND status <> 22 AND retention = 'disabled'"
_OF = f"{_KEPT} AND tenant = ? AND entity = ? AND {_KEY} = ?"


class Group(NamedTuple):
    tenant: str
    entity: str
    #: the hash its members give, or the name of their workflow
    key: str


def group_of(header: Header) -> Group:
    return Group(header.tenant, header.entity, header.retention_hash or header.workflow)


def groups(queries: Queries, after: Group | None = None, tenant: str | None = None, limit: int = 100) -> list[Group]:
    """Groups with members that may be forgotten one day, in their order; of all tenants or of one."""
    found: list[Group] = []
    if after is None:
        after = Group(tenant or "", "", "")
    while len(found) < limit:
        following = _next(queries, after, tenant is None)
        if following is None:
            break
        found.append(following)
        after = following
    return found


def _next(queries: Queries, after: Group, of_all: bool) -> Group | None:
    """Column by column: each is one step in the index, where a comparison of rows would walk."""
    columns = f"SELECT tenant, entity, {_KEY} FROM executions WHERE {_KEPT}"
    steps: list[tuple[str, tuple[str, ...]]] = [
        (f"tenant = ? AND entity = ? AND {_KEY} > ? ORDER BY {_KEY}", after),
        (f"tenant = ? AND entity > ? ORDER BY entity, {_KEY}", after[:2]),
    ]
    if of_all:
        steps.append((f"tenant > ? ORDER BY tenant, entity, {_KEY}", after[:1]))
    for where, params in steps:
        if rows := queries.rows(f"{columns} AND {where} LIMIT 1", params):
            return Group(*rows[0])
    return None


def nth_newest(queries: Queries, group: Group, number: int) -> tuple[Place, str] | None:
    """Place and rule of the `number`-th that ended, counted from 1 backwards."""
    sql = f"SELECT ended_at, id, retention FROM executions WHERE {_OF} ORDER BY ended_at DESC, id DESC LIMIT 1 OFFSET ?"
    found = queries.rows(sql, (*group, number - 1))
    return ((found[0][0], bytes(found[0][1])), found[0][2]) if found else None


def beyond(queries: Queries, group: Group, cut: Place, after: Place = (0, b""), limit: int = 500) -> list[Header]:
    """Members before the cut, oldest first, after a place in it."""
    sql = (
        f"SELECT {HEADER} FROM executions WHERE {_OF} AND (ended_at, id) < (?, ?) AND (ended_at, id) > (?, ?)"
        " ORDER BY ended_at, id LIMIT ?"
    )
    return [header_of(row) for row in queries.rows(sql, (*group, *cut, *after, limit))]


def first_kept(queries: Queries, group: Group, cut: Place) -> Place | None:
    """The oldest member at or after the cut."""
    sql = f"SELECT ended_at, id FROM executions WHERE {_OF} AND (ended_at, id) >= (?, ?) ORDER BY ended_at, id LIMIT 1"
    found = queries.rows(sql, (*group, *cut))
    return (found[0][0], bytes(found[0][1])) if found else None


def count(queries: Queries, group: Group) -> int:
    """Members in all. Costs as much as there are: for people who ask, not for the loop."""
    return int(queries.rows(f"SELECT count(*) FROM executions WHERE {_OF}", group)[0][0])


def unkept(queries: Queries, after: Place = (0, b""), limit: int = 500) -> list[Header]:
    """Ended, and not to be kept at all."""
    sql = f"SELECT {HEADER} FROM executions WHERE {_UNKEPT} AND (ended_at, id) > (?, ?) ORDER BY ended_at, id LIMIT ?"
    return [header_of(row) for row in queries.rows(sql, (*after, limit))]


#: when, tenant and key of a start
StartPlace: TypeAlias = tuple[int, str, str]


def starts_between(queries: Queries, after: StartPlace, before: int, limit: int = 500) -> list[tuple[StartPlace, bool]]:
    """Starts of that time, oldest first, and whether their execution is gone."""
    sql = (
        "SELECT at, tenant, key, NOT EXISTS (SELECT 1 FROM executions WHERE executions.id = starts.execution)"
        " FROM starts WHERE (at, tenant, key) > (?, ?, ?) AND at < ? ORDER BY at, tenant, key LIMIT ?"
    )
    found = queries.rows(sql, (*after, before, limit))
    return [((at, tenant, key), bool(is_gone)) for at, tenant, key, is_gone in found]


def lost_starts(queries: Queries, before: int, limit: int = 10) -> list[tuple[str, str]]:
    """(key, execution) of starts before that time whose execution is gone."""
    sql = (
        "SELECT key, execution FROM starts WHERE at < ? AND NOT EXISTS"
        " (SELECT 1 FROM executions WHERE executions.id = starts.execution) ORDER BY at LIMIT ?"
    )
    return [(key, from_key(bytes(execution))) for key, execution in queries.rows(sql, (before, limit))]


def stored_key(header: Header) -> bytes:
    return to_key(header.id)
