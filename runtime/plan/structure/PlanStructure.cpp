// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/structure/PlanStructure.h"

#include <cmath>
#include <numeric>
#include <tuple>

#include "kernels/Kernels.h"
#include "runtime/job/InputsText.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/structure/StructureCheck.h"
#include "runtime/plan/value/PlanBytes.h"

namespace headrace::plan {

void StructureCheck::checkHeader() {
  if (plan_.version != kFormatVersion)
    fail("version is ", plan_.version, ", expected ", kFormatVersion);
  text(plan_.compilerVersion, model::kLongestName, false, "compiler_version");
  if (plan_.slowestPermille < kPredicted)
    fail("slowest_permille is ", plan_.slowestPermille, ", expected at least ", kPredicted);
  text(plan_.model->name, model::kLongestName, false, "model.name");
  text(plan_.modelHash, model::kLongestName, false, "model_hash");
  text(plan_.modelPath, kLongestText, false, "model_path");
  text(plan_.hardware.name, model::kLongestName, false, "hardware.name");
  text(plan_.policy.name, model::kLongestName, false, "policy.name");
  text(plan_.goal.record, kLongestText, false, "goal.record");
  text(plan_.reason, kLongestText, true, "reason");
  text(plan_.limitingResource, model::kLongestName, false, "limiting_resource");
  const model::ModelSpec &m = plan_.model;
  enumerator(m.family, "model.family");
  enumerator(m.norm, "model.norm");
  enumerator(m.activation, "model.activation");
  enumerator(m.rope.scaling, "model.rope.scaling");
  enumerator(m.dtype, "model.dtype");
  if (!ok())
    return;
  const absl::Status model = model::validate(plan_.model, "model");
  if (!model.ok())
    fail(model.message());
  else if (const auto units = static_cast<uint64_t>(model::unitCount(m.layers));
           !plan_.weightHashes.empty() && plan_.weightHashes.size() != units)
    fail("weight_hashes has ", plan_.weightHashes.size(), " entries, expected none, or one for each of the model's ",
         units, " weight units");
  enumerator(plan_.activationDtype, "activation_dtype");
  enumerator(plan_.kvEncoding.element, "kv_dtype");
  if (const model::Encoding &kv = plan_.kvEncoding;
      ok() && (!model::isEncoding(kv) || model::kvEncodingFor(kv, plan_.model->headDim) != kv))
    fail("kv_packed is ", model::encodingText(kv), " of heads of ", plan_.model->headDim,
         ", expected q8 or q4 in groups of 64 or else 32 that divide a head");
  // 2^20 tokens a block, 2^31 blocks, 2^31 heads x dimension: checked as a product with the KV buffers' size.
  within(plan_.blockTokens, 1, int64_t{1} << 20, "block_tokens");
  within(plan_.kvBlocks, 1, model::kMaxDimension, "kv_blocks");
  within(plan_.miniBatches, 1, kernels::kMostMiniBatches, "mini_batches");
  if (plan_.goal.miniBatches != static_cast<int64_t>(plan_.miniBatches))
    fail("goal.mini_batches is ", plan_.goal.miniBatches, ", the plan has ", plan_.miniBatches);
  within(plan_.maxContext, 1, model::kMaxDimension, "max_context");
  const kernels::MetaLayout &meta = plan_.metaLayout;
  within(meta.maxTokens, 1, int64_t{1} << 26, "max_tokens");
  within(meta.maxSequences, 1, int64_t{1} << 24, "max_sequences");
  within(meta.maxBlocksPerSequence, 1, int64_t{1} << 28, "max_blocks_per_sequence");
  checkActBlocks();
  if (!ok())
    return;
  if (const absl::StatusOr<model::Inputs> inputs = model::parseInputs(inputsOf(plan_), "inputs"); !inputs.ok())
    fail(inputs.status().message());
  if (ok() && kernels::metaBytes(meta, plan_.miniBatches) >= kMaxMetaBytes)
    fail("max_tokens ", meta.maxTokens, ", max_sequences ", meta.maxSequences, " and max_blocks_per_sequence ",
         meta.maxBlocksPerSequence, " make a meta buffer of ", kernels::metaBytes(meta, plan_.miniBatches),
         " bytes, expected less than ", kMaxMetaBytes);
  atMost(plan_.arenaBytes, kMaxBytes, "arena_bytes");
  atMost(plan_.hostBytes, kMaxBytes, "host_bytes");
  if (plan_.metaOnHost != kNowhere) {
    aligned(plan_.metaOnHost, "meta_on_host");
    atMost(plan_.metaOnHost, kMaxBytes, "meta_on_host");
  }
  for (const auto &[name, count] : {std::pair{"placements", plan_.placements.size()},
                                    {"states", plan_.states.size()},
                                    {"schedules", plan_.schedules.size()},
                                    {"variants", plan_.variants.size()}})
    if (count == 0 || count > kMaxSchedules)
      fail(name, " has ", count, " entries, expected 1 to ", kMaxSchedules);
  atMost(plan_.transitions.size(), kMaxSchedules, "the number of transitions");
}

// Shares are lowest terms from 0 to 1; of both kinds of blocks there are as many as sequences may need.
void StructureCheck::checkActBlocks() {
  const auto share = [&](const model::ActRatio &s, const char *path) {
    within(s.den, 1, model::kMaxActDenominator, path, "_den");
    within(s.num, 0, s.den, path, "_num");
    if (ok() && std::gcd(s.num, s.den) != 1)
      fail(path, "_num is ", s.num, " of ", s.den, ", expected lowest terms");
  };
  share(plan_.actRatio, "act");
  const kernels::MetaLayout &meta = plan_.metaLayout;
  within(plan_.actBlocks, 0, model::kMaxDimension - plan_.kvBlocks, "act_blocks");
  if (!ok())
    return;
  const bool any = plan_.actBlocks > 0;
  if (meta.firstActBlock != (any ? plan_.kvBlocks : kernels::MetaLayout().firstActBlock) ||
      meta.maxActBlocks != plan_.actBlocks)
    fail("the meta buffer is for ", meta.maxActBlocks, " activation blocks from number ", meta.firstActBlock,
         " on, the plan has ", plan_.actBlocks, " from ", plan_.kvBlocks, " on");
  if (!any) {
    if (plan_.contextBlocks != 0 || plan_.actRatio != model::ActRatio())
      fail("act_num is ", plan_.actRatio.num, " of ", plan_.actRatio.den, " and context_blocks ", plan_.contextBlocks,
           ", expected 0 of 1 and 0: there are no activation blocks");
    return;
  }
  within(plan_.contextBlocks, 1, model::kMaxDimension, "context_blocks");
  if (!ok())
    return;
  const model::BlocksOfKinds need =
      model::blocksOfKinds(plan_.actRatio, plan_.contextBlocks, plan_.mostSequences(), meta.maxBlocksPerSequence);
  if (need.kv > plan_.kvBlocks - 1 || need.act > plan_.actBlocks)
    fail("kv_blocks is ", plan_.kvBlocks, " and act_blocks ", plan_.actBlocks, ", expected at least ", need.kv + 1,
         " and ", need.act, " for context_blocks ", plan_.contextBlocks, " of which ", plan_.actRatio.num, " of ",
         plan_.actRatio.den, " keep activations");
}

std::optional<StructureFault> findStructureFault(const Plan &plan) { return StructureCheck(plan).run(); }

} // namespace headrace::plan
