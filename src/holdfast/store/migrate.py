"""Numbered migrations: which there are, what they say, and that none was changed after the fact."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files

import msgspec

from holdfast.core.errors import StoreVersion


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()[:16]


def migrations(dialect: str) -> list[Migration]:
    """All migrations of one dialect, in order, without gaps."""
    found = []
    for entry in files(__package__).joinpath("migrations", dialect).iterdir():
        if entry.name.endswith(".sql"):
            number, _, name = entry.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, entry.read_text()))
    found.sort(key=lambda migration: migration.number)
    assert [m.number for m in found] == list(range(1, len(found) + 1)), "migrations are numbered from 1"
    return found


def pending(dialect: str, applied: dict[int, str], address: str) -> list[Migration]:
    """What still has to run, given number → checksum of what has run."""
    known = migrations(dialect)
    for number, checksum in applied.items():
        if number > len(known):
            raise StoreVersion(
                f"{address} was written by a newer Holdfast (migration {number}, and this one knows"
                f" {len(known)}); upgrade Holdfast"
            )
        if known[number - 1].checksum != checksum:
            raise StoreVersion(f"{address}: migration {number} differs from the one that was applied here")
    return [migration for migration in known if migration.number not in applied]
