// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/BindStep.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/BindCache.h"
#include "runtime/core/StepOperands.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/BlockRuns.h"
#include "runtime/plan/value/Mirrors.h"

namespace headrace::core {
namespace {

using model::TensorRole;
using model::UnitRole;
using plan::Arg;
using plan::elemOf;
using plan::Operand;
using plan::packingOf;
using plan::Space;

constexpr int64_t kF32 = sizeof(float);

float *floats(std::byte *p) { return reinterpret_cast<float *>(p); }
int32_t *ints(std::byte *p) { return reinterpret_cast<int32_t *>(p); }

// Final norm and head work on the gathered rows; a tied head's matrix is the embedding's.
bool onSampledRows(UnitRole role) { return role == UnitRole::Head || role == UnitRole::Embedding; }

const int32_t *countOf(const kernels::IterationMeta *meta, bool sampledRows) {
  return sampledRows ? &meta->numSampled : &meta->numTokens;
}

class Binder {
public:
  Binder(const plan::Plan &plan, kernels::Order order, const model::WeightLayout &layout, const float *frequencies,
         uint32_t *arrivals, const plan::Variant &variant, const StepOperands &operands)
      : plan_(plan), spec_(plan.model), order_(order), layout_(layout), frequencies_(frequencies), arrivals_(arrivals),
        variant_(variant), operands_(operands) {}

  absl::StatusOr<KernelArgs> bind() const {
    switch (operands_.step().op) {
    case kernels::Op::Embed:
      return embed();
    case kernels::Op::Norm:
      return norm();
    case kernels::Op::Linear:
      return linear();
    case kernels::Op::RopeAppend:
      return ropeAppend();
    case kernels::Op::Attention:
      return attention();
    case kernels::Op::Activate:
      return activate();
    case kernels::Op::GatherRows:
      return gatherRows();
    case kernels::Op::KeepIds:
      return keepIds();
    case kernels::Op::Sample:
      return sample();
    case kernels::Op::ActAppend:
      return actAppend();
    case kernels::Op::RebuildKv:
      return rebuildKv();
    case kernels::Op::Rotate:
      return rotate();
    case kernels::Op::Append:
      return append();
    case kernels::Op::FetchRows:
      return fetchRows();
    }
    return operands_.refuse(absl::StrCat("unknown op ", static_cast<int>(operands_.step().op)));
  }

private:
  kernels::Backend backend() const { return onCpu() ? kernels::Backend::Host : plan::backendOf(plan_.hardware.kind); }
  kernels::Elem activation() const { return elemOf(plan_.activationDtype); }
  int64_t activationBytes() const { return static_cast<int64_t>(model::dtypeBytes(plan_.activationDtype)); }
  int64_t rows(bool sampledRows) const { return sampledRows ? variant_.sequences : variant_.newTokens; }
  kernels::Order orderOf(const model::Tensor &tensor) const {
    return tensor.linearOperand ? order_ : kernels::Order::RowMajor;
  }

  absl::StatusOr<KernelArgs> embed() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(unit, operands_.unit(Arg::Table, layout_));
    const model::Tensor *table = unit->find(TensorRole::TokenTable);
    if (table == nullptr)
      return operands_.refuse(absl::StrCat("unit ", unit->name, " has no token table"));
    ASSIGN_OR_RETURN(tablePointer, operands_.tensor(*unit, layout_, *table, Arg::Table));
    std::byte *positionsPointer = nullptr;
    if (const model::Tensor *positions = unit->find(TensorRole::PositionTable)) {
      ASSIGN_OR_RETURN(p, operands_.tensor(*unit, layout_, *positions, Arg::Positions));
      positionsPointer = p;
    }
    ASSIGN_OR_RETURN(sampled, operands_.sampled());
    ASSIGN_OR_RETURN(history, operands_.history());
    ASSIGN_OR_RETURN(x, operands_.require(Arg::X, product({variant_.newTokens, spec_.hidden, kF32})));
    return kernels::EmbedArgs{.meta = meta,
                              .table = tablePointer,
                              .positions = positionsPointer,
                              .sampled = ints(sampled),
                              .history = ints(history),
                              .x = floats(x),
                              .vocab = spec_.vocab,
                              .hidden = spec_.hidden,
                              .positionOffset = spec_.positionOffset,
                              .elem = elemOf(table->dtype),
                              .order = orderOf(*table)};
  }

