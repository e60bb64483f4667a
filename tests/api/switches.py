"""Blocks for switches that are files: what is written there is the witness of what was really done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import Context, block


def _file(folder: str, ctx: Context) -> Path:
    return Path(folder) / ctx.entity.id


def _write(folder: str, ctx: Context, text: str) -> str:
    path = _file(folder, ctx)
    before = path.read_text() if path.exists() else ""
    path.write_text(text)
    return before


@block(name="switch.set", run_on="switch")
async def set_(ctx: Context, folder: str, text: str, refuses: list[str] | None = None) -> dict[str, Any]:
    """Write a text; may be asked to stumble after it was written."""
    before = _write(folder, ctx, text)
    if ctx.entity.id in (refuses or ()):
        raise RuntimeError(f"{ctx.entity.id} stumbled")
    return {"before": before}


@set_.verify
async def set_looked(ctx: Context, folder: str, text: str) -> bool:
    return _file(folder, ctx).read_text() == text


@set_.rollback(accepts_unknown=True)
async def set_undone(ctx: Context, folder: str, result: dict[str, Any] | None = None) -> None:
    if (Path(folder) / f"{ctx.entity.id}.stuck").exists():
        raise RuntimeError(f"{ctx.entity.id} does not let go")
    _write(folder, ctx, result["before"] if result else "")


@block(name="switch.burn", run_on="switch")
async def burn(ctx: Context, folder: str, text: str = "burnt") -> None:
    """Cannot be undone."""
    _write(folder, ctx, text)


@block(name="switch.check", run_on="switch", pure=True)
async def check(ctx: Context, fails: list[str]) -> None:
    """Fail on these."""
    if ctx.entity.id in fails:
        raise RuntimeError(f"{ctx.entity.id} is not well")


@block(name="switch.seek", run_on="switch", pure=True)
async def seek(ctx: Context, wants: list[str]) -> str:
    """Says by itself which switches it needs."""
    return str(ctx.entity.id)


@seek.acquire
async def seek_wanted(ctx: Context, wants: list[str]) -> list[str]:
    return wants
