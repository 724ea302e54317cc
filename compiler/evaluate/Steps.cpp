// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Steps.h"

#include <utility>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Mirrors.h"

namespace headrace::compiler {
namespace {

using algorithms::MovableKind;
using kernels::Op;
using model::TensorRole;
using model::UnitRole;
using plan::Part;
using Kind = StepBuffer::Kind;

constexpr Elements elementsOf(const model::Encoding &of) {
  return of.packed() ? Elements::Packed : static_cast<Elements>(of.element);
}
static_assert(elementsOf(model::DType::F32) == Elements::F32 && elementsOf(model::DType::F16) == Elements::F16 &&
              elementsOf(model::DType::BF16) == Elements::BF16);

StepBuffer movable(algorithms::Movable of, int32_t miniBatch, int32_t layer, uint64_t bytes, Elements elements) {
  return {
      .kind = Kind::Movable, .bytes = bytes, .elements = elements, .miniBatch = miniBatch, .of = of, .layer = layer};
}
StepBuffer residual(const Target &target, const model::ModelSpec &spec, int32_t miniBatch, int32_t layer) {
  return movable({MovableKind::Residual, miniBatch}, miniBatch, layer, target.residualBytes(spec.hidden),
                 Elements::F32);
}

class StepsMaker {
public:
  explicit StepsMaker(const StepsRequest &request)
      : request_(request), spec_(*request.spec), layout_(*request.layout), target_(*request.target),
        leaves_(target_.choice.residency.residualsLeave()), streamsHome_(target_.choice.residency.residualsHaveHomes()),
        onCpu_(attendsOnCpu(target_.choice, request.iterationClass)) {}

  Steps run() {
    declare();
    x_.resize(made_.own.size(), kNoBuffer);
    if (onCpu_)
      stage(made_.meta, Staging::Meta, /*layer=*/-1);
    comes_.resize(made_.own.size(), kNoBuffer);
    if (!leaves_)
      ofEach([&] { begin(); });
    if (onCpu_)
      layersInHalves();
    for (int32_t layer = 0; layer < spec_.layers && !onCpu_; ++layer)
      ofEach([&] {
        if (leaves_ && layer == 0)
          begin();
        else if (leaves_)
          stream(layer);
        const size_t first = made_.steps.size();
        decoderLayer(layer);
        arrive(first);
        if (leaves_ && layer == spec_.layers - 1 && spec_.hasHead())
          gather();
      });
    if (spec_.hasHead())
      ofEach([&] {
        if (!leaves_)
          gather();
        head();
      });
    publish();
    return std::move(made_);
  }

private:
  // A mini-batch's stream, embedded or as it has come.
  void begin() {
    if (streamsHome_)
      stream(0);
    if (!spec_.embeds())
      return;
    const size_t first = made_.steps.size();
    embed();
    arrive(first);
  }
  // One that has its home on the host.
  void stream(int32_t layer) { comes_[miniBatch_] = x_[miniBatch_] = add(residual(target_, spec_, batch(), layer)); }
  // For this step, if it has not been there before.
  void arrive(size_t step) { made_.steps[step].comes = std::exchange(comes_[miniBatch_], kNoBuffer); }

  template <typename Pass> void ofEach(Pass &&pass) {
    for (miniBatch_ = 0; miniBatch_ < made_.own.size(); ++miniBatch_)
      pass();
  }
  // Of several mini-batches the next one's, or the next two's, first halves stand before one's second.
  void layersInHalves() {
    const auto count = static_cast<int64_t>(made_.own.size());
    const int64_t turns = spec_.layers * count, ahead = std::min<int64_t>(2, count - 1);
    std::vector<BufferIndex> attended(static_cast<size_t>(turns));
    const auto turn = [&](int64_t of) {
      miniBatch_ = static_cast<size_t>(of % count);
      return static_cast<int32_t>(of / count);
    };
    int64_t first = 0;
    for (int64_t second = 0; second < turns; ++second) {
      for (; first <= std::min(second + ahead, turns - 1); ++first) {
        const int32_t layer = turn(first);
        const size_t begin = made_.steps.size();
        const BufferIndex qkv = firstHalf(layer);
        arrive(begin);
        attendBelow(layer, qkv);
      }
      const int32_t layer = turn(second);
      secondHalf(layer, fetch(layer));
    }
  }

  int32_t batch() const { return static_cast<int32_t>(miniBatch_); }
  Steps::Own &own() { return made_.own[miniBatch_]; }

