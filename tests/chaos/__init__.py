"""Campaigns against real processes: kills, a database that goes away, power cuts, disks that fail."""
