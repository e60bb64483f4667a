"""The agenda in memory, and what becomes of an item that trips a bug: tried again, later and later, and shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.requests import FireTimer
from holdfast.core.rows import AgendaRow
from holdfast.embedded import Embedded
from holdfast.engine.agenda import HORIZON, LONGEST_PAUSE, PAUSE, STUMBLES, Agenda
from holdfast.engine.items import Ask, Item
from holdfast.engine.turn import Turn

NAP = {"name": "nap", "steps": ["sleep 10ms", "return rested"]}


def row(n: int = 1, due: int = 100) -> AgendaRow:
    return AgendaRow("x", f"timer/{n}", due, FireTimer(n))


def test_what_is_due_comes_in_order_and_once() -> None:
    agenda = Agenda()
    agenda.add([row(1, 30), row(2, 10), row(3, HORIZON + 100), row(1, 30)], 0)
    assert (len(agenda), agenda.next_due()) == (2, 10)
    assert agenda.take(9) == []
    assert agenda.take(30) == [row(2, 10), row(1, 30)]


def test_each_bug_doubles_the_pause() -> None:
    agenda, now, pauses = Agenda(), 100, []
    for _ in range(14):
        agenda.stumbled("x", FireTimer(1), "KeyError: 'x'", now)
        found = agenda.stumble(row())
        assert found is not None
        pauses.append(found.until - now)
        agenda.add([row(), row(2)], now)
        assert agenda.take(now) == [row(2)], "its neighbour does not wait for it"
        now = found.until
        agenda.add([row()], now)
        assert agenda.take(now - 1) == []
        assert agenda.take(now) == [row()]
    assert pauses == [min(PAUSE << n, LONGEST_PAUSE) for n in range(14)]
    assert pauses[-1] == LONGEST_PAUSE
    agenda.went_well([("x", FireTimer(2)), ("x", FireTimer(1))])
    assert not agenda.has_stumbles
    agenda.add([row()], 100)
    assert agenda.take(100) == [row()]


def test_a_clock_that_is_set_back_makes_no_pause_longer() -> None:
    agenda = Agenda()
    agenda.stumbled("x", FireTimer(1), "", 10**15)
    now = 10**15 - 10 * LONGEST_PAUSE
    agenda.add([row()], now)
    assert len(agenda) == 0
    agenda.add([row()], now + LONGEST_PAUSE)
    agenda.stumbled("x", FireTimer(1), "", now)
    agenda.add([row()], now)
    assert agenda.next_due() == now + 2 * PAUSE


def test_stumbles_do_not_pile_up() -> None:
    agenda = Agenda()
    for n in range(STUMBLES + 5):
        agenda.stumbled("x", FireTimer(n), "", 0)
    assert agenda.stumble(row(4)) is None
    assert agenda.stumble(row(5)) is not None


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
    return found


def test_a_bug_is_shown_by_why_and_gone_when_it_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    with Embedded(f"sqlite:///{tmp_path}/state.db", processes=0) as holdfast:
        engine = holdfast.engine
        drive = engine.driver.run

        def broken(items: list[Item]) -> Turn:
            if any(isinstance(item, Ask) and item.request == FireTimer(1) for item in items):
                if len(items) == 1:
                    tried.append(engine.clock())
                raise KeyError("nobody thought of this")
            return drive(items)

        monkeypatch.setattr(engine.driver, "run", broken)
        id = holdfast.service.start(holdfast.actor, definition=NAP).id

        def bugs() -> list[str]:
            # Looks at the table at every step, as it would with others on the same store.
            engine.rounds._next_agenda = 0
            return [r.text for r in holdfast.service.why(holdfast.actor, id).reasons if r.kind == "bug"]

        (text,) = until(bugs)
        assert text.startswith("timer/1 is due, but a bug in Holdfast keeps it from happening (KeyError: 'nobody")
        assert holdfast.service.why(holdfast.actor, id).summary.startswith("RUNNING: timer/1 is due, but a bug")
        until(lambda: bugs() and len(tried) >= 3)
        assert all(second - first >= PAUSE << n for n, (first, second) in enumerate(pairwise(tried)))
        assert holdfast.run(NAP | {"steps": ["test.noop"]}, timeout=20).status == "COMPLETED", "others go on"
        monkeypatch.undo()
        until(lambda: not bugs())
        assert holdfast.service.wait(holdfast.actor, id, 20).output == "rested"
        assert not engine.agenda.has_stumbles
