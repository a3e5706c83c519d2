"""The way of a save into the background: the trainer's side, the worker's side, and what passes between."""
