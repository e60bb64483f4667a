"""Blocks of the firmware upgrade, and the switches they upgrade.

A block is a function; its hooks say how to find out whether it took effect, and how to undo it. The switches are
simulated: each is a file in `switches/`, beside a log of everything that was ever done to it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from holdfast import Applied, Context, NotApplied, NothingDone, Unknown, block

FOLDER = Path(__file__).with_name("switches")
#: what goes wrong, on purpose
TROUBLE = {"sw-03": "loses an answer", "sw-04": "breaks off half way", "sw-08": "does not come back"}


class Switch:
    """One simulated switch. `flash` has images, and how much of each is there, in percent."""

    def __init__(self, ctx: Context) -> None:
        self.id = ctx.entity.id
        self._file, self._log = FOLDER / f"{self.id}.json", FOLDER / f"{self.id}.log"
        old = ctx.entity.facts.get("version", "17.6.5")
        self.state: dict[str, Any] = {
            "running": old, "golden": old, "flash": {old: 100}, "is_up": True, "trouble": TROUBLE.get(self.id, "")
        }  # fmt: skip
        if self._file.exists():
            self.state = json.loads(self._file.read_text())

    async def reach(self) -> Switch:
        """Log in to it, or find that it does not answer."""
        await asyncio.sleep(0.15)
        if not self.state["is_up"]:
            await asyncio.sleep(0.35)
            raise NothingDone("it does not answer")
        return self

    def has_trouble(self, what: str) -> bool:
        """Whether it goes wrong now. It does so once."""
        is_now = bool(self.state["trouble"] == what)
        if is_now:
            self.now(what, trouble="")
        return is_now

    def now(self, what: str, **changes: Any) -> None:
        """Something was done to it: the log first, as a witness of its own."""
        self.state.update(changes)
        FOLDER.mkdir(exist_ok=True)
        with self._log.open("a") as log:
            log.write(what + "\n")
        draft = self._file.with_suffix(".new")
        draft.write_text(json.dumps(self.state, indent=2))
        draft.rename(self._file)


@block(name="switch.backup", pure=True, run_on="device")
async def backup(ctx: Context) -> dict[str, str]:
    """Read what runs, and its configuration. Pure: nothing is changed, so there is nothing to undo."""
    switch = await Switch(ctx).reach()
    return {"version": switch.state["running"], "config": f"hostname {switch.id}\n"}


# Neither pure nor idempotent: an attempt of unknown outcome is never repeated blindly.
@block(name="switch.install", run_on="device", retry={"attempts": 2, "delay": "300ms"})
async def install(image: str, ctx: Context) -> str:
    """Copy an image to the flash."""
    switch = await Switch(ctx).reach()
    for percent in (25, 50, 75, 100):
        await asyncio.sleep(0.2)
        switch.now(f"copy {image} {percent}%", flash={**switch.state["flash"], image: percent})
        if percent == 50 and switch.has_trouble("breaks off half way"):
            raise ConnectionError("connection lost half way")
    if switch.has_trouble("loses an answer"):
        raise ConnectionError("connection lost before the answer")
    return image


@install.verify
async def is_installed(image: str, ctx: Context) -> Applied | NotApplied | Unknown:
    """Asked when nobody knows what came of an attempt: is the image there?"""
    switch = await Switch(ctx).reach()
    percent = switch.state["flash"].get(image, 0)
    ctx.log(f"{switch.id} has {percent}% of {image}")
    if percent == 100:
        return Applied(image)
    # Half an image is neither "done" nor "not done".
    return Unknown() if percent else NotApplied()


@install.rollback(accepts_unknown=True)
async def remove(image: str, ctx: Context) -> None:
    """Take the image off again: right if all of it is there, or half, or nothing."""
    switch = await Switch(ctx).reach()
    await asyncio.sleep(0.3)
    switch.now(f"remove {image}", flash={k: v for k, v in switch.state["flash"].items() if k != image})


@block(name="switch.activate", idempotent=True, run_on="device")
async def activate(image: str, previous: str, ctx: Context) -> str:
    """Boot the image. To boot what runs already changes nothing."""
    switch = await Switch(ctx).reach()
    await _boot(switch, image)
    ctx.update(facts={"version": image})  # in the inventory, once the whole execution has completed
    return image


@activate.verify
async def is_active(image: str, ctx: Context) -> bool | None:
    """Yes, no, or `None`: that cannot be told."""
    try:
        switch = await Switch(ctx).reach()
    except NothingDone as error:
        ctx.log(f"{ctx.entity.id}: {error}, so nobody can tell what it runs")
        return None
    return bool(switch.state["running"] == image)


@activate.rollback(accepts_unknown=True)
async def go_back(previous: str, ctx: Context) -> None:
    """Boot what ran before."""
    await _boot(await Switch(ctx).reach(), previous)


async def _boot(switch: Switch, image: str) -> None:
    switch.now(f"boot {image}", running=image, is_up=False)
    await asyncio.sleep(0.7)
    if switch.has_trouble("does not come back"):
        await asyncio.sleep(0.8)
        raise TimeoutError("it did not come back after the boot")
    switch.now(f"up with {image}", is_up=True)


@block(name="switch.check", pure=True, run_on="device")
async def check(image: str, ctx: Context) -> str:
    """Does it run what it should?"""
    running = (await Switch(ctx).reach()).state["running"]
    if running != image:
        raise NothingDone(f"it runs {running}, not {image}", permanent=True)
    return image


@block(name="switch.power-cycle", idempotent=True, run_on="device")
async def power_cycle(ctx: Context) -> str:
    """Pull the plug. It comes up with the firmware it was delivered with, and answers again."""
    switch = Switch(ctx)
    golden = switch.state["golden"]
    await asyncio.sleep(0.5)
    switch.now(f"power-cycle, up with {golden}", running=golden, flash={golden: 100}, is_up=True)
    return str(golden)
