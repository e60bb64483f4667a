"""A short stretch of the campaign against PostgreSQL, with stops close together."""

from __future__ import annotations

from . import postgres


def test_two_engines_come_through_a_server_that_is_stopped_hard() -> None:
    report = postgres.campaign(
        120, seed=5, progress=print, minutes=5, calm=(1.5, 3.0), down=(0.0, 1.0), stops=3, pauses=0
    )
    assert report.ok, report.text()
    assert report.figures["server stopped hard"] >= 3
    assert report.figures["session ended"] > 0
    assert report.figures["completed"] > 60
