"""Hidden states on disk, for small data or many epochs: written once, read in place of running the target.

In the order of use: manifest.py (whose states, of which tokens), layout.py (which sample lies where; pure),
folder.py (unfinished, then complete), writing.py (runs the target), reading.py (a batch's states). Import
from the modules.
"""
