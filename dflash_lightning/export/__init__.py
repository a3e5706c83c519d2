"""Checkpoints for other programs. names.py: which tensors; config_json.py: which keys; zlab.py: both."""
