"""The methods that are compared, by name: one file each, all on the hooks of `Method`."""

from tenure.scbench.methods.a_shape import AShape
from tenure.scbench.methods.base import ALL, Choice, Method
from tenure.scbench.methods.cacheblend import CacheBlend, Pieces
from tenure.scbench.methods.codec import TierCodec
from tenure.scbench.methods.dense import Dense
from tenure.scbench.methods.dropping import ByToken, Dropping
from tenure.scbench.methods.expected import ExpectedAttention
from tenure.scbench.methods.h2o import H2O
from tenure.scbench.methods.inf_llm import InfLLM
from tenure.scbench.methods.keydiff import KeyDiff
from tenure.scbench.methods.kivi import Kivi
from tenure.scbench.methods.loading import Loading
from tenure.scbench.methods.oracle import Oracle
from tenure.scbench.methods.pyramidkv import PyramidKV
from tenure.scbench.methods.quest import Quest
from tenure.scbench.methods.random_blocks import RandomBlocks, RandomReads
from tenure.scbench.methods.rounding import Rounding
from tenure.scbench.methods.snapkv import SnapKV
from tenure.scbench.methods.streaming import Streaming
from tenure.scbench.methods.tova import Tova
from tenure.scbench.methods.tri_shape import TriShape
from tenure.tiers.quantised import Float8, Int4, Int8

__all__ = ["ALL", "METHODS", "ByToken", "Choice", "Dropping", "Loading", "Method", "Rounding"]

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Dense(),
        AShape(),
        TriShape(),
        CacheBlend(),
        Pieces(),
        Streaming(),
        SnapKV(),
        PyramidKV(),
        H2O(),
        Tova(),
        ExpectedAttention(),
        KeyDiff(),
        RandomBlocks(),
        Kivi(8),
        Kivi(4),
        Kivi(2),
        TierCodec("codec-int8", Int8),
        TierCodec("codec-int4", Int4),
        TierCodec("codec-fp8", Float8),
        Quest(),
        InfLLM(),
        Oracle(),
        RandomReads(),
    )
}
