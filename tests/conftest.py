"""What every test shares: the services, and Hypothesis without a stopwatch."""

from hypothesis import settings

from tests.services.fixtures import pg_dsn, postgres

__all__ = ["pg_dsn", "postgres"]

# Two test processes share two cores, so the time of a single example says nothing.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")
