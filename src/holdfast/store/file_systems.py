"""On which file systems a store may lie: SQLite's locks are not reliable over a network."""

from __future__ import annotations

import re
from pathlib import Path

_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "fuse.",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "ncpfs",
    "ocfs2",
    "gfs2",
)
_LOCAL_FUSE = ("fuseblk", "fuse.ext2", "fuse.ntfs-3g", "fuse.lazyfs")


def file_system(path: Path, mounts: str | None = None) -> str:
    """Type of the file system a path is on, from the mount table; empty where there is none to read."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return ""
    best, kind = "", ""
    target = str(path.resolve())
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        # Blanks and the like stand there in octal; everything else as it is.
        mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def is_network(kind: str) -> bool:
    return kind not in _LOCAL_FUSE and any(kind == name or kind.startswith(name) for name in _NETWORK)
