"""Addresses as people write them, and what may be shown of them."""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pytest

from holdfast.core.errors import BadConfiguration, BadStoreAddress, StoreUnavailable
from holdfast.store.address import open_store, without_password
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore


@pytest.mark.parametrize(
    ("address", "file"),
    [
        ("sqlite:///sub/h.db", "sub/h.db"),
        ("sqlite:///{here}/h.db", "h.db"),
        ("SQLite:///h.db", "h.db"),
        ("h.db", "h.db"),
        ("./sub/h.db", "sub/h.db"),
        ("{here}/h.db", "h.db"),
        ("sqlite:///with%20blank.db", "with blank.db"),
    ],
)
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, file: str) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(address.format(here=tmp_path))
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / file
    assert store.path.exists()
    store.close()


def test_postgres_as_libpq_writes_it(pg_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(f"{pg_dsn} password=secret")
    assert isinstance(store, PostgresStore)
    assert "secret" not in store.address
    store.close()
    with pytest.raises(BadStoreAddress):
        open_store("user=me secret")
    assert list(tmp_path.iterdir()) == []


def test_postgres(pg_dsn: str) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(pg_dsn)
    for scheme in ("postgresql", "postgres"):
        store = open_store(f"{scheme}://postgres:secret@/{parts['dbname']}?host={parts['host']}", engine_id="e")
        assert isinstance(store, PostgresStore)
        assert "secret" not in store.address
        assert store.address.startswith("postgresql://postgres@")
        store.close()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "mysql://user:secret@host/db",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/h.db",
        "sqlite:///folder/",
        "postgresql://user:secret@host:port/db",
        "postgresql://user:se%zzcret@host/db",
        "postgresql://host/db?passwort=secret",
    ],
)
def test_what_cannot_be_understood_is_refused_with_examples(address: str) -> None:
    with pytest.raises(BadStoreAddress) as refused:
        open_store(address)
    assert "postgresql://user:password@host:5432/database" in refused.value.message
    assert "cret@" not in refused.value.message
    assert "secret" not in refused.value.message


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with pytest.raises(StoreUnavailable) as refused:
        open_store("postgresql://user:secret@127.0.0.1:1/db")
    assert "postgresql://user@127.0.0.1:1/db" in refused.value.message
    assert "secret" not in refused.value.message


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BadConfiguration, match=r"pip install 'holdfast\[postgres\]'") as refused:
        open_store("postgresql://user:secret@host/db")
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("h.db", "h.db"),
        ("sqlite:///h.db", "sqlite:///h.db"),
        ("postgresql://u:p@h:5432/d?sslpassword=p", "postgresql://u@h:5432/d"),
        ("postgresql://u:p@ss@h/d", "postgresql://u@h/d"),
        ("postgresql:///d", "postgresql:///d"),
        ("host=h password=p", "postgresql://…"),
    ],
)
def test_shown_addresses(address: str, shown: str) -> None:
    assert without_password(address) == shown
