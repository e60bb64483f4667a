"""What a block may say beyond returning a value or raising an error of its own.

Each class answers one question of the engine: did it fail, for good, and was anything changed outside?
Nothing here knows how the answer travels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core.model import Effect


class Failed(Exception):
    """The attempt failed. `details` travel with the failure and are visible to `on-error`."""

    def __init__(
        self,
        message: str,
        *,
        details: Any = None,
        permanent: bool = False,
        effect: Effect | None = None,
        code: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.permanent = permanent
        #: what was changed outside; None where the block cannot tell
        self.effect = effect
        #: of a section in the error index, where there is one
        self.code = code


class PermanentFailure(Failed):
    """Trying again cannot help; the retry policy is not consulted."""

    def __init__(self, message: str, *, details: Any = None, effect: Effect | None = None, code: str = "") -> None:
        super().__init__(message, details=details, permanent=True, effect=effect, code=code)


class NothingDone(Failed):
    """Failed before anything was changed, so a retry is safe whatever the block does."""

    def __init__(self, message: str, *, details: Any = None, permanent: bool = False, code: str = "") -> None:
        super().__init__(message, details=details, permanent=permanent, effect=Effect.NONE, code=code)


class RetryLater(Exception):
    """Not ready yet: call again after so many seconds, at most 365 days. Counts as no failure."""

    def __init__(self, after: float = 1.0, message: str = "") -> None:
        # Looked at where it arrives: an error raised here could be mistaken for one of the block's own.
        super().__init__(message or "retry later")
        self.after = after


class Unchanged:
    """Returned instead of a bare value: succeeded, and nothing had to be changed."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Unchanged({self.value!r})"


class Applied:
    """Said by `verify`: it did take effect. `data` is what the run would have returned, as far as that can be told."""

    __slots__ = ("data",)

    def __init__(self, data: Any = None) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"Applied({self.data!r})"


class NotApplied:
    """Said by `verify`: nothing of it took effect."""

    __slots__ = ()


class Unknown:
    """Said by `verify`: that cannot be told."""

    __slots__ = ()


class Acquired:
    """Said by `acquire`: entities by id, by selector, or both."""

    __slots__ = ("ids", "select")

    def __init__(self, ids: str | Iterable[str] = (), select: str | Iterable[str] = ()) -> None:
        self.ids = [ids] if isinstance(ids, str) else [str(id) for id in ids]
        self.select = [select] if isinstance(select, str) else [str(one) for one in select]

    def __repr__(self) -> str:
        return f"Acquired(ids={self.ids!r}, select={self.select!r})"


class Cancelled(BaseException):
    """The attempt was asked to stop. Control flow: an `except Exception` in a block must not swallow it.

    Say `effect=Effect.NONE` where nothing had been changed by then.
    """

    def __init__(self, reason: str = "", *, effect: Effect | None = None) -> None:
        super().__init__(reason)
        self.effect = effect
