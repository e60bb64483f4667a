"""The firmware upgrade of `examples/`: what Holdfast reports against what the switches themselves wrote down.

Every switch has a log that only it writes. It is the witness: where Holdfast says that nothing is left on a switch, its
log has to show that whatever was done to it was taken back.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import EXAMPLES, Background, holdfast, until

OLD, NEW = "17.6.5", "17.9.4"
ALL = [f"sw-{number:02}" for number in range(1, 13)]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """The example with its inventory."""
    folder = tmp_path / "fleet"
    shutil.copytree(EXAMPLES / "firmware-upgrade", folder)
    (folder / ".holdfast").mkdir(mode=0o700)
    done = holdfast("inventory", "import", "devices.csv", "-o", "json", cwd=folder)
    assert (done.code, done.json["added"]) == (0, 12), done
    return folder


class Witness:
    """What a switch says of itself, read from its log alone."""

    def __init__(self, folder: Path, id: str) -> None:
        path = folder / "switches" / f"{id}.log"
        self.lines = path.read_text().splitlines() if path.exists() else []
        self.running, self.is_up, self.images = OLD, True, {OLD: 100}
        for line in self.lines:
            match line.split():
                case ["copy", image, percent]:
                    self.images[image] = int(percent.removesuffix("%"))
                case ["remove", image]:
                    self.images.pop(image, None)
                case ["boot", image]:
                    self.running, self.is_up = image, False
                case ["up", "with", _]:
                    self.is_up = True
                case ["power-cycle,", "up", "with", image]:
                    self.running, self.is_up, self.images = image, True, {image: 100}

    @property
    def is_as_before(self) -> bool:
        return self.running == OLD and self.is_up and self.images == {OLD: 100}


def left_by(folder: Path, id: str) -> dict[str, list[dict[str, Any]]]:
    """By switch, what the ledger says is left."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in holdfast("ledger", id, "--left", "-o", "json", cwd=folder).json["lines"]:
        found.setdefault(line["entity"], []).append(line)
    return found


def verdicts(shown: str) -> dict[str, str]:
    """What the end of a run says of each switch."""
    return dict(re.findall(r"^  (sw-\d\d)  \S (done|rolled back|in doubt|failed|stopped|not reached)\b", shown, re.M))


def test_the_upgrade_fails_as_told_and_the_switches_agree(fleet: Path) -> None:
    done = holdfast("run", "firmware-upgrade.yaml", "-o", "json", cwd=fleet)
    assert (done.code, done.json["status"], done.json["is_safe"]) == (3, "FAILED_UNSAFE", False), done
    id = done.json["id"]
    witnesses = {switch: Witness(fleet, switch) for switch in ALL}
    # Each is as it was, but for the one that Holdfast calls in doubt.
    left = left_by(fleet, id)
    assert {switch for switch, seen in witnesses.items() if not seen.is_as_before} == {"sw-08"} == set(left)
    expected = dict.fromkeys(ALL, "rolled back") | {"sw-08": "in doubt"}
    expected |= dict.fromkeys(("sw-10", "sw-11", "sw-12"), "not reached")
    assert verdicts(done.err) == expected
    for switch in ("sw-10", "sw-11", "sw-12"):
        assert witnesses[switch].lines == []
    # An answer was lost after the whole copy: verify found the image, and it was not copied again.
    assert witnesses["sw-03"].lines.count(f"copy {NEW} 100%") == 1
    assert "looked   sw-03 › install  it took effect" in done.err
    # Broken off half way: what was there was found, and taken away.
    assert witnesses["sw-04"].lines == [
        f"copy {NEW} 25%", f"copy {NEW} 50%", "breaks off half way", f"remove {NEW}",
    ]  # fmt: skip
    # In reverse order: first what ran before is booted, then the image goes.
    assert witnesses["sw-01"].lines[-3:] == [f"boot {OLD}", f"up with {OLD}", f"remove {NEW}"]
    # It never came back: nothing was done to it since, and both of its effects are named with the reason.
    assert witnesses["sw-08"].lines[-2:] == [f"boot {NEW}", "does not come back"]
    assert [(x["step"], x["effect"], x["undo"]) for x in left["sw-08"]] == [
        ("install", "DONE", "SKIPPED_BELOW_FAILURE"),
        ("activate", "UNKNOWN", "ROLLBACK_FAILED"),
    ]
    flags = {switch: holdfast("entity", "show", switch, "-o", "json", cwd=fleet).json["flags"] for switch in ALL[6:9]}
    assert [(flag["execution"], flag["kind"]) for flag in flags["sw-08"]] == [(id, "suspect")]
    assert flags["sw-07"] == flags["sw-09"] == []
    assert holdfast("verify", cwd=fleet).code == 0
    put_right_and_do_again(fleet, id)


