"""Rules of when to save and what stays, what `last` and `best` mean, and taking away the rest."""
