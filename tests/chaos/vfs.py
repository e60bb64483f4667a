"""A disk one can look into: a SQLite VFS that notes every change to a file, and fails when told to.

Everything is passed on to the system's own VFS. Noted are the calls that change the database, its journals and
their folder. The `-shm` file is not: it is never synced, and whoever opens the database first makes it anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw

Kind = Literal["write", "size", "sync", "lost-sync", "create", "delete", "folder-sync"]

_NUMBERS = count(1)
_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_TEMPORARY = apsw.SQLITE_OPEN_TEMP_DB | apsw.SQLITE_OPEN_TEMP_JOURNAL | apsw.SQLITE_OPEN_TRANSIENT_DB


class Change(NamedTuple):
    """One call. `file` is a number of its own for every file that was ever created; names are reused, files are not."""

    kind: Kind
    file: int
    #: of `create` and `delete`
    name: str = ""
    #: of `write`; the new size for `size`
    at: int = 0
    data: bytes = b""


#: Called before each call with its verb (`read`, `write`, `sync`, `size`, `open`, `delete`, `lock`), the file's name
#: and how many bytes it is about. Raises what the call is to fail with, or returns how many bytes of a write arrive.
Fault = Callable[[str, str, int], int | None]


def failure(code: int) -> apsw.Error:
    """What a disk answers, as SQLite knows it."""
    error: apsw.Error = apsw.exception_for(code)
    return error


class Disk(apsw.VFS):
    """Registered under `name` as long as it is not closed; with `is_default` also for those who name none."""

    def __init__(self, *, is_default: bool = False) -> None:
        self.name = f"holdfast-disk-{next(_NUMBERS)}"
        self.log: list[Change] = []
        self.fault: Fault | None = None
        self._lock = threading.Lock()
        #: files by their present name
        self._files: dict[str, int] = {}
        self._number = 0
        self.base = apsw.vfs_names()[0]
        super().__init__(self.name, self.base, makedefault=is_default)

    def close(self) -> None:
        self.unregister()

    def note(self, change: Change) -> None:
        with self._lock:
            self.log.append(change)

    def strike(self, verb: str, name: str, size: int = 0) -> int | None:
        return self.fault(verb, name, size) if self.fault is not None else None

    # --- what SQLite calls --------------------------------------------------------------------------
    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if name is None or flags[0] & _TEMPORARY:
            return apsw.VFSFile(self.base, name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self.strike("open", Path(path).name)
        # An argument of the system's VFS: it must be told by the object it was given.
        file = DiskFile(self, name, path, flags)
        with self._lock:
            number = self._files.get(path)
            if number is None:
                self._number = number = self._number + 1
                self._files[path] = number
                self.log.append(Change("create", number, Path(path).name))
                # As the system's VFS does: the folder is synced with the first sync of a journal it has created.
                file.is_folder_due = bool(flags[0] & _JOURNALS)
        file.number = number
        return file

    def xDelete(self, path: str, is_synced: bool) -> None:
        self.strike("delete", Path(path).name)
        super().xDelete(path, is_synced)
        with self._lock:
            number = self._files.pop(path, None)
            if number is not None:
                self.log.append(Change("delete", number, Path(path).name))
            if is_synced:
                self.log.append(Change("folder-sync", 0))


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, path: str, flags: list[int]) -> None:
        self.disk = disk
        self.name = Path(path).name
        self.number = 0
        self.is_folder_due = False
        super().__init__(disk.base, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        self.disk.strike("read", self.name, amount)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        arrives = self.disk.strike("write", self.name, len(data))
        data = bytes(data)
        if arrives is not None:
            # A short write: some of it is there, and the call fails all the same.
            self._write(data[:arrives], offset)
            raise failure(apsw.SQLITE_FULL)
        self._write(data, offset)

    def _write(self, data: bytes, offset: int) -> None:
        if data:
            super().xWrite(data, offset)
            self.disk.note(Change("write", self.number, "", offset, data))

    def xTruncate(self, size: int) -> None:
        # A journal is shortened after the commit, and SQLite overlooks a failure to. An exception from here would
        # be raised by apsw all the same, as if the commit had failed; no real disk can do that.
        if not self.name.endswith("-wal"):
            self.disk.strike("size", self.name, size)
        super().xTruncate(size)
        self.disk.note(Change("size", self.number, "", size))

    def xSync(self, flags: int) -> None:
        try:
            self.disk.strike("sync", self.name)
        except apsw.Error:
            # The worst that systems do: what was not on disk is forgotten, and shown from memory all the same.
            self.disk.note(Change("lost-sync", self.number))
            raise
        super().xSync(flags)
        self.disk.note(Change("sync", self.number))
        if self.is_folder_due:
            self.is_folder_due = False
            self.disk.note(Change("folder-sync", 0))

    def xLock(self, level: int) -> None:
        self.disk.strike("lock", self.name)
        super().xLock(level)