  absl::StatusOr<KernelArgs> norm() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(unit, operands_.unit(Arg::NormWeights, layout_));
    const model::Tensor *weight = unit->find(TensorRole::NormWeight);
    if (weight == nullptr)
      return operands_.refuse(absl::StrCat("unit ", unit->name, " has no norm"));
    ASSIGN_OR_RETURN(weightPointer, operands_.tensor(*unit, layout_, *weight, Arg::NormWeights));
    std::byte *biasPointer = nullptr;
    if (const model::Tensor *bias = unit->find(TensorRole::NormBias)) {
      ASSIGN_OR_RETURN(p, operands_.tensor(*unit, layout_, *bias, Arg::NormWeights));
      biasPointer = p;
    }
    const bool sampledRows = onSampledRows(unit->role);
    ASSIGN_OR_RETURN(x, operands_.require(Arg::X, product({rows(sampledRows), spec_.hidden, kF32})));
    ASSIGN_OR_RETURN(y, operands_.require(Arg::Y, product({rows(sampledRows), spec_.hidden, activationBytes()})));
    return kernels::NormArgs{.count = countOf(meta, sampledRows),
                             .x = floats(x),
                             .weight = floats(weightPointer),
                             .bias = floats(biasPointer),
                             .y = y,
                             .hidden = spec_.hidden,
                             .eps = static_cast<float>(spec_.normEps),
                             .activation = activation()};
  }

