"""Where blocks come from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.blocks import Registry, block
from holdfast.core.errors import BadBlock, BlockModule

OPS = """\
from __future__ import annotations
from dataclasses import dataclass
import sibling
from holdfast.blocks import block

@dataclass
class Port:
    number: int

@block
async def open_port(port: Port) -> int:
    return port.number + sibling.OFFSET
"""


@pytest.fixture(autouse=True)
def _imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_the_built_in_blocks_are_always_there() -> None:
    registry = Registry()
    names = {b.name for b in registry}
    assert {"shell", "http", "test.noop", "test.witness", "test.crash", "test.retry-later"} <= names
    assert registry.sources == []
    for name in ("shell", "http", "test.noop", "test.witness"):
        found = registry.get(name)
        assert found is not None
        assert not found.offer.pure
        assert not found.offer.idempotent
    assert len(registry.offers()) == len(registry)


def test_a_file_is_discovered_with_its_siblings(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "sibling.py").write_text("OFFSET = 1\n")
    registry = Registry()
    found = registry.discover([str(tmp_path / "ops.py")])
    assert [b.name for b in found] == ["open-port"]
    assert registry.sources == [str(tmp_path / "ops.py")]
    assert "open-port" in registry
    registry.discover([str(tmp_path / "ops.py")])  # twice is no harm


def test_a_dotted_name_is_discovered() -> None:
    registry = Registry(built_in=False)
    assert "test.noop" in {b.name for b in registry.discover(["holdfast.blocks.testing"])}


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("import holdfast\nimport no_such_thing\n", "ModuleNotFoundError: No module named 'no_such_thing'", 2),
        ("x = 1\ndef f(:\n", "SyntaxError: ", 2),
        ("import json\n\njson.loads('{')\n", "JSONDecodeError", 3),
        ("raise SystemExit(3)\n", "SystemExit: 3", 1),
    ],
)
def test_a_module_that_cannot_be_imported_says_where(tmp_path: Path, text: str, what: str, line: int) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(BlockModule) as caught:
        Registry().discover([str(file)])
    assert what in str(caught.value)
    assert f"broken.py:{line}" in str(caught.value)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.source) == (str(file), line, text.splitlines()[line - 1])


def test_a_missing_module_or_file_is_named() -> None:
    with pytest.raises(BlockModule, match=r"`no_such_module`.*give a path to a \.py file"):
        Registry().discover(["no_such_module"])
    with pytest.raises(BlockModule, match="there is no file"):
        Registry().discover(["/nowhere/at_all.py"])


def test_a_bad_declaration_in_a_module_stays_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text("from holdfast.blocks import block\n@block(timeout='x')\nasync def f(): ...\n")
    with pytest.raises(BadBlock, match=r"bad\.py:2"):
        Registry().discover([str(file)])


def test_two_blocks_of_one_name_are_refused() -> None:
    @block(name="shell")
    async def mine() -> None: ...

    with pytest.raises(BadBlock, match=r"two blocks are called `shell`: .*shell\.py:\d+ and .*test_registry\.py"):
        Registry([mine])


def test_a_block_that_no_child_could_import_is_refused() -> None:
    @block
    def local() -> None: ...

    with pytest.raises(BadBlock, match="move it to module level"):
        Registry([local])
