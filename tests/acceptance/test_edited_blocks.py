"""Somebody edits a block while an engine runs: the code that came last counts, as long as it is here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.blocks import Registry
from holdfast.embedded import Embedded
from holdfast.transport.local import LocalLink
from holdfast.worker import Worker

OLD = """
from holdfast import block

@block(name="greet.someone", idempotent=True)
async def greet(name: str) -> str:
    return "Hello, " + name
"""
NEW = (
    OLD.replace("Hello", "Howdy")
    .replace("name: str)", "name: str, mark: str = '!')")
    .replace("+ name", "+ name + mark")
)


def registry(folder: Path, name: str, source: str) -> Registry:
    (folder / name).write_text(source)
    made = Registry()
    made.discover([str(folder / name)])
    return made


def test_the_newest_code_is_used_while_its_worker_lives_and_the_old_one_after_that(tmp_path: Path, caplog: Any) -> None:
    greet = {"name": "greet", "steps": ["greet.someone name=Ada"]}
    marked = {"name": "greet", "steps": ["greet.someone name=Ada mark=?"]}
    old, new = registry(tmp_path, "old.py", OLD), registry(tmp_path, "new.py", NEW)
    with Embedded(f"sqlite:///{tmp_path}/holdfast.db", registry=old) as holdfast:
        assert holdfast.run(greet).output == "Hello, Ada"
        assert holdfast.run(marked).status == "FAILED_SAFE", "the old code does not know that parameter"
        other = Worker(LocalLink(holdfast.engine), new, "edited")
        other.start_in_thread()
        assert "other code for `greet.someone`" in caplog.text
        assert {holdfast.run(greet).output for _ in range(20)} == {"Howdy, Ada!"}
        assert holdfast.run(marked).output == "Howdy, Ada?"
        other.stop()
        assert {holdfast.run(greet).output for _ in range(5)} == {"Hello, Ada"}
        assert holdfast.run(marked).status == "FAILED_SAFE"


def test_the_same_code_twice_is_no_contradiction(tmp_path: Path, caplog: Any) -> None:
    same = registry(tmp_path, "same.py", OLD)
    with Embedded(f"sqlite:///{tmp_path}/holdfast.db", registry=same) as holdfast:
        other = Worker(LocalLink(holdfast.engine), registry(tmp_path, "copy.py", OLD), "copy")
        other.start_in_thread()
        assert "other code" not in caplog.text
        other.stop()
        assert holdfast.run({"name": "greet", "steps": ["greet.someone name=Ada"]}).output == "Hello, Ada"
