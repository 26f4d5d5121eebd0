"""The promises: what a batch is, where a conversation starts, what the block says."""
