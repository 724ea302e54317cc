// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/LowerModel.h"

#include "absl/strings/str_cat.h"
#include "compiler/lower/Mirrors.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

using ir::ByteRange;
using ir::Encoding;
using ir::MemorySpace;
using ir::Part;
using ir::Rows;
using ir::StepInfo;
using ir::UnitRole;
using mlir::Value;

class Lowering {
public:
  Lowering(mlir::ModuleOp module, llvm::StringRef name, const LowerOptions &options)
      : options_(options), spec_(*options.spec), layout_(*options.layout), target_(*options.target),
        builder_(module.getContext()), loc_(builder_.getUnknownLoc()) {
    builder_.setInsertionPointToEnd(module.getBody());
    iteration_ = ir::IterationOp::create(builder_, loc_, name, options.iterationClass, options.limits.tokens,
                                         options.limits.sequences, options.limits.context);
    builder_.setInsertionPointToEnd(&iteration_.block());
  }

  ir::IterationOp run() {
    declare();
    std::vector<Value> x(batches_.size());
    const auto ofEach = [&](auto pass) {
      for (miniBatch_ = 0; miniBatch_ < batches_.size(); ++miniBatch_)
        pass(x[miniBatch_]);
    };
    ofEach([&](Value &own) { own = embed(); });
    for (int64_t layer = 0; layer < spec_.layers; ++layer)
      ofEach([&](Value &own) { own = decoderLayer(static_cast<int32_t>(layer), own); });
    ofEach([&](Value &own) { head(own); });
    publish();
    return iteration_;
  }

private:
  ir::BufferType type(uint64_t bytes, Encoding encoding) {
    return ir::BufferType::get(builder_.getContext(), MemorySpace::Device, bytes, encoding);
  }
  // [rows, columns] activations.
  ir::BufferType activations(int64_t rows, int64_t columns, model::DType dtype) {
    return type(model::alignUp(static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns) * model::dtypeBytes(dtype)),
                toIr(dtype));
  }
  ir::BufferType tokenRows(int64_t columns) { return activations(options_.limits.tokens, columns, target_.activation); }
  // The residual stream is F32 on every device.
  ir::BufferType residualRows(int64_t rows) { return activations(rows, spec_.hidden, model::DType::F32); }
  // One that leaves the device has the same home in all iterations.
  ir::BufferType stream() {
    return target_.choice.residency.residualsLeave() ? type(target_.residualBytes(spec_.hidden), Encoding::F32)
                                                     : residualRows(options_.limits.tokens);
  }
  kernels::Backend backend() const { return plan::backendOf(options_.device); }

  void declare() {
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      const model::Unit &u = layout_.units[unit];
      weights_.push_back(ir::WeightOp::create(builder_, loc_, type(u.bytes, toIr(spec_.dtype)),
                                              static_cast<int64_t>(unit), u.name, toIr(u.role), u.layer,
                                              ir::Address()));
    }
    batches_.resize(static_cast<size_t>(target_.choice.miniBatches));
    for (int64_t layer = 0; layer < spec_.layers; ++layer)
      for (size_t i = 0; i < batches_.size(); ++i)
        batches_[i].kv.push_back(ir::KvOp::create(builder_, loc_, type(target_.kvBytes, toIr(target_.kv)),
                                                  static_cast<int32_t>(layer), static_cast<int32_t>(i),
                                                  ir::KvPart::Cache, ir::Address()));
    for (int64_t layer = 0; layer < spec_.layers && target_.actBlocks > 0; ++layer)
      for (size_t i = 0; i < batches_.size(); ++i)
        ir::ActOp::create(builder_, loc_, type(target_.actBytes, toIr(target_.activation)), static_cast<int32_t>(layer),
                          static_cast<int32_t>(i), ir::Address());
    const auto tokens = [](int64_t sequences) {
      return model::alignUp(static_cast<uint64_t>(sequences) * sizeof(int32_t));
    };
    // The ranges of a role lie one behind the other.
    const auto ofEach = [&](Value MiniBatch::*member, uint64_t bytes, ir::IoRole role) {
      for (size_t i = 0; i < batches_.size(); ++i)
        batches_[i].*member = io(bytes, role, static_cast<int32_t>(i));
    };
    ofEach(&MiniBatch::meta, kernels::metaBytes(target_.meta), ir::IoRole::Meta);
    ofEach(&MiniBatch::sampled, tokens(target_.meta.maxSequences), ir::IoRole::Sampled);
    output_ = io(tokens(target_.mostSampled()), ir::IoRole::Output, 0);
    ofEach(&MiniBatch::history, target_.historyBytes, ir::IoRole::History);
  }
  Value io(uint64_t bytes, ir::IoRole role, int32_t miniBatch) {
    return ir::IoOp::create(builder_, loc_, type(bytes, Encoding::Bytes), role, miniBatch, ir::Address());
  }

  // What each has of its own.
  struct MiniBatch {
    Value meta, sampled, history;
    llvm::SmallVector<Value> kv; // by layer
  };
  MiniBatch &own() { return batches_[miniBatch_]; }

  StepInfo step(int32_t layer, Part part, kernels::Op op, model::UnitRole unit) {
    StepInfo info;
    info.layer = layer;
    info.part = part;
    info.miniBatch = static_cast<uint8_t>(miniBatch_);
    const cost::Work work =
        cost::workOf(spec_, {op, unit}, options_.limits, target_.activation, target_.kv, /*direct=*/false);
    info.flops = work.flops;
    info.deviceBytes = work.deviceBytes;
    return info;
  }

  static ByteRange range(const model::Tensor *tensor) {
    return tensor ? ByteRange{tensor->offset, tensor->bytes} : ByteRange();
  }
  ByteRange range(int32_t unit, model::TensorRole role) {
    return range(layout_.units[static_cast<size_t>(unit)].find(role));
  }

  Value embed() {
    const int32_t unit = layout_.embeddingUnit();
    auto embed =
        ir::EmbedOp::create(builder_, loc_, stream(), own().history.getType(), own().meta,
                            weights_[static_cast<size_t>(unit)], own().sampled, own().history, /*into=*/Value(),
                            range(unit, model::TensorRole::TokenTable), range(unit, model::TensorRole::PositionTable),
                            step(-1, Part::Embedding, kernels::Op::Embed, model::UnitRole::Embedding), ir::Address());
    own().history = embed.getNextHistory();
    return embed.getX();
  }

  Value norm(int32_t layer, Part part, Rows rows, Value x, int32_t unit, model::UnitRole role) {
    const int64_t capacity = rows == Rows::Tokens ? options_.limits.tokens : options_.limits.sequences;
    return ir::NormOp::create(builder_, loc_, activations(capacity, spec_.hidden, target_.activation), rows, own().meta,
                              x, weights_[static_cast<size_t>(unit)], toIr(role),
                              range(unit, model::TensorRole::NormWeight), range(unit, model::TensorRole::NormBias),
                              step(layer, part, kernels::Op::Norm, role), ir::Address());
  }

  // y = epilogue(x W^T + bias), onto `residual` if there is one; out and in are the numbers of features.
  Value linear(int32_t layer, Part part, Rows rows, Value x, int32_t unit, model::TensorRole matrix,
               model::UnitRole role, int64_t out, int64_t in, Value residual, ir::Epilogue epilogue,
               ir::BufferType result) {
    const int64_t capacity = rows == Rows::Tokens ? options_.limits.tokens : options_.limits.sequences;
    ir::Workspace scratch;
    scratch.bytes = model::alignUp(kernels::linearWorkspaceBytes(backend(), capacity, out, in));
    return ir::LinearOp::create(builder_, loc_, result, toIr(role), rows, own().meta, x,
                                weights_[static_cast<size_t>(unit)], residual, range(unit, matrix),
                                range(unit, model::TensorRole::Bias), epilogue,
                                step(layer, part, kernels::Op::Linear, role), ir::Address(), scratch);
  }

  Value decoderLayer(int32_t layer, Value x) {
    const auto unit = [&](model::UnitRole role) { return layout_.layerUnit(layer, role); };
    const auto tokens = [&](Part part, Value input, model::UnitRole role, int64_t out, int64_t in, Value residual,
                            ir::Epilogue epilogue) {
      return linear(layer, part, Rows::Tokens, input, unit(role), model::TensorRole::Matrix, role, out, in, residual,
                    epilogue, residual ? stream() : tokenRows(out));
    };
    const Value kv = own().kv[static_cast<size_t>(layer)];
    Value normed = norm(layer, Part::Attention, Rows::Tokens, x, unit(model::UnitRole::Qkv), model::UnitRole::Qkv);
    Value qkv = tokens(Part::Attention, normed, model::UnitRole::Qkv, spec_.qkvRows(), spec_.hidden, Value(),
                       ir::Epilogue::None);
    const int32_t qkvUnit = unit(model::UnitRole::Qkv);
    auto appended = ir::RopeAppendOp::create(
        builder_, loc_, qkv.getType(), kv.getType(), own().meta, qkv, kv, mlir::ValueRange(),
        spec_.qkNorm ? weights_[static_cast<size_t>(qkvUnit)] : Value(), range(qkvUnit, model::TensorRole::HeadNorms),
        step(layer, Part::Attention, kernels::Op::RopeAppend, model::UnitRole::Qkv));
    ir::Workspace scratch;
    scratch.bytes = model::alignUp(kernels::attentionWorkspaceBytes(backend(), options_.limits.sequences, spec_.heads,
                                                                    spec_.headDim, options_.limits.context));
    Value attended = ir::AttentionOp::create(
        builder_, loc_, tokenRows(spec_.qRows()), own().meta, appended.getRotated(), appended.getAppended(),
        step(layer, Part::Attention, kernels::Op::Attention, model::UnitRole::Qkv), ir::Address(), scratch);
    x = tokens(Part::Attention, attended, model::UnitRole::Out, spec_.hidden, spec_.qRows(), x, ir::Epilogue::None);

    normed = norm(layer, Part::Mlp, Rows::Tokens, x, unit(model::UnitRole::Up), model::UnitRole::Up);
    Value up = tokens(Part::Mlp, normed, model::UnitRole::Up, spec_.upRows(), spec_.hidden, Value(), epilogue());
    if (spec_.gated())
      up = ir::ActivateOp::create(builder_, loc_, tokenRows(spec_.intermediate), own().meta, up,
                                  step(layer, Part::Mlp, kernels::Op::Activate, model::UnitRole::Up), ir::Address());
    return tokens(Part::Mlp, up, model::UnitRole::Down, spec_.hidden, spec_.intermediate, x, ir::Epilogue::None);
  }

  ir::Epilogue epilogue() const {
    switch (spec_.activation) {
    case model::Activation::Relu:
      return ir::Epilogue::Relu;
    case model::Activation::Gelu:
      return ir::Epilogue::Gelu;
    case model::Activation::GeluTanh:
      return ir::Epilogue::GeluTanh;
    case model::Activation::SiluGate:
      break; // an op of its own
    }
    return ir::Epilogue::None;
  }

  void head(Value x) {
    const int32_t unit = layout_.headUnit();
    const int64_t sequences = options_.limits.sequences;
    x = ir::GatherRowsOp::create(builder_, loc_, residualRows(sequences), own().meta, x,
                                 step(-1, Part::Head, kernels::Op::GatherRows, model::UnitRole::Head), ir::Address());
    x = norm(-1, Part::Head, Rows::Sampled, x, unit, model::UnitRole::Head);
    const bool tied = spec_.tiedEmbeddings;
    Value logits =
        linear(-1, Part::Head, Rows::Sampled, x, tied ? layout_.embeddingUnit() : unit,
               tied ? model::TensorRole::TokenTable : model::TensorRole::Matrix, model::UnitRole::Head, spec_.vocab,
               spec_.hidden, Value(), ir::Epilogue::None, activations(sequences, spec_.vocab, model::DType::F32));
    ir::Workspace scratch;
    scratch.bytes = model::alignUp(kernels::sampleWorkspaceBytes(backend(), sequences, spec_.vocab));
    auto sample = ir::SampleOp::create(builder_, loc_, own().sampled.getType(), output_.getType(), own().meta, logits,
                                       own().history, own().sampled, output_,
                                       step(-1, Part::Head, kernels::Op::Sample, model::UnitRole::Head), scratch);
    output_ = sample.getNextOutput();
  }

  // The tokens of all.
  void publish() {
    StepInfo info;
    info.part = Part::Head;
    ir::PublishOp::create(builder_, loc_, batches_.front().meta, output_, info);
  }

  const LowerOptions &options_;
  const model::ModelSpec &spec_;
  const model::WeightLayout &layout_;
  const Target &target_;
  mlir::OpBuilder builder_;
  mlir::Location loc_;
  ir::IterationOp iteration_;
  llvm::SmallVector<Value> weights_;
  std::vector<MiniBatch> batches_;
  size_t miniBatch_ = 0; // whose steps are being made
  Value output_;
};

