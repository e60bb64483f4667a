"""Which entities an execution works upon, and what has to be locked for that. Reads rows, decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from . import events as e
from . import program as p
from .entity_locks import lock_set
from .inventory import EntityRow, Found
from .model import Failure, Mode
from .reads import FoundKey, Reads, RelatedKey, SelectKey
from .subjects import order_of

#: Ids named in a message; all of them are in the details.
SHOWN = 10
#: A text with one of these is a selector rather than an id.
_OPERATORS = frozenset("=<>!&|()\"'")


class Unreadable(ValueError):
    """What a block said about the entities it needs cannot be understood."""


class Catch(msgspec.Struct):
    """What was found so far."""

    found: dict[str, Found] = {}
    #: ids nobody has heard of
    unknown: list[str] = []


def resolve(tenant: str, wanted: Iterable[p.Wanted], reads: Reads) -> Catch:
    """All wishes, one after the other: some of them are about what was found before. Groups become their members in
    the end; the groups themselves stay among what was found."""
    catch = Catch()
    for wish in wanted:
        _take(catch, tenant, wish, reads)
    groups = [each.id for each in catch.found.values() if each.type == "group"]
    while groups:
        members = reads.related(RelatedKey(tenant, "members", tuple(sorted(groups))))
        new = [each for each in members if each.id not in catch.found]
        catch.found.update((each.id, each) for each in new)
        groups = [each.id for each in new if each.type == "group"]
    return catch


def exactly(tenant: str, ids: Iterable[str], reads: Reads) -> Catch:
    """These and no others: no group stands for its members."""
    catch = Catch()
    _take(catch, tenant, p.Wanted("ids", tuple(ids)), reads)
    return catch


def _take(catch: Catch, tenant: str, wish: p.Wanted, reads: Reads) -> None:
    found: Sequence[Found | EntityRow] = ()
    match wish.kind:
        case "ids":
            ids = tuple(sorted({*wish.ids}))
            found = reads.found(FoundKey(tenant, ids)) if ids else ()
            there = {each.id for each in found}
            catch.unknown += [id for id in ids if id not in there and id not in catch.unknown]
        case "select":
            terms = wish.terms
            if wish.type and ("type", wish.type) not in terms:
                terms = (*terms, ("type", wish.type))
            found = reads.select(SelectKey(tenant, terms, wish.test is None))
            if wish.test is not None:
                found = [row for row in found if isinstance(row, EntityRow) and wish.test(row)]
        case "children":
            found = _related(tenant, "children", catch.found, reads)
        case "members":
            groups = [each.id for each in catch.found.values() if each.type == "group"]
            found = _related(tenant, "members", groups, reads)
        case "parent":
            parents = tuple(sorted({each.parent for each in catch.found.values() if each.parent}))
            found = reads.found(FoundKey(tenant, parents)) if parents else ()
        case other:
            raise AssertionError(f"no way to want entities by {other!r}")
    for each in found:
        if not wish.type or each.type == wish.type:
            brief = each if isinstance(each, Found) else Found(each.id, each.type, each.parent, each.groups)
            catch.found[each.id] = brief


def _related(tenant: str, relation: str, ids: Iterable[str], reads: Reads) -> Sequence[Found]:
    of = tuple(sorted(ids))
    return reads.related(RelatedKey(tenant, relation, of)) if of else ()


# --- what a block says it needs ----------------------------------------------------------------------------
def answered(result: Any, program: p.Program, tenant: str, reads: Reads) -> list[p.Wanted]:
    """`{"ids": […], "select": […]}`, or a list of both; nothing is nothing."""
    if result is None:
        return []
    if isinstance(result, dict) and result.keys() <= {"ids", "select"}:
        ids, texts = result.get("ids") or (), result.get("select") or ()
        selectors = [program.selector(text) for text in _texts([texts] if isinstance(texts, str) else texts)]
        return [p.Wanted("ids", _texts([ids] if isinstance(ids, str) else ids)), *selectors]
    if isinstance(result, list | tuple):
        texts = _texts(result)
        known = {each.id for each in reads.found(FoundKey(tenant, tuple(sorted({*texts}))))} if texts else set()
        are_selectors = {text: text not in known and not _OPERATORS.isdisjoint(text) for text in texts}
        plain = tuple(text for text in texts if not are_selectors[text])
        return [p.Wanted("ids", plain), *(program.selector(text) for text in texts if are_selectors[text])]
    raise Unreadable(f"it answered with {_shown(result)}")


def _texts(items: Any) -> tuple[str, ...]:
    if not isinstance(items, list | tuple):
        raise Unreadable(f"it answered with {_shown(items)} where a list belongs")
    texts: list[Any] = [item.get("id") if isinstance(item, dict) else item for item in items]
    for item, text in zip(items, texts, strict=True):
        if not isinstance(text, str) or not text:
            raise Unreadable(f"it answered with {_shown(item)} where an id belongs")
    return tuple(texts)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


# --- subjects and locks ------------------------------------------------------------------------------------
def found_event(
    found: Mapping[str, Found], mode: Mode, works_on_groups: bool, tenant: str, reads: Reads
) -> e.EntitiesFound:
    """The sorted set, and what is locked around it."""
    by_type: dict[str, list[Found]] = {}
    for each in found.values():
        by_type.setdefault(each.type, []).append(each)
    if not works_on_groups:
        by_type.pop("group", None)
    types = sorted(by_type, key=lambda type: order_of(type, ""))
    subjects = [each for type in types for each in sorted(by_type[type], key=_ID)]
    groups = () if works_on_groups else [each.id for each in found.values() if each.type == "group"]
    parents = _parents(found, subjects, tenant, reads)
    ids = tuple(map(_ID, subjects))
    asked = lock_set(dict.fromkeys(ids, mode), parents, groups)
    modes = tuple(map(asked.pop, ids))
    return e.EntitiesFound(
        ids,
        tuple(map(_TYPE, subjects)),
        modes,
        tuple(asked),
        tuple(asked.values()),
        tuple(_outermost(id, parents) for id in ids) if parents else (),
        _between(ids, parents) if parents else (),
    )


_ID, _TYPE = attrgetter("id"), attrgetter("type")


def _parents(found: Mapping[str, Found], subjects: Iterable[Found], tenant: str, reads: Reads) -> dict[str, str]:
    """Of the subjects, of what they are parts of, and so on. A parent that is not there is none."""
    parents = {each.id: each.parent for each in subjects if each.parent}
    if not parents:
        return parents
    known = {id: each.parent for id, each in found.items()}
    while True:
        unread = {parent for parent in parents.values() if parent not in known}
        if unread:
            read = {each.id: each.parent for each in reads.found(FoundKey(tenant, tuple(sorted(unread))))}
            known |= read
            for id in [id for id, parent in parents.items() if parent in unread and parent not in read]:
                del parents[id]
        above = {parent: known[parent] for parent in parents.values() if known[parent] and parent not in parents}
        if not above and not unread:
            return parents
        parents |= above


def _outermost(id: str, parents: Mapping[str, str]) -> str:
    whole, seen = "", {id}
    while (above := parents.get(whole or id, "")) and above not in seen:
        seen.add(above)
        whole = above
    return whole


def _between(ids: Sequence[str], parents: Mapping[str, str]) -> tuple[str, ...]:
    """The next above each that is worked upon too, but for the outermost."""
    subjects = set(ids)
    found = []
    for id in ids:
        above, seen = parents.get(id, ""), {id}
        while above and above not in subjects and above not in seen:
            seen.add(above)
            above = parents.get(above, "")
        found.append(above if parents.get(above) and above not in seen else "")
    return tuple(found) if any(found) else ()


def unknown_entities(ids: Sequence[str]) -> Failure:
    shown = ", ".join(ids[:SHOWN]) + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")
    noun = "no entity is" if len(ids) == 1 else "no entities are"
    message = f"{noun} called {shown}; `holdfast entity list` shows those there are"
    return Failure("unknown-entity", message, code="HF0731", details={"entities": list(ids)})
