"""`holdfast token`: API tokens, at the server or in the local store. A token's text is shown once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import click

from holdfast.core.errors import BadUsage, UnknownToken

from .connect import find_server, me, open_embedded, own_or_join, reach_options
from .options import output_option
from .refusals import dumps
from .settings import Settings
from .text import ago, bold, dim, moment, say, style, table

ROLES = ("viewer", "operator", "author", "admin", "worker")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Tokens(Protocol):
    """The verbs of tokens, here or at a server."""

    def create(self, name: str, role: str, lifetime: float) -> dict[str, Any]: ...

    def all(self) -> list[dict[str, Any]]: ...

    def revoke(self, id: str) -> dict[str, Any]: ...


class _AtServer:
    def __init__(self, address: str, token: str) -> None:
        from holdfast.client import Client

        self._client = Client(address, token)

    def create(self, name: str, role: str, lifetime: float) -> dict[str, Any]:
        return self._client.create_token(name, role, lifetime)

    def all(self) -> list[dict[str, Any]]:
        return self._client.tokens()

    def revoke(self, id: str) -> dict[str, Any]:
        return self._client.revoke_token(id)


class _AtStore:
    def __init__(self, embedded: Any) -> None:
        self._embedded = embedded

    def _put(self, row: Any) -> None:
        from holdfast.engine.items import future_reply

        future, reply = future_reply()
        self._embedded.engine.put_tokens([row], reply)
        future.result(30)

    def _rows(self) -> list[Any]:
        with self._embedded.store.reading() as queries:
            return [row for row in queries.tokens() if row.tenant == me().tenant]

    def create(self, name: str, role: str, lifetime: float) -> dict[str, Any]:
        from holdfast.api.auth import ROLES as KNOWN
        from holdfast.api.auth import new_token
        from holdfast.core.model import Actor

        row, text = new_token(Actor(name, me().tenant), KNOWN[role], lifetime)
        self._put(row)
        return {**self._view(row), "token": text}

    def all(self) -> list[dict[str, Any]]:
        return [self._view(row) for row in self._rows()]

    def revoke(self, id: str) -> dict[str, Any]:
        row = next((row for row in self._rows() if row.id == id), None)
        if row is None:
            raise UnknownToken(f"no API token has the id {id!r}; `holdfast token list` lists them")
        row.is_revoked = True
        self._put(row)
        return self._view(row)

    def _view(self, row: Any) -> dict[str, Any]:
        import msgspec

        from holdfast.api.bodies import token_view

        view: dict[str, Any] = msgspec.to_builtins(token_view(row))
        return view


@contextmanager
def _tokens(settings: Settings) -> Iterator[Tokens]:
    server = find_server(settings)
    if server is None:
        owned = own_or_join(settings, lambda: open_embedded(settings, with_worker=False))
        if not isinstance(owned, tuple):
            try:
                yield _AtStore(owned)
            finally:
                owned.close(0)
            return
        server = owned
    yield _AtServer(*server)


def seconds(text: str) -> float:
    """`90d`, `12h`; nothing means for ever."""
    if not text:
        return 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if match is None:
        raise BadUsage(f"{text!r} is no duration; write `12h`, `90d` or `4w`")
    return float(match[1]) * _UNITS[match[2]]


@click.group("token", short_help="Create, list and revoke API tokens.")
def token_command() -> None:
    """API tokens: how programs and workers prove who they are. Only a hash of each is stored."""


@token_command.command("create", short_help="Make a token; its text is shown once.")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True, help="What it may do.")
@click.option("--expires", default="", metavar="IN", help="When it ends, e.g. 90d.  [default: never]")
@output_option(("text", "json"), "text")
@reach_options
def create_command(name: str, role: str, expires: str, output: str, server: str, token: str, store: str) -> None:
    """Make a token called NAME. Only its text goes to stdout, and it is shown only now.

    \b
      export HOLDFAST_TOKEN=$(holdfast token create ci --role operator --expires 90d)
    """
    lifetime = seconds(expires)
    with _tokens(Settings({"server": server, "token": token, "store": store})) as tokens:
        made = tokens.create(name, role, lifetime)
    if output == "json":
        click.echo(dumps(made))
        return
    say(dim(f"token {made['id']} for {name}, role {role}; it is not shown again"))
    click.echo(made["token"])


@token_command.command("list", short_help="Tokens that there are, without their texts.")
@output_option(("table", "json"), "table")
@reach_options
def list_command(output: str, server: str, token: str, store: str) -> None:
    """Tokens that were made, and whether they still count."""
    with _tokens(Settings({"server": server, "token": token, "store": store})) as tokens:
        found = tokens.all()
    if output == "json":
        click.echo(dumps(found))
    elif found:
        click.echo(table(["ID", "NAME", "ROLE", "AGE", "EXPIRES", "STATE"], [_row(view) for view in found], right=(3,)))
    else:
        say(dim("no tokens; `holdfast token create NAME` makes one"))


def _row(view: dict[str, Any]) -> list[str]:
    expires = view.get("expires_at") or 0
    is_over = 0 < expires < time.time_ns() // 1000
    state = "revoked" if view.get("is_revoked") else "expired" if is_over else "valid"
    colour = {"valid": "green"}.get(state, "bright_black")
    return [
        view["id"], bold(view["name"]), view["role"], ago(view["created_at"]), moment(expires) if expires else "never",
        style(state, fg=colour),
    ]  # fmt: skip


@token_command.command("revoke", short_help="End a token.")
@click.argument("id")
@output_option(("text", "json"), "text")
@reach_options
def revoke_command(id: str, output: str, server: str, token: str, store: str) -> None:
    """End a token now."""
    with _tokens(Settings({"server": server, "token": token, "store": store})) as tokens:
        view = tokens.revoke(id)
    if output == "json":
        click.echo(dumps(view))
    else:
        say(f"token {view['id']} ({view['name']}) is revoked")
