"""The entity a job is about, as a block sees it, and the changes of the inventory a block asks for.

What is asked for is kept aside by the engine and done when the execution has completed, or never. It must not know how
it travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from holdfast.core.inventory import CHANGE_LIMIT, CHANGES_LIMIT, EntityChange
from holdfast.core.model import PAYLOAD_LIMIT

from .values import encode

_FIELDS = ("id", "type", "name", "parent", "groups", "labels", "facts")


class Entity(Mapping[str, Any]):
    """As the inventory had it when the attempt was handed out. Not to be changed: `ctx.update` asks for that.

    Its parts are attributes and keys alike. A job that is about no entity has an empty one.
    """

    __slots__ = ("facts", "groups", "id", "labels", "name", "parent", "type")

    def __init__(self, id: str = "", known: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.id = id
        self.type: str = known.get("type", "")
        self.name: str = known.get("name", "")
        self.parent: str = known.get("parent", "")
        self.groups: tuple[str, ...] = tuple(known.get("groups", ()))
        self.labels: Mapping[str, str] = MappingProxyType(dict(known.get("labels", {})))
        self.facts: Mapping[str, Any] = MappingProxyType(dict(known.get("facts", {})))

    def __getitem__(self, key: str) -> Any:
        if key not in _FIELDS or not self.id:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_FIELDS if self.id else ())

    def __len__(self) -> int:
        return len(_FIELDS) if self.id else 0

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<entity {self.id} ({self.type or 'no type'})>" if self.id else "<no entity>"


class Wishes:
    """What one attempt wants of the inventory, in order."""

    __slots__ = ("_size", "asked")

    def __init__(self) -> None:
        self.asked: list[EntityChange] = []
        self._size = 0

    def add(
        self,
        id: str,
        op: str,
        *,
        type: str | None = None,
        name: str | None = None,
        parent: str | None = None,
        groups: Iterable[str] | None = None,
        labels: Mapping[str, str | None] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Whatever could not be kept is refused here, where the block sees its mistake."""
        for what, value in (("id", id), ("type", type or ""), ("name", name or ""), ("parent", parent or "")):
            _text(value, f"the {what} of entity {id!r}")
        if not 0 < len(id) <= 200:
            raise ValueError(f"an entity's id has 1 to 200 characters, not {len(id)}")
        if isinstance(groups, str):
            raise TypeError(f"the groups of entity {id} must be a list of ids, not {groups!r}")
        listed = None if groups is None else tuple(_text(group, f"a group of entity {id}") for group in groups)
        marked = dict(labels or {})
        for key, label in marked.items():
            _text(key, f"the name of a label of entity {id}")
            _text(label or "", f"label {key} of entity {id}")
        try:
            known, size = encode(dict(facts or {}))
        except Exception as error:
            raise TypeError(f"the facts of entity {id} cannot be kept: {error}") from error
        size += encode(marked)[1]
        if size > CHANGE_LIMIT:
            raise ValueError(f"a change of entity {id} has {size} bytes encoded; the limit is {CHANGE_LIMIT}")
        if self._size + size > PAYLOAD_LIMIT:
            raise ValueError(f"changes of the inventory have at most {PAYLOAD_LIMIT} bytes in all")
        if len(self.asked) >= CHANGES_LIMIT:
            raise ValueError(f"one attempt may ask for {CHANGES_LIMIT} changes of the inventory, not for more")
        self._size += size
        self.asked.append(EntityChange(id, op, type, name, parent, listed, marked, known))


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, not {value!r}")
    return value
