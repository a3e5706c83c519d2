"""Checkpoints that no step waits for: snapshot, write in the background, publish, resume.

A run claims its place (claiming/) and holds it together with a writer (session.py). A save is copied
(snapshots/), handed to the writer (writing/) and becomes a checkpoint (publishing/) in a bucket or folder
(stores/); older ones go (keeping/). An address leads back to it (resuming/).
"""