  BufferIndex add(const StepBuffer &buffer) {
    made_.buffers.push_back(buffer);
    return static_cast<BufferIndex>(made_.buffers.size()) - 1;
  }

  void declare() {
    made_.own.resize(static_cast<size_t>(target_.choice.miniBatches));
    made_.firstUnit = layout_.has(layout_.embeddingUnit()) ? 0 : 1;
    for (const StepBuffer &of : movableBuffers(spec_, layout_, target_)) {
      if (of.is(MovableKind::Residual)) // a buffer for each of its layers
        continue;
      const BufferIndex buffer = add(of);
      Steps::Own &own = made_.own[static_cast<size_t>(of.miniBatch)];
      if (of.is(MovableKind::Kv))
        own.kv.push_back(buffer);
      if (of.is(MovableKind::Act))
        own.act.push_back(buffer);
    }
    const auto ids = [](int64_t count) { return model::alignUp(static_cast<uint64_t>(count) * sizeof(int32_t)); };
    const auto io = [&](plan::Io role, uint64_t bytes) {
      return add({.kind = Kind::Io, .bytes = bytes, .miniBatch = batch(), .io = role});
    };
    made_.meta = io(plan::Io::Meta, target_.metaBytes());
    // The ranges of a role lie one behind the other.
    ofEach([&] { own().sampled = io(plan::Io::Sampled, ids(target_.meta.maxSequences)); });
    miniBatch_ = 0;
    made_.output = io(plan::Io::Output, ids(target_.mostSampled()));
    ofEach([&] { own().history = io(plan::Io::History, target_.historyBytes); });
    miniBatch_ = 0;
    if (onCpu_)
      declareStaging();
  }

  void declareStaging() {
    for (const StepBuffer &of : stagingBuffers(spec_, target_)) {
      const BufferIndex buffer = add(of);
      for (Steps::Own &own : made_.own)
        if (of.staging == Staging::Meta || &own == &made_.own[static_cast<size_t>(of.miniBatch)])
          own.staging[static_cast<size_t>(of.staging)] = buffer;
    }
  }
  BufferIndex staged(Staging what) { return own().staging[static_cast<size_t>(what)]; }

  void stage(BufferIndex from, Staging to, int32_t layer) {
    Step &stage = made_.steps.emplace_back();
    stage.lane = plan::Lane::D2H;
    stage.part = Part::Movement;
    stage.layer = layer;
    stage.miniBatch = batch();
    stage.x = from;
    stage.y = staged(to);
    stage.inPlace = true;
    stage.deviceBytes = stage.linkBytes = made_.buffer(from).bytes;
  }

  kernels::Backend backend() const { return plan::backendOf(request_.device); }
  int64_t activationBytes() const { return static_cast<int64_t>(model::dtypeBytes(target_.activation)); }
  int64_t rowsOf(bool sampled) const { return sampled ? request_.limits.sequences : request_.limits.tokens; }

  // [rows, columns] activations that a step makes.
  BufferIndex transient(int64_t rows, int64_t columns, model::DType dtype) {
    const auto bytes = static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns) * model::dtypeBytes(dtype);
    return add({.bytes = model::alignUp(bytes), .elements = elementsOf(dtype), .miniBatch = batch()});
  }
  BufferIndex tokenRows(int64_t columns) { return transient(request_.limits.tokens, columns, target_.activation); }

  Step &step(int32_t layer, Part part, Op op, UnitRole role) {
    Step &step = made_.steps.emplace_back();
    step.op = op;
    step.role = role;
    step.part = part;
    step.layer = layer;
    step.miniBatch = batch();
    const cost::Work work =
        cost::workOf(spec_, {op, role}, request_.limits, target_.activation, target_.kv, /*direct=*/false);
    step.flops = work.flops;
    step.deviceBytes = work.deviceBytes;
    return step;
  }

  UnitRange range(int32_t unit, TensorRole role) const {
    const model::Tensor *tensor = layout_.units[static_cast<size_t>(unit)].find(role);
    return tensor != nullptr ? UnitRange{tensor->offset, tensor->bytes} : UnitRange();
  }

