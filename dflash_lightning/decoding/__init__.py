"""Draft and verify. Import from the modules; the package itself imports nothing.

chain.py decodes with a drafter, plain.py without; teacher.py and walk.py foretell the rounds on a known text,
lookup.py gives the baseline's; acceptance.py sums rounds up; verify.py and decoded.py are what these share.
"""
