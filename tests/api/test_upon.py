"""Starting on entities and behind gates over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core.errors import InvalidDefinition, InvalidRequest, KeyReused
from tests.api.support import House, house

GREET: dict[str, Any] = {
    "name": "greet",
    "run-on": "device",
    "steps": [{"id": "greet", "step": "shell echo ${entity.id}", "output": "${trim(output.stdout)}"}],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("upon")) as made:
        for id, site in (("sw1", "ams"), ("sw2", "ams"), ("sw3", "zrh")):
            made.client.put_entity(id, type="device", labels={"site": site})
        yield made


def test_entities_by_id_and_by_selector(home: House) -> None:
    view = home.client.start(definition=GREET, entities=["sw1"], select=["site == 'zrh'"], priority=0)
    assert set(home.client.wait(view.id).output) == {"sw1", "sw3"}


def test_gates_are_met_before_it_begins(home: House) -> None:
    asked = home.client.start(definition=GREET, entities=["sw1"], gates={"approval": "now?", "deadline": "1h"})
    after = home.client.start(definition=GREET, entities=["sw2"], gates={"after": asked.id})
    assert [home.client.show(each.id).status for each in (asked, after)] == ["BLOCKED_WAITING"] * 2
    home.client.cancel(asked.id)
    assert home.client.wait(after.id).status == "COMPLETED"


def test_what_cannot_be_read_is_refused(home: House) -> None:
    for gates in ({"never": 1}, {"not-before": "soon"}, {"window": "25:00-26:00"}, {"after": []}, {"deadline": 5}):
        with pytest.raises(InvalidDefinition) as refused:
            home.client.start(definition=GREET, entities=["sw1"], gates=gates)
        assert refused.value.problems[0].code == "HF0178"
    for body in ({"entities": [3]}, {"select": 5}, {"priority": "high"}, {"entities": [""]}):
        with pytest.raises(InvalidRequest):
            home.client.start(definition=GREET, **body)


def test_one_key_is_for_one_set_of_entities(home: House) -> None:
    first = home.client.start(definition=GREET, key="k", entities=["sw1", "sw2"])
    assert home.client.start(definition=GREET, key="k", entities=["sw2", "sw1"]).id == first.id
    with pytest.raises(KeyReused):
        home.client.start(definition=GREET, key="k", entities=["sw1"])
    with pytest.raises(KeyReused):
        home.client.start(definition=GREET, key="k", entities=["sw1", "sw2"], gates={"approval": True})
    home.client.wait(first.id)
