"""What the prefetch pipelines of all ranks did between two logs, and what to do about it. Pure.

In order: states_from.py (what the pipelines run), interval.py (counters -> one row a rank), depth.py (how far
ahead), bottleneck.py (which side is too slow), slow_rank.py (which rank the others wait for).
"""
