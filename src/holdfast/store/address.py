"""Store addresses, as people write them in a configuration or on the command line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.core.errors import BadConfiguration, BadStoreAddress

# The backends are imported by whoever opens one: the command line asks about addresses long before.
if TYPE_CHECKING:
    from .port import Store

_EXAMPLES = (
    "write .holdfast/holdfast.db or sqlite:///.holdfast/holdfast.db (a file here),"
    " sqlite:////var/lib/holdfast/holdfast.db (an absolute path)"
    " or postgresql://user:password@host:5432/database"
)
# libpq's other notation. No file is called so, and one with a password in its name would be worse than none.
_KEYWORDS = re.compile(
    r"(?=\s*\w+\s*=)(.*\s)?\s*(host|hostaddr|port|dbname|user|password|passfile|service)\s*=", re.DOTALL
)
_KEYWORD = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)", re.DOTALL)


def kind_of(address: str) -> Literal["sqlite", "postgres", ""]:
    """Which backend an address stands for; empty if none. It says nothing about whether the address is whole."""
    if _KEYWORDS.match(address):
        return "postgres"
    scheme, mark, _ = address.partition("://")
    if not mark:
        return "sqlite" if address else ""
    match scheme.lower():
        case "sqlite":
            return "sqlite"
        case "postgresql" | "postgres":
            return "postgres"
    return ""


def sqlite_path(address: str) -> Path | None:
    """The file of a SQLite store; nothing where the address is another's, or names no file."""
    if kind_of(address) != "sqlite":
        return None
    _, mark, rest = address.partition("://")
    path = address if not mark else unquote(rest[1:]) if rest.startswith("/") else ""
    return Path(path) if path and "\0" not in path and not (mark and path.endswith("/")) else None


def open_store(address: str, *, engine_id: str = "", allow_network: bool = False) -> Store:
    """Open the store an address stands for, migrating it where needed."""
    if kind_of(address) == "postgres":
        return _open_postgres(address, engine_id)
    path = _sqlite_path(address)
    from .sqlite import SqliteStore

    return SqliteStore(path, allow_network=allow_network)


def open_reading(address: str) -> Store:
    """The store, only to be read; `FileNotFoundError` where a SQLite file does not exist yet.

    PostgreSQL has no owner, so there the store itself serves.
    """
    if kind_of(address) == "postgres":
        return _open_postgres(address, "")
    path = _sqlite_path(address)
    from .sqlite_reading import ReadingStore

    if not path.exists():
        raise FileNotFoundError(path)
    return ReadingStore(path)


def sync_folder(folder: Path) -> None:
    """Have the system keep the names of what was made in a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sqlite_path(address: str) -> Path:
    path = sqlite_path(address)
    if path is not None:
        return path
    if not address or (kind_of(address) == "sqlite" and "://" not in address):
        raise BadStoreAddress(f"the store address is empty; {_EXAMPLES}")
    if kind_of(address) == "sqlite":
        raise BadStoreAddress(f"{address} names no file; {_EXAMPLES}")
    raise BadStoreAddress(f"{without_password(address)} is no address of a store; {_EXAMPLES}")


def _open_postgres(dsn: str, engine_id: str) -> Store:
    scheme, mark, rest = dsn.partition("://")
    if not _KEYWORDS.match(dsn):
        dsn = f"{scheme.lower()}{mark}{rest}"
    try:
        from .postgres import PostgresStore
    except ImportError as error:
        raise BadConfiguration(
            f"{without_password(dsn)} needs the PostgreSQL driver, which is not installed:"
            " pip install 'holdfast[postgres]', or in a source checkout"
            " .venv/bin/python -m pip install -e '.[postgres]'"
        ) from error
    return PostgresStore(dsn, engine_id=engine_id)


def _keywords(address: str) -> dict[str, str]:
    """What libpq's notation says, as far as it can be read."""
    found = {}
    for name, value in _KEYWORD.findall(address):
        plain = value[1:-1] if value.startswith("'") else value
        found[name] = re.sub(r"\\(.)", r"\1", plain, flags=re.DOTALL)
    return found


def identity(address: str) -> str:
    """The same for every spelling of one PostgreSQL database and user; without the password."""
    if _KEYWORDS.match(address):
        given = _keywords(address)
    else:
        try:
            parts = urlsplit(address)
            given = {
                "user": unquote(parts.username or ""), "host": unquote(parts.hostname or ""),
                "port": str(parts.port or ""), "dbname": unquote(parts.path[1:]),
            } | dict(parse_qsl(parts.query))  # fmt: skip
        except ValueError:
            return without_password(address)
    names = ("user", "host", "hostaddr", "port", "dbname", "service")
    return "postgresql " + " ".join(f"{name}={given[name]}" for name in names if given.get(name))


def without_password(address: str) -> str:
    """The address for messages and logs: host and database, no password, no parameters."""
    if _KEYWORDS.match(address):
        given = _keywords(address)
        host = given.get("host") or given.get("hostaddr")
        if not host or "dbname" not in given:
            return "postgresql://…"
        user = f"{given['user']}@" if given.get("user") else ""
        port = f":{given['port']}" if given.get("port") else ""
        return f"postgresql://{user}{host}{port}/{given['dbname']}"
    if "://" not in address:
        return address
    try:
        parts = urlsplit(address)
    except ValueError:
        return address.partition("://")[0] + "://…"
    if parts.scheme.lower() == "sqlite":
        return address
    login, at, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{login.partition(':')[0]}{at}{host}{parts.path}"
