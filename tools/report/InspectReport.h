// SPDX-License-Identifier: Apache-2.0
//
// What a plan is: where everything lives, what moves, how long an iteration is predicted to take, and why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

// One variant, as `headrace inspect` shows it.
struct VariantReport {
  uint32_t index = 0;
  int64_t newTokens = 0, sequences = 0, context = 0; // the key
  std::string placement;                             // the placement's name, and whether it is without tails of KV
  std::string interval;                              // "none", "4", or "" for layers that are no interval
  int32_t offloadedLayers = 0;
  plan::DeviceBytes deviceBytes;
  uint64_t hostBytes = 0; // of weights and KV blocks whose home is in host memory
  plan::LinkBytes linkBytes;
  uint64_t predictedNs = 0, computeAloneNs = 0, linkAloneNs = 0, cpuAloneNs = 0; // cpu: 0 without a cpu lane beside
  int64_t maxTokens = 0; // batch x (sequence + output): the KV cache's tokens, and what the unused budget would add
  std::string limitingResource; // "compute", "cpu" or "link h2d" (d2h), whichever is busy longest
};
std::vector<VariantReport> reportVariants(const plan::Plan &plan);

// Long tables are folded unless `all`.
std::string inspectText(const plan::Plan &plan, const std::string &path, bool all);
std::string inspectJson(const plan::Plan &plan, const std::string &path); // one object, indented

// Behind what is taken of the host: that the hardware does not say how much there is; else empty.
std::string unknownHostMemory(const plan::Plan &plan);
// "4, each of up to 16 sequences with 1.2 GiB of KV: ..."; empty where there is one mini-batch.
std::string miniBatchesText(const plan::Plan &plan);
// "f32, 6 blocks of 16 tokens a layer, on the host, 1/3 of each sequence's: 1.50 MiB in place of 3.00 MiB of keys and
// values"; of a plan with activation blocks.
std::string actText(const plan::Plan &plan);
// "29 of 257 blocks on the device (19.9 MiB), 228 at home on the host (157 MiB)"; empty where all are on the device.
std::string kvHomesText(const plan::Plan &plan, uint32_t placement);
// How rows of a schedule get home that are appended to KV blocks there: "mirror", "all" or "dirty", as --kv-write-back
// has them.
std::string_view kvWriteBackOf(const plan::Plan &plan, const plan::Schedule &schedule);
// The same of a placement's classes of iterations, and the most bytes that one brings to the host; none where all
// blocks are on the device.
struct KvRows {
  std::string_view iterationClass; // "decode", "prefill"
  std::string_view writeBack;
  uint64_t d2hBytes = 0;
};
std::vector<KvRows> kvRowsOf(const plan::Plan &plan, uint32_t placement);
// "decode mirrors, up to 96.0 KiB d2h; prefill writes back what was written, up to 1.05 MiB d2h"; empty for none.
std::string kvRowsText(const plan::Plan &plan, uint32_t placement);
// "4 layers (interval 8), embedding, head" or "nothing".
// "of 12 iterations; decode moves up to 1.2 MiB in the mean (0.7 MiB to 1.4 MiB) h2d, ...": of a placement whose tails
// of KV cycle through places; empty where they do not.
std::string kvCycleText(const plan::Plan &plan, uint32_t placement);
std::string describePlacement(const plan::Plan &plan, const plan::Placement &placement);

} // namespace headrace::tools
