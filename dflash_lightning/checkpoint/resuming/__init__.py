"""From an address to a verified copy on this machine's disk: which checkpoint is meant, and its bytes."""
