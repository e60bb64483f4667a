"""Refusals on the wire: the one form of every error, and the way back to its class."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import Refused, ServerUnreachable
from holdfast.core.model import Problem


class ErrorDetail(msgspec.Struct):
    #: stable; `holdfast explain CODE` tells more
    code: str
    message: str
    status: int
    problems: list[Problem] = []
    #: what to do about it
    help: str | msgspec.UnsetType = msgspec.UNSET
    #: finds an unexpected error in the server's log
    incident: str | msgspec.UnsetType = msgspec.UNSET


class ErrorBody(msgspec.Struct):
    error: ErrorDetail


def body_of(refused: Refused) -> ErrorBody:
    help = f"holdfast explain {refused.code}"
    return ErrorBody(ErrorDetail(refused.code, refused.message, refused.status, list(refused.problems), help))


def _classes(base: type[Refused]) -> dict[str, type[Refused]]:
    found = {base.code: base}
    for child in base.__subclasses__():
        found |= _classes(child)
    return found


def refusal(status: int, body: bytes, retry_after: str | None = None) -> Refused:
    """The refusal that an answer stands for; answers of something else (a proxy) as far as they tell."""
    try:
        error = msgspec.json.decode(body, type=ErrorBody).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = body[:200].decode("utf-8", "replace").strip()
        if status in (502, 503, 504):
            return ServerUnreachable(f"the server answered {status}: {text or 'nothing'}")
        return Refused(f"the server answered {status}: {text or 'nothing'}")
    found = _classes(Refused).get(error.code, Refused)
    raised = found(error.message, tuple(error.problems))
    if retry_after and retry_after.isdigit():
        raised.retry_after = float(retry_after)
    if found is Refused:
        # Not a class of ours: keep what came, so that callers can still look at it.
        vars(raised).update(code=error.code, status=status)
    return raised
