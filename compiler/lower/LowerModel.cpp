// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/LowerModel.h"

#include "absl/strings/str_cat.h"
#include "compiler/lower/Mirrors.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

using algorithms::MovableKind;
using ir::MemorySpace;
using ir::Rows;
using ir::StepInfo;
using ir::UnitRole;
using mlir::Value;

constexpr ir::ByteRange bytesOf(const UnitRange &range) { return {range.offset, range.bytes}; }
static_assert(model::mirrors<kernels::Epilogue, ir::Epilogue>());

// Writes down a list of steps. A buffer's latest version is what the next step uses of it.
class Lowering {
public:
  Lowering(mlir::ModuleOp module, llvm::StringRef name, const StepsRequest &request)
      : request_(request), layout_(*request.layout), steps_(stepsOf(request)), builder_(module.getContext()),
        loc_(builder_.getUnknownLoc()) {
    builder_.setInsertionPointToEnd(module.getBody());
    iteration_ = ir::IterationOp::create(builder_, loc_, name, toIr(request.iterationClass), request.limits.tokens,
                                         request.limits.sequences, request.limits.context);
    builder_.setInsertionPointToEnd(&iteration_.block());
  }

  ir::IterationOp run() {
    latest_.resize(steps_.buffers.size());
    for (size_t i = 0; i < steps_.buffers.size(); ++i)
      latest_[i] = declare(steps_.buffers[i]);
    declareHomes();
    for (const Step &step : steps_.steps)
      write(step);
    return iteration_;
  }

private:
  ir::BufferType type(const StepBuffer &buffer, MemorySpace space = MemorySpace::Device) {
    return ir::BufferType::get(builder_.getContext(), space, buffer.bytes, toIr(buffer.elements));
  }
  ir::BufferType type(BufferIndex index) { return type(steps_.buffer(index)); }

  // What persists; nothing of what a step makes.
  Value declare(const StepBuffer &buffer) {
    if (buffer.kind == StepBuffer::Kind::Staging)
      return ir::StagingOp::create(builder_, loc_, type(buffer, MemorySpace::Host), toIr(buffer.staging),
                                   buffer.miniBatch, ir::Address());
    if (buffer.kind == StepBuffer::Kind::Io)
      return ir::IoOp::create(builder_, loc_, type(buffer), toIr(buffer.io), buffer.miniBatch, ir::Address());
    if (!buffer.isMovable())
      return Value();
    switch (buffer.of.kind) {
    case MovableKind::Weight: {
      const model::Unit &unit = layout_.units[static_cast<size_t>(buffer.unit)];
      return ir::WeightOp::create(builder_, loc_, type(buffer), buffer.unit, unit.name, toIr(unit.role), unit.layer,
                                  ir::Address());
    }
    case MovableKind::Kv:
      return ir::KvOp::create(builder_, loc_, type(buffer), buffer.layer, buffer.miniBatch, ir::KvPart::Cache,
                              ir::Address());
    case MovableKind::Act:
      return ir::ActOp::create(builder_, loc_, type(buffer), buffer.layer, buffer.miniBatch, ir::Address());
    case MovableKind::Residual: // at home it is declared once
      break;
    }
    return Value();
  }

  // Of residual streams that leave the device.
  void declareHomes() {
    homes_.resize(steps_.own.size());
    for (const StepBuffer &buffer : steps_.buffers)
      if (buffer.is(MovableKind::Residual) && !homes_[static_cast<size_t>(buffer.miniBatch)])
        homes_[static_cast<size_t>(buffer.miniBatch)] =
            ir::ResidualOp::create(builder_, loc_, type(buffer, MemorySpace::Host), buffer.miniBatch, ir::Address());
  }

  Value &at(BufferIndex index) { return latest_[static_cast<size_t>(index)]; }
  Value maybe(BufferIndex index) { return index == kNoBuffer ? Value() : at(index); }