  void embed() {
    Step &embed = step(-1, Part::Embedding, Op::Embed, UnitRole::Embedding);
    embed.unit = made_.ofUnit(layout_.embeddingUnit());
    embed.weight = range(layout_.embeddingUnit(), TensorRole::TokenTable);
    embed.bias = range(layout_.embeddingUnit(), TensorRole::PositionTable);
    embed.inPlace = streamsHome_;
    // The residual stream is F32 on every device.
    if (!streamsHome_)
      x_[miniBatch_] = transient(request_.limits.tokens, spec_.hidden, model::DType::F32);
    embed.y = x_[miniBatch_];
  }

  BufferIndex norm(int32_t layer, Part part, bool sampled, BufferIndex x, int32_t unit, UnitRole role) {
    const BufferIndex y = transient(rowsOf(sampled), spec_.hidden, target_.activation);
    Step &norm = step(layer, part, Op::Norm, role);
    norm.sampledRows = sampled;
    norm.unit = made_.ofUnit(unit);
    norm.weight = range(unit, TensorRole::NormWeight);
    norm.bias = range(unit, TensorRole::NormBias);
    norm.x = x;
    norm.y = y;
    return y;
  }

  // y = epilogue(x W^T + bias); out and in are the numbers of features.
  Step &linear(int32_t layer, Part part, bool sampled, BufferIndex x, int32_t unit, TensorRole matrix, UnitRole role,
               int64_t out, int64_t in) {
    Step &linear = step(layer, part, Op::Linear, role);
    linear.sampledRows = sampled;
    linear.unit = made_.ofUnit(unit);
    linear.weight = range(unit, matrix);
    linear.bias = range(unit, TensorRole::Bias);
    linear.x = x;
    linear.workspaceBytes = model::alignUp(kernels::linearWorkspaceBytes(
        backend(), rowsOf(sampled), out, in, spec_.encodings[role] ? activationBytes() : 0));
    return linear;
  }
  BufferIndex layerLinear(int32_t layer, Part part, BufferIndex x, UnitRole role, int64_t out, int64_t in) {
    const BufferIndex y = tokenRows(out);
    linear(layer, part, false, x, layout_.layerUnit(layer, role), TensorRole::Matrix, role, out, in).y = y;
    return y;
  }
  // Onto the residual stream.
  void addLinear(int32_t layer, Part part, BufferIndex x, UnitRole role, int64_t in) {
    Step &onto =
        linear(layer, part, false, x, layout_.layerUnit(layer, role), TensorRole::Matrix, role, spec_.hidden, in);
    onto.y = x_[miniBatch_];
    onto.inPlace = true;
  }

  void decoderLayer(int32_t layer) {
    const auto at = static_cast<size_t>(layer);
    const bool keeps = !own().act.empty();
    const BufferIndex rebuilt = keeps ? rebuild(layer, layout_.layerUnit(layer, UnitRole::Qkv)) : kNoBuffer;
    const BufferIndex qkv = firstHalf(layer);
    Step &append = step(layer, Part::Attention, Op::RopeAppend, UnitRole::Qkv);
    useHeadNorms(append, layer);
    append.x = qkv;
    append.kv = own().kv[at];
    append.rebuilt = rebuilt;
    const BufferIndex attended = tokenRows(spec_.qRows());
    Step &attention = step(layer, Part::Attention, Op::Attention, UnitRole::Qkv);
    attention.workspaceBytes = model::alignUp(kernels::attentionWorkspaceBytes(
        backend(), request_.limits.sequences, spec_.heads, spec_.headDim, request_.limits.context));
    attention.x = qkv;
    attention.kv = own().kv[at];
    attention.rebuilt = rebuilt;
    attention.y = attended;
    secondHalf(layer, attended);
  }

  void useHeadNorms(Step &step, int32_t layer) const {
    const int32_t qkvUnit = layout_.layerUnit(layer, UnitRole::Qkv);
    if (spec_.qkNorm)
      step.unit = made_.ofUnit(qkvUnit);
    step.headNorms = range(qkvUnit, TensorRole::HeadNorms);
  }

  // What attention needs of the iteration's rows.
  BufferIndex firstHalf(int32_t layer) {
    const int32_t qkvUnit = layout_.layerUnit(layer, UnitRole::Qkv);
    const BufferIndex normed = norm(layer, Part::Attention, false, x_[miniBatch_], qkvUnit, UnitRole::Qkv);
    if (!own().act.empty()) {
      Step &append = step(layer, Part::Attention, Op::ActAppend, UnitRole::Qkv);
      append.flops = 0;
      append.x = normed;
      append.act = own().act[static_cast<size_t>(layer)];
    }
    return layerLinear(layer, Part::Attention, normed, UnitRole::Qkv, spec_.qkvRows(), spec_.hidden);
  }

