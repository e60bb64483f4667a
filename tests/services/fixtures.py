"""Fixtures over the services. A service that cannot be had fails the test; it never skips it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.services.postgres import Postgres, ServiceUnavailable
from tests.services.web import Approvals, Cloud

if TYPE_CHECKING:
    from tests.services.ssh import SshServer

__all__ = ["approvals", "cloud", "pg_dsn", "postgres", "ssh_server"]


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


@pytest.fixture
def approvals() -> Iterator[Approvals]:
    """Approves at the third check. `approvals.polls`, `.denies` and `.fail_next()` change that."""
    with Approvals() as service:
        yield service


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """Provisions machines; `cloud.provisions` is how many there are."""
    with Cloud() as service:
        yield service


@pytest.fixture
def ssh_server() -> Iterator[SshServer]:
    """A machine to log in to: `ssh_server.parameters` are the inputs of the block `ssh`."""
    from tests.services.ssh import SshServer  # half a second of imports, for those who need it

    with SshServer() as server:
        yield server
