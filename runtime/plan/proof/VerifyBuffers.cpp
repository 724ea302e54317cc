// SPDX-License-Identifier: Apache-2.0
//
// That buffers are the model's, of the right sizes. They are worked out here from the model and the plan's limits.
#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/UnitBytes.h"
#include "runtime/plan/proof/VerifyParts.h"
#include "runtime/plan/value/BufferIndex.h"

namespace headrace::plan {
namespace {

uint64_t times(int64_t a, int64_t b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); }

// Saturating: kvBlocks x blockTokens x rows may leave 64 bits.
uint64_t product(std::initializer_list<uint64_t> factors) {
  uint64_t out = 1;
  for (uint64_t factor : factors)
    if (__builtin_mul_overflow(out, factor, &out))
      return UINT64_MAX;
  return out;
}

// Of one token's head: elements, or codes and, for each group, a scale and a minimum of F16.
uint64_t kvRowBytes(const Plan &plan) {
  const auto headDim = static_cast<uint64_t>(plan.model->headDim);
  const model::Encoding &of = plan.kvEncoding;
  if (of.group == 0)
    return headDim * (of.element == model::DType::F32 ? 4 : 2);
  return headDim * of.codeBits / 8 + headDim / static_cast<uint64_t>(of.group) * 4;
}

} // namespace

void verifyBuffers(const Plan &plan, const model::WeightLayout &layout, const BufferIndex &buffers, Report &report) {
  const auto expect = [&](uint32_t index, const std::string &name, int32_t layer, uint64_t bytes, bool exact) {
    const Buffer &buffer = plan.buffers[index];
    if (buffer.name != name || buffer.layer != layer)
      report.add(Rule::Structure, kNone, kNone,
                 absl::StrCat("buffers[", index, "] is ", buffer.name, " of layer ", buffer.layer, ", expected ", name,
                              " of layer ", layer));
    else if (exact ? buffer.bytes != bytes : buffer.bytes < bytes)
      report.add(Rule::Structure, kNone, kNone,
                 absl::StrCat("buffers[", index, "].bytes (", name, ") is ", buffer.bytes, ", expected ",
                              exact ? "" : "at least ", bytes));
  };
  for (uint32_t i = 0; i < layout.units.size(); ++i)
    if (buffers.weight(i) != kNone) // a stage has not all (StructureHomes.cpp)
      expect(buffers.weight(i), layout.units[i].name, layout.units[i].layer,
             unitBytes(plan.model, layout.units[i].role).unit, true);
  // One layer's cache: [block][k, v][kvHead][token in block][headDim]
  uint64_t kv = product({static_cast<uint64_t>(plan.kvBlocks), 2, static_cast<uint64_t>(plan.model->kvHeads),
                         static_cast<uint64_t>(plan.blockTokens), kvRowBytes(plan)});
  kv = kv > UINT64_MAX - model::kAlign ? UINT64_MAX : model::alignUp(kv);
  for (int32_t layer = 0; layer < plan.model->layers; ++layer)
    for (uint32_t miniBatch = 0; miniBatch < plan.miniBatches; ++miniBatch)
      expect(buffers.kv(layer, miniBatch), kvName(layer, miniBatch, plan.miniBatches), layer, kv, true);
  // One layer's activation blocks: [block][token in block][hidden]
  uint64_t act = product({static_cast<uint64_t>(plan.actBlocks), static_cast<uint64_t>(plan.blockTokens),
                          static_cast<uint64_t>(plan.model->hidden), model::dtypeBytes(plan.activationDtype)});
  act = act > UINT64_MAX - model::kAlign ? UINT64_MAX : model::alignUp(act);
  for (int32_t layer = 0; layer < plan.model->layers && plan.actBlocks > 0; ++layer)
    for (uint32_t miniBatch = 0; miniBatch < plan.miniBatches; ++miniBatch)
      expect(buffers.act(layer, miniBatch), actName(layer, miniBatch, plan.miniBatches), layer, act, true);
  expect(buffers.io(Io::Meta), "meta", -1, kernels::metaBytes(plan.metaLayout, plan.miniBatches), true);
  const uint64_t ids = times(plan.metaLayout.maxSequences, sizeof(int32_t));
  const uint64_t history = product({static_cast<uint64_t>(plan.kvBlocks + plan.actBlocks),
                                    static_cast<uint64_t>(plan.blockTokens), sizeof(int32_t)});
  // Of several mini-batches each has a range of whole kAlign bytes.
  const auto ofAll = [&](uint64_t one) {
    if (plan.miniBatches == 1)
      return one;
    return product({plan.miniBatches, one > UINT64_MAX - model::kAlign ? UINT64_MAX : model::alignUp(one)});
  };
  for (const Io io : {Io::Sampled, Io::History})
    if (const Buffer &buffer = plan.buffers[buffers.io(io)];
        plan.miniBatches > 1 && buffer.bytes % (plan.miniBatches * model::kAlign) != 0)
      report.add(Rule::Structure, kNone, kNone,
                 absl::StrCat("buffers[", buffers.io(io), "].bytes (", buffer.name, ") is ", buffer.bytes,
                              ", expected a multiple of ", model::kAlign, " for each of ", plan.miniBatches,
                              " mini-batches"));
  expect(buffers.io(Io::Sampled), "sampled", -1, ofAll(ids), false);
  expect(buffers.io(Io::Output), "output", -1, product({plan.miniBatches, ids}), false);
  expect(buffers.io(Io::History), "history", -1, ofAll(history), false);
  // Residual streams that leave, if they do.
  const uint64_t residual = product(
      {static_cast<uint64_t>(plan.metaLayout.maxTokens), static_cast<uint64_t>(plan.model->hidden), sizeof(float)});
  for (uint32_t miniBatch = 0; miniBatch < plan.miniBatches && buffers.residual(miniBatch) != kNone; ++miniBatch)
    expect(buffers.residual(miniBatch), residualName(miniBatch, plan.miniBatches), -1, model::alignUp(residual), true);
  // The longest context fits a row of the block table.
  if (product({static_cast<uint64_t>(plan.metaLayout.maxBlocksPerSequence), static_cast<uint64_t>(plan.blockTokens)}) <
      static_cast<uint64_t>(plan.maxContext))
    report.add(Rule::Structure, kNone, kNone,
               absl::StrCat("max_blocks_per_sequence is ", plan.metaLayout.maxBlocksPerSequence, " of ",
                            plan.blockTokens, " tokens each, too few for max_context ", plan.maxContext));
}

} // namespace headrace::plan
