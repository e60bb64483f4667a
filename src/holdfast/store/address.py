"""Store addresses, as people write them in a configuration or on the command line."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from holdfast.core.errors import BadConfiguration, BadStoreAddress

from .port import Store
from .sqlite import SqliteStore

_EXAMPLES = (
    "write .holdfast/holdfast.db or sqlite:///.holdfast/holdfast.db (a file here),"
    " sqlite:////var/lib/holdfast/holdfast.db (an absolute path)"
    " or postgresql://user:password@host:5432/database"
)
# libpq's other notation. No file is called so, and one with a password in its name would be worse than none.
_KEYWORDS = re.compile(r"\s*(host|hostaddr|port|dbname|user|password|service)\s*=")


def open_store(address: str, *, engine_id: str = "", allow_network: bool = False) -> Store:
    """Open the store an address stands for, migrating it where needed."""
    if _KEYWORDS.match(address):
        return _open_postgres(address, engine_id)
    scheme, mark, rest = address.partition("://")
    scheme = scheme.lower()
    if not mark:
        if not address or "\0" in address:
            raise BadStoreAddress(f"the store address is empty; {_EXAMPLES}")
        return SqliteStore(address, allow_network=allow_network)
    if scheme == "sqlite":
        if not rest.startswith("/") or not (path := unquote(rest[1:])) or "\0" in path or path.endswith("/"):
            raise BadStoreAddress(f"{address} names no file; {_EXAMPLES}")
        return SqliteStore(path, allow_network=allow_network)
    if scheme in ("postgresql", "postgres"):
        return _open_postgres(f"{scheme}://{rest}", engine_id)
    raise BadStoreAddress(f"{without_password(address)} is no address of a store; {_EXAMPLES}")


def _open_postgres(dsn: str, engine_id: str) -> Store:
    try:
        from .postgres import PostgresStore
    except ImportError as error:
        raise BadConfiguration(
            f"{without_password(dsn)} needs the PostgreSQL driver, which is not installed:"
            " pip install 'holdfast[postgres]'"
        ) from error
    return PostgresStore(dsn, engine_id=engine_id)


def without_password(address: str) -> str:
    """The address for messages and logs: host and database, no password, no parameters."""
    if _KEYWORDS.match(address):
        return "postgresql://…"
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
