"""Checkpoints for other programs. Import from the modules; the package itself imports nothing.

From a checkpoint to a folder: checkpoint.py and facts.py read what `fit` wrote, target.py says what is known
of the target, replaceable.py whether the folder may be written, write.py puts it together: zlab.py or
speculators.py (on config_json.py, names.py, rounding.py, write_files.py), card.py with evaluated.py
(identity.py: whose figures are they?) and serve.py, and remote_code.py, which travels along. From a folder:
formats.py reads either format (files.py; kinds.py refuses what we do not run); check.py compares its config
(same_config.py) and has reload.py read it in a fresh process.
"""
