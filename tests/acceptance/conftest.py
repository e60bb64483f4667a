"""No crash test leaves a process behind, however it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.processes import end_all


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    yield
    end_all()
