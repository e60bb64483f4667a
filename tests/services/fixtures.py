"""Fixtures over the services. A service that cannot be had fails the test; it never skips it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.services.postgres import Postgres, ServiceUnavailable

__all__ = ["pg_dsn", "postgres"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One cluster per test process, started when the first test asks for it.

    It is shared: a test that stops it must start it again, and one that leaves connections behind
    to a database of its own disturbs nobody.
    """
    try:
        server = Postgres()
    except ServiceUnavailable as error:
        pytest.fail(f"PostgreSQL is needed here and cannot be had: {error}", pytrace=False)
    with server:
        yield server


@pytest.fixture
def pg_dsn(postgres: Postgres) -> Iterator[str]:
    """The connection string of an empty database that belongs to this test alone."""
    postgres.start()  # nothing to do, unless the test before stopped it
    name = f"test_{uuid.uuid4().hex[:16]}"
    yield postgres.create_database(name)
    postgres.start()
    postgres.drop_database(name)
