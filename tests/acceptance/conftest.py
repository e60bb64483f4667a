"""A whole Holdfast on each kind of store, verified at the end of every test; no process is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.embedded import Embedded
from holdfast.engine.verify import verify
from holdfast.store.address import open_store
from tests.acceptance.processes import end_all


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    dsn: str = request.getfixturevalue("pg_dsn")
    return dsn


@pytest.fixture
def open_holdfast(address: str, tmp_path: Path) -> Iterator[Callable[..., Embedded]]:
    """Opens a whole Holdfast on that store, again and again if asked; the store is clean afterwards."""
    opened: list[Embedded] = []

    def start(**options: Any) -> Embedded:
        holdfast = Embedded(address, folder=tmp_path, **{"processes": 1, **options})
        holdfast.open()
        opened.append(holdfast)
        return holdfast

    yield start
    for holdfast in opened:
        holdfast.close(1.0)
    store = open_store(address)
    report = verify(store)
    store.close()
    assert report.is_clean, report.findings