  void write(const Step &step) {
    if (step.comes != kNoBuffer)
      at(step.comes) = ir::OnDeviceOp::create(builder_, loc_, type(step.comes),
                                              homes_[static_cast<size_t>(steps_.buffer(step.comes).miniBatch)]);
    const Steps::Own &own = steps_.own[static_cast<size_t>(step.miniBatch)];
    const Value meta = at(steps_.meta);
    const Rows rows = step.sampledRows ? Rows::Sampled : Rows::Tokens;
    const StepInfo info = infoOf(step);
    ir::Workspace scratch;
    scratch.bytes = step.workspaceBytes;
    const Value onto = step.inPlace ? at(step.y) : Value(); // else made here
    if (step.copiesDown()) {
      at(step.y) = ir::StageOp::create(builder_, loc_, at(step.y).getType(), at(step.x), at(step.y), info);
      return;
    }
    if (step.onCpu()) {
      onCpu(step, info);
      return;
    }
    if (!step.op) {
      ir::PublishOp::create(builder_, loc_, meta, at(steps_.output),
                            step.sends ? mlir::ValueRange(homes_) : mlir::ValueRange(), info);
      return;
    }
    switch (*step.op) {
    case kernels::Op::Embed: {
      auto embed = ir::EmbedOp::create(builder_, loc_, type(step.y), at(own.history).getType(), meta, at(step.unit),
                                       at(own.sampled), at(own.history), onto, bytesOf(step.weight), bytesOf(step.bias),
                                       info, ir::Address());
      at(own.history) = embed.getNextHistory();
      at(step.y) = embed.getX();
      return;
    }
    case kernels::Op::Norm:
      at(step.y) = ir::NormOp::create(builder_, loc_, type(step.y), rows, meta, at(step.x), at(step.unit),
                                      toIr(step.role), bytesOf(step.weight), bytesOf(step.bias), info, ir::Address());
      return;
    case kernels::Op::Linear:
      at(step.y) = ir::LinearOp::create(builder_, loc_, type(step.y), toIr(step.role), rows, meta, at(step.x),
                                        at(step.unit), onto, bytesOf(step.weight), bytesOf(step.bias),
                                        static_cast<ir::Epilogue>(step.epilogue), info, ir::Address(), scratch);
      return;
    case kernels::Op::RopeAppend: {
      const llvm::SmallVector<Value> kv = cacheOf(step);
      auto append =
          ir::RopeAppendOp::create(builder_, loc_, type(step.x), mlir::ValueRange(kv).getTypes(), meta, at(step.x), kv,
                                   mlir::ValueRange(), maybe(step.unit), bytesOf(step.headNorms), info);
      at(step.x) = append.getRotated();
      at(step.kv) = append.getAppended()[0];
      if (step.rebuilt != kNoBuffer)
        at(step.rebuilt) = append.getAppended()[1];
      return;
    }
    case kernels::Op::Attention:
      at(step.y) = ir::AttentionOp::create(builder_, loc_, type(step.y), meta, at(step.x), cacheOf(step), info,
                                           ir::Address(), scratch);
      return;
    case kernels::Op::Activate:
      at(step.y) = ir::ActivateOp::create(builder_, loc_, type(step.y), meta, at(step.x), info, ir::Address()).getY();
      return;
    case kernels::Op::GatherRows:
      at(step.y) = ir::GatherRowsOp::create(builder_, loc_, type(step.y), meta, at(step.x), info, ir::Address());
      return;
    case kernels::Op::KeepIds:
      at(own.history) = ir::KeepIdsOp::create(builder_, loc_, at(own.history).getType(), meta, at(own.sampled),
                                              at(own.history), info);
      return;
    case kernels::Op::Sample: {
      auto sample =
          ir::SampleOp::create(builder_, loc_, at(own.sampled).getType(), at(steps_.output).getType(), meta, at(step.x),
                               at(own.history), at(own.sampled), at(steps_.output), info, scratch);
      at(own.sampled) = sample.getNextSampled();
      at(steps_.output) = sample.getNextOutput();
      return;
    }
    case kernels::Op::ActAppend:
      at(step.act) = ir::ActAppendOp::create(builder_, loc_, type(step.act), meta, at(step.x), at(step.act), info);
      return;
    case kernels::Op::Rotate:
      at(step.x) = ir::RotateOp::create(builder_, loc_, type(step.x), meta, at(step.x), maybe(step.unit),
                                        bytesOf(step.headNorms), info);
      return;
    case kernels::Op::FetchRows:
      at(step.y) = ir::FetchRowsOp::create(builder_, loc_, type(step.y), meta, at(step.x), info, ir::Address());
      return;
    case kernels::Op::Append: // the CPU's
      break;
    case kernels::Op::RebuildKv:
      at(step.y) =
          ir::RebuildKvOp::create(builder_, loc_, type(step.y), meta, at(step.act), at(step.unit), bytesOf(step.weight),
                                  bytesOf(step.bias), bytesOf(step.headNorms), info, ir::Address(), scratch);
      return;
    }
    llvm_unreachable("every kernel is an op");
  }

