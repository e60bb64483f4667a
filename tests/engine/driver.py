"""Drives the committer by hand against a real store: no thread, no clock, one turn at a time."""

from __future__ import annotations

from typing import Any

from holdfast.core.model import Actor, BlockOffer
from holdfast.core.requests import StartExecution
from holdfast.engine.committer import Committer
from holdfast.engine.dispatch import Dispatch, Session
from holdfast.engine.items import Ask, Item, Put
from holdfast.engine.turn import Turn
from holdfast.engine.wishes import Commit, Lock, Read
from holdfast.language import canonical, compile_definition, digest, program_from_bytes
from holdfast.store.port import Store
from holdfast.store.records import Batch

ACTOR = Actor("tester")


def execution_id(n: int) -> str:
    return f"{n:020x}" + f"{n:012x}"


class Hand:
    """A committer on a store, moved by hand; `now` goes on by a second per turn."""

    def __init__(self, store: Store, *, slots: int = 0) -> None:
        self.store = store
        self.dispatch = Dispatch()
        self.committer = Committer(
            program_from_bytes,
            self.dispatch,
            is_shared=store.is_shared,
            token=lambda *key: "/".join(map(str, key)),
        )
        self.now = 1_000_000_000
        self.answers: list[tuple[Any, Exception | None]] = []
        self.turn([Put(Batch(blocks=[BlockOffer("test.noop"), BlockOffer("test.idempotent", idempotent=True)]))])
        self.session = Session("w", "inc", slots, ["default"], ["test.noop", "test.idempotent"])
        self.session.is_local = True
        if slots:
            self.dispatch.attach(self.session)

    def turn(self, items: list[Item], *, fail: Exception | None = None) -> Turn | None:
        self.now += 1_000_000
        transaction = self.store.begin()
        running = self.committer.turn(items, self.now)
        answer: Any = None
        is_committed = False
        try:
            while True:
                match running.send(answer):
                    case Lock(known=known):
                        answer = transaction.lock(known)
                    case Read(keys=keys):
                        answer = transaction.read(keys)
                    case Commit(batch=batch):
                        if fail is not None:
                            transaction.abort()
                            is_committed = True
                            running.throw(fail)
                        transaction.commit(batch)
                        is_committed = True
                        answer = None
        except StopIteration as done:
            if not is_committed:
                transaction.abort()
            turn: Turn = done.value
            turn.answer()
            return turn
        except Exception as error:
            if error is not fail:
                transaction.abort()
                try:
                    running.throw(error)
                except Exception as raised:
                    if raised is not error:
                        raise
            if fail is None:
                raise
            return None

    def ask(self, n: int, request: Any) -> Ask:
        return Ask(execution_id(n), request, lambda value, error: self.answers.append((value, error)))

    def start(self, n: int, definition: dict[str, Any], input: Any = None, key: str = "") -> Ask:
        data = canonical(definition)
        ask = self.ask(n, StartExecution(execution_id(n), input, definition=digest(data), actor=ACTOR))
        ask.definition, ask.program = data, compile_definition(definition)
        if key:
            ask.key, ask.content = key, digest(data)
        return ask

    def parcels(self) -> list[Any]:
        taken, self.session.mailbox = self.session.mailbox, []
        return taken

    def finish(self, key: tuple[str, int]) -> None:
        self.session.held.pop(key)

    def history(self, n: int) -> list[Any]:
        with self.store.reading() as queries:
            return queries.history(execution_id(n))

    def last(self) -> tuple[Any, Exception | None]:
        return self.answers[-1]
