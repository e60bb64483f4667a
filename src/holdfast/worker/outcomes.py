"""What became of an attempt, as an `Outcome`: from a value, an exception, a timeout, a death.

Pure: it starts and stops nothing. It says only what is known about the effect; None leaves the engine to
infer it from what the block declared.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.blocks import (
    Acquired,
    Applied,
    Cancelled,
    Context,
    Entity,
    Failed,
    NotApplied,
    RetryLater,
    Unchanged,
    Unknown,
)
from holdfast.blocks.values import encode
from holdfast.core.errors import PayloadTooLarge, Refused
from holdfast.core.model import PAYLOAD_LIMIT, Effect, Failure
from holdfast.transport.messages import Outcome, Parcel

TRACEBACK_LIMIT = 4096
MESSAGE_LIMIT = 4096
#: kind of the failure that stands in for an outcome the engine would not take
REFUSED = "result-refused"
#: seconds; a block that asks for more, or for less than nothing, has made a mistake
LONGEST_RETRY = 365 * 24 * 3600

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def succeeded(parcel: Parcel, value: Any) -> tuple[Outcome, int]:
    """The outcome of a block that returned, and the encoded size of its value."""
    effect: Effect | None = None
    if type(value) is Unchanged:
        value, effect = value.value, Effect.NONE
    elif parcel.kind in _SAID:
        try:
            value, effect = _SAID[parcel.kind](value)
        except _NotSaid as error:
            message = f"hook `{parcel.kind.lower()}` of block `{parcel.block}` returned {_shown(value, 80)}; {error}"
            failure = Failure("block-error", message, type=type(value).__name__)
            return _failed(parcel, failure, permanent=True, effect=Effect.NONE), 0
    try:
        value, size = encode(value)
    except Exception as error:
        # It did run, so the effect stays open; running it again would not make the value fit.
        kind = type(value).__name__
        message = f"block `{parcel.block}` returned a {kind} that cannot be sent: {_text(error)}"
        return _failed(parcel, Failure("result-not-sendable", message, type=kind), permanent=True), 0
    if size > PAYLOAD_LIMIT:
        message = (
            f"block `{parcel.block}` returned {size} bytes encoded; the limit is {PAYLOAD_LIMIT}. "
            "Return a reference to where the data is"
        )
        failure = Failure("result-too-large", message, PayloadTooLarge.code, details={"size": size})
        return _failed(parcel, failure, permanent=True), 0
    return Outcome(parcel.execution, parcel.job, parcel.attempt, parcel.token, value, effect=effect), size


class _NotSaid(Exception):
    """What a hook returned is no answer to its question."""


def _verdict(value: Any) -> tuple[Any, Effect]:
    """What `verify` found out is the effect; with it, what the run may have returned."""
    if isinstance(value, Applied):
        return value.data, Effect.DONE
    if value is True:
        return None, Effect.DONE
    if value is False or isinstance(value, NotApplied):
        return None, Effect.NONE
    if value is None or isinstance(value, Unknown):
        return None, Effect.UNKNOWN
    raise _NotSaid("say Applied(data), NotApplied() or Unknown(), or True, False or None")


def _acquired(value: Any) -> tuple[Any, Effect]:
    if isinstance(value, (str, Entity)):
        value = [str(value)]
    if value is None:
        value = Acquired()
    elif isinstance(value, (list, tuple, set, frozenset)):
        if not all(isinstance(one, (str, Entity)) for one in value):
            raise _NotSaid("an entity is named by its id, a text")
        # The same set must give the same answer, whatever order it is in.
        value = Acquired(sorted(map(str, value)) if isinstance(value, (set, frozenset)) else value)
    if not isinstance(value, Acquired):
        raise _NotSaid("say ids of entities, or Acquired(ids=…, select=…)")
    return {"ids": value.ids, "select": value.select}, Effect.NONE


_SAID: dict[str, Callable[[Any], tuple[Any, Effect]]] = {"VERIFY": _verdict, "ACQUIRE": _acquired}


def with_changes(outcome: Outcome, context: Context) -> Outcome:
    """What it asked for of the inventory counts only with a success."""
    if context.changes and outcome.failure is None and outcome.retry_after is None:
        return msgspec.structs.replace(outcome, changes=list(context.changes))
    return outcome


def raised(parcel: Parcel, error: BaseException) -> Outcome:
    """The outcome of a block that raised something other than `Cancelled`. Never raises: whatever a block
    puts into its exceptions, the attempt must come to an end."""
    try:
        return _raised(parcel, error)
    except Exception as bug:
        name = type(error).__name__
        message = f"block `{parcel.block}` raised a {name} that cannot be told: {type(bug).__name__}"
        return _failed(parcel, Failure("block-error", message, type=name))


def _raised(parcel: Parcel, error: BaseException) -> Outcome:
    if isinstance(error, RetryLater):
        return _later(parcel, error)
    said = str(error.message) if isinstance(error, Failed) else _text(error)
    failure = Failure(
        "block-error",
        _clean(said, MESSAGE_LIMIT) or type(error).__name__,
        code=str(error.code) if isinstance(error, Failed) else "",
        type=type(error).__name__,
        traceback=_traceback(error),
        details=_details(error.details) if isinstance(error, Failed) else None,
    )
    if isinstance(error, Failed):
        effect = None if error.effect is None else Effect(error.effect)
        return _failed(parcel, failure, permanent=bool(error.permanent), effect=effect)
    return _failed(parcel, failure)


def _later(parcel: Parcel, error: RetryLater) -> Outcome:
    after: Any = getattr(error, "after", None)
    # Compared this way round so that not-a-number and infinity fail too.
    if isinstance(after, (int, float)) and 0 <= after <= LONGEST_RETRY:
        wait = round(after * 1_000_000)
        return Outcome(parcel.execution, parcel.job, parcel.attempt, parcel.token, retry_after=wait)
    shown = f"{after:g}" if isinstance(after, float) else _shown(after, 80)
    message = (
        f"block `{parcel.block}` raised RetryLater({shown}); the seconds to wait lie between 0 and"
        f" {LONGEST_RETRY} (365 days)"
    )
    # What it said about the world still counts: not ready yet, nothing done.
    failure = Failure("block-error", message, type=type(error).__name__)
    return _failed(parcel, failure, permanent=True, effect=Effect.NONE)


def invalid_input(parcel: Parcel, problems: str) -> Outcome:
    failure = Failure("invalid-input", f"block `{parcel.block}`: {problems}")
    return _failed(parcel, failure, permanent=True, effect=Effect.NONE)


def unknown_block(parcel: Parcel) -> Outcome:
    message = f"this worker has no block `{parcel.block}`" + (f" {parcel.version}" if parcel.version else "")
    return _failed(parcel, Failure("unknown-block", message), permanent=True, effect=Effect.NONE)


def unknown_hook(parcel: Parcel) -> Outcome:
    message = f"block `{parcel.block}` has no hook `{parcel.kind.lower()}` on this worker"
    return _failed(parcel, Failure("unknown-block", message), permanent=True, effect=Effect.NONE)


def not_begun(parcel: Parcel, kind: str, message: str) -> Outcome:
    """Failed before the block was called: whatever it would have done, it did not."""
    return _failed(parcel, Failure(kind, message), effect=Effect.NONE)


def timed_out(parcel: Parcel, limit: int, *, still_running: bool = False) -> Outcome:
    message = f"block `{parcel.block}` did not end within {limit / 1_000_000:g} s"
    if still_running:
        message += "; it was told to stop and did not, so it may still be running"
    return _failed(parcel, Failure("timeout", message))


def cancelled(parcel: Parcel, reason: str, *, effect: Effect | None = None) -> Outcome:
    return Outcome(
        parcel.execution,
        parcel.job,
        parcel.attempt,
        parcel.token,
        failure=Failure("cancelled", reason or "cancelled"),
        effect=effect,
        is_cancelled=True,
    )


def effect_at_stop(error: BaseException) -> Effect | None:
    """What a block that was stopped says it had changed by then; None where it does not say."""
    said = error.effect if isinstance(error, Cancelled) else None
    return said if isinstance(said, Effect) else None


def handed_back(parcel: Parcel) -> Outcome:
    """An attempt that a worker about to leave never began; another may have it at once."""
    return Outcome(parcel.execution, parcel.job, parcel.attempt, parcel.token, effect=Effect.NONE, retry_after=0)


def process_died(parcel: Parcel, code: int | None, *, has_begun: bool) -> Outcome:
    if code is None:
        how = "closed its connection"
    elif code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        how = f"was killed by {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")
    else:
        how = f"ended with exit code {code}"
    failure = Failure("process-died", f"the process that ran block `{parcel.block}` {how}", details=code)
    return _failed(parcel, failure, effect=None if has_begun else Effect.NONE)


def refused(outcome: Outcome, error: Refused) -> Outcome:
    """Stands in for an outcome the engine would not take, so that it is not sent for ever. Made anew: of
    the old one only what is known about the effect remains."""
    effect = outcome.effect
    if effect is None and outcome.retry_after is not None:
        effect = Effect.NONE  # which is what asking to be called again says
    return Outcome(
        outcome.execution,
        outcome.job,
        outcome.attempt,
        outcome.token,
        failure=Failure(REFUSED, _clean(f"the engine refused the result: {error.message}", MESSAGE_LIMIT), error.code),
        effect=effect,
        is_permanent=True,
    )


def _failed(parcel: Parcel, failure: Failure, *, permanent: bool = False, effect: Effect | None = None) -> Outcome:
    return Outcome(
        parcel.execution,
        parcel.job,
        parcel.attempt,
        parcel.token,
        failure=failure,
        effect=effect,
        is_permanent=permanent,
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__name__} that cannot be shown>"


def _shown(value: Any, limit: int) -> str:
    try:
        return _clean(repr(value), limit)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


def _clean(text: str, limit: int) -> str:
    """Text that can be encoded, and no more of it than is useful: its beginning and its end."""
    text = text.encode(errors="replace").decode()
    if len(text) <= limit:
        return text
    head = limit // 4
    return text[:head] + "\n...\n" + text[head + 5 - limit :]


def _details(details: Any) -> Any:
    try:
        plain, size = encode(details)
    except Exception:
        return _shown(details, MESSAGE_LIMIT)
    return plain if size <= PAYLOAD_LIMIT else f"<{size} bytes, over the limit>"


def _traceback(error: BaseException) -> str:
    """The traceback without the worker's own frames, so that it begins in the block."""
    try:
        whole = traceback.TracebackException.from_exception(error)
        part: traceback.TracebackException | None = whole
        while part is not None:
            frames = [frame for frame in part.stack if not frame.filename.startswith(_HERE)]
            part.stack = traceback.StackSummary.from_list(frames)
            part = part.__cause__ or part.__context__
        return _clean("".join(whole.format()), TRACEBACK_LIMIT)
    except Exception:
        return ""
