"""Statements over `unnest`: one array per column, however many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from holdfast.core.errors import Conflict

from .postgres_arrays import bigints, byteas, texts


class Answer(Protocol):
    """Of a statement that was sent; it is not known before the answers to all of them have been waited for."""

    @property
    def rowcount(self) -> int: ...


class Run(Protocol):
    def __call__(self, sql: str, params: Sequence[Any], /) -> Answer:
        """Send one prepared statement."""
        ...


class Check(NamedTuple):
    """To be made when everything is answered and before it is committed."""

    answer: Answer
    wanted: int
    what: str = "executions"

    def __call__(self) -> None:
        missed = self.wanted - self.answer.rowcount
        if missed:
            raise Conflict(f"{missed} of {self.wanted} {self.what} are not as they were decided upon")


Column = Callable[[Sequence[Any]], bytes]
_CASTS: dict[Column, str] = {bigints: "bigint[]", byteas: "bytea[]", texts: "text[]"}


class Bulk:
    """A statement over `unnest` of one array per column."""

    def __init__(self, sql: str, **columns: Column) -> None:
        arrays = ", ".join(f"${n}::{_CASTS[kind]}" for n, kind in enumerate(columns.values(), 1))
        self.sql = sql.format(rows=f"unnest({arrays}) AS n({', '.join(columns)})", columns=", ".join(columns))
        self._kinds = tuple(columns.values())

    def __call__(self, run: Run, rows: Iterable[tuple[Any, ...]]) -> Answer | None:
        columns = list(zip(*rows, strict=True))
        if not columns:
            return None
        return run(self.sql, [kind(column) for kind, column in zip(self._kinds, columns, strict=True)])


def insert(table: str, **columns: Column) -> Bulk:
    return Bulk(f"INSERT INTO {table} ({{columns}}) SELECT * FROM {{rows}}", **columns)


def keep(table: str, **columns: Column) -> Bulk:
    """Insert what is not there; the content is addressed by its key, so what is there is the same."""
    return Bulk(f"INSERT INTO {table} ({{columns}}) SELECT * FROM {{rows}} ON CONFLICT DO NOTHING", **columns)


def put(table: str, key: str, /, **columns: Column) -> Bulk:
    """Insert or replace."""
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in columns if name not in key.split(", "))
    sql = f"INSERT INTO {table} ({{columns}}) SELECT * FROM {{rows}} ON CONFLICT ({key}) DO UPDATE SET "
    return Bulk(sql + changes, **columns)


def drop(table: str, **key: Column) -> Bulk:
    where = " AND ".join(f"t.{name} = n.{name}" for name in key)
    return Bulk(f"DELETE FROM {table} AS t USING {{rows}} WHERE {where}", **key)


def last(rows: list[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    """The last row of each key (the first `width` columns), in the order of the keys: PostgreSQL refuses to
    write one row twice in one statement."""
    last = {row[:width]: row for row in rows}
    return [last[key] for key in sorted(last)]
