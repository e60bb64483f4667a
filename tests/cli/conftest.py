from __future__ import annotations

from pathlib import Path

import pytest

from .support import BLOCKS, SLOW


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project with a slow workflow and its block."""
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / "blocks.py").write_text(BLOCKS)
    (tmp_path / "slow.yaml").write_text(SLOW)
    return tmp_path
