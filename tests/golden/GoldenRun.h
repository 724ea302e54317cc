// SPDX-License-Identifier: Apache-2.0
//
// One run of a golden model: folder -> plan -> device -> tokens and logits, with places to put a fault in.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/Candidate.h"
#include "kernels/HostKernel.h"
#include "runtime/core/Device.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"
#include "runtime/plan/value/Plan.h"
#include "runtime/serve/engine/BatchEngine.h"

namespace headrace::golden {

// Offload nothing.
model::Policy residentPolicy();

struct RunSetup {
  std::shared_ptr<const model::CheckpointFiles> checkpoint;
  model::ModelSpec spec;                              // of the folder, or with a fault in it
  std::shared_ptr<const model::WeightSource> weights; // in place of the checkpoint's
  uint64_t deviceMemory = uint64_t{1} << 30;
  model::Policy policy = residentPolicy();
  std::optional<compiler::Candidate> placement; // instead of what the policy chooses
  std::vector<std::vector<int32_t>> prompts;
  int64_t maxNewTokens = 64;
  int64_t context = 0;                       // that the plan is for; 0: of the longest prompt and its reply
  int64_t mixedTokens = 0;                   // new-token bucket of prefill; 0: all prompts at once
  bool wholePrompts = false;                 // else rows are cut to a smaller bucket where that takes less
  int64_t blockTokens = 0;                   // of a KV block; 0: the compiler's default
  int64_t kvTokens = 0;                      // that the KV cache holds; 0: all sequences to their ends
  std::optional<model::Encoding> kvEncoding; // of KV caches; none: the hardware's default
  int64_t miniBatches = 1;                   // of as many prompts each; more than one: no logits are kept
  bool residualsLeave = false;               // the residual stream of each, between layers
  int64_t swapBlocks = 0; // KV blocks that swap memory holds, where preempted sequences go; 0: there is none
  int threads = 1;        // that compute; more than one: every step is cut as finely as it goes
  bool poison = false;    // NaNs in every byte that no live buffer holds
  // What the plan is made for, and what runs it.
  std::string hardware = "host";                                             // a shipped profile
  std::function<absl::StatusOr<std::unique_ptr<core::Device>>()> makeDevice; // empty: the host device
  // Whose kernels the host device runs.
  kernels::HostKernel (*kernelOf)(kernels::Op) = kernels::hostKernel;
  // Change every unit after it is filled from the checkpoint, and the iteration buffer before each launch.
  std::function<void(const model::Unit &, model::MatrixOrder, absl::Span<std::byte>)> changeUnit;
  std::function<void(kernels::IterationMeta &)> changeMeta;
  std::function<void(const core::Device &)> lookAt; // the device, once all is generated
};

struct RunResult {
  serve::GenerateResult generated; // greedy, logits kept: one iteration at a time (several mini-batches: not kept)
  // Of a second call on the same runtime that keeps no logits: two iterations in flight.
  std::vector<std::vector<int32_t>> tokensInFlight;
  // Rows that the variant of each iteration of the first call is for. Where the link takes as long either way,
  // iterations that decode may stay in a variant of more rows; on CUDA attention then runs another kernel, whose bits
  // are others.
  std::vector<int64_t> buckets;
  int32_t offloadedLayers = 0; // of the plan's placement
  bool offloadsEmbedding = false, offloadsHead = false;
  int64_t residentBlocks = 0, kvBlocks = 0; // of KV, the scratch block included: on the device, in all
};

// Compiles for the profile with buckets for decoding alone and for prefill.
absl::StatusOr<plan::Plan> compilePlan(const RunSetup &setup);
// The setup's own, or the checkpoint's.
absl::StatusOr<std::shared_ptr<const model::WeightSource>> weightsOf(const RunSetup &setup);
// Compiles, and generates twice.
absl::StatusOr<RunResult> run(const RunSetup &setup);

} // namespace headrace::golden
