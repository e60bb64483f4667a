"""References to secrets, `secret://env/NAME`: resolved in the worker, so that the history holds the reference only.

What is behind a reference must not be logged, shown in an error or returned.
"""

from __future__ import annotations

import os
import re

from .results import NothingDone

SCHEME = "secret://"
_ENVIRONMENT = re.compile(r"secret://env/([A-Za-z_][A-Za-z0-9_]*)")


def is_reference(text: str) -> bool:
    return text.startswith(SCHEME)


def resolve(text: str, where: str) -> str:
    """The secret behind a reference; any other text is returned as it is."""
    if not is_reference(text):
        return text
    match = _ENVIRONMENT.fullmatch(text)
    if match is None:
        raise NothingDone(f"{where}: `{text}` cannot be resolved; write `secret://env/NAME`", permanent=True)
    name = match[1]
    if name.startswith("HOLDFAST_"):
        # The server's key and tokens would otherwise be one workflow away from any address.
        raise NothingDone(f"{where}: variables of Holdfast itself, like `{name}`, are not given out", permanent=True)
    if name not in os.environ:
        raise NothingDone(f"{where}: the worker has no environment variable `{name}`; set it where the worker runs")
    return os.environ[name]
