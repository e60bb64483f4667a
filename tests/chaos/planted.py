"""Victims with a bug planted in them, which the campaign has to find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.blocks.registry import Registry
from holdfast.engine.service import Service
from tests.acceptance import victim


def hasty(arguments: Sequence[str]) -> None:
    """Acknowledges a start before it is committed."""
    start = Service.submit_start

    def submit_start(self: Service, *args: Any, reply: Any, **options: Any) -> None:
        reply(None, None)
        start(self, *args, reply=lambda value, error: None, **options)

    Service.submit_start = submit_start  # type: ignore[method-assign]
    victim.main(arguments)


def eager(arguments: Sequence[str]) -> None:
    """Takes every block for one that may run twice."""
    offers = Registry.offers

    def all_idempotent(self: Registry) -> Any:
        return [msgspec.structs.replace(offer, idempotent=True) for offer in offers(self)]

    Registry.offers = all_idempotent  # type: ignore[method-assign]
    victim.main(arguments)
