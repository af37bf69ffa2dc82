"""A peer's private data: shards on disk, and how they are made. Must not import torch."""

from peer.data.shard import Shard, ShardFacts, Split, find_shard, load_shard, shard_facts

__all__ = ["Shard", "ShardFacts", "Split", "find_shard", "load_shard", "shard_facts"]
