// SPDX-License-Identifier: Apache-2.0
//
// One policy's instance in a comparison, as a job for the compiler: which buckets, which objective, which placement.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/job/JobFile.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

// What an instance does: Select-N deploys a model as a prefill instance and a decode instance (section 4.4); `run`
// does both on one.
enum class BenchRole : uint8_t { Prefill, Decode, Both };

struct BenchLoad {
  int64_t batch = 1; // prompts at once
  int64_t input = 2, output = 2;
  int64_t maxNumBatchedTokens = 0; // rows of an iteration with prompts, but two a prompt; 0: as benchJob() says
};

// A policy as `--policies` spells it: a policy's name, "interval=3" or "layers=10".
absl::Status applyPolicy(const std::string &spelled, model::Policy &policy);

// The job of one instance under this load, which is what `headrace compile` is to be asked to make the same plan. One
// instance that does both has the job's buckets, or the compiler's; the load may state the largest of prompts. Of
// instances apart buckets are the load's own, unless the compiler is to find how many mini-batches share it: prefill in
// one iteration of all its prompts, or of as many as the load states, but on a decode instance, which gets its prompts
// in small steps. The objective of a phase that is not the instance's is dropped. A TTFT is of the load's prompts,
// unless the job states a length.
model::Job benchJob(const model::Job &job, BenchRole role, const BenchLoad &load);

// Rows of an iteration with prompts, at most, of instances apart.
int64_t iterationTokens(BenchRole role, const BenchLoad &load);

// Latency objectives; unset: none.
struct BenchObjective {
  std::optional<std::chrono::nanoseconds> ttft, tpot;
  bool ofIterations = false; // ttft is of each iteration that prompts take: so it is where a factor says it
};
// A factor is of the time with nothing offloaded on a device large enough, whatever the device at hand holds. So every
// policy has the same number. Of a phase that is not the instance's: unset. Of one instance that does both a factor is
// of each of a plan's own iterations: objectiveIn() has it.
absl::StatusOr<BenchObjective> objectiveOf(const model::Job &job, BenchRole role, const BenchLoad &load);
absl::StatusOr<BenchObjective> objectiveIn(const plan::Plan &plan, BenchRole role, const BenchLoad &load);

// The choice that the plan made for the bucket which runs the last of this load's full iterations of prefill, or of
// decode; null if the plan has none.
const plan::BucketChoice *choiceFor(const plan::Plan &plan, bool decode, const BenchLoad &load);
// Its placement; 0 where nothing was chosen.
uint32_t placementFor(const plan::Plan &plan, bool decode, const BenchLoad &load);

// The largest batch whose KV cache alone would fit the memory: no plan of any policy has a larger one.
int64_t mostPrompts(const model::Job &job, const BenchLoad &load, uint64_t deviceMemory);

} // namespace headrace::tools
