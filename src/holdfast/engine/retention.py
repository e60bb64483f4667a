"""Which ended executions may be forgotten now, and when to look again. Pure: places and times are arguments.

The newest of a group are kept, without a gap; so all that has to be found is the cut between them and the rest. It
reads no store and purges nothing (`purger` does), and what a rule means is said in `core.retention`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.core.codec import unpack_summary
from holdfast.core.errors import BadConfiguration
from holdfast.core.model import Status
from holdfast.core.retention import BadRetention, Forever, Rule, Word, parse_retention, reach, resolve
from holdfast.store.keeping import Place
from holdfast.store.queries import Queries
from holdfast.store.records import Header

#: what is kept where nobody says otherwise: DESIGN §10
DEFAULT = "max(30d, 3)"
SETTING = "workflow.retention.default"
#: beyond every member, and before every member
ALL: Place = (1 << 62, b"")
NONE: Place = (0, b"")


class Keeping(NamedTuple):
    """What the system says about keeping."""

    #: what `system` stands for, without words
    system: Rule
    #: folder that histories are archived in before they are purged
    archive: Path | None = None


def keeping(text: str = "", archive: str | Path | None = None, where: str = SETTING) -> Keeping:
    """`text` is the system's rule, the default if empty; `where` it was written."""
    try:
        retention = parse_retention(text or DEFAULT)
    except BadRetention as bad:
        raise BadConfiguration(f"{where} is {text!r}: {bad}") from None
    if retention.is_disabled or retention.hash:
        what = "`disabled`" if retention.is_disabled else "`hash`"
        raise BadConfiguration(f"{where} is {text!r}: {what} is for a workflow to say; write a rule, such as {DEFAULT}")
    try:
        system = resolve(retention.expr, None, None, Word("system"))
    except ValueError:
        words = "`context`, `parent` and `system` stand for this very setting"
        raise BadConfiguration(f"{where} is {text!r}: {words}; write a rule, such as {DEFAULT}") from None
    return Keeping(system, Path(archive) if archive else None)


def rule_of(text: str, system: Rule) -> Rule:
    """The rule an execution was kept with, without words. By one that cannot be read, because a newer Holdfast wrote
    it, everything is kept."""
    if not text:
        return system
    try:
        return resolve(parse_retention(text).expr, None, None, system)
    except BadRetention:
        return Forever()


def is_forgettable(header: Header) -> bool:
    """Whether it may be forgotten at all, now or later."""
    return header.status.is_ended and not is_unsafe(header)


def is_unsafe(header: Header) -> bool:
    """Something of it remains out there, and nobody has said that they know."""
    if header.status is Status.FAILED_UNSAFE:
        return True
    if header.status not in (Status.CANCELLED, Status.COMPLETED):
        return False
    try:
        summary = unpack_summary(header.summary)
        return bool(summary.doubts or (header.status is Status.CANCELLED and summary.residue))
    except msgspec.MsgspecError:
        return True  # nobody can tell


def may_go(header: Header, queries: Queries) -> bool:
    """Forgettable, and no execution that is kept does it again: who asks where that one came from shall find it."""
    return is_forgettable(header) and not queries.retries_of(header.tenant, header.id, limit=1)


def cut(rule: Rule, now: int, nth_newest: Callable[[int], Place | None]) -> Place:
    """Everything before it may go. `nth_newest` says where the n-th of the group stands, counted from 1."""
    found = ALL
    for number, length in reach(rule):
        found = min(found, max(_last_of(number, nth_newest), _end_of(length, now)))
    return found


def expiry(rule: Rule, now: int, oldest: Place, nth_newest: Callable[[int], Place | None]) -> int | None:
    """When the oldest member that is kept will not be any more, if time alone brings that about."""
    latest = 0
    for number, length in reach(rule):
        if oldest < max(_last_of(number, nth_newest), _end_of(length, now)):
            continue
        if length is None:
            return None
        latest = max(latest, oldest[0] + length)
    return latest or None


def _last_of(number: int | None, nth_newest: Callable[[int], Place | None]) -> Place:
    """The last place that still is among the newest so many."""
    if number is None:
        return NONE
    return nth_newest(number) or NONE if number else ALL


def _end_of(length: int | None, now: int) -> Place:
    """The first place that is young enough: ended less than so long ago."""
    return NONE if length is None else (now - length + 1, b"")
