"""What executions leave behind, with a real worker and real hooks; asked by REST and by the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import NoteMissing, NothingToUndo, UnknownExecution, UnsafeUnseen, WrongStatus
from holdfast.engine.verify import verify
from tests.api.support import House, house
from tests.cli.support import Done, holdfast

ALL = ("sw1", "sw2", "sw3")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("verdicts"), modules=["tests.api.switches"]) as made:
        for id in ALL:
            made.client.put_entity(id, type="switch")
        yield made


def run(home: House, folder: Path, steps: list[dict[str, Any]], **config: Any) -> Any:
    for step in steps:
        if step["step"] != "switch.check":
            step.setdefault("input", {}).setdefault("folder", str(folder))
    definition = {"name": "roll", "run-on": "switch", "acquire": {"ids": list(ALL)}, "config": config, "steps": steps}
    view = home.client.start(definition=definition)
    return home.client.show(view.id)


def ended(home: House, id: str) -> Any:
    return home.client.wait(id, 30)


def written(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if not path.suffix}


def install(text: str, **more: Any) -> dict[str, Any]:
    return {"id": f"install-{text}", "step": "switch.set", "input": {"text": text, **more}}


def check(*fails: str) -> dict[str, Any]:
    return {"id": "check", "step": "switch.check", "input": {"fails": list(fails)}}


BURN = {"id": "burn", "step": "switch.burn"}


def test_everything_is_undone_and_the_devices_show_it(home: House, tmp_path: Path) -> None:
    view = ended(home, run(home, tmp_path, [install("one"), install("two"), check("sw2")]).id)
    assert view.status == "FAILED_SAFE"
    assert view.verdict == "FAILED_SAFE: 6 effects undone, nothing is left"
    assert written(tmp_path) == dict.fromkeys(ALL, "")
    ledger = home.client.ledger(view.id)
    assert [(line.entity, line.step, line.effect, line.undo) for line in ledger.lines] == [
        (entity, step, "UNDONE", "UNDONE") for step in ("install-one", "install-two") for entity in ALL
    ]
    jobs = {job.job: job for job in home.client.jobs(view.id)}
    undone = [jobs[job.about].job for job in jobs.values() if job.kind == "ROLLBACK"]
    assert sorted(undone) == [line.job for line in ledger.lines]
    assert all(undone.index(job + 3) < undone.index(job) for job in (1, 2, 3)), "the later one of each switch first"


def test_a_stumble_is_looked_at_and_undone(home: House, tmp_path: Path) -> None:
    view = ended(home, run(home, tmp_path, [install("one", refuses=["sw3"])]).id)
    assert view.status == "FAILED_SAFE"
    assert written(tmp_path) == dict.fromkeys(ALL, "")
    kinds = [job.kind for job in home.client.jobs(view.id)]
    assert kinds.count("VERIFY") == 1
    assert kinds.count("ROLLBACK") == 3


def test_what_is_left_is_named_suspect_and_acknowledged(home: House, tmp_path: Path) -> None:
    (tmp_path / "sw2.stuck").touch()
    view = ended(home, run(home, tmp_path, [install("one"), install("two"), check("sw1")]).id)
    assert view.status == "FAILED_UNSAFE"
    assert view.verdict == "FAILED_UNSAFE: 1 of 3 entities in doubt: sw2"
    assert written(tmp_path) == {"sw1": "", "sw2": "two", "sw3": ""}
    path = f"/api/v1/executions/{view.id}"
    ledger = home.ask("GET", f"{path}/ledger").json
    left = [line for line in ledger["lines"] if line["is_left"]]
    assert [(line["entity"], line["step"], line["attempt"], line["undo"]) for line in left] == [
        ("sw2", "install-one", 1, "SKIPPED_BELOW_FAILURE"),
        ("sw2", "install-two", 1, "ROLLBACK_FAILED"),
    ]
    assert [line["reason"] for line in left] == ["a later effect on the same was not undone", "sw2 does not let go"]
    assert flags(home) == {("sw2", "suspect")}

    # Nobody forgets it, and nobody acknowledges it without a word.
    assert home.ask("POST", f"{path}/purge").code == UnsafeUnseen.code
    assert home.ask("POST", f"{path}/ack", {"note": "x"}, token=home.token("viewer")).status == 403
    for body in ({}, {"note": " "}):
        refused = home.ask("POST", f"{path}/ack", body)
        assert (refused.status, refused.code) == (422, NoteMissing.code)
    acked = home.ask("POST", f"{path}/ack", {"note": "replaced sw2"})
    assert (acked.status, acked.json["status"], acked.json["ack_note"]) == (200, "FAILED_UNSAFE_ACK", "replaced sw2")
    assert acked.json["is_safe"] is False
    first = acked.json["acked_by"]
    again = home.ask("POST", f"{path}/ack", {"note": "me too"}, token=home.token("operator"))
    assert (again.status, again.json["acked_by"], again.json["ack_note"]) == (200, first, "replaced sw2")
    assert not flags(home)
    assert home.ask("POST", f"{path}/purge").status == 200
    assert home.ask("POST", f"{path}/ack", {}).code == UnknownExecution.code


def flags(home: House) -> set[tuple[str, str]]:
    with home.holdfast.store.reading() as queries:
        return {(flag.entity, flag.kind) for flag in queries.flags("default")}


def test_manual_waits_with_its_locks_for_a_word(home: House, tmp_path: Path) -> None:
    steps = [install("one"), check("sw2")]
    view = waiting(home, run(home, tmp_path, steps, rollback="manual").id)
    path = f"/api/v1/executions/{view.id}"
    assert home.ask("POST", f"{path}/ack", {"note": "too early"}).code == WrongStatus.code
    why = home.client.why(view.id)
    assert "waits for somebody to say `rollback` or `fail`" in why.summary
    # Its entities are still its own: another one waits.
    other = run(home, tmp_path, [check()])
    assert home.client.show(other.id).status == "SCHEDULED"
    done = home.ask("POST", f"{path}/rollback?wait=20", {"reason": "no good"})
    assert (done.status, done.json["status"]) == (200, "FAILED_SAFE")
    assert written(tmp_path) == dict.fromkeys(ALL, "")
    assert home.ask("POST", f"{path}/rollback", {}).code == WrongStatus.code
    assert ended(home, other.id).status == "COMPLETED"


def test_fail_ends_it_as_it_is(home: House, tmp_path: Path) -> None:
    view = waiting(home, run(home, tmp_path, [BURN, check("sw2")], rollback="manual").id)
    path = f"/api/v1/executions/{view.id}"
    assert home.ask("POST", f"{path}/rollback", {}).code == NothingToUndo.code
    done = home.ask("POST", f"{path}/fail", {"reason": "by hand, then"})
    assert (done.json["status"], done.json["residue"]) == ("FAILED_UNSAFE", [1, 2, 3])
    assert written(tmp_path) == dict.fromkeys(ALL, "burnt")
    last = home.client.events(view.id)[-1]
    assert (last["type"], last["reason"]) == ("ExecutionFailed", "by hand, then")
    home.client.ack(view.id, "painted over")


def waiting(home: House, id: str) -> Any:
    """Until it waits in ERROR for a word."""
    for event in home.client.follow(id):
        if event["type"] == "ErrorRaised":
            break
    view = home.client.show(id)
    assert view.status == "ERROR"
    return view


def test_the_command_line_says_all_of_it(home: House, tmp_path: Path) -> None:
    def cli(*words: str) -> Done:
        return holdfast(*words, cwd=tmp_path, HOLDFAST_SERVER=home.server.address, HOLDFAST_TOKEN=home.admin)

    folder = tmp_path / "switches"
    folder.mkdir()
    view = waiting(home, run(home, folder, [install("one"), BURN, check("sw2")], rollback="manual").id)
    id = view.id[:12]
    assert cli("rollback", id).code == 1
    failed = cli("fail", id, "--reason", "no way back")
    assert (failed.code, "FAILED_UNSAFE: 3 of 3 entities in doubt: sw1, sw2, sw3" in failed.err) == (0, True), failed
    ledger = cli("ledger", id)
    assert ledger.code == 0
    assert "switch.burn" in ledger.out
    assert f"holdfast ack {view.id[:8]}" in ledger.err
    assert [line["job"] for line in cli("ledger", id, "--left", "-o", "json").json["lines"]] == [1, 2, 3, 4, 5, 6]
    bare = cli("ack", id)
    assert (bare.code, NoteMissing.code in bare.err) == (1, True), bare
    acked = cli("ack", id, "--note", "all replaced")
    assert (acked.code, "all replaced" in acked.err) == (0, True), acked
    assert cli("ack", id, "-o", "json").json["ack_note"] == "all replaced"
    assert "acknowledged" in cli("show", id).out


def test_verify_finds_nothing_wrong(home: House) -> None:
    assert not verify(home.holdfast.store).findings
