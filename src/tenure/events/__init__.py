"""KV events on the wire: what a node holds, told to routers in vLLM's format, and read back whole."""

from tenure.events.mirror import MEDIA, Mirror
from tenure.events.publisher import Publisher
from tenure.events.subscriber import Subscriber, SubscriberStats
from tenure.events.wire import AllBlocksCleared, Batch, BlockHash, BlockRemoved, BlockStored, KVEvent, decode, encode

__all__ = [
    "MEDIA",
    "AllBlocksCleared",
    "Batch",
    "BlockHash",
    "BlockRemoved",
    "BlockStored",
    "KVEvent",
    "Mirror",
    "Publisher",
    "Subscriber",
    "SubscriberStats",
    "decode",
    "encode",
]
