// What it costs to compute a block again: prefill FLOPs at its depth, relative to a block at depth 0.
#pragma once
#include "../prefix_tree.hpp"

namespace tenure {

// A token at position p costs 2P FLOPs in the weights and 4·L·H·p in attention (QK^T and AV; Kaplan et al. 2020, table 1),
// so a block at position p costs 1 + p·slope of the first one, slope = 4LH / 2P. Quantised KV is dearer by its root's factor.
struct PrefillCost {
  double slope = 4.0 * 32 * 4096 / (2 * 8.03e9);  // Llama-3.1-8B, per token of depth
  double block_tokens = 16;                       // tokens a block stands for (a trace's block may be one id)

  double operator()(const Block& block, const Root& root) const {
    return root.rebuild * (1 + slope * block_tokens * block.depth);
  }
};

}  // namespace tenure
