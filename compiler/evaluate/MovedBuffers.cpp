// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/MovedBuffers.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace headrace::compiler {
namespace {

using algorithms::MovableKind;
using algorithms::WriteBack;
using algorithms::Written;
using kernels::Op;

class Finder {
public:
  Finder(const Steps &steps, const Homes &homes)
      : steps_(steps), homes_(homes), residency_(homes.choice->residency), blocks_(cacheBlocksOf(homes)) {}

  absl::StatusOr<MovedBuffers> run() {
    for (const Step &step : steps_.steps)
      visit(step);
    std::vector<size_t> latest(steps_.own.size(), kNone); // residual streams, by mini-batch
    for (size_t i = 0; i < found_.moved.size(); ++i)
      if (algorithms::Moved &of = found_.moved[i]; algorithms::traitsOf(of.kind).written == Written::Whole) {
        size_t &before = latest[static_cast<size_t>(of.miniBatch)];
        if (before != kNone)
          found_.moved[before].writtenBack = true;
        before = i;
      }
    for (const size_t last : latest) // what is sent is read at home
      if (last != kNone && steps_.steps.back().sends)
        found_.moved[last].writtenBack = true;
    if (const std::optional<size_t> wrong = algorithms::assignItems(layerOf_, stepsOf_, found_))
      return absl::InternalError(absl::StrCat("'", found_.moved[*wrong].name, "' is of a layer that computes nothing"));
    if (const std::string wrong = algorithms::assignSlots(residency_, found_); !wrong.empty())
      return absl::InvalidArgumentError(wrong);
    return std::move(found_);
  }

private:
  static constexpr size_t kNone = SIZE_MAX;

  void visit(const Step &step) {
    const uint32_t index = found_.steps++;
    found_.awaitable.push_back(step.op || step.copiesDown() ? index
                                                            : static_cast<int64_t>(index) - 1); // publish makes nothing
    if (step.layer >= 0 && std::exchange(inLayers_, true) == false)
      found_.layersBegin = index;
    if (step.layer >= 0 || step.part == plan::Part::Head) {
      const auto [it, isNew] = stepsOf_.try_emplace(step.layer, std::pair(index, index));
      it->second.second = index;
    }
    // A table that embed reads stays where it is.
    if (step.comes != kNoBuffer) // in this order, whichever step uses it first
      find(step.comes, step);
    if (step.unit != kNoBuffer && step.op != Op::Embed && residency_.isAway(steps_.buffer(step.unit).of))
      use(step.unit, index, step);
    // New rows of activations go home directly.
    if (step.op == Op::RebuildKv && residency_.isAway(steps_.buffer(step.act).of))
      use(step.act, index, step);
    if (step.kv != kNoBuffer && !step.onCpu() && blocks_.tail() && homes_.bringsTails)
      use(step.kv, index, step);
    for (const BufferIndex stream : {step.x, step.inPlace ? step.y : kNoBuffer})
      if (stream != kNoBuffer && steps_.buffer(stream).is(MovableKind::Residual))
        use(stream, index, step);
  }

  size_t find(BufferIndex buffer, const Step &step) {
    movedOf_.resize(steps_.buffers.size(), kNone);
    size_t &moved = movedOf_[static_cast<size_t>(buffer)];
    if (moved == kNone) {
      moved = found_.moved.size();
      found_.moved.push_back(begin(steps_.buffer(buffer), step));
      found_.buffers.push_back(buffer);
    }
    return moved;
  }

  void use(BufferIndex buffer, uint32_t index, const Step &step) {
    const size_t i = find(buffer, step);
    algorithms::Moved &of = found_.moved[i];
    of.firstUse = std::min(of.firstUse, index);
    of.lastUse = index;
    // Of no layer is what goes with the head; of a stream that is made it is the last that uses it which says.
    if (of.made)
      layerOf_[i] = step.layer;
  }

  algorithms::Moved begin(const StepBuffer &buffer, const Step &step) {
    algorithms::Moved moved;
    moved.kind = buffer.of.kind;
    moved.miniBatch = buffer.miniBatch;
    moved.firstUse = std::numeric_limits<uint32_t>::max();
    moved.bytes = buffer.bytes;
    if (buffer.is(MovableKind::Kv)) {
      moved.bytes = static_cast<uint64_t>(blocks_.here - blocks_.resident) * homes_.target->kvBlockBytes;
      moved.writtenBack = writeBackOf(homes_) != WriteBack::Mirror;
    }
    moved.made = buffer.traits().written == Written::Whole && step.op == Op::Embed;
    moved.name = absl::StrCat(std::string(buffer.traits().name), " ", buffer.of.index);
    layerOf_.push_back(buffer.layer);
    return moved;
  }

  const Steps &steps_;
  const Homes &homes_;
  const algorithms::Residency &residency_;
  const CacheBlocks blocks_;
  MovedBuffers found_;
  algorithms::LayerSteps stepsOf_;
  bool inLayers_ = false;
  std::vector<size_t> movedOf_;  // by buffer
  std::vector<int32_t> layerOf_; // by movable: what it moves with
};

} // namespace

CacheBlocks cacheBlocksOf(const Homes &homes) {
  const int64_t here = homes.choice->kvBlocks > 0 ? homes.choice->kvBlocks : homes.target->kvBlocks;
  return {here, homes.choice->residency.firstKvBlockAway().value_or(here)};
}

WriteBack writeBackOf(const Homes &homes) {
  const algorithms::Pool &kv = homes.choice->residency.kv();
  const std::optional<WriteBack> &back =
      homes.iterationClass == plan::IterationClass::Decode ? kv.decodeBack : kv.mixedBack;
  return back.value_or(WriteBack::Mirror);
}

absl::StatusOr<MovedBuffers> movablesOf(const Steps &steps, const Homes &homes) { return Finder(steps, homes).run(); }

std::vector<bool> directSteps(const Steps &steps, const Homes &homes) {
  const algorithms::Residency &residency = homes.choice->residency;
  const CacheBlocks blocks = cacheBlocksOf(homes);
  const bool mirrored = homes.mirroredFrom && *homes.mirroredFrom < blocks.resident;
  const bool appends = mirrored || (blocks.tail() && homes.bringsTails && writeBackOf(homes) == WriteBack::Mirror);
  std::vector<bool> direct;
  for (const Step &step : steps.steps)
    direct.push_back((step.op == Op::Embed && residency.isAway(steps.buffer(step.unit).of)) ||
                     (step.op == Op::RopeAppend && appends) || step.op == Op::FetchRows ||
                     (step.op == Op::ActAppend && residency.isAway(steps.buffer(step.act).of)));
  return direct;
}

} // namespace headrace::compiler
