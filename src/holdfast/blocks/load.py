"""The built-in block `load`: the text of a file or of an address, for a workflow to work with."""

from __future__ import annotations

import codecs
import os
import stat
from urllib.parse import unquote, urlsplit

from holdfast.core.model import PAYLOAD_LIMIT

from .context import Context
from .declare import block
from .http import seconds
from .results import NothingDone
from .web import HOPS, Request, read_address, send

#: bytes; what a result can hold, with room for the text to grow when it is read from another charset
LIMIT = PAYLOAD_LIMIT - 1024


@block(name="load", pure=True, isolation="thread")
def load(url: str, ctx: Context, charset: str | None = None, timeout: float | str = 30.0) -> str:
    """Give the text of a file on the worker's machine, or of what `url` gives over http or https.

    `url` is an address, a path, or `file:` and a path. `charset` is how the text is read; otherwise as the answer
    declares, or UTF-8. What is no text in it, or over the size of a result, is refused.
    """
    if charset is not None:
        try:
            codecs.lookup(charset)
        except LookupError:
            raise NothingDone(f"load: there is no charset `{charset}`", permanent=True) from None
    scheme = urlsplit(url).scheme if "://" in url or url.startswith("file:") else ""
    if scheme in ("http", "https"):
        body, declared = _download(url, seconds(timeout, "load"), ctx)
    elif scheme in ("", "file"):
        body, declared = _read(_path(url) if scheme else url), ""
    else:
        raise NothingDone(f"load: scheme `{scheme}` is refused; use http, https, file or a path", permanent=True)
    if len(body) > LIMIT:
        raise NothingDone(f"load: {url} is longer than {LIMIT} bytes", permanent=True)
    try:
        text = body.decode(charset or declared or "utf-8")
    except LookupError:
        text = body.decode(errors="replace")  # declared as something nobody knows
    except UnicodeDecodeError as error:
        message = f"load: {url} is no {error.encoding} text: {error.reason} at byte {error.start}; say its charset"
        raise NothingDone(message, permanent=True) from None
    if len(text.encode(errors="replace")) > LIMIT:
        raise NothingDone(f"load: the text of {url} is longer than {LIMIT} bytes", permanent=True)
    return text.removeprefix("\ufeff")


def _download(url: str, timeout: float, ctx: Context) -> tuple[bytes, str]:
    request = Request("load", read_address("load", url), timeout=timeout, hops=HOPS)
    request.headers["User-Agent"] = "holdfast"
    answer = send(request, ctx)
    if not 200 <= answer.status <= 299:
        raise NothingDone(f"load: {url} answers with status {answer.status}", details={"status_code": answer.status})
    return answer.body, answer.headers.get_content_charset() or ""


def _path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise NothingDone(f"load: `{url}` names a file on another machine ({parts.netloc})", permanent=True)
    return unquote(parts.path)


def _read(path: str) -> bytes:
    try:
        # Not blocking: opening a pipe that nobody writes to would hang, and it is refused below.
        file = os.open(os.path.expanduser(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise NothingDone(f"load: `{path}` is no regular file", permanent=True)
            with os.fdopen(file, "rb", closefd=False) as reader:
                return reader.read(LIMIT + 1)
        finally:
            os.close(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NothingDone(f"load: cannot read `{path}` on {os.uname().nodename}: {reason}") from error
