"""What `shell` and `ssh` have in common: values for the environment, the end of an output, judging the exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.core.errors import PayloadTooLarge
from holdfast.core.model import PAYLOAD_LIMIT, Effect

from .context import Context
from .results import Failed, PermanentFailure
from .wanted import Test

#: stands before an output of which only the end was kept
CUT = "... "
#: what else a result needs beside the two outputs
_REST = 1024


class CommandFailed(Failed):
    """The command ran and ended with an exit code that was not asked for."""


def variables(given: Mapping[str, Any] | None) -> dict[str, str]:
    """An environment as text: what is no text is written as JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in (given or {}).items()}


def own_variables(ctx: Context) -> dict[str, str]:
    """Who the command runs for; the key is the same for every attempt of the visit."""
    return {
        "HOLDFAST_EXECUTION": ctx.execution,
        "HOLDFAST_STEP": ctx.step,
        "HOLDFAST_ENTITY": ctx.entity.id,
        "HOLDFAST_ATTEMPT": str(ctx.attempt),
        "HOLDFAST_IDEMPOTENCY_KEY": ctx.idempotency_key,
    }


def bytes_kept(limit: int) -> int:
    """How many bytes of an output are worth keeping for its last `limit` characters; all that can be sent for -1."""
    # A character has at most four bytes; and what is over the limit even so is not sent at all.
    return 4 * min(limit, PAYLOAD_LIMIT) if limit >= 0 else PAYLOAD_LIMIT


def tail(kept: bytes, was_cut: bool, limit: int) -> str:
    """The last `limit` characters, marked where there was more."""
    text = kept.decode(errors="replace")
    if not was_cut and (limit < 0 or len(text) <= limit):
        return text
    return CUT + (text if limit < 0 else text[len(text) - limit :] if limit else "")


def judge(name: str, command: str, result: dict[str, Any], accepts: Test, is_short: bool) -> dict[str, Any]:
    """The result, or the failure it amounts to. Either way what was said on the way is not lost.

    `is_short`: all of the output was asked for, and this is not all.
    """
    code = result["exit_code"]
    shown = command if len(command) <= 60 else command[:60] + "..."
    if not accepts(code):
        said = result["stderr"].strip()[-80:]
        message = f"`{shown}` ended with exit code {code}"
        raise CommandFailed(f"{message}: {said}" if said else message, details=_sendable(result))
    if is_short or _size(result) > PAYLOAD_LIMIT:
        raise PermanentFailure(
            f"{name}: `{shown}` ended with exit code {code}, but its output is over the {PAYLOAD_LIMIT} bytes of a "
            "result; set output_max_size, or have it write to a file",
            details=_sendable(result),
            effect=Effect.DONE,
            code=PayloadTooLarge.code,
        )
    return result


def _size(result: dict[str, Any]) -> int:
    return len(result["stdout"].encode()) + len(result["stderr"].encode()) + _REST


def _sendable(result: dict[str, Any]) -> dict[str, Any]:
    """The same with less output, where the failure's details could not be sent otherwise."""
    if _size(result) <= PAYLOAD_LIMIT:
        return result
    keep = PAYLOAD_LIMIT // 20
    return result | {key: CUT + result[key][-keep:] for key in ("stdout", "stderr") if len(result[key]) > keep}
