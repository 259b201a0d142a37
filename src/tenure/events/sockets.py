"""ZMQ for the modules here that have sockets, or a word on what is missing."""

from __future__ import annotations

try:
    import zmq
except ImportError as error:
    raise ImportError("KV events need pyzmq: pip install 'tenure[events]'") from error

__all__ = ["zmq"]
