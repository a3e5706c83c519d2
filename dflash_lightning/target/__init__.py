"""The frozen target. Import from the modules: this package imports nothing, so that a command starts fast.

In the order of use: embedded.py and loading.py (a name -> Target), layers.py (its parts), model.py (Target,
hidden_states.py (tapped layers, early exit), mask_token.py, geometry.py (a drafter's config after a
target's). Running ahead of training: device_map.py, twins.py, ends.py (a target on every device, its ends
on the drafter's), forward.py (one forward at a time), dispatch.py (who and what comes next; pure) and
pipeline.py (threads and queues around it).
"""
