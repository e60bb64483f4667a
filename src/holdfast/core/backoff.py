"""When the next attempt may start. A pure function: jitter comes from the ids, so a rebuild agrees."""

from __future__ import annotations

from hashlib import blake2b

from .model import Retry


def _share(execution: str, job: int, attempt: int) -> float:
    """A number in [0, 1) that differs between attempts but not between calls."""
    digest = blake2b(f"{execution}/{job}/{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def retry_at(retry: Retry, execution: str, job: int, attempt: int, now: int) -> int | None:
    """Due time of the attempt after `attempt`, or None when the attempts are used up."""
    if attempt >= retry.attempts:
        return None
    # Capped before it is raised to a power: a float overflow must not end the execution.
    power = min(attempt - 1, 64)
    delay = min(float(retry.max_delay), retry.delay * retry.factor**power)
    return now + int(delay * (1 + retry.jitter * _share(execution, job, attempt)))
