"""Which version of a block a reference stands for: `name`, `name:1`, `name:1.2` or `name:1.2.3`.

Versions are `x.y.z`, ordered as numbers and not as text. A version that is still being made (`1.2.0-rc.1`) is taken
only where it is named in full.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from .model import BlockOffer, JobSpec, Problem

if TYPE_CHECKING:
    from .program import Program
    from .reads import Reads

_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"({_NUMBER}(?:\.{_NUMBER}){{0,2}})(?:-([0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*))?")
#: versions listed in a message
_SHOWN = 8

Order = tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...]]


def split(reference: str) -> tuple[str, str]:
    """Name and version of `name:version`; the version may be empty or partial."""
    name, _, version = reference.partition(":")
    return name, version


@lru_cache(maxsize=4096)
def place(block: str, version: str) -> str:
    """What a job waits for in its queue, and a worker offers: one version of one block."""
    return f"{block}:{padded(version)}" if version else block


def place_of(spec: JobSpec) -> str:
    return place(spec.block, spec.version)


def is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def padded(version: str) -> str:
    """`1` is `1.0.0`. What is no version stays what it is."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return version
    numbers = match[1] + ".0" * (2 - match[1].count("."))
    return f"{numbers}-{match[2]}" if match[2] else numbers


@lru_cache(maxsize=4096)
def order(version: str) -> Order:
    """To sort by. A release comes after what led to it; what is no version comes before everything."""
    match = _VERSION.fullmatch(padded(version))
    if match is None:
        return (), False, ((True, 0, version),)
    numbers = tuple(map(int, match[1].split(".")))
    parts = match[2].split(".") if match[2] else ()
    return numbers, not parts, tuple((not p.isdigit(), int(p) if p.isdigit() else 0, p) for p in parts)


@lru_cache(maxsize=4096)
def fits(version: str, wanted: str) -> bool:
    """Whether a version is one of those that `wanted`, maybe a part of one, stands for."""
    if version == wanted or (padded(version) == padded(wanted) and wanted.count(".") >= 2):
        return True
    numbers, is_release, _ = order(version)
    if not is_release:
        # Nor what is no version at all, unless nothing is asked of it.
        return not numbers and not wanted
    match = _VERSION.fullmatch(wanted) if wanted else None
    if match is None:
        return not wanted
    asked = tuple(map(int, match[1].split(".")))
    return not match[2] and len(asked) < 3 and numbers[: len(asked)] == asked


def choose(reference: str, offers: Iterable[BlockOffer]) -> BlockOffer | None:
    """The newest that fits; of two offers of one version the one that came last."""
    wanted = split(reference)[1]
    best: BlockOffer | None = None
    for offer in offers:
        if fits(offer.version, wanted) and (best is None or order(offer.version) >= order(best.version)):
            best = offer
    return None if best is None else with_padded(best)


def with_padded(offer: BlockOffer) -> BlockOffer:
    version = padded(offer.version)
    return offer if version == offer.version else msgspec.structs.replace(offer, version=version)


def pinned(program: Program, reads: Reads) -> tuple[dict[str, BlockOffer], list[Problem]]:
    """The offer each reference stands for from now on, and a problem for each that stands for none."""
    offers: dict[str, BlockOffer] = {}
    problems: list[Problem] = []
    for reference in program.blocks:
        known = reads.offers(split(reference)[0])
        chosen = choose(reference, known)
        if chosen is None:
            problems.append(missing(reference, known, program.used_at(reference)))
        else:
            offers[reference] = chosen
    return offers, problems


def missing(reference: str, known: Sequence[BlockOffer], path: str = "") -> Problem:
    """`path`: of the first step that uses it."""
    name, wanted = split(reference)
    if not known:
        return Problem(
            "HF0211",
            f"block `{name}` was never registered",
            help="start a worker that offers it: `holdfast worker -m MODULE`",
            path=path,
        )
    versions = sorted({padded(offer.version) for offer in known}, key=order, reverse=True)
    listed = ", ".join(versions[:_SHOWN]) + (f" and {len(versions) - _SHOWN} more" if len(versions) > _SHOWN else "")
    if not wanted:
        message = f"block `{name}` has no released version; there is {listed}"
    else:
        message = f"block `{name}` has no version {wanted}; there is {listed}"
    return Problem("HF0771", message, help=f"name one that there is: `{name}:{versions[0]}`", path=path)
