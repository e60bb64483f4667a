"""The load block against real files and a server on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.blocks import Context, NothingDone
from holdfast.blocks.load import LIMIT, load
from tests.services.web import WebService


def read(url: str, **more: Any) -> str:
    return load(url, Context(), **more)


@pytest.fixture(scope="module")
def web() -> Iterator[WebService]:
    with WebService() as service:
        service.pages.update(
            {
                "/text": ("text/plain; charset=latin-1", "größe".encode("latin-1")),
                "/plain": ("text/plain", "größe".encode()),
                "/exact": ("text/plain", b"x" * LIMIT),
                "/large": ("text/plain", b"x" * (LIMIT + 1)),
            }
        )
        yield service


def test_files_are_read_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b.txt").write_text("größe", encoding="utf-8")
    (tmp_path / "old.txt").write_text("größe", encoding="latin-1")
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfmarked")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read("a b.txt") == read(f"{tmp_path}/a b.txt") == read(f"file://{tmp_path}/a%20b.txt") == "größe"
    assert read("~/a b.txt") == read("file:a b.txt") == "größe"
    assert read("old.txt", charset="latin-1") == "größe"
    assert read("marked.txt") == "marked"
    with pytest.raises(NothingDone, match=r"no utf-8 text: .* at byte 2; say its charset"):
        read("old.txt")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NothingDone, match="no regular file"):
        read(str(tmp_path / "pipe"))
    with pytest.raises(NothingDone, match="no regular file"):
        read(str(tmp_path))
    with pytest.raises(NothingDone, match="No such file"):
        read(str(tmp_path / "missing"))
    with pytest.raises(NothingDone, match="null byte"):
        read("a\0b")
    with pytest.raises(NothingDone, match="another machine"):
        read("file://elsewhere/etc/hosts")
    with pytest.raises(NothingDone, match="scheme `ftp` is refused"):
        read("ftp://a/b")
    with pytest.raises(NothingDone, match="no charset"):
        read(str(tmp_path), charset="nonsense")


def test_the_size_is_limited(tmp_path: Path, web: WebService) -> None:
    (tmp_path / "exact").write_bytes(b"x" * LIMIT)
    (tmp_path / "large").write_bytes(b"x" * (LIMIT + 1))
    (tmp_path / "grows").write_bytes(b"\xe4" * (LIMIT - 1))
    assert len(read(str(tmp_path / "exact"))) == len(read(f"{web.url}/exact")) == LIMIT
    for url in (str(tmp_path / "large"), f"{web.url}/large"):
        with pytest.raises(NothingDone, match="longer than"):
            read(url)
    with pytest.raises(NothingDone, match="longer than"):
        read(str(tmp_path / "grows"), charset="latin-1")


def test_addresses_are_asked(web: WebService) -> None:
    assert read(f"{web.url}/text") == read(f"{web.url}/plain") == "größe"
    with pytest.raises(NothingDone, match="answers with status 404"):
        read(f"{web.url}/missing")
    web.fail_next(1, status=503)
    with pytest.raises(NothingDone, match="answers with status 503") as caught:
        read(f"{web.url}/text")
    assert not caught.value.permanent
