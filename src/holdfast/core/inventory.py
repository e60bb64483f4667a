"""Entities: the things worked upon, as rows, and the changes that blocks ask for.

An execution's changes are kept aside until it has completed and are applied in that very commit; in any other end
they are dropped. Nothing here knows where rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

import msgspec

from .model import DEFAULT_ENTITY

#: Characters a value or a name may have to be indexed.
TERM_LIMIT = 200


class EntityRow(msgspec.Struct, frozen=True, gc=False):
    """A thing worked upon."""

    id: str
    type: str = ""
    name: str = ""
    labels: dict[str, str] = {}
    created_at: int = 0
    updated_at: int = 0
    #: entity it is a part of; to lock a part is to have an intention on the whole
    parent: str = ""
    #: ids of entities of type `group`
    groups: tuple[str, ...] = ()
    facts: dict[str, Any] = {}
    #: which importer it came from, and what it is called there
    source: str = ""
    external: str = ""
    #: counts its changes since it came to be
    version: int = 1
    #: the importer did not find it any more
    is_stale: bool = False


class Found(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """As much of an entity as locking it takes."""

    id: str
    type: str = ""
    parent: str = ""
    groups: tuple[str, ...] = ()


class EntityChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a block wants of the inventory. Of a patch, absent parts stay and facts and labels are merged key by key; a
    value of `None` removes the key."""

    id: str
    #: `patch`, `create` (a patch where it exists already) or `delete`
    op: str = "patch"
    type: str | None = None
    name: str | None = None
    parent: str | None = None
    groups: tuple[str, ...] | None = None
    labels: dict[str, str | None] = {}
    facts: dict[str, Any] = {}


class Flag(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An execution left the entity in doubt; until it is acknowledged."""

    entity: str
    execution: str
    #: `suspect` or `quarantine`
    kind: str
    reason: str = ""
    at: int = 0


def default_entity() -> EntityRow:
    """Every tenant has one, stored or not."""
    return EntityRow(DEFAULT_ENTITY, "default", DEFAULT_ENTITY)


# --- what an index of entities knows -------------------------------------------------------------------
def term_value(value: Any) -> str | None:
    """A value as the index spells it, the same for what is stored and for what is asked: `1` and `1.0` are one
    value, truth is `true` or `false`. Nothing where it is not indexed: it is no scalar, empty, or too long; whoever
    asks for such a value has to look at the entities. A number and its text are spelled alike, too."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            text = str(value)
        case float():
            if not isfinite(value):
                return None
            text = str(int(value)) if value.is_integer() else repr(value)
        case str():
            text = value
        case _:
            return None
    return text if 0 < len(text) <= TERM_LIMIT else None


def terms_of(row: EntityRow) -> Iterator[tuple[str, str]]:
    """What the index says of an entity: (key, value) as in `program.Wanted.terms`. A label whose value is not indexed
    has an entry without one: it hides a fact of its name from `any.NAME` all the same."""
    if (type := term_value(row.type)) is not None:
        yield "type", type
    if (parent := term_value(row.parent)) is not None:
        yield "parent", parent
    for group in row.groups:
        if (member := term_value(group)) is not None:
            yield "group", member
    for name, label in row.labels.items():
        if len(name) <= TERM_LIMIT:
            yield f"label.{name}", term_value(label) or ""
    for name, fact in row.facts.items():
        if len(name) <= TERM_LIMIT and (text := term_value(fact)) is not None:
            yield f"fact.{name}", text
