"""The training loop around the drafter: forward, window sums, normalisation, step guard, resume."""
