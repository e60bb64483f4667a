"""The typed client: the verbs of the engine, over HTTP."""

from .client import Client

__all__ = ["Client"]
