"""What a migration has to write that SQL cannot say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.codec import unpack
from holdfast.core.inventory import EntityRow

#: The migration that brought the index of entities.
_TERMS = 5


def fill(
    number: int,
    rows: Callable[[str], list[tuple[Any, ...]]],
    write_terms: Callable[[Sequence[tuple[str, EntityRow]]], None],
) -> None:
    """Called inside the migration's transaction, after its statements."""
    if number == _TERMS:
        found = rows("SELECT tenant, id, type, labels FROM entities")
        entities = [(tenant, EntityRow(id, type, labels=unpack(bytes(labels)))) for tenant, id, type, labels in found]
        if entities:
            write_terms(entities)
