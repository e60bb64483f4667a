"""Which format a file or folder has, and everything it says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.errors import BadInventory, BadUsage
from holdfast.core.inventory import Imported
from holdfast.core.model import Problem

from .ansible import read_ansible
from .csv_text import read_csv
from .gather import Gathering
from .nornir import read_nornir
from .yaml_text import Unparsed, parse

FORMATS = ("csv", "ansible", "nornir")
#: Bytes that the files of an inventory may have in all.
MAX_BYTES = 64 * 1024 * 1024
_TEXTS = (".csv", ".tsv", ".yaml", ".yml", ".json")


class InventoryText(msgspec.Struct, frozen=True):
    """What the files say."""

    format: str
    #: wholes before their parts, groups before all
    entities: list[Imported]
    #: what was left out, and why
    warnings: list[Problem] = []


def load(path: Path) -> dict[str, str]:
    """The texts of a file, or of all files of a folder that may belong to an inventory, by their names there."""
    try:
        if path.is_dir():
            names = sorted(each for each in path.rglob("*") if each.suffix.lower() in _TEXTS and each.is_file())
            hidden = [each for each in names if any(part.startswith(".") for part in each.relative_to(path).parts)]
            paths = {each.relative_to(path).as_posix(): each for each in names if each not in hidden}
        else:
            paths = {path.name: path}
        if sum(each.stat().st_size for each in paths.values()) > MAX_BYTES:
            raise BadUsage(f"{path} has more than {MAX_BYTES // 1024 // 1024} MB; import it in parts")
        return {name: each.read_bytes().decode("utf-8-sig") for name, each in paths.items()}
    except FileNotFoundError:
        raise BadUsage(f"there is no {path}") from None
    except OSError as error:
        raise BadUsage(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadUsage(f"{path} is not UTF-8") from None


def read(files: Mapping[str, str], format: str = "", *, type: str = "device", typed: bool = False) -> InventoryText:
    """Refuses files with errors, naming all of them."""
    if format and format not in FORMATS:
        raise BadInventory(f"there is no format {format!r}; {', '.join(FORMATS)} are known")
    if not files:
        raise BadInventory("there is nothing to import: no .csv, .yaml or .json file")
    chosen = format or guess(files)
    into = Gathering(type, files)
    if chosen == "csv":
        for file, text in files.items():
            read_csv(into, file, text, typed=typed)
    elif chosen == "ansible":
        read_ansible(into, files)
    else:
        read_nornir(into, files)
    entities = into.finished()
    if into.errors:
        first = into.errors[0]
        where = f"{first.file}:{first.line}: " if first.line else f"{first.file}: " if first.file else ""
        many = f" (and {len(into.errors) - 1} more)" if len(into.errors) > 1 else ""
        raise BadInventory(f"{where}{first.message}{many}", tuple(into.problems))
    if not entities:
        raise BadInventory(f"{', '.join(list(files)[:3])}: there is no entity in it")
    return InventoryText(chosen, entities, into.problems)


def guess(files: Mapping[str, str]) -> str:
    names = {name.rpartition("/")[2].lower(): name for name in files}
    if all(name.endswith((".csv", ".tsv")) for name in names):
        return "csv"
    if any(re.search(r"(?:^|/)(?:group|host)_vars/", name) for name in files):
        return "ansible"
    if {"defaults.yaml", "groups.yaml"} & names.keys() and "hosts.yaml" in names:
        return "nornir"
    for name, text in files.items():
        if not name.lower().endswith((".csv", ".tsv")):
            return _of_text(text)
    return "csv"


def _of_text(text: str) -> str:
    try:
        value: Any = parse(text)[0]
    except Unparsed:
        return "csv" if "," in text.partition("\n")[0] and ":" not in text.partition("\n")[0] else "ansible"
    if not isinstance(value, dict):
        return "csv" if isinstance(value, str) else "ansible"
    bodies = [body for body in value.values() if isinstance(body, dict)]
    if "_meta" in value or "all" in value or any({"hosts", "children", "vars"} & body.keys() for body in bodies):
        return "ansible"
    return "nornir"
