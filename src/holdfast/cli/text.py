"""Words, colours, tables and times as every command shows them. It knows no command and no server."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

MARKS = {"done": "✓", "failed": "✗", "running": "●", "waiting": "◌", "retry": "↻", "skipped": "–", "pending": "·"}
_COLOURS = {
    "COMPLETED": "green",
    "FAILED_SAFE": "yellow",
    "FAILED_UNSAFE": "red",
    "CANCELLED": "magenta",
    "CANCELLING": "magenta",
    "ERROR": "red",
    "ROLLBACK": "yellow",
    "RUNNING": "cyan",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "RESCHEDULED": "yellow",
    "STARTED": "cyan",
    "online": "green",
    "offline": "bright_black",
    "unreachable": "red",
    "draining": "yellow",
}


def style(text: str, **how: Any) -> str:
    """Coloured text; `click.echo` takes the colours away again where nobody would see them."""
    return text if "NO_COLOR" in os.environ else click.style(text, **how)


def bold(text: str) -> str:
    return style(text, bold=True)


def dim(text: str) -> str:
    return style(text, dim=True)


def status(name: str) -> str:
    return style(name, fg=_COLOURS.get(name.removesuffix("_ACK")))


def say(text: str = "") -> None:
    """Progress and remarks: stderr, so that stdout is data alone."""
    click.echo(text, err=True)


def is_plain(stream: Any = None) -> bool:
    """No terminal to draw on, or nobody who wants it: one line per thing that happens."""
    stream = sys.stderr if stream is None else stream
    return (
        not stream.isatty()
        or bool(os.environ.get("CI"))
        or "NO_COLOR" in os.environ
        or os.environ.get("TERM", "") in ("", "dumb")
    )


# --- times ------------------------------------------------------------------------------------------
def moment(us: int | None) -> str:
    """A point in time, as the machine's owner reads clocks."""
    if not us:
        return "–"
    return datetime.fromtimestamp(us / 1e6).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def clock(us: int) -> str:
    """Time of day with milliseconds."""
    return datetime.fromtimestamp(us / 1e6).strftime("%H:%M:%S.%f")[:-3]


def iso(us: int | None) -> str | None:
    return None if not us else datetime.fromtimestamp(us / 1e6, UTC).isoformat().replace("+00:00", "Z")


def took(us: int | None) -> str:
    """A duration: 40ms, 0.3s, 12s, 4m10s, 2h5m, 3d4h."""
    if us is None:
        return "–"
    s = max(0, us) / 1e6
    if s < 10:
        return f"{s:.1f}s" if s >= 0.1 else f"{s * 1000:.0f}ms"
    if s < 120:
        return f"{s:.0f}s"
    minutes, rest = divmod(int(s), 60)
    if minutes < 120:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    return f"{hours // 24}d{hours % 24}h" if hours % 24 else f"{hours // 24}d"


def ago(us: int | None) -> str:
    if not us:
        return "–"
    return took(time.time_ns() // 1000 - us)


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


# --- values and tables ------------------------------------------------------------------------------
def brief(value: Any, limit: int = 60) -> str:
    """A value on one line, shortened."""
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: max(1, limit - 1)] + "…"


def value_lines(value: Any) -> list[str]:
    """A value for people: like YAML, which is what they write."""
    if isinstance(value, str):
        return value.rstrip("\n").split("\n")
    if isinstance(value, (dict, list)) and value:
        import yaml

        dumped: str = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=100, default_flow_style=False)
        return dumped.rstrip("\n").split("\n")
    import json

    return [json.dumps(value, ensure_ascii=False)]


def width(text: str) -> int:
    return len(click.unstyle(text))


def columns(limit: int = 0) -> int:
    """Room on a line of stdout, at most `limit`; where it is no terminal, as much as one likes."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    return min(room, limit) if limit else room


def clip(text: str, room: int) -> str:
    """Text cut to so many characters, colours not counted."""
    if width(text) <= room:
        return text
    out, left = [], room - 1
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        is_colour = part.startswith("\x1b")
        out.append(part if is_colour else part[:left])
        left -= 0 if is_colour else len(part[:left])
    return "".join(out) + "…"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "") -> str:
    """Aligned columns two blanks apart; the last one is as long as it is."""
    if not rows:
        return ""
    lines = [[dim(cell) for cell in head], *rows] if head else list(rows)
    widths = [max(width(line[i]) for line in lines) for i in range(len(lines[0]))]
    out = []
    for line in lines:
        cells = []
        for i, cell in enumerate(line):
            pad = " " * (widths[i] - width(cell))
            cells.append(pad + cell if i in right else cell + pad if i < len(line) - 1 else cell)
        out.append(clip(indent + "  ".join(cells).rstrip(), columns()))
    return "\n".join(out)


def pairs(rows: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Names and values, like kubectl describe."""
    longest = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{indent}{dim((name + ':').ljust(longest + 1))} {value}".rstrip() for name, value in rows)
