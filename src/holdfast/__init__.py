"""Holdfast: durable workflows for people who change real infrastructure."""

__version__ = "0.1.0"
