"""What callbacks make of the steps: mix, bands, direction, norms, throughput, decoding, pictures."""
