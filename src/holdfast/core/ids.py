"""Execution ids: 6 bytes of time, 10 bytes of chance. Stored time first, shown chance first.

Time first keeps what is new together on disk; chance first lets people name an execution by its first
few characters. Making an id needs a clock and chance, so whoever asks for the execution does it.
"""

from __future__ import annotations

from functools import lru_cache


def make_id(milliseconds: int, chance: bytes) -> str:
    return chance[:10].hex() + (milliseconds & 0xFFFFFFFFFFFF).to_bytes(6, "big").hex()


@lru_cache(maxsize=4096)
def to_key(id: str) -> bytes:
    """The stored form; asked for several times per commit."""
    raw = bytes.fromhex(id)
    return raw[10:] + raw[:10]


def from_key(key: bytes) -> str:
    return (key[6:] + key[:6]).hex()


def is_id(text: str) -> bool:
    return len(text) == 32 and not text.strip("0123456789abcdef")


def short(id: str) -> str:
    return id[:8]
