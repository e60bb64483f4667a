"""A module of blocks without any: whoever imports it has a disk that stops confirming when a file says so."""

from __future__ import annotations

from pathlib import Path

import apsw

from tests.chaos.vfs import Disk, failure

SIGN = Path("the-disk-fails")


def fault(verb: str, name: str, size: int) -> None:
    if verb == "sync" and SIGN.exists():
        raise failure(apsw.SQLITE_IOERR_FSYNC)


DISK = Disk(is_default=True)
DISK.fault = fault
