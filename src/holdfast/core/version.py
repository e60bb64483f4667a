"""Which Holdfast this is. Here, where everybody may ask without importing anything else."""

VERSION = "0.1.0"
