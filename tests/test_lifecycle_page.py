"""docs/lifecycle.md is true: its histories are what really happens, its files and names exist.

`HOLDFAST_UPDATE_DOCS=1 pytest tests/test_lifecycle_page.py` writes the histories anew.
"""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from holdfast.blocks import Registry
from holdfast.core.codec import event_json, plain, unpack_events
from holdfast.core.requests import CompleteJob
from holdfast.engine.dispatch import Session
from holdfast.engine.items import Put
from holdfast.language import load_workflow
from holdfast.store.records import Batch
from holdfast.store.sqlite import SqliteStore
from tests.engine.driver import Hand, execution_id

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "lifecycle.md"
FENCE = re.compile(r"```json (history|jobs) (\d)\n(.*?)```", re.DOTALL)


def lived(tmp_path: Path) -> dict[tuple[str, str], list[Any]]:
    """What the page should show: (kind, commit) → rows."""
    source = re.search(r"```yaml workflow\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert source is not None
    definition, _, _ = load_workflow(source.group(1))
    store = SqliteStore(tmp_path / "page.db")
    hand = Hand(store)
    hand.turn([Put(Batch(blocks=[offer for offer in Registry().offers() if offer.name == "shell"]))])
    hand.session = Session("embedded", "c0ffee", 4, ["default"], ["shell"])
    hand.session.is_local = True
    hand.dispatch.attach(hand.session)
    shown: dict[tuple[str, str], list[Any]] = {}

    def look(commit: str, before: int) -> None:
        with store.reading() as queries:
            rows = queries.history(execution_id(1), before)
            shown["history", commit] = [
                {key: value for key, value in event_json(event, seq, row.at).items() if key != "at"}
                for row in rows
                for seq, event in enumerate(unpack_events(row.body), before + 1)
            ]
            shown["jobs", commit] = [
                {k: v for k, v in plain(row).items() if k not in ("since", "execution")}
                for row in queries.jobs_of(execution_id(1))
            ]

    hand.turn([hand.start(1, definition)])
    look("1", 0)
    (parcel,) = hand.parcels()
    hand.finish((parcel.execution, parcel.job))
    result = {"stdout": "hello\n", "stderr": "", "exit_code": 0}
    hand.turn([hand.ask(1, CompleteJob(parcel.job, parcel.attempt, result))])
    look("2", len(shown["history", "1"]))
    store.close()
    return shown


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows) or "(none)\n"


def test_the_histories_on_the_page_are_what_happens(tmp_path: Path) -> None:
    shown = lived(tmp_path)
    text = PAGE.read_text()
    if os.environ.get("HOLDFAST_UPDATE_DOCS"):
        text = FENCE.sub(lambda m: f"```json {m[1]} {m[2]}\n{lines(shown[m[1], m[2]])}```", text)
        PAGE.write_text(text)
    found = {(kind, commit): body for kind, commit, body in FENCE.findall(text)}
    assert found == {place: lines(rows) for place, rows in shown.items()}
    assert shown["history", "2"][-1]["type"] == "ExecutionCompleted"


def test_every_file_and_name_on_the_page_exists() -> None:
    places = re.findall(r"\[`([\w/]+\.py):(\w+)`\]\(\.\./src/holdfast/([\w/]+\.py)\)", PAGE.read_text())
    assert len(places) > 10
    for short, name, path in places:
        assert short == path
        tree = ast.parse((ROOT / "src" / "holdfast" / path).read_text())
        names = {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in names, f"{path} has no {name}"


def test_the_whole_workflow_runs_as_the_page_says(tmp_path: Path) -> None:
    from holdfast.embedded import Embedded

    with Embedded(f"sqlite:///{tmp_path}/live.db") as holdfast:
        before = holdfast.engine.committer.counters.commits
        view = holdfast.run({"name": "greet", "steps": ["shell echo hello"]})
        commits = holdfast.engine.committer.counters.commits - before
        kinds = [event["type"] for event in holdfast.service.events(holdfast.actor, view.id)]
    assert view.status == "COMPLETED"
    assert commits == 2
    assert msgspec.to_builtins(view.output)["stdout"] == "hello\n"
    shown = [
        line for kind, _, body in FENCE.findall(PAGE.read_text()) if kind == "history" for line in body.splitlines()
    ]
    page = [json.loads(line)["type"] for line in shown]
    assert kinds == page
