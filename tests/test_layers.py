"""The dependency rule of the design, under test: see `[tool.importlinter]` in pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

import grimp
import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]


def test_contracts_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)
    assert code == 0, capsys.readouterr().out


def test_core_imports_the_standard_library_and_msgspec_only() -> None:
    graph = grimp.build_graph("holdfast", include_external_packages=True, cache_dir=None)
    core = {"holdfast.core"} | graph.find_descendants("holdfast.core")
    imported = set().union(*(graph.find_modules_directly_imported_by(module) for module in core))
    packages = {name.split(".")[0] for name in imported}
    assert packages - set(sys.stdlib_module_names) <= {"holdfast", "msgspec"}
