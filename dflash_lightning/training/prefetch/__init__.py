"""Where hidden states come from: the target ahead of training, or a folder."""
