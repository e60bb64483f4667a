"""Blocks: code that does outside work, how it is declared, and the ones built in."""

from __future__ import annotations

from .context import Context
from .declare import Block, block
from .registry import Registry
from .results import Cancelled, Failed, NothingDone, PermanentFailure, RetryLater, Unchanged

__all__ = [
    "Block",
    "Cancelled",
    "Context",
    "Failed",
    "NothingDone",
    "PermanentFailure",
    "Registry",
    "RetryLater",
    "Unchanged",
    "block",
]
