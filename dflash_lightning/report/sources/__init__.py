"""Readers: one kind of log a file."""
