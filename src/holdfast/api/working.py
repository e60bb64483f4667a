"""Routes of workers: hello, exchange, goodbye — the messages of `transport.messages`, as msgpack or JSON.

A worker is trusted with its own attempts only, so everything it sends is checked before it meets the engine.
A poll whose caller has gone keeps its number: the answer waits there until it is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.core.errors import (
    ForgedToken,
    InvalidRequest,
    ShuttingDown,
    StaleAttempt,
    StaleExchange,
    StoreFull,
    UnknownWorker,
    WorkerSuperseded,
)
from holdfast.core.ids import is_id
from holdfast.core.model import LogLine
from holdfast.transport.messages import Answer, Exchange, Hello, Welcome

from .auth import Role
from .bodies import Gone, GoodbyeBody
from .routes import API, JSON, MSGPACK, Call, Nothing, Table
from .strict import check_result, check_value
from .waiting import COMMIT_WAIT

routes = Table("worker")
#: µs; a proxy would not wait much longer
LONGEST_POLL = 30_000_000
#: An exchange carries many outcomes at once.
EXCHANGE_LIMIT = 8 * 1024 * 1024
#: µs or a count; anything larger is nonsense and would not fit where sums are stored
LARGEST = 2**53
_BOTH = (MSGPACK, JSON)


@routes.add(
    "POST", f"{API}/worker/hello", role=Role.WORKER, body=Hello, accepts=_BOTH, answer=Welcome,
    refusals=(StaleExchange, WorkerSuperseded, StoreFull),
)  # fmt: skip
async def hello(call: Call[Nothing, Hello]) -> Welcome:
    """A worker introduces itself, again after every lost connection if it likes."""
    hello = call.body
    _name(hello.name, "name")
    _name(hello.incarnation, "incarnation")
    _name(hello.host, "host", may_be_empty=True)
    # None, of a worker that only says what there is: `run --detach` as a guest.
    _number(hello.slots, "slots", 0, 100_000)
    _number(hello.pid, "pid", 0, 2**31)
    _count(hello.queues, "queues", 1000)
    _count(hello.blocks, "blocks", 10_000)
    _count(hello.holding, "holding", 200_000)
    for queue in hello.queues:
        _name(queue, "queues")
    for offer in hello.blocks:
        _name(offer.name, "blocks: name")
        _name(offer.version, "blocks: version")
        if ":" in offer.name or ":" in offer.version:
            raise InvalidRequest("blocks: neither name nor version contains `:`, which stands between the two")
        _name(offer.run_on, "blocks: run_on", may_be_empty=True)
        _number(offer.timeout, "blocks: timeout")
        _number(offer.retry.attempts, "blocks: retry", 1, 1_000_000)
        _number(offer.retry.delay, "blocks: retry")
        _number(offer.retry.max_delay, "blocks: retry")
        if not (1 <= offer.retry.factor <= 100 and 0 <= offer.retry.jitter <= 1):
            raise InvalidRequest("blocks: retry: the factor lies between 1 and 100, the jitter between 0 and 1")
        check_value([offer.description, offer.isolation, offer.parameters, offer.result])
    for held in hello.holding:
        _attempt(held)
    _awake(call)
    welcome: Welcome = await call.app.waiting.commit(lambda reply: call.service.engine.hello(hello, reply))
    return welcome


@routes.add(
    "POST", f"{API}/worker/exchange", role=Role.WORKER, body=Exchange, accepts=_BOTH, answer=Answer,
    limit=EXCHANGE_LIMIT,
    refusals=(UnknownWorker, WorkerSuperseded, StaleExchange, StaleAttempt, ForgedToken, StoreFull),
)  # fmt: skip
async def exchange(call: Call[Nothing, Exchange]) -> Answer:
    """Outcomes and signs of life for jobs and cancel notices. Waits up to `wait` (µs, at most 30 s)."""
    exchange = call.body
    _name(exchange.incarnation, "incarnation")
    _number(exchange.number, "number", 1)
    _number(exchange.seen, "seen")
    _number(exchange.wait, "wait")
    for outcome in exchange.outcomes:
        _attempt(outcome)
        if outcome.retry_after is not None:
            _number(outcome.retry_after, "outcomes: retry_after")
        _token(outcome.token)
        check_result(outcome.value)
        for change in outcome.changes:
            check_result(change.facts)
        if outcome.failure is not None:
            check_result(outcome.failure.details)
        _lines(outcome.logs)
    for beat in exchange.beats:
        _attempt(beat)
        check_result(beat.details)
        _lines(beat.logs)
    if exchange.wait > LONGEST_POLL:
        exchange = msgspec.structs.replace(exchange, wait=LONGEST_POLL)
    _awake(call)
    answer: Answer = await call.app.waiting.commit(
        lambda reply: call.service.engine.exchange(exchange, reply), COMMIT_WAIT + exchange.wait / 1e6
    )
    return answer


@routes.add("POST", f"{API}/worker/goodbye", role=Role.WORKER, body=GoodbyeBody, accepts=_BOTH, answer=Gone)
async def goodbye(call: Call[Nothing, GoodbyeBody]) -> Gone:
    """A worker leaves; what it still holds goes to others, or is named UNKNOWN."""
    incarnation = call.body.incarnation
    _awake(call)
    await call.app.waiting.commit(lambda reply: call.service.engine.goodbye(incarnation, reply))
    return Gone()


# --- checks ----------------------------------------------------------------------------------------
def _awake(call: Call[Any, Any]) -> None:
    if not call.service.engine.is_alive:
        raise ShuttingDown("the engine has stopped; another one may take over")


def _name(text: str, what: str, *, may_be_empty: bool = False) -> None:
    if not text.isprintable() or len(text) > 200 or not (text or may_be_empty):
        raise InvalidRequest(f"{what}: is text of 1 to 200 printable characters")


def _number(number: int, what: str, least: int = 0, most: int = LARGEST) -> None:
    if not least <= number <= most:
        raise InvalidRequest(f"{what}: lies between {least} and {most}")


def _count(items: list[Any], what: str, most: int) -> None:
    if len(items) > most:
        raise InvalidRequest(f"{what}: has at most {most} entries")


def _attempt(item: Any) -> None:
    if not is_id(item.execution):
        raise InvalidRequest("execution: an execution id is 32 hexadecimal digits")
    if not (0 <= item.job <= LARGEST and 0 <= item.attempt <= LARGEST):
        raise InvalidRequest("job and attempt are numbered from 1")


def _token(token: str) -> None:
    if not token.isascii():
        raise InvalidRequest("token: is not one of ours")


def _lines(lines: Iterable[LogLine]) -> None:
    for line in lines:
        _number(line.job, "logs: job")
