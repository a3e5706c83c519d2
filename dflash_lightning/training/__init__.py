"""The training loop around the drafter. The modules are listed in the order one optimizer step visits them."""
