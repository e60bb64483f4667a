"""Blocks: code that does outside work, how it is declared, and the ones built in."""

from __future__ import annotations

from .context import Context
from .declare import Block, block
from .entities import Entity
from .registry import Registry
from .results import (
    Acquired,
    Applied,
    Cancelled,
    Failed,
    NotApplied,
    NothingDone,
    PermanentFailure,
    RetryLater,
    Unchanged,
    Unknown,
)

__all__ = [
    "Acquired",
    "Applied",
    "Block",
    "Cancelled",
    "Context",
    "Entity",
    "Failed",
    "NotApplied",
    "NothingDone",
    "PermanentFailure",
    "Registry",
    "RetryLater",
    "Unchanged",
    "Unknown",
    "block",
]