  void onCpu(const Step &step, const StepInfo &info) {
    const auto staged = [&](Staging what) {
      return maybe(steps_.own[static_cast<size_t>(step.miniBatch)].staging[static_cast<size_t>(what)]);
    };
    const Value meta = staged(Staging::Meta);
    if (step.op == kernels::Op::Append)
      at(step.kv) = ir::AppendOp::create(builder_, loc_, at(step.kv).getType(), meta, at(step.x), at(step.kv), info);
    else
      at(step.y) = ir::HostAttentionOp::create(builder_, loc_, at(step.y).getType(), meta, at(step.x), at(step.kv),
                                               at(step.y), staged(Staging::Scratch), info);
  }

  llvm::SmallVector<Value> cacheOf(const Step &step) {
    llvm::SmallVector<Value> kv = {at(step.kv)};
    if (step.rebuilt != kNoBuffer)
      kv.push_back(at(step.rebuilt));
    return kv;
  }

  static StepInfo infoOf(const Step &step) {
    StepInfo info;
    info.layer = step.layer;
    info.part = toIr(step.part);
    info.miniBatch = static_cast<uint8_t>(step.miniBatch);
    info.flops = step.flops;
    info.deviceBytes = step.deviceBytes;
    info.linkBytes = step.linkBytes;
    info.direct = step.op == kernels::Op::FetchRows;
    info.resizable = step.copiesDown() && step.layer >= 0; // rows
    return info;
  }

  const StepsRequest &request_;
  const model::WeightLayout &layout_;
  const Steps steps_;
  mlir::OpBuilder builder_;
  mlir::Location loc_;
  ir::IterationOp iteration_;
  llvm::SmallVector<Value> latest_; // by buffer; null before it is made
  llvm::SmallVector<Value> homes_;  // of residual streams that leave, by mini-batch
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
Form formOf(ir::KeepIdsOp) { return compute(Op::KeepIds, model::UnitRole::Head, nullptr); }
Form formOf(ir::SampleOp) { return compute(Op::Sample, model::UnitRole::Head, nullptr); }
Form formOf(ir::PublishOp) { return StepForm{plan::StepKind::Publish, std::nullopt, nullptr}; }
Form formOf(ir::PrefetchOp) { return StepForm{plan::StepKind::Copy, std::nullopt, nullptr}; }
Form formOf(ir::EvictOp) { return StepForm{plan::StepKind::Copy, std::nullopt, nullptr}; }
Form formOf(ir::StageOp) { return StepForm{plan::StepKind::Copy, std::nullopt, nullptr}; }
Form formOf(ir::RotateOp) { return compute(Op::Rotate, model::UnitRole::Qkv, nullptr); }
Form formOf(ir::AppendOp) { return compute(Op::Append, model::UnitRole::Qkv, nullptr); }
Form formOf(ir::HostAttentionOp) { return compute(Op::Attention, model::UnitRole::Qkv, nullptr); }
Form formOf(ir::FetchRowsOp) { return compute(Op::FetchRows, model::UnitRole::Qkv, "attended"); }
Form formOf(ir::ActAppendOp) { return compute(Op::ActAppend, model::UnitRole::Qkv, nullptr); }
Form formOf(ir::RebuildKvOp) { return compute(Op::RebuildKv, model::UnitRole::Qkv, "rebuilt"); }

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

ir::IterationOp lowerModel(mlir::ModuleOp module, llvm::StringRef name, const StepsRequest &request) {
  return Lowering(module, name, request).run();
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
