"""The committer is tested on both stores."""

from __future__ import annotations

from tests.store.conftest import backend, store

__all__ = ["backend", "store"]
