"""Detectors: one kind of verdict a file, pure functions of arrays."""
