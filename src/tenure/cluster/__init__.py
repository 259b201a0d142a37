"""What nodes that share a pool agree on: epochs, rollouts, hand-over, shards, and who holds what."""
