// SPDX-License-Identifier: Apache-2.0
#include "tests/choices/WatchedDevice.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/BlockRuns.h"

namespace headrace::choices {
namespace {

constexpr size_t kMostFindings = 8;

constexpr uint64_t divideUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

std::string kindOf(const plan::Buffer &buffer) {
  switch (buffer.kind) {
  case plan::BufferKind::Weight:
    return "weights";
  case plan::BufferKind::Kv:
    return "kv";
  case plan::BufferKind::Act:
    return "acts";
  case plan::BufferKind::Residual:
    return "residuals";
  case plan::BufferKind::Io:
    return "meta";
  case plan::BufferKind::Activation: // what has a place on the host, too, is rows of q, k and v
    return "qkv";
  default:
    return buffer.name;
  }
}

// Bytes that a step touches.
struct Touched {
  plan::Space space;
  bool writes;
  uint64_t begin, end;
};

std::vector<Touched> touchedBy(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step) {
  std::vector<Touched> all;
  for (uint32_t o = 0; o < step.operandCount; ++o) {
    const plan::Operand &operand = schedule.operands[step.firstOperand + o];
    plan::forEachRun(plan, operand, [&](uint64_t begin, uint64_t bytes) {
      all.push_back({operand.space, operand.access != plan::Access::Read, begin, begin + bytes});
    });
  }
  return all;
}

bool share(const std::vector<Touched> &a, const std::vector<Touched> &b) {
  return std::any_of(a.begin(), a.end(), [&](const Touched &x) {
    return std::any_of(b.begin(), b.end(), [&](const Touched &y) {
      return x.space == y.space && (x.writes || y.writes) && x.begin < y.end && y.begin < x.end;
    });
  });
}

std::string nameOf(const plan::Plan &plan, const plan::Schedule &schedule, uint32_t index) {
  const plan::Step &step = schedule.steps[index];
  if (step.kind == plan::StepKind::Compute)
    return absl::StrCat("step ", index, ", ", std::string(kernels::opName(step.op)), " of layer ", step.layer);
  if (step.kind == plan::StepKind::Publish)
    return absl::StrCat("step ", index, ", publish");
  return absl::StrCat("step ", index, ", ", std::string(plan::laneName(step.lane)), " of ",
                      plan.buffer(schedule, schedule.operands[step.firstOperand].buffer).name);
}

} // namespace

absl::Status WatchedDevice::open(const plan::Plan &plan, const core::DeviceOptions &options) {
  plan_ = &plan;
  brought_.emplace(plan);
  core::DeviceOptions traced = options;
  traced.trace = !on_->holdsData();
  return on_->open(plan, traced);
}

absl::StatusOr<std::unique_ptr<core::Graph>> WatchedDevice::build(const core::GraphKey &key) {
  ASSIGN_OR_RETURN(graph, on_->build(key));
  keys_[graph.get()] = key;
  return graph;
}

const plan::Schedule &WatchedDevice::scheduleOf(const core::GraphKey &key) const {
  const uint32_t schedule =
      key.transition ? plan_->transitions[key.index].schedule : plan_->variants[key.index].schedule;
  return plan_->schedules[schedule];
}

absl::Status WatchedDevice::launch(core::Graph &graph, const core::LaunchInUse &inUse) {
  const core::GraphKey &key = keys_.at(&graph);
  const plan::Schedule &schedule = scheduleOf(key);
  if (watch_.eachLaunch && on_->holdsData())
    RETURN_IF_ERROR(poison(schedule));
  const Moved moved = planned(schedule, inUse, key.transition);
  for (uint32_t i = 0; i < plan_->miniBatches && !key.transition; ++i)
    endOfUse_ = std::max(endOfUse_, inUse.of(i).kvBlocks);
  planned_.in += moved.in;
  planned_.out += moved.out;
  const std::string missing = brought_->play(schedule, key.transition ? nullptr : on_->meta(),
                                             [&](const auto &step) { return copied(schedule, step, inUse); });
  if (!missing.empty())
    found(absl::StrCat("'", schedule.name, "': ", missing));
  RETURN_IF_ERROR(on_->launch(graph, inUse));
  if (!watch_.eachLaunch)
    return absl::OkStatus();
  RETURN_IF_ERROR(on_->drain());
  compareBytes(absl::StrCat("a launch of '", schedule.name, "'"));
  if (!on_->holdsData())
    checkTimes(schedule);
  return absl::OkStatus();
}

void WatchedDevice::compareBytes(const std::string &of) {
  const core::DeviceCounters now = on_->counters();
  const Moved moved{now.h2dBytes - compared_.h2dBytes, now.d2hBytes - compared_.d2hBytes};
  if (moved.in != planned_.in || moved.out != planned_.out)
    found(absl::StrCat(of, " moved ", moved.in, " bytes in and ", moved.out, " out, the steps say ", planned_.in,
                       " and ", planned_.out));
  compared_ = now;
  planned_ = {};
}

WatchedDevice::Moved WatchedDevice::planned(const plan::Schedule &schedule, const core::LaunchInUse &inUse,
                                            bool transition) {
  Moved moved;
  for (const plan::Step &step : schedule.steps) {
    if (step.kind == plan::StepKind::Copy) {
      (step.lane == plan::Lane::H2D ? moved.in : moved.out) += copied(schedule, step, inUse).bytes;
    } else if (step.direct && !transition) {
      const Moved by = direct(schedule, step);
      moved.in += by.in;
      moved.out += by.out;
    }
  }
  return moved;
}

// Of a copy whose size a launch chooses, that holds blocks [first, first + n): the fewest 256ths of its bytes that hold
// what is in use of them, from a multiple of 256 bytes to one. Of none in use the first 256th.
//
//   40 blocks of 1 KiB from block 3 on, 20 in use: 17 blocks; 17 x 256 / 40 = 108.8, so 109 x 160 bytes = 17.03 KiB,
//   which 256 bytes make 17.25
Brought::Run WatchedDevice::copied(const plan::Schedule &schedule, const plan::Step &step,
                                   const core::LaunchInUse &launch) {
  const plan::Operand &from = schedule.operands[step.firstOperand], &to = schedule.operands[step.firstOperand + 1];
  const plan::Buffer &buffer = plan_->buffer(schedule, from.buffer);
  std::set<std::string> &kinds = step.lane == plan::Lane::H2D ? in_ : out_;
  const bool apart = from.interleaved || to.interleaved;
  const uint64_t all = from.bytes;
  if (!step.resizable) {
    kinds.insert(kindOf(buffer));
    return {0, all};
  }
  const core::InUse &inUse = launch.of(step.miniBatch);
  const bool staged = from.buffer >= plan_->buffers.size();
  const bool rows = buffer.kind == plan::BufferKind::Residual || staged, acts = buffer.kind == plan::BufferKind::Act;
  const uint64_t block =
      staged ? static_cast<uint64_t>(plan_->model->qkvRows()) * model::dtypeBytes(plan_->activationDtype)
      : rows ? static_cast<uint64_t>(plan_->model->hidden) * sizeof(float)
      : acts ? plan_->actBlockBytes()
             : plan_->kvBlockBytes();
  const auto first = static_cast<int64_t>(from.bufferOffset / block),
             blocks = static_cast<int64_t>(divideUp(all, block));
  const auto within = [&](int64_t number) { return std::clamp<int64_t>(std::max(number, first) - first, 0, blocks); };
  int64_t begin = 0, end = within(rows ? inUse.rows : acts ? inUse.actBlocks : inUse.kvBlocks);
  if (step.dirtyOnly) {
    begin = within(inUse.writtenBegin);
    end = std::min(end, within(inUse.writtenEnd));
  }
  uint64_t firstShare = 0, endShare = 1;
  if (begin < end) {
    kinds.insert(kindOf(buffer));
    firstShare = static_cast<uint64_t>(begin) * block * 256 / all;
    endShare = end == blocks ? 256 : divideUp(static_cast<uint64_t>(end) * block * 256, all);
  }
  if (apart && !watch_.sizesRows)
    return {0, all};
  const uint64_t units = apart ? static_cast<uint64_t>(blocks) : all;
  const uint64_t low = units * firstShare / 256, high = divideUp(units * endShare, 256);
  const uint64_t offset = apart ? low * block : low / 256 * 256;
  return {offset, std::min(all, apart ? high * block : divideUp(high, 256) * 256) - offset};
}

// By the iteration's rows: those of the embedding that are read, those that the CPU has attended for, those that are
// appended to a home on the host.
WatchedDevice::Moved WatchedDevice::direct(const plan::Schedule &schedule, const plan::Step &step) {
  Moved moved;
  const kernels::IterationMeta &meta = *kernels::metaOf(plan_->metaLayout, on_->meta(), step.miniBatch);
  const model::ModelSpec &spec = plan_->model;
  for (uint32_t o = 0; o < step.operandCount; ++o) {
    const plan::Operand &operand = schedule.operands[step.firstOperand + o];
    if (operand.space != plan::Space::Host)
      continue;
    if (step.op == kernels::Op::Embed && operand.arg == plan::Arg::Table) {
      const auto tables = static_cast<uint64_t>(spec.learnedPositions ? 2 : 1);
      moved.in += static_cast<uint64_t>(meta.numTokens) * tables * static_cast<uint64_t>(spec.hidden) *
                  model::dtypeBytes(spec.dtype);
      in_.insert("table");
      continue;
    }
    if (step.op == kernels::Op::FetchRows) {
      moved.in += static_cast<uint64_t>(meta.numTokens) * static_cast<uint64_t>(spec.qRows()) *
                  model::dtypeBytes(plan_->activationDtype);
      in_.insert("attended");
      continue;
    }
    const bool acts = operand.arg == plan::Arg::Act;
    if (!acts && operand.arg != plan::Arg::KvHome)
      continue;
    // Blocks of activations are numbered behind those of keys and values.
    const uint64_t block = acts ? plan_->actBlockBytes() : plan_->kvBlockBytes();
    const uint64_t first = operand.bufferOffset / block + (acts ? static_cast<uint64_t>(plan_->kvBlocks) : 0),
                   end = first + operand.bytes / block;
    const int32_t *slots = meta.array<int32_t>(meta.kvSlot);
    for (int32_t row = 0; row < meta.numTokens; ++row)
      if (const auto of = static_cast<uint64_t>(slots[row] / plan_->blockTokens); of >= first && of < end) {
        moved.out += block / static_cast<uint64_t>(plan_->blockTokens);
        out_.insert(acts ? "acts" : "rows");
      }
  }
  return moved;
}

absl::Status WatchedDevice::poison(const plan::Schedule &schedule) {
  const auto [at, isNew] = dead_.try_emplace(&schedule);
  if (isNew)
    at->second = host::deadRanges(*plan_, schedule).before;
  for (const host::ByteRange &range : at->second) {
    const std::vector<std::byte> bytes(range.end - range.begin, std::byte{0xff});
    RETURN_IF_ERROR(on_->writeDevice(range.begin, bytes));
  }
  RETURN_IF_ERROR(on_->drain());
  for (const plan::Extent &extent : plan_->placements[schedule.placement].extents)
    if (plan_->buffers[extent.buffer].kind == plan::BufferKind::Residual) // they hold nothing between iterations
      std::memset(on_->hostSlab().data() + extent.address, 0xff, extent.bytes);
  return absl::OkStatus();
}

// Steps that must not run at once: neighbours of a lane, and those of two lanes that touch the same bytes, one of them
// writing.
const WatchedDevice::Pairs &WatchedDevice::sharing(const plan::Schedule &schedule) {
  const auto [at, isNew] = sharing_.try_emplace(&schedule);
  if (!isNew)
    return at->second;
  std::vector<std::vector<Touched>> touched;
  for (const plan::Step &step : schedule.steps)
    touched.push_back(touchedBy(*plan_, schedule, step));
  std::map<plan::Lane, uint32_t> lastOf;
  for (uint32_t j = 0; j < schedule.steps.size(); ++j) {
    const plan::Lane lane = schedule.steps[j].lane;
    if (const auto last = lastOf.find(lane); last != lastOf.end())
      at->second.emplace_back(last->second, j);
    lastOf[lane] = j;
    for (uint32_t i = 0; i < j; ++i)
      if (schedule.steps[i].lane != lane && share(touched[i], touched[j]))
        at->second.emplace_back(i, j);
  }
  return at->second;
}

void WatchedDevice::checkTimes(const plan::Schedule &schedule) {
  const absl::Span<const core::StepTime> times = on_->lastTimes();
  if (times.size() != schedule.steps.size())
    return found(absl::StrCat("times of ", times.size(), " steps, '", schedule.name, "' has ", schedule.steps.size()));
  for (const auto &[before, after] : sharing(schedule))
    if (times[after].startNs < times[before].endNs)
      found(absl::StrCat("'", schedule.name, "': ", nameOf(*plan_, schedule, after), " starts ",
                         times[before].endNs - times[after].startNs, " ns before the end of ",
                         nameOf(*plan_, schedule, before), ", which touches the same bytes"));
}

void WatchedDevice::found(std::string what) {
  if (findings_.size() < kMostFindings && std::find(findings_.begin(), findings_.end(), what) == findings_.end())
    findings_.push_back(std::move(what));
}

} // namespace headrace::choices
