"""The file with the server key: whole or not there, and the same for all who ask."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.core.errors import BadConfiguration
from holdfast.embedded import server_key


def test_all_who_ask_at_once_get_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: server_key(tmp_path, {}), range(32)))
    assert len(keys) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_an_empty_key_is_refused(tmp_path: Path) -> None:
    # It would be a key that anybody can guess.
    (tmp_path / "key").touch()
    with pytest.raises(BadConfiguration, match="holds no key"):
        server_key(tmp_path, {})
