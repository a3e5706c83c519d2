"""What a plan is worth, from its arrays alone: runs, window mix, balance of the ranks, and warnings."""
