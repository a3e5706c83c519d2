"""A training state as it was at one moment: memory taken early, one copy, thawed by whoever writes it."""
