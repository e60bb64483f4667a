"""Inventories of others: what their files say, and what importing them would change.

Reads the files it is given and nothing else; writes nothing and decides nothing. What becomes of the entities is up
to the engine.
"""

from .differences import Outcome, upserted
from .files import FORMATS, InventoryText, load, read

__all__ = ["FORMATS", "InventoryText", "Outcome", "load", "read", "upserted"]
