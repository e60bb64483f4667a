"""The built-in block `ssh`: one command on another machine.

Here is what its input means; the protocol is in `ssh_session`, which needs an extra package and is imported
only when a command is to be run.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import shlex
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from holdfast.core.errors import MissingPackage
from holdfast.core.model import Effect

from . import secrets
from .commands import bytes_kept, judge, own_variables, tail, variables
from .context import Context
from .declare import block
from .http import seconds
from .results import Cancelled, Failed, NothingDone
from .wanted import Wanted, reader

if TYPE_CHECKING:
    from .ssh_session import Ended

_ENDPOINT = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^@:\s\[\]/]+))(?::(?P<port>[0-9]{1,5}))?/?"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ConnectionLost(Failed):
    """The connection broke after the command was sent: nobody can tell what it did."""

    def __init__(self, message: str, *, details: Any = None) -> None:
        super().__init__(message, details=details, effect=Effect.UNKNOWN)


@dataclass(slots=True, frozen=True)
class Target:
    """Where to go, who to be there, and whom to believe."""

    host: str
    port: int | None
    user: str | None
    key: str | None
    password: str | None
    known_hosts: str
    known_hosts_file: str
    connect_timeout: float

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{f'{self.user}@' if self.user else ''}{host}{f':{self.port}' if self.port else ''}"

    def __repr__(self) -> str:
        return f"<target {self.shown}>"  # without the password


@block(name="ssh")
async def ssh(
    command: str | list[str],
    ctx: Context,
    endpoint: str | None = None,
    to: str | None = None,
    host: str | None = None,
    user: str | None = None,
    port: int | None = None,
    key: str | None = None,
    password: str | None = None,
    known_hosts: Literal["strict", "accept-new", "none"] = "strict",
    known_hosts_file: str = "~/.ssh/known_hosts",
    connect_timeout: float | str = 30.0,
    env: dict[str, Any] | None = None,
    cwd: str | None = None,
    exit_code: Wanted = 0,
    output_max_size: int = 100_000,
    stdin: str | None = None,
) -> dict[str, Any]:
    """Run a command on another machine. Needs `pip install holdfast[ssh]` where the worker runs.

    `endpoint` (or `to`) is `user@host:port`; what it leaves out is taken from `user`, `host` and `port`, then from
    the ssh configuration of the worker's account. `key` is the path of a private key on the worker's machine;
    without one, the account's own keys and agent are used. `password` is a reference, `secret://env/NAME`, to a
    variable of the worker: a password in the input would stay in the history. `known_hosts` says whom to believe:
    `strict` those in `known_hosts_file`, `accept-new` also hosts never seen before (they are added), `none` all.

    The command is given to the login shell there, a list with each word quoted. With `env` or `cwd` it runs under
    `/bin/sh`. `HOLDFAST_IDEMPOTENCY_KEY` and its siblings are offered as variables, if the server accepts them.
    `exit_code`, `output_max_size` and `stdin` are as for `shell`, and so is the result, `{stdout, stderr, exit_code}`.

    A failure before the command was sent has done nothing and may be retried. If the connection is lost
    after that, the outcome is unknown. Stopping sends SIGTERM, five seconds later SIGKILL, and closes the
    channel; the log says if the other side did not confirm it.
    """
    accepts = reader(exit_code, "ssh: exit_code")
    target = _target(endpoint or to, host, user, port, key, password, known_hosts, known_hosts_file, connect_timeout)
    text = _command(command, env, cwd)
    session = await _protocol(ctx)
    ended: Ended = await session.run(target, text, own_variables(ctx), stdin, bytes_kept(output_max_size), ctx)
    result = {
        "stdout": tail(*ended.stdout, output_max_size),
        "stderr": tail(*ended.stderr, output_max_size),
        "exit_code": ended.exit_code,
    }
    shown = command if isinstance(command, str) else shlex.join(command)
    if ended.why_lost:
        message = f"ssh: {target.shown}: `{shown[:60]}`: {ended.why_lost}; nobody can tell what it did"
        raise ConnectionLost(message, details=result)
    if ended.exit_code is None:
        # Some network devices never say one. Only who takes any takes none.
        if exit_code != "any":
            message = (
                f"ssh: {target.shown}: `{shown[:60]}` ended without saying an exit code; `exit_code: any` takes that"
            )
            raise ConnectionLost(message, details=result)
        accepts = reader("any", "")
    is_short = output_max_size < 0 and (ended.stdout[1] or ended.stderr[1])
    return judge("ssh", shown, result, accepts, is_short)


def _target(
    endpoint: str | None,
    host: str | None,
    user: str | None,
    port: int | None,
    key: str | None,
    password: str | None,
    known_hosts: str,
    known_hosts_file: str,
    connect_timeout: float | str,
) -> Target:
    if endpoint is not None:
        match = _ENDPOINT.fullmatch(endpoint.strip())
        if match is None:
            raise NothingDone(f"ssh: endpoint {endpoint!r} is not like `user@host:port`", permanent=True)
        host = match["six"] or match["host"]
        user = match["user"] or user
        port = int(match["port"]) if match["port"] else port
    if not host:
        message = "ssh: no machine is given; write `ssh to user@host COMMAND`, or give `endpoint` or `host`"
        raise NothingDone(message, permanent=True)
    if host.startswith("-") or any(char.isspace() for char in host):
        raise NothingDone(f"ssh: {host!r} is no name of a host", permanent=True)
    if port is not None and not 0 < port < 65536:
        raise NothingDone(f"ssh: there is no port {port}", permanent=True)
    if password is not None:
        if not secrets.is_reference(password):
            message = (
                "ssh: a password in the input would stay in the history; put it into the worker's environment and "
                "write `password: secret://env/NAME`"
            )
            raise NothingDone(message, permanent=True)
        password = secrets.resolve(password, "ssh: password")
    limit = seconds(connect_timeout, "ssh")
    return Target(host, port, user, key, password, known_hosts, known_hosts_file, limit)


def _command(command: str | list[str], env: dict[str, Any] | None, cwd: str | None) -> str:
    text = command if isinstance(command, str) else shlex.join(command)
    if not text.strip():
        raise NothingDone("ssh: the command is empty", permanent=True)
    values = variables(env)
    for name in values:
        # It stands unquoted in the command, so it must be nothing but a name.
        if not _VARIABLE.fullmatch(name):
            raise NothingDone(f"ssh: {name!r} is no name of an environment variable", permanent=True)
    if values or cwd is not None:
        # Servers take variables through the protocol only where their configuration names them, so they are
        # written into the command. Without any, it is sent as it is: not everything that speaks SSH has a shell.
        script = text if cwd is None else f"cd -- {shlex.quote(cwd)} || exit 126\n{text}"
        pairs = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
        text = " ".join((["env", *pairs] if pairs else []) + ["/bin/sh", "-c", shlex.quote(script)])
    if "\0" in text:
        raise NothingDone("ssh: the command holds a null character", permanent=True)
    return text


async def _protocol(ctx: Context) -> ModuleType:
    try:
        # In a thread: half a second of imports, the first time, would keep every other block of the worker waiting.
        return await asyncio.to_thread(importlib.import_module, "holdfast.blocks.ssh_session")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("holdfast"):
            raise
        message = f"ssh: the package {error.name} is not installed here; `pip install holdfast[ssh]` brings it"
        raise NothingDone(message, permanent=True, code=MissingPackage.code) from None
    except asyncio.CancelledError:
        raise Cancelled("stopped before it was sent", effect=Effect.NONE) from None
