"""What is settled before the first step: checks, agreement of the ranks, the dry run, W&B runs."""
