"""Checkpoints for other programs. Import from the modules; the package itself imports nothing.

checkpoint.py reads a training checkpoint; names.py knows which tensors and config_json.py which keys a z-lab
folder has; zlab.py writes and reads one.
"""
