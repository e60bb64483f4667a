"""What importing one entity changes about it. Pure: the engine asks it in the commit, and for a dry run before."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec

from holdfast.core.inventory import EntityRow, Imported, is_alike


class Outcome(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    #: the source does not have it any more
    STALE = "stale"
    DELETED = "deleted"
    #: somebody holds it, or it belongs to another source
    SKIPPED = "skipped"
    #: what it says cannot be
    REFUSED = "refused"


def upserted(
    before: EntityRow | None, said: Imported, source: str, now: int, own_groups: Collection[str], *, replaces: bool
) -> EntityRow:
    """The entity as it is after the import; the row itself where nothing changes.

    What the source does not mention stays: facts that blocks have found, labels somebody has given. `replaces` drops
    that too. `own_groups` are groups the same source brought; of those the entity is in what the source says, of
    others it stays a member."""
    if before is None:
        name = said.name if said.name is not None else said.id
        return EntityRow(
            said.id, said.type, name, dict(said.labels), now, now, said.parent or "", said.groups or (),
            dict(said.facts), source, said.id,
        )  # fmt: skip
    groups = before.groups
    if said.groups is not None:
        others = () if replaces else tuple(group for group in before.groups if group not in own_groups)
        wanted = (*others, *said.groups)
        # Whoever is in the same groups as before is in them in the same order.
        groups = before.groups if set(wanted) == set(before.groups) else tuple(dict.fromkeys(wanted))
    after = msgspec.structs.replace(
        before,
        type=said.type or before.type,
        name=before.name if said.name is None else said.name,
        parent=before.parent if said.parent is None else said.parent,
        groups=groups,
        labels=dict(said.labels) if replaces else {**before.labels, **said.labels},
        facts=dict(said.facts) if replaces else {**before.facts, **said.facts},
        source=source,
        external=said.id,
        is_stale=False,
    )
    if is_alike(before, after):
        return before
    return msgspec.structs.replace(after, version=before.version + 1, updated_at=now)
