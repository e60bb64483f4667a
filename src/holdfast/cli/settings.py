"""Settings: flag, then environment, then `holdfast.toml`, then default; and which of them it was.

It finds the project (the nearest folder above with `.holdfast` or `holdfast.toml`) and answers where its
store and its server are. It opens neither.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from holdfast.core.durations import UNITS, micros
from holdfast.core.errors import BadConfiguration
from holdfast.store.address import identity, kind_of, sqlite_path, without_password

from .refusals import close_to

if TYPE_CHECKING:
    from holdfast.engine.patience import Patience
    from holdfast.engine.retention import Keeping

FILE = "holdfast.toml"
FOLDER = ".holdfast"


class Setting(NamedTuple):
    value: Any
    #: where it came from, for `holdfast doctor`
    source: str


class _Key(NamedTuple):
    kind: type
    default: Any
    text: str
    #: secrets stay out of files
    in_file: bool = True

    def variable(self, name: str) -> str:
        return "HOLDFAST_" + name.upper().replace("-", "_").replace(".", "_")


KEYS: dict[str, _Key] = {
    "store": _Key(str, "", "where executions are kept: sqlite:///FILE or postgresql://…"),
    "server": _Key(str, "", "address of a server, e.g. http://127.0.0.1:3030"),
    "token": _Key(str, "", "API token for that server", in_file=False),
    "key": _Key(str, "", "server key, shared by every engine of one store", in_file=False),
    "host": _Key(str, "127.0.0.1", "address the server listens on"),
    "port": _Key(int, 3030, "port the server listens on"),
    "modules": _Key(list, [], "Python modules or files with blocks"),
    "slots": _Key(int, 64, "jobs a worker runs at a time"),
    "queues": _Key(list, ["default"], "queues a worker takes jobs from"),
    "grace": _Key(float, 30.0, "seconds that running jobs get to end when a worker stops"),
    "stuck-after": _Key(str, "12m", "how long an attempt without a timeout may give no sign of life"),
    "unreachable-after": _Key(str, "2m", "silence after which a worker is shown as unreachable"),
    "offline-after": _Key(str, "6m", "silence after which a worker is shown as offline"),
    "workflow.retention.default": _Key(
        str, "max(30d, 3)", "what is kept once it has ended, if its workflow does not say"
    ),
    "retention.archive": _Key(str, "", "folder for histories that are purged; none if empty"),
}
#: settings whose value is not shown
SECRETS = frozenset(("token", "key"))


class Settings:
    """Everything a command may want to know about where it runs."""

    def __init__(
        self,
        flags: Mapping[str, Any] | None = None,
        *,
        start: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.project = find_project(start) or find_project(Path.cwd()) or Path.cwd()
        self.file = self.project / FILE
        given = {name: value for name, value in (flags or {}).items() if value not in (None, "", (), [])}
        written = read_file(self.file)
        self._settings = {
            name: _choose(name, key, given, environment, written, self.file) for name, key in KEYS.items()
        }

    def __getitem__(self, name: str) -> Any:
        return self._settings[name].value

    def items(self) -> list[tuple[str, Setting]]:
        return list(self._settings.items())

    def source(self, name: str) -> str:
        return self._settings[name].source

    @property
    def store(self) -> str:
        """Address of the store."""
        if self["store"]:
            address: str = self["store"]
            # Relative to where it was written: the project for a file, here for a flag.
            if self.source("store") == FILE and (path := sqlite_path(address)) and not path.is_absolute():
                return sqlite_address(self.project / path)
            return address
        return sqlite_address(self.project / FOLDER / "holdfast.db")

    @property
    def store_path(self) -> Path | None:
        """The file of a SQLite store."""
        return sqlite_path(self.store)

    @property
    def store_id(self) -> str:
        """The same for every spelling of one store, and without its password."""
        path = self.store_path
        if path:
            return str(path.resolve())
        return identity(self.store) if kind_of(self.store) == "postgres" else without_password(self.store)

    @property
    def folder(self) -> Path:
        """Where the server key and `server.json` are: beside the SQLite file, else in the project."""
        path = self.store_path
        return path.absolute().parent if path else self.project / FOLDER

    @property
    def archive(self) -> Path | None:
        """The folder that histories are archived in."""
        if not self["retention.archive"]:
            return None
        path = Path(self["retention.archive"]).expanduser()
        return (self.project if self.source("retention.archive") == FILE else Path.cwd()) / path

    def keeping(self) -> Keeping:
        """What the system says about keeping, checked."""
        from holdfast.engine.retention import SETTING, keeping

        return keeping(self[SETTING], self.archive, f"{SETTING} ({self.source(SETTING)})")

    def patience(self) -> Patience:
        """How long silence is borne, checked."""
        from holdfast.engine.patience import Patience

        found = Patience(
            self._duration("unreachable-after"), self._duration("offline-after"), self._duration("stuck-after")
        )
        if found.offline < found.unreachable:
            raise BadConfiguration("offline-after is shorter than unreachable-after; a worker is unreachable first")
        return found

    def _duration(self, name: str) -> int:
        found = micros(self[name])
        if not found or found < UNITS["s"]:
            raise BadConfiguration(
                f"{name} ({self.source(name)}) is {self[name]!r}, but must be a duration of at least 1s, like `12m`"
            )
        return found

    @property
    def shown_store(self) -> str:
        """The store as people like to read it."""
        path = self.store_path
        return shown_path(path) if path else without_password(self.store)


def sqlite_address(path: Path) -> str:
    return f"sqlite:///{quote(str(path))}"


def shown_path(path: Path) -> str:
    """Relative to here where that is shorter."""
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):
        return str(path)
    return inside if len(inside) < len(str(path)) else str(path)


def find_project(start: Path | None) -> Path | None:
    """The nearest folder, from `start` upwards, that is a project."""
    if start is None:
        return None
    here = start.absolute()
    for folder in (here, *here.parents):
        if (folder / FOLDER).is_dir() or (folder / FILE).is_file():
            return folder
    return None


def read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{path} cannot be read: {error}") from error
    try:
        written = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadConfiguration(f"{shown_path(path)} is not valid TOML: {error}") from error
    found = dict(_flat(written))
    for plain in found:
        name = plain
        if plain not in KEYS:
            close = close_to(plain, [key for key, entry in KEYS.items() if entry.in_file])
            allowed = ", ".join(key for key, entry in KEYS.items() if entry.in_file)
            hint = f"did you mean `{close}`?" if close else f"it takes {allowed}"
            raise BadConfiguration(f"{shown_path(path)}: unknown key `{name}`; {hint}")
        if not KEYS[plain].in_file:
            variable = KEYS[plain].variable(plain)
            raise BadConfiguration(
                f"{shown_path(path)}: `{name}` is a secret and has no place in a file that is shared; set {variable}"
            )
    return found


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Tables such as `[workflow.retention]` as settings with dots in their names."""
    for name, value in table.items():
        plain = before + name.replace("_", "-").lower()
        if isinstance(value, dict) and any(key.startswith(plain + ".") for key in KEYS):
            yield from _flat(value, plain + ".")
        else:
            yield plain, value


