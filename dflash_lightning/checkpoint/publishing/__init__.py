"""From a state to a checkpoint that others may rely on: by one process, or in shards by all ranks."""