// What each op is in a plan. There is no form for just any op: one that is a step and has none does not compile.
using Form = std::optional<StepForm>; // none: no plan can say it
using kernels::Op;

Form compute(Op op, model::UnitRole unit, const char *result) {
  return StepForm{plan::StepKind::Compute, cost::OpSite{op, unit}, result};
}
const char *resultOf(ir::LinearOp op) {
  if (op.getResidual())
    return nullptr;
  switch (op.getRole()) {
  case UnitRole::Qkv:
    return "qkv";
  case UnitRole::Out:
    return "out";
  case UnitRole::Up:
    return "up";
  case UnitRole::Down:
    return "down";
  case UnitRole::Embedding:
  case UnitRole::Head:
    break;
  }
  return "logits";
}
Form formOf(ir::EmbedOp) { return compute(Op::Embed, model::UnitRole::Embedding, "x"); }
Form formOf(ir::NormOp op) { return compute(Op::Norm, toModel(op.getRole()), "normed"); }
Form formOf(ir::LinearOp op) { return compute(Op::Linear, toModel(op.getRole()), resultOf(op)); }
Form formOf(ir::RopeAppendOp) { return compute(Op::RopeAppend, model::UnitRole::Qkv, nullptr); }
Form formOf(ir::AttentionOp) { return compute(Op::Attention, model::UnitRole::Qkv, "attended"); }
Form formOf(ir::ActivateOp) { return compute(Op::Activate, model::UnitRole::Up, "activated"); }
Form formOf(ir::GatherRowsOp) { return compute(Op::GatherRows, model::UnitRole::Head, "rows"); }
Form formOf(ir::SampleOp) { return compute(Op::Sample, model::UnitRole::Head, nullptr); }
Form formOf(ir::PublishOp) { return StepForm{plan::StepKind::Publish, std::nullopt, nullptr}; }
Form formOf(ir::PrefetchOp) { return StepForm{plan::StepKind::Copy, std::nullopt, nullptr}; }
Form formOf(ir::EvictOp) { return StepForm{plan::StepKind::Copy, std::nullopt, nullptr}; }
Form formOf(ir::ActAppendOp) { return compute(Op::ActAppend, model::UnitRole::Qkv, nullptr); }
Form formOf(ir::RecomputeKvOp) { return compute(Op::RecomputeKv, model::UnitRole::Qkv, "recomputed"); }

