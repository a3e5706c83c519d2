"""Before a run writes under a prefix: can it be used, is it free, and is it still ours?"""
