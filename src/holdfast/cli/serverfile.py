"""`.holdfast/server.json`: who owns a project's store right now, and how to talk to it.

Written by the owner (0600, atomically), removed when it leaves. A file whose owner was killed is found out
by its process and by asking its address, never by its age.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

NAME = "server.json"


class ServerFile(NamedTuple):
    address: str
    token: str
    pid: int
    store: str = ""
    host: str = ""


def read(folder: Path) -> ServerFile | None:
    """What the file says; nothing where there is none that can be understood."""
    try:
        found = json.loads((folder / NAME).read_text())
        return ServerFile(
            str(found["address"]),
            str(found["token"]),
            int(found["pid"]),
            str(found.get("store", "")),
            str(found.get("host", "")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(folder: Path, server: ServerFile) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # mkstemp makes it 0600, and nobody ever reads half of it.
    handle, name = tempfile.mkstemp(prefix=".server-", dir=folder)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(server._asdict(), file, indent=2)
            file.write("\n")
        os.replace(name, folder / NAME)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def remove(folder: Path, pid: int) -> None:
    """Only one's own: whoever took over has written another."""
    found = read(folder)
    if found is not None and found.pid == pid:
        with suppress(OSError):
            (folder / NAME).unlink()


def is_process(server: ServerFile) -> bool:
    """Whether its process may be alive; one on another machine always may."""
    if server.host and server.host != socket.gethostname():
        return True
    try:
        os.kill(server.pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return not _is_zombie(server.pid)


def _is_zombie(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def answers(address: str, timeout: float = 2.0) -> bool:
    """Whether something speaks HTTP there and says that it is well."""
    import http.client  # slow to import, and most commands find no server to ask

    parts = urlsplit(address)
    if not parts.hostname:
        return False
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/api/v1/health")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def alive(folder: Path, store: str = "") -> ServerFile | None:
    """The server of that folder, if it lives and serves that store."""
    found = read(folder)
    if found is None or (store and found.store and found.store != store):
        return None
    return found if is_process(found) and answers(found.address) else None
