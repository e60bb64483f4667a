"""What a block is told about the attempt it runs for: a parcel as a `Context`, in the worker and in its children."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.blocks import Context, Entity
from holdfast.transport.messages import Parcel


def context_of(parcel: Parcel, *, on_line: Callable[[], None], on_beat: Callable[[], None]) -> Context:
    return Context(
        parcel.execution,
        parcel.job,
        parcel.attempt,
        step=parcel.step,
        workflow=parcel.workflow,
        entity=Entity(parcel.entity, parcel.context),
        kind=parcel.kind,
        fence=parcel.fence,
        idempotency_key=parcel.idempotency_key,
        details=parcel.details,
        on_line=on_line,
        on_beat=on_beat,
    )
