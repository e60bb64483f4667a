"""Verify, for entities: claims to them, flags on them, wishes for changes, and the index that selectors ask.

Each execution's claims and flags are compared with the fold of its history, both ways; claims to one entity with each
other; the index with the entities.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core import gates as gating
from holdfast.core import requests as r
from holdfast.core.acquiring import lock_set_of
from holdfast.core.entity_locks import EntityClaim, first_block
from holdfast.core.ids import from_key
from holdfast.core.inventory import EntityRow, terms_of
from holdfast.core.model import Status
from holdfast.core.reads import ChangesKey, ContentionKey
from holdfast.core.rows import AgendaRow, flags_of
from holdfast.core.rows_entities import GATES, LOCKS, TIMEOUT
from holdfast.core.state import State
from holdfast.store.queries import Queries, storable

#: (invariant, what is wrong)
Wrong = tuple[str, str]
#: Requests that come from other executions, or from ourselves, and always may be there.
_MAY_BE = (r.TryLocks, r.AwaitEnd, r.HearEnd)
#: Two modes that do not go together, of claims `a` and `b`: X with any, S with IX.
_AGAINST = "(a.mode = 4 OR b.mode = 4 OR (a.mode IN (2, 3) AND b.mode IN (2, 3) AND a.mode <> b.mode))"
_PAGE = 1000


def wrong_about_entities(queries: Queries, state: State, agenda: dict[str, AgendaRow]) -> Iterator[Wrong]:
    """Takes what it knows out of `agenda`: what is left has other reasons."""
    is_woken = LOCKS in agenda
    yield from _wrong_with_agenda(state, agenda)
    claims = queries.entity_claims_of(state.id)
    if state.status.is_ended:
        if claims:
            yield "I-22", f"it has ended but still has claims to {_few(claim.entity for claim in claims)}"
        if queries.shared(ChangesKey(state.id)):
            yield "I-36", "it has ended, but changes of the inventory are still kept for it"
    else:
        yield from _wrong_with_claims(state, claims)
        if state.ticket and not state.fence and not is_woken:
            yield from _wrong_with_watch(queries, state)
    known = {(storable(flag.entity), flag.kind) for flag in flags_of(state)} if _may_be_acked(state) else set()
    stored = {(flag.entity, flag.kind) for flag in queries.flags_of(state.id)}
    for entity, kind in sorted(known - stored):
        yield "I-50", f"it left {entity} in doubt, but no flag says {kind}"
    for entity, kind in sorted(stored - known):
        yield "I-50", f"a flag says {kind} of {entity} for its sake, the history does not"


def _may_be_acked(state: State) -> bool:
    return Status.COMPLETED <= state.status <= Status.CANCELLED


def _wrong_with_agenda(state: State, agenda: dict[str, AgendaRow]) -> Iterator[Wrong]:
    for item in [item for item, row in agenda.items() if isinstance(row.request, _MAY_BE)]:
        del agenda[item]
    is_ended = state.status.is_ended
    expected: dict[str, int] = {}
    if state.status is Status.BLOCKED_WAITING and (due := gating.next_check(state.gates)) is not None:
        expected[GATES] = due
    if state.ticket and not state.fence and state.policy.lock_timeout and not is_ended:
        expected[TIMEOUT] = state.locked_at + state.policy.lock_timeout
    for item, due in expected.items():
        row = agenda.pop(item, None)
        if row is None:
            yield "I-18", f"{item} is missing on the agenda: it would never happen"
        elif row.due != due:
            yield "I-18", f"{item} is due at {row.due} on the agenda, at {due} in the history"


def _wrong_with_claims(state: State, claims: list[EntityClaim]) -> Iterator[Wrong]:
    stored = {claim.entity: claim for claim in claims}
    known = {storable(id): mode for id, mode in lock_set_of(state).items()} if state.ticket else {}
    if lost := sorted(known.keys() - stored.keys()):
        how = "holds" if state.fence else "waits for"
        yield "I-23", f"it {how} {_few(lost)} according to the history, but has no place there"
    if extra := sorted(stored.keys() - known.keys()):
        yield "I-23", f"it has a place at {_few(extra)} according to its rows, but not to the history"
    both = [stored[id] for id in sorted(stored.keys() & known.keys())]
    if wrong := [claim.entity for claim in both if claim.mode is not known[claim.entity]]:
        yield "I-23", f"its rows say another mode of {_few(wrong)} than the history"
    if wrong := [claim.entity for claim in both if claim.fence != state.fence]:
        number = "I-24" if any(claim.fence == state.fence for claim in both) else "I-21"
        yield number, f"its fence is {state.fence}, its rows at {_few(wrong)} say otherwise"
    if wrong := [claim.entity for claim in both if claim.ticket != state.ticket]:
        yield "I-21", f"its ticket is {state.ticket}, its rows at {_few(wrong)} say otherwise"
    if {claim.entity for claim in both if claim.is_watching} != ({storable(state.watch)} if state.watch else set()):
        yield "I-18", f"it watches {state.watch or 'nothing'} according to the history, but not to its rows"


def _wrong_with_watch(queries: Queries, state: State) -> Iterator[Wrong]:
    """Only who lets go of what it watches wakes it."""
    found = queries.shared(ContentionKey(state.tenant, (state.watch,)))
    asked = {id: mode for id, mode in lock_set_of(state).items() if id == state.watch}
    if not found.missing and first_block(asked, found, state.id, state.ticket, state.policy.priority) is None:
        yield "I-18", f"nobody is in its way at {state.watch}, and nothing wakes it: it would wait for ever"


def wrong_with_entity_locks(queries: Queries) -> Iterator[tuple[str, str, str]]:
    """(invariant, execution, what is wrong) of claims by themselves."""
    same = "b.tenant = a.tenant AND b.entity = a.entity AND a.is_over = 0"
    questions = (
        ("I-20", "two hold {}, and do not go together",
         f"{same} AND b.is_over = 0 AND a.fence > 0 AND b.fence > 0 AND a.execution < b.execution AND {_AGAINST}"),
        ("I-21", "the fence under which it holds {} is behind one that was given there before",
         f"{same} AND b.is_over = 1 AND a.fence > 0 AND b.fence >= a.fence AND b.execution <> a.execution"
         f" AND {_AGAINST}"),
        ("I-25", "it was overtaken at {}",
         f"{same} AND b.is_over = 0 AND a.fence = 0 AND b.fence > 0 AND a.ticket < b.ticket"
         f" AND a.priority >= b.priority AND a.execution <> b.execution AND {_AGAINST}"),
    )  # fmt: skip
    for invariant, text, where in questions:
        pairs = "SELECT a.entity, min(a.execution) FROM entity_claims AS a CROSS JOIN entity_claims AS b WHERE"
        sql = f"{pairs} {where} GROUP BY a.tenant, a.entity ORDER BY 1 LIMIT 100"
        for entity, execution in queries.rows(sql):
            yield invariant, from_key(bytes(execution)), text.format(entity)
    next = queries.next_ticket()
    sql = "SELECT min(execution), max(ticket), max(fence) FROM entity_claims WHERE ticket >= ? OR fence >= ?"
    for execution, ticket, fence in queries.rows(sql, (next, next)):
        if execution is not None:
            text = f"it has number {max(ticket, fence)}, and {next} is the next to be given: it would be given twice"
            yield "I-21", from_key(bytes(execution)), text


def wrong_with_index(queries: Queries) -> Iterator[tuple[str, str, str]]:
    """(invariant, nobody, what is wrong) where a selector would find other entities than there are."""
    for (tenant,) in queries.rows("SELECT DISTINCT tenant FROM entities ORDER BY tenant"):
        after = ""
        while rows := queries.entities(tenant, after, _PAGE):
            yield from _wrong_with_terms(queries, tenant, after, rows)
            after = rows[-1].id
    sql = (
        "SELECT DISTINCT t.tenant, t.id FROM entity_terms AS t WHERE NOT EXISTS"
        " (SELECT 1 FROM entities AS e WHERE e.tenant = t.tenant AND e.id = t.id) LIMIT 10"
    )
    for _, id in queries.rows(sql):
        yield "I-36", "", f"the index knows entity {id}, which does not exist"


def _wrong_with_terms(
    queries: Queries, tenant: str, after: str, rows: list[EntityRow]
) -> Iterator[tuple[str, str, str]]:
    stored: dict[str, set[tuple[str, str]]] = {}
    sql = "SELECT id, key, value FROM entity_terms WHERE tenant = ? AND id > ? AND id <= ?"
    for id, key, value in queries.rows(sql, (tenant, after, rows[-1].id)):
        stored.setdefault(id, set()).add((key, value))
    for row in rows:
        known = {(storable(key), storable(value)) for key, value in terms_of(row)}
        for key, _ in sorted(known ^ stored.get(row.id, set()))[:1]:
            yield "I-4", "", f"the index and entity {row.id} disagree about {key}"


def _few(names: Iterator[str] | list[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + more