def _choose(
    name: str,
    key: _Key,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    written: Mapping[str, Any],
    file: Path,
) -> Setting:
    variable = key.variable(name)
    if name in flags:
        value = flags[name]
        return Setting(list(value) if key.kind is list else value, f"--{_FLAGS.get(name, name)}")
    if environment.get(variable):
        return Setting(_convert(key, environment[variable], variable), variable)
    if name in written:
        return Setting(_typed(key, written[name], f"{shown_path(file)}: `{name}`"), FILE)
    return Setting(key.default, "default")


_FLAGS = {
    "modules": "module",
    "queues": "queue",
    "workflow.retention.default": "retention",
    "retention.archive": "archive",
}


def _convert(key: _Key, text: str, variable: str) -> Any:
    if key.kind is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return key.kind(text)
    except ValueError:
        raise BadConfiguration(f"{variable} is {text!r}, but must be a number") from None


def _typed(key: _Key, value: Any, where: str) -> Any:
    if key.kind is list:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise BadConfiguration(f"{where} must be a list of texts, not {value!r}")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if (key.kind is str and isinstance(value, str)) or (key.kind is float and is_number):
        return key.kind(value)
    if key.kind is int and is_number and isinstance(value, int):
        return value
    expected = {str: "a text", int: "a whole number", float: "a number"}[key.kind]
    raise BadConfiguration(f"{where} must be {expected}, not {value!r}")