  // Down to the CPU, which appends and attends.
  void attendBelow(int32_t layer, BufferIndex qkv) {
    if (spec_.rope.enabled || spec_.qkNorm) {
      Step &rotate = step(layer, Part::Attention, Op::Rotate, UnitRole::Qkv);
      useHeadNorms(rotate, layer);
      rotate.x = qkv;
    }
    stage(qkv, Staging::Qkv, layer);
    Step &append = step(layer, Part::Attention, Op::Append, UnitRole::Qkv);
    append.lane = plan::Lane::Cpu;
    append.x = staged(Staging::Qkv);
    append.kv = own().kv[static_cast<size_t>(layer)];
    Step &attention = step(layer, Part::Attention, Op::Attention, UnitRole::Qkv);
    attention.lane = plan::Lane::Cpu;
    attention.x = staged(Staging::Qkv);
    attention.kv = own().kv[static_cast<size_t>(layer)];
    attention.y = staged(Staging::Attended);
    attention.inPlace = true;
  }
  // What it has made, up again.
  BufferIndex fetch(int32_t layer) {
    const BufferIndex attended = tokenRows(spec_.qRows());
    Step &fetch = step(layer, Part::Attention, Op::FetchRows, UnitRole::Qkv);
    const cost::Work work = cost::workOf(spec_, {Op::FetchRows, UnitRole::Qkv}, request_.limits, target_.activation,
                                         target_.kv, /*direct=*/true);
    fetch.deviceBytes = work.deviceBytes;
    fetch.linkBytes = work.linkBytes;
    fetch.x = staged(Staging::Attended);
    fetch.y = attended;
    return attended;
  }

  void secondHalf(int32_t layer, BufferIndex attended) {
    addLinear(layer, Part::Attention, attended, UnitRole::Out, spec_.qRows());

    const BufferIndex normed =
        norm(layer, Part::Mlp, false, x_[miniBatch_], layout_.layerUnit(layer, UnitRole::Up), UnitRole::Up);
    BufferIndex up = layerLinear(layer, Part::Mlp, normed, UnitRole::Up, spec_.upRows(), spec_.hidden);
    made_.steps.back().epilogue = plan::epilogueOf(spec_.activation);
    if (spec_.gated()) {
      const BufferIndex activated = tokenRows(spec_.intermediate);
      Step &activate = step(layer, Part::Mlp, Op::Activate, UnitRole::Up);
      activate.x = up;
      activate.y = activated;
      up = activated;
    }
    addLinear(layer, Part::Mlp, up, UnitRole::Down, spec_.intermediate);
  }

  // Keys and values of earlier tokens, from the activations that were kept of them.
  BufferIndex rebuild(int32_t layer, int32_t unit) {
    const BufferIndex y = add({.bytes = model::alignUp(static_cast<uint64_t>(target_.actBlocks) * target_.kvBlockBytes),
                               .elements = elementsOf(target_.kv),
                               .miniBatch = batch()});
    Step &rebuild = step(layer, Part::Attention, Op::RebuildKv, UnitRole::Qkv);
    const int64_t columns = 2 * spec_.kvRows() + spec_.qRows() % model::kPanelRows;
    rebuild.workspaceBytes = model::alignUp(
        kernels::rebuildWorkspaceBytes(backend(), target_.actBlocks * target_.blockTokens, columns, spec_.hidden,
                                       activationBytes(), spec_.encodings[UnitRole::Qkv].has_value()));
    rebuild.unit = made_.ofUnit(unit);
    rebuild.weight = range(unit, TensorRole::Matrix);
    rebuild.bias = range(unit, TensorRole::Bias);
    rebuild.headNorms = range(unit, TensorRole::HeadNorms);
    rebuild.act = own().act[static_cast<size_t>(layer)];
    rebuild.y = y;
    return y;
  }

  void gather() {
    const BufferIndex rows = transient(request_.limits.sequences, spec_.hidden, model::DType::F32);
    Step &gather = step(-1, Part::Head, Op::GatherRows, UnitRole::Head);
    gather.x = x_[miniBatch_];
    gather.y = x_[miniBatch_] = rows;
  }

