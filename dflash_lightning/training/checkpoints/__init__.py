"""Training state as checkpoints hold it: saving, resuming, splitting over ranks."""
