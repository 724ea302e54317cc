// SPDX-License-Identifier: Apache-2.0
//
// Runs what a fleet composed of a request once more, iteration by iteration, on a resident model: the same rows of the
// same sequences, without those of other requests, whatever instance, placement and variant had them.
#pragma once

#include <map>
#include <vector>

#include "runtime/core/KvBlocks.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/serve/fleet/Fleet.h"

namespace headrace::serve {

// The iterations of each request, in the order in which they were launched.
class CompositionLog {
public:
  void operator()(const FleetIteration &iteration) {
    std::map<uint32_t, std::vector<FleetRows>> parts;
    for (const FleetRows &rows : iteration.rows)
      parts[rows.request].push_back(rows);
    for (auto &[request, rows] : parts)
      of_[request].push_back(std::move(rows));
  }
  const std::vector<std::vector<FleetRows>> &of(uint32_t request) const { return of_.at(request); }

private:
  std::map<uint32_t, std::vector<std::vector<FleetRows>>> of_;
};

inline absl::StatusOr<std::vector<std::vector<int32_t>>>
replayTokens(core::Runtime &runtime, const FleetRequest &request, const std::vector<std::vector<FleetRows>> &log) {
  const plan::Plan &plan = runtime.plan();
  core::KvBlocks free(plan.kvBlocks, plan.blockTokens);
  std::vector<std::vector<int32_t>> ids = request.prompts, tables(ids.size()), sampled(ids.size());
  for (const std::vector<FleetRows> &iteration : log) {
    std::vector<core::SequenceRows> rows;
    std::vector<uint32_t> samples;
    int64_t tokens = 0, context = 0;
    for (const FleetRows &part : iteration) {
      const int64_t after = part.firstPosition + part.rows;
      if (absl::Status status = free.grow(tables[part.sequence], after); !status.ok())
        return status;
      rows.push_back({.tokens = absl::MakeConstSpan(ids[part.sequence])
                                    .subspan(static_cast<size_t>(part.firstPosition), static_cast<size_t>(part.rows)),
                      .firstPosition = part.firstPosition,
                      .blocks = tables[part.sequence],
                      .sample = part.sample,
                      .requestSlot = static_cast<int32_t>(part.sequence),
                      .temperature = request.sampling.temperature,
                      .topP = request.sampling.topP,
                      .seed = request.sampling.seed + part.sequence,
                      .minP = request.sampling.minP,
                      .repetition = request.sampling.repetitionPenalty,
                      .presence = request.sampling.presencePenalty,
                      .promptTokens = static_cast<int64_t>(request.prompts[part.sequence].size())});
      if (part.sample)
        samples.push_back(part.sequence);
      tokens += part.rows;
      context = std::max(context, after);
    }
    const auto variant = runtime.choose(tokens, static_cast<int64_t>(rows.size()), context);
    if (!variant.ok())
      return variant.status();
    if (absl::Status status = core::writeMeta(plan.metaLayout, plan.blockTokens, rows, runtime.device().meta());
        !status.ok())
      return status;
    if (absl::Status status = runtime.launch(*variant); !status.ok())
      return status;
    const auto read = runtime.awaitTokens();
    if (!read.ok())
      return read.status();
    for (size_t i = 0; i < samples.size(); ++i) {
      ids[samples[i]].push_back((*read)[i]);
      sampled[samples[i]].push_back((*read)[i]);
    }
  }
  return sampled;
}

} // namespace headrace::serve
