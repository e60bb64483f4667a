"""Entities: the things worked upon, as rows, and the changes that blocks ask for.

An execution's changes are kept aside until it has completed and are applied in that very commit; in any other end
they are dropped. Nothing here knows where rows are kept.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .model import DEFAULT_ENTITY

#: changes one attempt may ask for, and bytes that each may have, encoded
CHANGES_LIMIT = 1000
CHANGE_LIMIT = 64 * 1024


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
