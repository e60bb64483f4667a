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

#: What one entity may have.
LABELS_LIMIT = 64
#: bytes, encoded
FACTS_LIMIT = 64 * 1024
GROUPS_LIMIT = 256
GROUP = "group"
#: Alike for what is the same: to Python 1, 1.0 and true are one value, and keys have an order.
_exact = msgspec.msgpack.Encoder(order="deterministic").encode
#: Characters of a value that the index keeps as it is.
TERM_LIMIT = 200
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


class Imported(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What somebody else's inventory says of an entity. Of parts that are null it says nothing."""

    id: str
    type: str = ""
    name: str | None = None
    parent: str | None = None
    groups: tuple[str, ...] | None = None
    labels: dict[str, str] = {}
    facts: dict[str, Any] = {}
    #: file and line
    place: str = ""


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


# --- changes -----------------------------------------------------------------------------------------------
class Unchangeable(Exception):
    """The change makes no sense for what is there."""


def applied(row: EntityRow | None, change: EntityChange, now: int) -> EntityRow | None:
    """The entity after the change; nothing where it is gone. The row itself where nothing changes."""
    if change.op == "delete":
        return None
    if row is None:
        if change.op != "create":
            raise Unchangeable(f"there is no entity {change.id}")
        row = EntityRow(change.id, created_at=now, updated_at=now, version=0)
    type, name, parent = (
        old if new is None else new
        for old, new in ((row.type, change.type), (row.name, change.name), (row.parent, change.parent))
    )
    groups = row.groups if change.groups is None else change.groups
    labels, facts = _merged(row.labels, change.labels), _merged(row.facts, change.facts)
    made = msgspec.structs.replace(
        row, type=type, name=name, parent=parent, groups=groups, labels=labels, facts=facts,
        updated_at=now, version=row.version + 1,
    )  # fmt: skip
    return made if row.version == 0 or not is_alike(row, made) else row


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    if not new:
        return old
    made = {**old, **new}
    return {key: value for key, value in made.items() if value is not None}


def is_alike(one: EntityRow, other: EntityRow) -> bool:
    """Whether both say the same of the entity."""
    return _said(one) == _said(other)


def _said(row: EntityRow) -> tuple[Any, ...]:
    facts = _exact(row.facts) if row.facts else b""
    return (row.type, row.name, row.parent, row.groups, row.labels, facts, row.source, row.external, row.is_stale)


def difference(before: EntityRow | None, after: EntityRow | None) -> EntityChange | None:
    """The one change that makes `after` of `before`; nothing where they are alike."""
    if after is None:
        return None if before is None else EntityChange(before.id, "delete")
    if before is None:
        labels: dict[str, str | None] = dict(after.labels)
        return EntityChange(
            after.id, "create", after.type, after.name, after.parent, after.groups, labels, after.facts
        )  # fmt: skip
    if is_alike(before, after):
        return None
    return EntityChange(
        after.id,
        type=after.type if after.type != before.type else None,
        name=after.name if after.name != before.name else None,
        parent=after.parent if after.parent != before.parent else None,
        groups=after.groups if after.groups != before.groups else None,
        labels=_changed(before.labels, after.labels),
        facts=_changed(before.facts, after.facts),
    )


def _changed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    gone = {key: None for key in old if key not in new}
    return {key: value for key, value in new.items() if key not in old or _exact(old[key]) != _exact(value)} | gone


def excess(row: EntityRow) -> str:
    """What is too much about it; empty where all is well."""
    if len(row.labels) > LABELS_LIMIT:
        return f"entity {row.id} would have {len(row.labels)} labels; {LABELS_LIMIT} are the limit"
    if len(row.groups) > GROUPS_LIMIT:
        return f"entity {row.id} would be in {len(row.groups)} groups; {GROUPS_LIMIT} are the limit"
    size = len(_exact(row.facts)) if row.facts else 0
    if size > FACTS_LIMIT:
        return f"the facts of entity {row.id} would take {size:,} bytes; {FACTS_LIMIT:,} are the limit"
    return ""


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