  void head() {
    const int32_t unit = layout_.headUnit();
    const BufferIndex normed = norm(-1, Part::Head, true, x_[miniBatch_], unit, UnitRole::Head);
    const bool tied = spec_.tiedEmbeddings;
    const BufferIndex logits = transient(request_.limits.sequences, spec_.vocab, model::DType::F32);
    linear(-1, Part::Head, true, normed, tied ? layout_.embeddingUnit() : unit,
           tied ? TensorRole::TokenTable : TensorRole::Matrix, UnitRole::Head, spec_.vocab, spec_.hidden)
        .y = logits;
    if (!spec_.embeds())
      step(-1, Part::Head, Op::KeepIds, UnitRole::Head);
    Step &sample = step(-1, Part::Head, Op::Sample, UnitRole::Head);
    sample.workspaceBytes =
        model::alignUp(kernels::sampleWorkspaceBytes(backend(), request_.limits.sequences, spec_.vocab));
    sample.x = logits;
  }

  // The tokens of all, or the rows of all.
  void publish() {
    Step &publish = made_.steps.emplace_back();
    publish.part = Part::Head;
    publish.sends = !spec_.hasHead();
  }

  const StepsRequest &request_;
  const model::ModelSpec &spec_;
  const model::WeightLayout &layout_;
  const Target &target_;
  const bool leaves_, streamsHome_, onCpu_; // between layers; of all streams
  Steps made_;
  size_t miniBatch_ = 0;           // whose steps are being made
  std::vector<BufferIndex> x_;     // by mini-batch: its residual stream, then the head's rows
  std::vector<BufferIndex> comes_; // by mini-batch: the stream that the next step of a layer brings
};

} // namespace

std::vector<StepBuffer> stagingBuffers(const model::ModelSpec &spec, const Target &target) {
  std::vector<StepBuffer> buffers;
  if (!target.choice.attendsOnCpu)
    return buffers;
  const cost::Bucket limits = Target::limits(target.decode);
  const auto declare = [&](int32_t miniBatch, Staging what, uint64_t bytes, Elements elements) {
    if (bytes > 0)
      buffers.push_back({.kind = Kind::Staging,
                         .staging = what,
                         .bytes = model::alignUp(bytes),
                         .elements = elements,
                         .miniBatch = miniBatch});
  };
  const auto rows = [&](int64_t columns) {
    return static_cast<uint64_t>(limits.tokens * columns) * model::dtypeBytes(target.activation);
  };
  declare(0, Staging::Meta, target.metaBytes(), Elements::Bytes);
  for (int32_t i = 0; i < target.choice.miniBatches; ++i) {
    declare(i, Staging::Qkv, rows(spec.qkvRows()), elementsOf(target.activation));
    declare(i, Staging::Attended, rows(spec.qRows()), elementsOf(target.activation));
    declare(i, Staging::Scratch,
            kernels::attentionWorkspaceBytes(kernels::Backend::Host, limits.sequences, spec.heads, spec.headDim,
                                             limits.context),
            Elements::Bytes);
  }
  return buffers;
}

std::vector<StepBuffer> movableBuffers(const model::ModelSpec &spec, const model::WeightLayout &layout,
                                       const Target &target) {
  std::vector<StepBuffer> buffers;
  for (int32_t unit = 0; const model::Unit &of : layout.units) {
    if (!of.absent()) {
      buffers.push_back(movable({MovableKind::Weight, unit}, 0, of.layer, of.bytes,
                                elementsOf(spec.encodings[of.role].value_or(spec.dtype))));
      buffers.back().unit = unit;
    }
    ++unit;
  }
  const auto ofLayers = [&](MovableKind kind, uint64_t bytes, const model::Encoding &encoding) {
    for (int32_t layer = 0; layer < spec.layers; ++layer)
      for (int32_t i = 0; i < target.choice.miniBatches; ++i)
        buffers.push_back(movable({kind, layer}, i, layer, bytes, elementsOf(encoding)));
  };
  ofLayers(MovableKind::Kv, target.kvBytes, target.kv);
  if (target.actBlocks > 0)
    ofLayers(MovableKind::Act, target.actBytes, target.activation);
  for (int32_t i = 0; i < target.choice.miniBatches && target.choice.residency.residualsHaveHomes(); ++i)
    buffers.push_back(residual(target, spec, i, /*layer=*/-1));
  return buffers;
}

Steps stepsOf(const StepsRequest &request) { return StepsMaker(request).run(); }

} // namespace headrace::compiler