  absl::StatusOr<KernelArgs> linear() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(unit, operands_.unit(Arg::Weight, layout_));
    const model::Tensor *matrix =
        unit->find(unit->role == UnitRole::Embedding ? TensorRole::TokenTable : TensorRole::Matrix);
    if (matrix == nullptr || !matrix->linearOperand)
      return operands_.refuse(absl::StrCat("unit ", unit->name, " has no matrix for a linear op"));
    ASSIGN_OR_RETURN(weightPointer, operands_.tensor(*unit, layout_, *matrix, Arg::Weight));
    std::byte *biasPointer = nullptr;
    const model::Tensor *bias = unit->find(TensorRole::Bias);
    if (bias != nullptr) {
      ASSIGN_OR_RETURN(p, operands_.tensor(*unit, layout_, *bias, Arg::Bias));
      biasPointer = p;
    }
    const bool sampledRows = onSampledRows(unit->role);
    const int64_t capacity = rows(sampledRows), n = matrix->rows, k = matrix->cols;
    ASSIGN_OR_RETURN(x, operands_.require(Arg::X, product({capacity, k, activationBytes()})));
    // The residual stream and the logits are F32.
    const bool onto = operands_.find(Arg::Residual) != nullptr, toF32 = onto || sampledRows;
    ASSIGN_OR_RETURN(y, operands_.require(Arg::Y, product({capacity, n, toF32 ? kF32 : activationBytes()})));
    std::byte *residual = nullptr;
    if (onto) {
      ASSIGN_OR_RETURN(p, operands_.require(Arg::Residual, product({capacity, n, kF32})));
      residual = p;
    }
    const int64_t unpackedBytes = matrix->encoding.packed() ? activationBytes() : 0;
    ASSIGN_OR_RETURN(workspace,
                     operands_.workspace(kernels::linearWorkspaceBytes(backend(), capacity, n, k, unpackedBytes)));
    return kernels::LinearArgs{.count = countOf(meta, sampledRows),
                               .x = x,
                               .w = weightPointer,
                               .bias = biasPointer,
                               .residual = floats(residual),
                               .y = y,
                               .workspace = workspace,
                               .n = n,
                               .k = k,
                               .capacity = capacity,
                               .elem = elemOf(matrix->dtype),
                               .order = orderOf(*matrix),
                               .epilogue = epilogueOf(unit->role),
                               .activation = activation(),
                               .result = toF32 ? kernels::Elem::F32 : activation(),
                               .biasElem = bias == nullptr ? kernels::Elem::F32 : elemOf(bias->dtype),
                               .packing = packingOf(matrix->encoding)};
  }

  kernels::Epilogue epilogueOf(UnitRole role) const {
    return role == UnitRole::Up ? plan::epilogueOf(spec_.activation) : kernels::Epilogue::None;
  }

  uint64_t qkvBytes() const { return product({variant_.newTokens, spec_.qkvRows(), activationBytes()}); }
  uint64_t kvBytes() const { return product({plan_.kvBlocks, static_cast<int64_t>(plan_.kvBlockBytes())}); }

  struct Cache {
    std::byte *kv = nullptr, *home = nullptr;
    BoundCache bound;
  };
  absl::StatusOr<Cache> cache() const {
    const CacheOperands of{operands_.find(Arg::Kv), operands_.find(Arg::KvTail), operands_.find(Arg::KvHome),
                           operands_.find(Arg::KvRebuilt)};
    if ((of.rebuilt != nullptr) != (plan_.actBlocks > 0))
      return operands_.refuse(of.rebuilt != nullptr ? "has rebuilt keys and values, the plan no activation blocks"
                                                    : "has no rebuilt keys and values of activation blocks");
    const bool split = of.tail != nullptr || (of.kv != nullptr && of.kv->interleaved);
    if (of.kv != nullptr || !split)
      RETURN_IF_ERROR(operands_.require(Arg::Kv, split ? 0 : kvBytes()).status());
    absl::StatusOr<BoundCache> bound = bindCache(plan_, operands_.schedule(), of);
    if (!bound.ok())
      return operands_.refuse(std::string(bound.status().message()));
    return Cache{.kv = operands_.device(bound->address),
                 .home = of.home != nullptr ? operands_.pointer(*of.home) : nullptr,
                 .bound = *bound};
  }

  absl::StatusOr<KernelArgs> ropeAppend() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(qkv, operands_.require(Arg::X, qkvBytes()));
    ASSIGN_OR_RETURN(cache, this->cache());
    ASSIGN_OR_RETURN(norms, headNorms());
    return kernels::RopeAppendArgs{.meta = meta,
                                   .qkv = qkv,
                                   .inverseFrequencies = frequencies_,
                                   .headNorms = norms,
                                   .kv = cache.kv,
                                   .segments = cache.bound.segments,
                                   .home = cache.home,
                                   .homeFirst = cache.bound.homeFirst,
                                   .homeEnd = cache.bound.homeEnd,
                                   .homeStride = cache.bound.homeStride,
                                   .heads = spec_.heads,
                                   .kvHeads = spec_.kvHeads,
                                   .headDim = spec_.headDim,
                                   .blockTokens = plan_.blockTokens,
                                   .eps = static_cast<float>(spec_.normEps),
                                   .kvElem = elemOf(plan_.kvEncoding.element),
                                   .activation = activation(),
                                   .kvPacking = packingOf(plan_.kvEncoding)};
  }

  absl::StatusOr<KernelArgs> rotate() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(qkv, operands_.require(Arg::X, qkvBytes()));
    ASSIGN_OR_RETURN(norms, headNorms());
    return kernels::RotateArgs{.meta = meta,
                               .qkv = qkv,
                               .inverseFrequencies = frequencies_,
                               .headNorms = norms,
                               .heads = spec_.heads,
                               .kvHeads = spec_.kvHeads,
                               .headDim = spec_.headDim,
                               .eps = static_cast<float>(spec_.normEps),
                               .activation = activation()};
  }

  // The whole of a cache, at home on the host.
  absl::StatusOr<Cache> cacheOnHost() const {
    const Operand *home = operands_.find(Arg::KvHome);
    const uint64_t blockBytes = plan_.kvBlockBytes();
    if (home == nullptr || home->space != Space::Host || home->bufferOffset != 0)
      return operands_.refuse("operand kv_home is not all of a cache in host memory");
    const auto elements = [&](uint64_t bytes) {
      return static_cast<int64_t>(bytes / (plan_.kvEncoding.packed() ? 1 : elementBytes()));
    };
    Cache cache{.kv = operands_.pointer(*home)};
    cache.bound.segments.stride = elements(blockBytes);
    cache.bound.segments.end = elements(home->bytes);
    return cache;
  }
  uint64_t elementBytes() const { return model::dtypeBytes(plan_.kvEncoding.element); }
  bool onCpu() const { return operands_.step().lane == plan::Lane::Cpu; }

  absl::StatusOr<KernelArgs> append() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(qkv, operands_.require(Arg::X, qkvBytes()));
    ASSIGN_OR_RETURN(cache, cacheOnHost());
    return kernels::AppendArgs{.meta = meta,
                               .qkv = qkv,
                               .kv = cache.kv,
                               .segments = cache.bound.segments,
                               .heads = spec_.heads,
                               .kvHeads = spec_.kvHeads,
                               .headDim = spec_.headDim,
                               .blockTokens = plan_.blockTokens,
                               .kvElem = elemOf(plan_.kvEncoding.element),
                               .activation = activation(),
                               .kvPacking = packingOf(plan_.kvEncoding)};
  }

  absl::StatusOr<KernelArgs> fetchRows() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    const uint64_t bytes = product({variant_.newTokens, spec_.qRows(), activationBytes()});
    ASSIGN_OR_RETURN(x, operands_.require(Arg::X, bytes));
    ASSIGN_OR_RETURN(y, operands_.require(Arg::Y, bytes));
    return kernels::FetchRowsArgs{.meta = meta, .x = x, .y = y, .columns = spec_.qRows(), .activation = activation()};
  }

  absl::StatusOr<KernelArgs> attention() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(qkv, operands_.require(Arg::X, qkvBytes()));
    ASSIGN_OR_RETURN(cache, onCpu() ? cacheOnHost() : this->cache());
    ASSIGN_OR_RETURN(out, operands_.require(Arg::Y, product({variant_.newTokens, spec_.qRows(), activationBytes()})));
    ASSIGN_OR_RETURN(workspace, operands_.workspace(kernels::attentionWorkspaceBytes(
                                    backend(), variant_.sequences, spec_.heads, spec_.headDim, variant_.context)));
    return kernels::AttentionArgs{.meta = meta,
                                  .qkv = qkv,
                                  .kv = cache.kv,
                                  .segments = cache.bound.segments,
                                  .out = out,
                                  .workspace = workspace,
                                  .arrivals = onCpu() ? nullptr : arrivals_,
                                  .heads = spec_.heads,
                                  .kvHeads = spec_.kvHeads,
                                  .headDim = spec_.headDim,
                                  .blockTokens = plan_.blockTokens,
                                  .maxContext = variant_.context,
                                  .scale = 1.0f / std::sqrt(static_cast<float>(spec_.headDim)),
                                  .kvElem = elemOf(plan_.kvEncoding.element),
                                  .activation = activation(),
                                  .kvPacking = packingOf(plan_.kvEncoding)};
  }

  absl::StatusOr<const float *> headNorms() const {
    if (!spec_.qkNorm)
      return nullptr;
    ASSIGN_OR_RETURN(unit, operands_.unit(Arg::NormWeights, layout_));
    const model::Tensor *norms = unit->find(TensorRole::HeadNorms);
    if (norms == nullptr)
      return operands_.refuse(absl::StrCat("unit ", unit->name, " has no norms of heads"));
    ASSIGN_OR_RETURN(p, operands_.tensor(*unit, layout_, *norms, Arg::NormWeights));
    return floats(p);
  }

  uint64_t actBytes() const { return product({plan_.actBlocks, plan_.blockTokens, spec_.hidden, activationBytes()}); }
  absl::Status refuseWithoutAct() const {
    return plan_.actBlocks > 0 ? absl::OkStatus() : operands_.refuse("the plan has no activation blocks");
  }

  absl::StatusOr<KernelArgs> actAppend() const {
    RETURN_IF_ERROR(refuseWithoutAct());
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(x, operands_.require(Arg::X, product({variant_.newTokens, spec_.hidden, activationBytes()})));
    ASSIGN_OR_RETURN(act, operands_.require(Arg::Act, actBytes()));
    return kernels::ActAppendArgs{.meta = meta,
                                  .x = x,
                                  .act = act,
                                  .hidden = spec_.hidden,
                                  .blockTokens = plan_.blockTokens,
                                  .firstAct = plan_.kvBlocks,
                                  .activation = activation()};
  }

  absl::StatusOr<KernelArgs> rebuildKv() const {
    RETURN_IF_ERROR(refuseWithoutAct());
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(act, operands_.require(Arg::Act, actBytes()));
    ASSIGN_OR_RETURN(unit, operands_.unit(Arg::Weight, layout_));
    const model::Tensor *matrix = unit->find(TensorRole::Matrix), *bias = unit->find(TensorRole::Bias);
    if (unit->role != UnitRole::Qkv || matrix == nullptr)
      return operands_.refuse(absl::StrCat("unit ", unit->name, " has no matrix of q, k and v"));
    ASSIGN_OR_RETURN(weights, operands_.tensor(*unit, layout_, *matrix, Arg::Weight));
    // From a whole panel on: the rows of q in front of k's first in its panel are made as well.
    const int64_t lead = spec_.qRows() % model::kPanelRows, first = spec_.qRows() - lead;
    const std::byte *biases = nullptr;
    if (bias != nullptr) {
      ASSIGN_OR_RETURN(p, operands_.tensor(*unit, layout_, *bias, Arg::Bias));
      biases = p + static_cast<uint64_t>(first) * model::dtypeBytes(bias->dtype);
    }
    ASSIGN_OR_RETURN(norms, headNorms());
    ASSIGN_OR_RETURN(kv,
                     operands_.require(Arg::Y, product({plan_.actBlocks, static_cast<int64_t>(plan_.kvBlockBytes())})));
    kernels::RebuildKvArgs args{.meta = meta,
                                .act = act,
                                .w = weights + matrix->encoding.bytes(first, matrix->cols),
                                .bias = biases,
                                .inverseFrequencies = frequencies_,
                                .headNorms = norms,
                                .kv = kv,
                                .workspace = nullptr,
                                .hidden = spec_.hidden,
                                .lead = lead,
                                .kvHeads = spec_.kvHeads,
                                .headDim = spec_.headDim,
                                .blockTokens = plan_.blockTokens,
                                .capacity = plan::actRows(plan_, variant_),
                                .eps = static_cast<float>(spec_.normEps),
                                .elem = elemOf(matrix->dtype),
                                .order = orderOf(*matrix),
                                .biasElem = bias == nullptr ? kernels::Elem::F32 : elemOf(bias->dtype),
                                .kvElem = elemOf(plan_.kvEncoding.element),
                                .activation = activation(),
                                .packing = packingOf(matrix->encoding),
                                .kvPacking = packingOf(plan_.kvEncoding)};
    ASSIGN_OR_RETURN(
        workspace, operands_.workspace(kernels::rebuildWorkspaceBytes(backend(), args.capacity, args.n(), spec_.hidden,
                                                                      activationBytes(), matrix->encoding.packed())));
    args.workspace = workspace;
    return args;
  }

  absl::StatusOr<KernelArgs> activate() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(
        x, operands_.require(Arg::X, product({variant_.newTokens, 2, spec_.intermediate, activationBytes()})));
    ASSIGN_OR_RETURN(y,
                     operands_.require(Arg::Y, product({variant_.newTokens, spec_.intermediate, activationBytes()})));
    return kernels::ActivateArgs{
        .count = &meta->numTokens, .gateUp = x, .y = y, .intermediate = spec_.intermediate, .activation = activation()};
  }

  absl::StatusOr<KernelArgs> gatherRows() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(x, operands_.require(Arg::X, product({variant_.newTokens, spec_.hidden, kF32})));
    ASSIGN_OR_RETURN(y, operands_.require(Arg::Y, product({variant_.sequences, spec_.hidden, kF32})));
    return kernels::GatherRowsArgs{.meta = meta, .x = floats(x), .y = floats(y), .hidden = spec_.hidden};
  }

  absl::StatusOr<KernelArgs> keepIds() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(sampled, operands_.sampled());
    ASSIGN_OR_RETURN(history, operands_.history());
    return kernels::KeepIdsArgs{.meta = meta, .sampled = ints(sampled), .history = ints(history)};
  }

  absl::StatusOr<KernelArgs> sample() const {
    ASSIGN_OR_RETURN(meta, operands_.meta());
    ASSIGN_OR_RETURN(logits, operands_.require(Arg::X, product({variant_.sequences, spec_.vocab, kF32})));
    ASSIGN_OR_RETURN(history, operands_.history());
    ASSIGN_OR_RETURN(sampled, operands_.sampled());
    ASSIGN_OR_RETURN(output, operands_.output());
    ASSIGN_OR_RETURN(workspace,
                     operands_.workspace(kernels::sampleWorkspaceBytes(backend(), variant_.sequences, spec_.vocab)));
    return kernels::SampleArgs{.meta = meta,
                               .logits = floats(logits),
                               .history = ints(history),
                               .sampled = ints(sampled),
                               .output = ints(output),
                               .workspace = workspace,
                               .vocab = spec_.vocab,
                               .blockTokens = plan_.blockTokens};
  }

  const plan::Plan &plan_;
  const model::ModelSpec &spec_;
  const kernels::Order order_;
  const model::WeightLayout &layout_;
  const float *frequencies_;
  uint32_t *arrivals_;
  const plan::Variant &variant_;
  const StepOperands &operands_;
};

} // namespace

