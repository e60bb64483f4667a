"""The dependency rule of the design, under test: see `[tool.importlinter]` in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]


def test_contracts_are_kept() -> None:
    # In a process of its own: it sets up logging, and would silence our loggers for all tests that come after.
    program = (
        "import sys; from importlinter.cli import lint_imports as lint; sys.exit(lint(no_cache=True, no_logo=True))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_core_imports_the_standard_library_and_msgspec_only() -> None:
    graph = grimp.build_graph("holdfast", include_external_packages=True, cache_dir=None)
    core = {"holdfast.core"} | graph.find_descendants("holdfast.core")
    imported = set().union(*(graph.find_modules_directly_imported_by(module) for module in core))
    packages = {name.split(".")[0] for name in imported}
    assert packages - set(sys.stdlib_module_names) <= {"holdfast", "msgspec"}