template <typename StepOp, typename... Rest> Form formAmong(mlir::Operation *op) {
  if constexpr (StepOp::template hasTrait<ir::StepInterface::Trait>())
    if (auto step = llvm::dyn_cast<StepOp>(op))
      return formOf(step);
  if constexpr (sizeof...(Rest) > 0)
    return formAmong<Rest...>(op);
  return std::nullopt; // not a step
}
Form formOfAny(mlir::Operation *op) {
  return formAmong<
#define GET_OP_LIST
#include "ir/HeadraceOps.cpp.inc"
      >(op);
}

} // namespace

ir::IterationOp lowerModel(mlir::ModuleOp module, llvm::StringRef name, const LowerOptions &options) {
  return Lowering(module, name, options).run();
}

passes::RecomputeAmounts recomputeAmounts(const LowerOptions &options) {
  const model::ModelSpec &spec = *options.spec;
  const Target &target = *options.target;
  const auto workOf = [&](kernels::Op op) {
    return cost::workOf(spec, {op, model::UnitRole::Qkv}, options.limits, target.activation, target.kv,
                        /*direct=*/false);
  };
  const uint64_t recomputed = model::alignUp(static_cast<uint64_t>(target.actBlocks) * target.kvBlockBytes);
  const cost::Work work = workOf(kernels::Op::RecomputeKv);
  const int64_t columns = 2 * spec.kvRows() + spec.qRows() % model::kPanelRows;
  return {.recomputedBytes = recomputed,
          .workspaceBytes = model::alignUp(kernels::recomputeWorkspaceBytes(
              plan::backendOf(options.device), target.actBlocks * target.blockTokens, columns, spec.hidden,
              static_cast<int64_t>(model::dtypeBytes(target.activation)))),
          .flops = work.flops,
          .deviceBytes = work.deviceBytes,
          .keepDeviceBytes = workOf(kernels::Op::ActAppend).deviceBytes};
}

absl::StatusOr<StepForm> stepForm(mlir::Operation *step) {
  if (Form form = formOfAny(step))
    return *form;
  return absl::UnimplementedError(absl::StrCat("no plan can say the op '", step->getName().getStringRef().str(), "'"));
}

std::optional<cost::OpSite> opSite(mlir::Operation *step) {
  const Form form = formOfAny(step);
  return form ? form->site : std::nullopt;
}

} // namespace headrace::compiler
