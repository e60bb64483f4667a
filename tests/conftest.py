"""What every test shares: the services, and Hypothesis without a stopwatch."""

from hypothesis import settings

from tests.services.fixtures import approvals, cloud, pg_dsn, postgres, ssh_server

__all__ = ["approvals", "cloud", "pg_dsn", "postgres", "ssh_server"]

# Two test processes share two cores, so the time of a single example says nothing.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")
