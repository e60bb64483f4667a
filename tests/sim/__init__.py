"""Seeded fault schedules over the real core and the engine's logic, in virtual time: `python -m tests.sim`."""
