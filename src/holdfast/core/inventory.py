"""Entities: the things worked upon, as rows, and the changes that blocks ask for.

An execution's changes are kept aside until it has completed and are applied in that very commit; in any other end
they are dropped. Nothing here knows where rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec

from .model import DEFAULT_ENTITY

#: Characters of a value that the index keeps as it is.
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


# --- the index that selectors ask ------------------------------------------------------------------------
def term_value(value: Any) -> str | None:
    """A value as the index has it, alike for what is equal and for nothing else; nothing for what it does not have
    (null, lists, maps). Text is itself; numbers and booleans begin with `=`, so that 17 and "17" stay apart."""
    if isinstance(value, str):
        if len(value) <= TERM_LIMIT and value[:1] not in ("=", "#"):
            return value
        return "#" + blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    if isinstance(value, bool):
        return "=true" if value else "=false"
    if isinstance(value, int):
        return f"={value}"
    if isinstance(value, float) and isfinite(value):
        return f"={int(value)}" if value.is_integer() else f"={value!r}"
    return None


def terms_of(row: EntityRow) -> list[tuple[str, str]]:
    """The rows of the index for an entity: `type`, `parent`, `group`, `label.NAME`, `fact.NAME` of top-level facts. A
    fact behind a label of its name is `hidden.NAME`, so that a bare name never finds it."""
    terms = [("type", row.type)] if row.type else []
    if row.parent:
        terms.append(("parent", row.parent))
    terms += [("group", group) for group in dict.fromkeys(row.groups)]
    terms += [(f"label.{name}", _sure(value)) for name, value in row.labels.items()]
    for name, fact in row.facts.items():
        value = term_value(fact)
        if value is not None:
            terms.append((f"{'hidden' if name in row.labels else 'fact'}.{name}", value))
    return terms


def _sure(value: str) -> str:
    made = term_value(value)
    assert made is not None
    return made


def index_keys(key: str) -> tuple[str, ...]:
    """Under which keys of the index a term of a selector may stand: any of them will do."""
    kind, dot, name = key.partition(".")
    if dot and kind == "any":
        return (f"label.{name}", f"fact.{name}")
    if dot and kind == "fact":
        return (key, f"hidden.{name}")
    return (key,)


def has_terms(row: EntityRow, terms: Iterable[tuple[str, str]]) -> bool:
    """Whether an index would find the row by all of these."""
    own = set(terms_of(row))
    own.add(("id", row.id))
    return all(any((each, value) in own for each in index_keys(key)) for key, value in terms)
