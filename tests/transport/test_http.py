"""What only a wire can do: break, come back, lead elsewhere, be listened to by strangers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.api.server import Server
from holdfast.blocks import Registry
from holdfast.core.errors import (
    BadConfiguration,
    Forbidden,
    ForgedToken,
    ServerUnreachable,
    Unauthenticated,
    UnknownWorker,
)
from holdfast.transport.http import HttpLink
from holdfast.transport.messages import Exchange, Hello, Outcome
from holdfast.worker import Worker
from tests.api.support import ECHO, house

OFFERS = Registry().offers()


async def take(link: HttpLink, incarnation: str, number: int) -> tuple[Outcome, str]:
    answer = await link.exchange(Exchange(incarnation, number, wait=5_000_000))
    [parcel] = answer.jobs
    return Outcome(parcel.execution, parcel.job, parcel.attempt, parcel.token, "done"), parcel.execution


def test_a_restarted_server_is_found_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        with house(tmp_path, with_worker=False) as home:
            token = home.token("worker")
            link = HttpLink(home.server.address, token)
            await link.hello(Hello("w", "life", OFFERS))
            home.start()
            outcome, id = await take(link, "life", 1)
            await asyncio.to_thread(home.server.stop)
            with pytest.raises(ServerUnreachable):
                await link.exchange(Exchange("life", 2, [outcome]))
            with pytest.raises(ServerUnreachable):
                await link.exchange(Exchange("life", 3, wait=1_000_000))
            again = Server(home.service, port=home.server.port)
            await asyncio.to_thread(again.start)
            try:
                await link.exchange(Exchange("life", 2, [outcome]))
                assert home.service.show(home.holdfast.actor, id).status == "COMPLETED"
            finally:
                await link.close()
                await asyncio.to_thread(again.stop)

    asyncio.run(scenario())


def test_a_stopping_server_lets_go_of_those_who_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        with house(tmp_path, with_worker=False) as home:
            link = HttpLink(home.server.address, home.tokens["worker"])
            await link.hello(Hello("w", "life", OFFERS))
            poll = asyncio.create_task(link.exchange(Exchange("life", 1, wait=25_000_000)))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(home.stop_server)
            with pytest.raises(Exception) as raised:  # noqa: PT011 — either is right
                await poll
            assert getattr(raised.value, "code", "") in ("HF0703", "HF0801")
            await link.close()

    asyncio.run(scenario())


def test_the_next_address_is_asked_when_one_does_not_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        with house(tmp_path, with_worker=False) as home:
            other = Server(home.service, port=0)
            first, second = home.server.address, await asyncio.to_thread(other.start)
            link = HttpLink(f"{first}, {second}", home.token("worker"))
            assert link.address == first
            await link.hello(Hello("w", "life", OFFERS))
            await asyncio.to_thread(home.server.stop)
            with pytest.raises(ServerUnreachable):
                await link.exchange(Exchange("life", 1))
            assert link.address == second
            await link.exchange(Exchange("life", 1))
            await link.close()
            await asyncio.to_thread(other.stop)

    asyncio.run(scenario())


def test_tokens_are_looked_at(tmp_path: Path) -> None:
    async def scenario() -> None:
        with house(tmp_path, with_worker=False) as home:
            for token, expected in (("", Unauthenticated), ("hf_nobody_x", Unauthenticated)):
                link = HttpLink(home.server.address, token)
                with pytest.raises(expected):
                    await link.hello(Hello("w", "life", OFFERS))
                await link.close()
            for role in ("viewer", "operator", "author"):
                link = HttpLink(home.server.address, home.tokens[role])
                with pytest.raises(Forbidden):
                    await link.hello(Hello("w", "life", OFFERS))
                await link.close()

            link = HttpLink(home.server.address, home.tokens["worker"])
            await link.hello(Hello("w", "life", OFFERS))
            id = home.start(ECHO)
            outcome, _ = await take(link, "life", 1)
            forged = Outcome(outcome.execution, outcome.job, outcome.attempt, "0" * 32, "forged")
            answer = await link.exchange(Exchange("life", 2, [forged]))
            assert answer.refused == [(id, outcome.job, outcome.attempt, ForgedToken.code)]
            await link.exchange(Exchange("life", 3, [outcome]))
            assert home.service.show(home.holdfast.actor, id).output == "done"
            await link.close()

    asyncio.run(scenario())


def test_another_program_at_that_port_is_no_engine() -> None:
    async def scenario() -> None:
        async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"220 mail.example.org ESMTP\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(nonsense, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            link = HttpLink(f"127.0.0.1:{port}", "hf_a_b")
            with pytest.raises(ServerUnreachable):
                await link.exchange(Exchange("life", 1))
            await link.close()

    asyncio.run(scenario())


def test_addresses_are_checked_at_once() -> None:
    for wrong in ("", " , ", "ftp://host", "http://"):
        with pytest.raises(BadConfiguration):
            HttpLink(wrong, "")


def test_a_real_worker_works_over_http(tmp_path: Path) -> None:
    with house(tmp_path, with_worker=False) as home:
        worker = Worker(HttpLink(home.server.address, home.tokens["worker"]), name="remote", processes=0)
        worker.start_in_thread()
        try:
            ids = [
                home.start({"name": "many", "steps": [{"block": "test.echo", "input": {"value": n}}] * 3})
                for n in range(20)
            ]
            assert {home.client.wait(id, 20).status for id in ids} == {"COMPLETED"}
            assert [w.name for w in home.client.workers() if w.state == "online"] == ["remote"]
        finally:
            worker.stop()
        with pytest.raises(UnknownWorker):
            asyncio.run(_ask_once(home.server.address, home.tokens["worker"], worker.incarnation))


async def _ask_once(address: str, token: str, incarnation: str) -> None:
    link = HttpLink(address, token)
    try:
        await link.exchange(Exchange(incarnation, 10**6))
    finally:
        await link.close()
