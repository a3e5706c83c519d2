"""Chats answered by the target itself: the training data of a drafter.

A row becomes an open chat (chats.py), a backend answers it (local.py with Transformers, server.py over HTTP),
and what became of it goes to the journal (journal.py), from which the output is written in the order of the
input (publish.py). run.py composes them.
"""
