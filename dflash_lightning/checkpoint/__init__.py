"""Checkpoints that no step waits for: snapshot, write in the background, publish, resume."""