def put_right_and_do_again(fleet: Path, id: str) -> None:
    # What a failed run asked of the inventory was dropped with it.
    assert holdfast("entity", "show", "sw-01", "-o", "json", cwd=fleet).json["facts"]["version"] == OLD
    assert holdfast("run", "power-cycle.yaml", "--on", "sw-08", cwd=fleet).code == 0
    assert holdfast("ack", id, cwd=fleet).code == 1  # not without a note: something is left
    acked = holdfast("ack", id, "--note", "power-cycled", "-o", "json", cwd=fleet)
    assert acked.json["status"] == "FAILED_UNSAFE_ACK"
    assert holdfast("entity", "show", "sw-08", "-o", "json", cwd=fleet).json["flags"] == []
    again = holdfast("run", "firmware-upgrade.yaml", "-o", "json", cwd=fleet)
    assert (again.code, again.json["status"]) == (0, "COMPLETED"), again
    assert verdicts(again.err) == dict.fromkeys(ALL, "done")
    listed = {row["id"]: row for row in holdfast("inventory", "export", cwd=fleet).json}
    for switch in ALL:
        seen = Witness(fleet, switch)
        assert (seen.running, seen.is_up, seen.images) == (NEW, True, {OLD: 100, NEW: 100}), switch
        assert listed[switch]["facts"]["version"] == NEW
    assert holdfast("verify", cwd=fleet).code == 0


@pytest.mark.parametrize("line", [f"copy {NEW} 50%", f"boot {NEW}"])
def test_killed_in_the_middle_the_switches_still_agree(fleet: Path, line: str) -> None:
    """The engine and its worker die while switches are being changed. Whatever the end is, no switch of which nothing
    is said to be left may show otherwise, and no image is copied twice."""
    log = fleet / "switches" / "sw-02.log"
    with Background("run", "firmware-upgrade.yaml", cwd=fleet) as run:
        until(lambda: log.exists() and line in log.read_text(), timeout=60)
        run.process.send_signal(signal.SIGKILL)
        run.process.communicate()
    id = holdfast("ps", "-o", "json", cwd=fleet).json[0]["id"]
    done = holdfast("run", "--continue", id, "-m", "blocks.py", "-o", "json", cwd=fleet, timeout=90)
    assert done.json["is_ended"], done
    left = left_by(fleet, id)
    shown = verdicts(done.err)
    assert set(shown) == set(ALL)
    assert done.json["status"] in ("FAILED_SAFE", "FAILED_UNSAFE")
    for switch in ALL:
        seen = Witness(fleet, switch)
        assert seen.lines.count(f"copy {NEW} 25%") <= 1, switch
        assert seen.is_as_before or switch in left, (switch, seen.lines)
        assert (shown[switch] == "in doubt") == (switch in left), switch
    assert (done.json["status"] == "FAILED_SAFE") == (not left)
    assert holdfast("verify", cwd=fleet).code == 0
    assert json.loads(done.out)["residue"] == sorted(line["job"] for lines in left.values() for line in lines)
