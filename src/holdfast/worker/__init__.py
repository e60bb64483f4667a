"""Workers: processes that take jobs and run blocks. `Worker` is what the rest of Holdfast needs."""

from __future__ import annotations

from .worker import Worker

__all__ = ["Worker"]