const void *BoundStep::argsPointer() const {
  return std::visit([](const auto &value) -> const void * { return &value; }, args);
}

BindContext::BindContext(const plan::Plan &plan, kernels::Order order, const float *deviceFrequencies,
                         uint32_t *arrivals)
    : plan_(plan), order_(order), layout_(model::layoutWeights(plan.model)), deviceFrequencies_(deviceFrequencies),
      arrivals_(arrivals) {
  if (plan.model->rope.enabled)
    inverseFrequencies_ = inverseFrequencies(plan.model->rope, plan.model->headDim);
}

absl::StatusOr<BoundStep> BindContext::bind(const plan::Schedule &schedule, uint32_t step, const plan::Variant &variant,
                                            const Bases &bases) const {
  if (step >= schedule.steps.size())
    return absl::InvalidArgumentError(
        absl::StrCat("schedule '", schedule.name, "' has ", schedule.steps.size(), " steps, no step ", step));
  const StepOperands operands(plan_, schedule, step, bases);
  if (schedule.steps[step].kind != plan::StepKind::Compute)
    return operands.refuse("not a compute step");
  RETURN_IF_ERROR(operands.checkRanges());
  const float *frequencies = inverseFrequencies_.empty()     ? nullptr
                             : deviceFrequencies_ != nullptr ? deviceFrequencies_
                                                             : inverseFrequencies_.data();
  absl::StatusOr<KernelArgs> args = Binder(plan_, order_, layout_, frequencies, arrivals_, variant, operands).bind();
  if (!args.ok())
    return args.status();
  return BoundStep{schedule.steps[step].op, *std::move(args)};
}

} // namespace headrace::core
