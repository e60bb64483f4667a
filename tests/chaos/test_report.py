"""A campaign that saw a violation must not look like one that saw none."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

from holdfast.embedded import Embedded
from holdfast.engine.engine import new_execution_id
from holdfast.failpoints import NAMES
from tests.acceptance.workload import ACTOR, definition, examine, output

from .forks import Forks
from .kills import Tally, summary
from .report import Report


def test_a_report_with_a_violation_is_not_ok() -> None:
    assert Report("x").ok
    broken = Report("x", {"kills": 3, "more": {"a": 1.5}}, ["something was lost"])
    assert not broken.ok
    assert broken.as_dict()["ok"] is False
    assert "VIOLATION something was lost" in broken.text()
    assert "1.500" in broken.text()


def test_a_failpoint_that_was_never_hit_is_a_violation() -> None:
    tally = Tally()
    tally.seen.update(unknown=1, acknowledged=4, completed=3)
    tally.hits = Counter(dict.fromkeys(NAMES, 1))
    assert summary(tally).ok
    del tally.hits["sqlite.commit.after"]
    assert summary(tally).violations == ["no process was killed at sqlite.commit.after"]


def test_a_campaign_in_which_nothing_happened_is_not_clean() -> None:
    tally = Tally()
    tally.hits = Counter(dict.fromkeys(NAMES, 1))
    assert len(summary(tally).violations) == 2, "nothing was completed, and no job was caught half way"


def test_what_is_lost_doubled_or_untraced_is_seen(tmp_path: Path) -> None:
    with Embedded(f"sqlite:///{tmp_path}/holdfast.db", folder=tmp_path, processes=0) as holdfast:
        ids = []
        for n in range(3):
            given = {"witness": str(tmp_path / "w"), "n": n}
            ids.append(holdfast.service.start(ACTOR, definition=definition("plain"), input=given).id)
            assert holdfast.service.wait(ACTOR, ids[n]).output == output(n)
        lines = (tmp_path / "w").read_text().splitlines()
        acks = [f"{id} plain {n}" for n, id in enumerate(ids)]
        (tmp_path / "acks").write_text("\n".join(acks) + "\n")
        (tmp_path / "witness").write_text("\n".join(lines) + "\n")
        assert examine(holdfast.store, tmp_path)[1] == []

        first, second, _ = ids
        kept = [line for line in lines if line != f"{second}/b"] + [f"{first}/a"]
        (tmp_path / "witness").write_text("\n".join(kept) + "\n")
        (tmp_path / "acks").write_text("\n".join([*acks, f"{new_execution_id()} plain 9"]) + "\n")
        seen, violations = examine(holdfast.store, tmp_path)
    assert (seen["lost"], seen["doubled"], len(violations)) == (1, 1, 3)
    assert any(text.startswith("completed, but a step left no trace") and second in text for text in violations)


def test_a_forked_process_is_a_real_one(tmp_path: Path) -> None:
    with Forks() as forks:
        arguments = [str(tmp_path), f"sqlite:///{tmp_path}/holdfast.db", "one", "--idle"]
        child = forks.start("victim", tmp_path, arguments)
        assert child.until_ready(), child.errors.read_text()
        os.kill(child.pid, 0)
        refused = forks.start("victim", tmp_path, arguments)
        assert refused.wait(20) == 1, "two engines opened one file"
        assert "StoreLocked" in child.errors.read_text()
        child.kill(signal.SIGKILL)
        assert child.wait(20) == -9
