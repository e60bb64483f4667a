"""Exchanges without an engine around them."""

from __future__ import annotations

from holdfast.core.errors import StoreFull
from holdfast.core.rows import JobRow
from holdfast.engine.dispatch import Dispatch
from holdfast.engine.exchanges import Exchanges
from holdfast.engine.items import Ask, ResendJob
from holdfast.transport.messages import Hello, Holding


def test_a_parcel_that_could_not_be_sent_again_is_in_nobodys_hands() -> None:
    """Found by the simulator: the store was full in the moment after a hello. The session went on believing that
    its worker had the job, so nothing was ever sent, nor missed, until the stuck limit."""
    exchanges = Exchanges(Dispatch(), engine="e", lease=30_000_000, beat=10_000_000, is_shared=True)
    claims = [JobRow("one", 1, "default", "b", 0, 1, "w.1"), JobRow("two", 1, "default", "b", 0, 1, "w.1")]
    hello = Hello("w", "w.1", holding=[Holding("two", 1, 1)])
    items = exchanges.hello(
        hello, 0, is_local=False, before=None, claims=claims, stopping=(), reply=lambda value, error: None
    )
    session = exchanges.dispatch.sessions["w.1"]
    assert sorted(session.held) == [("one", 1), ("two", 1)]
    [again] = [item for item in items if isinstance(item, Ask) and isinstance(item.request, ResendJob)]
    # While the store is only away it stays in the inbox, like all that the engine asks of itself.
    assert again.is_own
    again.reply(None, StoreFull("no room"))
    assert sorted(session.held) == [("two", 1)]
