"""Holdfast: durable workflows for people who change real infrastructure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.version import VERSION as __version__

if TYPE_CHECKING:
    from holdfast.blocks import (
        Acquired,
        Applied,
        Context,
        NotApplied,
        NothingDone,
        PermanentFailure,
        RetryLater,
        Unchanged,
        Unknown,
        block,
    )
    from holdfast.client import Client
    from holdfast.embedded import Embedded

__all__ = [
    "Acquired",
    "Applied",
    "Client",
    "Context",
    "Embedded",
    "NotApplied",
    "NothingDone",
    "PermanentFailure",
    "RetryLater",
    "Unchanged",
    "Unknown",
    "__version__",
    "block",
]

_OF_BLOCKS = frozenset(__all__) - {"Client", "Embedded", "__version__"}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: `holdfast --help` needs none of it."""
    if name in _OF_BLOCKS:
        import holdfast.blocks

        return getattr(holdfast.blocks, name)
    if name == "Client":
        from holdfast.client import Client

        return Client
    if name == "Embedded":
        from holdfast.embedded import Embedded

        return Embedded
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
