"""The verbs about forgetting: purge one execution, apply retention now, show what is kept and for how long.

Beside `service`, whose tenant, ids and views they use. The loop that does it unasked is `purger`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from holdfast.core.errors import TooBusy, UnknownExecution, UnsafeUnseen, WrongStatus
from holdfast.core.model import Actor
from holdfast.core.views import ExecutionView, GroupView, PurgeView, RetentionView
from holdfast.store import keeping as kept
from holdfast.store.records import Header

from .purger import BATCH, Look, forget
from .retention import is_unsafe, may_go
from .service import Service
from .showing import view_of

#: groups shown at once, and executions named in one answer
SHOWN = 500
MOST = 10 * BATCH


def purge(service: Service, actor: Actor, id: str) -> ExecutionView:
    """Forget an execution that has ended, archived first where that is set up. The last view of it."""
    id = service.resolve(actor, id)
    with service.store.reading() as queries:
        header = queries.header(actor.tenant, id)
        if header is None:
            raise UnknownExecution(service.unknown(id))
        view = view_of(queries, header)
        retries = queries.retries_of(actor.tenant, id, limit=1)
    _may_go(header)
    if retries:
        raise WrongStatus(f"execution {id} is still needed by another that is kept: {retries[0]} does it again")
    if forget(service.store, service.engine, service.keeping, [header]) != [id]:
        raise TooBusy(f"execution {id} has moved meanwhile; look at it, and ask again")
    return view


def _may_go(header: Header) -> None:
    if not header.status.is_ended:
        raise WrongStatus(f"execution {header.id} is {header.status.name}; only what has ended can be purged")
    if is_unsafe(header):
        raise UnsafeUnseen(
            f"execution {header.id} ended {header.status.name} and left something behind; it is kept until somebody"
            f" acknowledges that: `holdfast ack {header.id} --note TEXT`"
        )


def apply(service: Service, actor: Actor, *, dry_run: bool = False) -> PurgeView:
    """Purge what may go now, of one tenant; a dry run only says what that is."""
    found: list[str] = []
    going = _going(service, actor)
    while len(found) < MOST and (chosen := list(islice(going, BATCH))):
        if dry_run:
            found += [header.id for header in chosen]
        else:
            found += forget(service.store, service.engine, service.keeping, chosen)
    return PurgeView(found, dry_run, is_more=len(found) >= MOST)


def _going(service: Service, actor: Actor) -> Iterator[Header]:
    """Who may go now. Read group by group: nobody's reader is open while others are purged."""
    now = service.store.now()
    with service.store.reading() as queries:
        unkept = kept.unkept(queries, limit=MOST)
        going = [header for header in unkept if header.tenant == actor.tenant and may_go(header, queries)]
    yield from going
    for group in _groups(service, actor):
        with service.store.reading() as queries:
            gone = Look(queries, group, service.keeping.system, now).gone(MOST)
        yield from gone


def _groups(service: Service, actor: Actor) -> Iterator[kept.Group]:
    page: list[kept.Group] = []
    while True:
        with service.store.reading() as queries:
            page = kept.groups(queries, page[-1] if page else None, actor.tenant, 100)
        yield from page
        if len(page) < 100:
            return


def groups(service: Service, actor: Actor) -> RetentionView:
    """What is kept of one tenant, group by group, and what goes next."""
    now = service.store.now()
    views: list[GroupView] = []
    for group in islice(_groups(service, actor), SHOWN + 1):
        with service.store.reading() as queries:
            look = Look(queries, group, service.keeping.system, now)
            views.append(
                GroupView(
                    group.entity, group.key, look.text or "system", str(look.rule), kept.count(queries, group),
                    len(look.gone(MOST)), look.next_at(),
                )
            )  # fmt: skip
    keeping = service.keeping
    return RetentionView(str(keeping.system), keeping.archive is not None, views[:SHOWN], len(views) > SHOWN)
