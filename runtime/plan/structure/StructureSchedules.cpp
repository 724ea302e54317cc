// SPDX-License-Identifier: Apache-2.0
//
// The structure of a plan: schedules, and what refers to them.
#include <algorithm>
#include <map>
#include <tuple>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/structure/StructureCheck.h"
#include "runtime/plan/value/BlockRuns.h"
#include "runtime/plan/value/Cycles.h"

namespace headrace::plan {

void StructureCheck::checkSchedule(uint32_t i) {
  const Schedule &s = plan_.schedules[i];
  const std::string path = absl::StrCat("schedules[", i, "]");
  schedule_ = i;
  text(s.name, model::kLongestName, false, path, ".name");
  enumerator(s.iterationClass, path, ".iteration_class");
  index(s.placement, plan_.placements.size(), path, ".placement");
  const bool computes = s.iterationClass != IterationClass::Transition;
  within(s.maxTokens, computes, plan_.metaLayout.maxTokens, path, ".max_tokens");
  within(s.maxSequences, computes, plan_.metaLayout.maxSequences, path, ".max_sequences");
  within(s.maxContext, computes, plan_.maxContext, path, ".max_context");
  if (s.fromPlacement != kNone) {
    if (computes)
      fail(path, ".from_placement is ", s.fromPlacement, ", expected none: the schedule is not a transition");
    index(s.fromPlacement, plan_.placements.size(), path, ".from_placement");
    if (s.fromPlacement == s.placement)
      fail(path, ".from_placement is ", s.fromPlacement, ", expected another than .placement, or none");
  }
  const uint32_t from = s.fromPlacement == kNone ? s.placement : s.fromPlacement;
  for (const auto &[name, id, placement] :
       {std::tuple{".entry_state", s.entryState, from}, {".exit_state", s.exitState, s.placement}})
    if (index(id, plan_.states.size(), path, name))
      ofPlacement(id, placement, path, name);
  if (ok())
    checkBlocksInUse(s, path);
  checkPhase(s, path);
  if (s.steps.empty())
    fail(path, ".steps is empty");
  atMost(s.steps.size(), kMaxSteps, "the number of ", path, ".steps");
  atMost(s.edges.size(), 4 * kMaxSteps, "the number of ", path, ".edges");
  atMost(s.operands.size(), 16 * kMaxSteps, "the number of ", path, ".operands");
  atMost(s.locals.size(), kMaxSteps, "the number of ", path, ".locals");
  for (size_t k = 0; k < s.locals.size() && ok(); ++k) {
    const Local &local = s.locals[k];
    const std::string at = absl::StrCat(path, ".locals[", k, "]");
    if (!text(local.buffer.name, model::kLongestName, false, at, ".name"))
      return;
    if (local.buffer.kind != BufferKind::Activation && local.buffer.kind != BufferKind::Workspace)
      fail(at, ".kind is ", value(local.buffer.kind), ", expected an activation or a workspace");
    if (local.buffer.bytes == 0)
      fail(at, ".bytes is 0");
    index(local.buffer.index, plan_.miniBatches, at, ".index");
    aligned(local.buffer.bytes, at, ".bytes");
    atMost(local.buffer.bytes, kMaxBytes, at, ".bytes");
    if (local.address == kNowhere && local.hostAddress == kNowhere)
      fail(at, " is nowhere, expected an address on the device or on the host");
    if (local.staged() && local.buffer.kind == BufferKind::Workspace)
      fail(at, " is a workspace on the device and on the host, expected one of them");
    for (const auto &[name, address] : {std::pair{".address", local.address}, {".host_address", local.hostAddress}})
      if (address != kNowhere) {
        aligned(address, at, name);
        atMost(address, kMaxBytes, at, name);
      }
  }
  for (size_t k = 0; k < s.steps.size() && ok(); ++k) {
    step_ = static_cast<uint32_t>(k);
    checkStep(s, step_, path);
  }
  step_ = kNone;
  checkEdges(s, path);
  schedule_ = kNone;
}

void StructureCheck::checkPhase(const Schedule &s, const std::string &path) {
  const uint32_t most = s.iterationClass == IterationClass::Transition ? 1 : kMostPhases;
  within(s.period, 1, most, path, ".period");
  index(s.phase, s.period, path, ".phase");
}

// Schedules of one cycle: each phase there once.
void StructureCheck::checkCycles() {
  if (!ok())
    return;
  std::map<CycleKey, std::vector<uint32_t>> cycles; // schedules by phase
  for (uint32_t i = 0; i < plan_.schedules.size() && ok(); ++i) {
    const Schedule &s = plan_.schedules[i];
    if (s.period == 1)
      continue;
    std::vector<uint32_t> &phases = cycles[cycleOf(s)];
    phases.resize(s.period, kNone);
    if (phases[s.phase] != kNone)
      fail("schedules[", i, "] is phase ", s.phase, " of ", s.period, ", as schedules[", phases[s.phase], "] is");
    phases[s.phase] = i;
  }
  for (const auto &[key, phases] : cycles)
    for (uint32_t phase = 0; phase < phases.size() && ok(); ++phase)
      if (phases[phase] == kNone)
        fail("schedules[", *std::find_if(phases.begin(), phases.end(), [](uint32_t i) { return i != kNone; }),
             "] is of a cycle of ", phases.size(), ", in which no schedule is phase ", phase);
}

// All blocks of the placement; or those at home on the device, where others are at home on the host.
void StructureCheck::checkBlocksInUse(const Schedule &s, const std::string &path) {
  if (s.kvBlocks == 0)
    return;
  const bool iteration = s.iterationClass != IterationClass::Transition;
  const uint64_t resident = split_ && iteration ? resident_[s.placement] / plan_.kvBlockBytes() : 0;
  if (resident == 0 || resident == static_cast<uint64_t>(plan_.placements[s.placement].kvBlocks))
    fail(path, ".kv_blocks is ", s.kvBlocks, ", expected 0");
  else if (s.kvBlocks < 0 || static_cast<uint64_t>(s.kvBlocks) != resident)
    fail(path, ".kv_blocks is ", s.kvBlocks, ", expected 0 or the ", resident, " that are on the device");
}

bool StructureCheck::checkStep(const Schedule &s, uint32_t i, const std::string &path) {
  const Step &step = s.steps[i];
  // Nearly every step is fine: the path is put together for one that is not.
  const auto at = [&] { return absl::StrCat(path, ".steps[", i, "]"); };
  if (!known(step.kind) || !known(step.lane) || !known(step.part) ||
      (step.kind == StepKind::Compute && !known(step.op)))
    return enumerator(step.kind, at(), ".kind") && enumerator(step.lane, at(), ".lane") &&
           enumerator(step.part, at(), ".part") && enumerator(step.op, at(), ".op");
  if (step.firstOperand > s.operands.size() || step.operandCount > s.operands.size() - step.firstOperand)
    return fail(at(), " has operands [", step.firstOperand, ", ", step.firstOperand, " + ", step.operandCount, ") of ",
                s.operands.size());
  // Of each mini-batch the publish of a stage has a residual.
  const bool sends = step.kind == StepKind::Publish && plan_.sends();
  if (const uint32_t most = model::enumCount<Arg>() + (sends ? plan_.miniBatches : 0); step.operandCount > most)
    return fail(at(), ".operand_count is ", step.operandCount, ", expected at most ", most);
  if (step.layer < -1 || step.layer >= plan_.model->layers)
    return fail(at(), ".layer is ", step.layer, ", expected -1 to ", plan_.model->layers - 1);
  if (step.miniBatch >= plan_.miniBatches)
    return fail(at(), ".mini_batch is ", step.miniBatch, ", expected less than ", plan_.miniBatches);
  if (step.flops > uint64_t{1} << 62 || step.deviceBytes > kMaxBytes || step.linkBytes > kMaxBytes)
    return fail(at(), " has amounts beyond measure: flops ", step.flops, ", device_bytes ", step.deviceBytes,
                ", link_bytes ", step.linkBytes);
  if (step.dirtyOnly && (!step.resizable || step.lane != Lane::D2H || s.iterationClass == IterationClass::Transition))
    return fail(at(), ".dirty_only is set, expected only of resizable copies of an iteration in lane d2h");
  if (s.iterationClass == IterationClass::Transition && step.kind != StepKind::Copy)
    return fail(at(), ".kind is ", value(step.kind), ", a transition has copies only");
  uint32_t seen = 0;
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k) {
    if (!checkOperand(s, k, path))
      return false;
    const uint32_t bit = 1u << value(s.operands[k].arg);
    if (seen & bit && !(sends && s.operands[k].arg == Arg::Residual))
      return fail(at(), " has two operands for ", argName(s.operands[k].arg));
    seen |= bit;
  }
  if (step.kind == StepKind::Copy)
    return checkCopy(s, i, path);
  if (step.kind == StepKind::Publish && step.miniBatch != 0)
    return fail(at(), ".mini_batch is ", step.miniBatch, ", expected 0: it publishes the tokens of all");
  return !step.resizable || fail(at(), ".resizable is set, expected only of copies");
}

bool StructureCheck::checkCopy(const Schedule &s, uint32_t i, const std::string &path) {
  const Step &step = s.steps[i];
  const auto at = [&] { return absl::StrCat(path, ".steps[", i, "]"); };
  if (step.operandCount != 2)
    return fail(at(), ".operand_count is ", step.operandCount, ", a copy has 2");
  const Operand &from = s.operands[step.firstOperand], &to = s.operands[step.firstOperand + 1];
  if (from.arg != Arg::Source || from.access != Access::Read || to.arg != Arg::Destination ||
      to.access != Access::Write)
    return fail(at(), " is a copy: a source to read, then a destination to write, are expected");
  if (from.buffer != to.buffer || from.bufferOffset != to.bufferOffset || from.bytes != to.bytes)
    return fail(at(), " copies bytes [", from.bufferOffset, ", ", from.bufferOffset, " + ", from.bytes, ") of buffer ",
                from.buffer, " to bytes [", to.bufferOffset, ", ", to.bufferOffset, " + ", to.bytes, ") of buffer ",
                to.buffer, ", expected the same");
  const Buffer &buffer = plan_.buffer(s, from.buffer);
  if (isTransient(buffer.kind) || buffer.kind == BufferKind::Io)
    return checkCopyDown(s, step, at());
  const bool residual = buffer.kind == BufferKind::Residual;
  if (const uint32_t whose =
          residual || buffer.kind == BufferKind::Kv || buffer.kind == BufferKind::Act ? buffer.index : 0;
      step.miniBatch != whose)
    return fail(at(), ".mini_batch is ", step.miniBatch, ", expected ", whose, ", whose ", buffer.name, " is");
  if (residual && from.bytes != buffer.bytes)
    return fail(at(), " copies bytes [", from.bufferOffset, ", ", from.bufferOffset + from.bytes, ") of ", buffer.name,
                ", expected all ", buffer.bytes);
  if (residual && step.dirtyOnly)
    return fail(at(), ".dirty_only is set, but it copies ", buffer.name, ", expected blocks of a cache");
  if (buffer.kind == BufferKind::Act && (from.bufferOffset != 0 || from.bytes != buffer.bytes || step.dirtyOnly))
    return fail(at(), " copies bytes [", from.bufferOffset, ", ", from.bufferOffset + from.bytes, ") of ", buffer.name,
                step.dirtyOnly ? ", dirty only" : "", ", expected all ", buffer.bytes);
  if (residual || !step.resizable)
    return true;
  if (!splits(buffer) && buffer.kind != BufferKind::Act)
    return fail(at(), ".resizable is set, but it copies ", buffer.name,
                ", expected blocks at home on the host, or a residual");
  return !splits(buffer) || from.bufferOffset % plan_.kvBlockBytes() == 0 ||
         fail(at(), ".resizable is set, but it begins at byte ", from.bufferOffset,
              ", expected a multiple of a block's ", plan_.kvBlockBytes());
}

// What steps of the cpu lane find in the slab: rows that device steps have made, and the iteration buffer.
bool StructureCheck::checkCopyDown(const Schedule &s, const Step &step, const std::string &at) {
  const Operand &from = s.operands[step.firstOperand], &to = s.operands[step.firstOperand + 1];
  const Buffer &buffer = plan_.buffer(s, from.buffer);
  const bool meta = buffer.kind == BufferKind::Io;
  if (s.iterationClass == IterationClass::Transition)
    return fail(at, " copies ", buffer.name, ", a transition copies none of it");
  if (from.space != Space::Device || to.space != Space::Host)
    return fail(at, " copies ", buffer.name, ", expected from the device to the host");
  if (meta ? static_cast<Io>(buffer.index) != Io::Meta || plan_.metaOnHost == kNowhere
           : !s.locals[from.buffer - plan_.buffers.size()].staged())
    return fail(at, " copies ", buffer.name, ", which has no range on the host");
  if (from.bufferOffset != 0 || from.bytes != buffer.bytes)
    return fail(at, " copies bytes [", from.bufferOffset, ", ", from.bufferOffset + from.bytes, ") of ", buffer.name,
                ", expected [0, ", buffer.bytes, ")");
  if (const uint32_t whose = meta ? 0 : buffer.index; step.miniBatch != whose)
    return fail(at, ".mini_batch is ", step.miniBatch, ", expected ", whose,
                meta ? ", of what all have" : ", whose " + buffer.name + " is");
  if (step.dirtyOnly || (meta && step.resizable))
    return fail(at, step.dirtyOnly ? ".dirty_only" : ".resizable", " is set, but it copies ", buffer.name);
  return true;
}

bool StructureCheck::checkOperand(const Schedule &s, uint32_t i, const std::string &path) {
  const Operand &operand = s.operands[i];
  const auto at = [&] { return absl::StrCat(path, ".operands[", i, "]"); };
  if (!known(operand.space) || !known(operand.access) || !known(operand.arg))
    return enumerator(operand.space, at(), ".space") && enumerator(operand.access, at(), ".access") &&
           enumerator(operand.arg, at(), ".arg");
  const uint64_t persistent = plan_.buffers.size();
  if (operand.buffer >= persistent + s.locals.size())
    return index(operand.buffer, persistent + s.locals.size(), at(), ".buffer");
  const Buffer &buffer = plan_.buffer(s, operand.buffer);
  const uint64_t size = buffer.bytes;
  const bool split = splits(buffer);
  if (operand.bytes == 0 || operand.bytes > size || operand.bufferOffset > size - operand.bytes ||
      operand.address > kMaxBytes || (!split && (operand.address - operand.bufferOffset) % model::kAlign != 0))
    return range(operand.bufferOffset, operand.bytes, size, operand.address, split, at());
  if (operand.interleaved && (!split || operand.space != Space::Device))
    return fail(at(), ".interleaved is set, expected only of a split cache on the device");
  if (split && operand.space == Space::Device)
    return checkBlocks(s, i, path);
  if (operand.buffer < persistent)
    return true;
  const uint64_t begin = s.locals[operand.buffer - persistent].in(operand.space);
  if (begin == kNowhere)
    return fail(at(), ".space is ", value(operand.space), ", where the transient buffer has no range");
  return operand.address == begin + operand.bufferOffset ||
         fail(at(), ".address is ", operand.address, ", expected ", begin + operand.bufferOffset,
              ", where the transient buffer lies");
}

// On the device the blocks of a split cache that are at home there are nowhere else, and the others not among them.
bool StructureCheck::checkBlocks(const Schedule &s, uint32_t i, const std::string &path) {
  const Operand &operand = s.operands[i];
  const auto at = [&] { return absl::StrCat(path, ".operands[", i, "]"); };
  const uint64_t resident = resident_[s.placement], block = plan_.kvBlockBytes();
  const uint64_t begin = operand.bufferOffset, end = begin + operand.bytes;
  const Buffer &buffer = plan_.buffers[operand.buffer];
  if (!operand.interleaved)
    return begin >= resident || fail(at(), " is ", buffer.name, " from byte ", begin,
                                     " on, not interleaved, expected [0, ", resident, ") at home");
  if (begin % block != 0 || end % block != 0)
    return fail(at(), ".interleaved is set of bytes [", begin, ", ", end, ") of ", buffer.name,
                ", expected whole blocks of ", block);
  if (end > resident)
    return fail(at(), ".interleaved is set of bytes [", begin, ", ", end, ") of ", buffer.name, ", of which [0, ",
                resident, ") are");
  const uint64_t home = cacheAddress_[plan_.cacheNumber(buffer)] + begin / block * plan_.kvStride();
  return operand.address == home || fail(at(), " is ", buffer.name, " at ", operand.address, ", its home is at ", home);
}

void StructureCheck::checkEdges(const Schedule &s, const std::string &path) {
  for (size_t k = 0; k < s.edges.size() && ok(); ++k) {
    const Edge &edge = s.edges[k];
    const auto at = [&] { return absl::StrCat(path, ".edges[", k, "]"); };
    if (!known(edge.kind))
      enumerator(edge.kind, at(), ".kind");
    else if (edge.to >= s.steps.size())
      index(edge.to, s.steps.size(), at(), ".to");
    else if (edge.from >= edge.to)
      fail(at(), " goes from step ", edge.from, " to step ", edge.to, ", expected forwards");
    else if (s.steps[edge.from].lane == s.steps[edge.to].lane)
      fail(at(), " goes from step ", edge.from, " to step ", edge.to, " of the same lane");
    else if (k > 0 && std::tie(s.edges[k - 1].to, s.edges[k - 1].from) >= std::tie(edge.to, edge.from))
      fail(at(), " is out of order, or there twice");
  }
}

bool StructureCheck::checkDurations(const std::vector<uint64_t> &durations, uint32_t schedule,
                                    const std::string &path) {
  const size_t steps = plan_.schedules[schedule].steps.size();
  if (durations.size() != steps)
    return fail(path, ".durations_ns has ", durations.size(), " entries, its schedule has ", steps, " steps");
  for (size_t i = 0; i < durations.size(); ++i)
    if (durations[i] > kMaxDurationNs)
      return atMost(durations[i], kMaxDurationNs, path, ".durations_ns[", i, "]");
  return true;
}

void StructureCheck::checkVariant(size_t i) {
  const Variant &v = plan_.variants[i];
  const std::string path = absl::StrCat("variants[", i, "]");
  if (!index(v.placement, plan_.placements.size(), path, ".placement") ||
      !index(v.schedule, plan_.schedules.size(), path, ".schedule"))
    return;
  const Schedule &s = plan_.schedules[v.schedule];
  if (s.iterationClass == IterationClass::Transition)
    fail(path, ".schedule is ", v.schedule, ", a transition");
  if (s.placement != v.placement)
    fail(path, ".schedule is ", v.schedule, ", of placement ", s.placement, ", expected one of ", v.placement);
  within(v.newTokens, 1, s.maxTokens, path, ".new_tokens");
  within(v.sequences, 1, s.maxSequences, path, ".sequences");
  within(v.context, 1, s.maxContext, path, ".context");
  checkDurations(v.durationsNs, v.schedule, path);
  const auto key = [&](const Variant &x) {
    const uint64_t blocks = x.schedule < plan_.schedules.size() && x.placement < plan_.placements.size()
                                ? static_cast<uint64_t>(kvBlocksOf(plan_, plan_.schedules[x.schedule]))
                                : 0;
    return std::tuple(x.placement, x.newTokens, x.sequences, x.context, blocks,
                      x.schedule < plan_.schedules.size() ? plan_.schedules[x.schedule].phase : 0);
  };
  if (i > 0 && key(plan_.variants[i - 1]) >= key(v))
    fail(path, " is out of order, or there twice");
}

void StructureCheck::checkChoice(size_t i) {
  const BucketChoice &c = plan_.choices[i];
  const std::string path = absl::StrCat("choices[", i, "]");
  if (!index(c.variant, plan_.variants.size(), path, ".variant"))
    return;
  const auto key = [&](const BucketChoice &x) {
    const Variant &v = plan_.variants[x.variant];
    return std::tie(v.newTokens, v.sequences, v.context);
  };
  if (i > 0 && key(plan_.choices[i - 1]) >= key(c))
    fail(path, " is out of order, or there twice");
}

void StructureCheck::checkTransition(const Transition &t, const std::string &path) {
  if (!index(t.fromState, plan_.states.size(), path, ".from_state") ||
      !index(t.toState, plan_.states.size(), path, ".to_state") ||
      !index(t.schedule, plan_.schedules.size(), path, ".schedule"))
    return;
  const Schedule &s = plan_.schedules[t.schedule];
  if (s.iterationClass != IterationClass::Transition)
    fail(path, ".schedule is ", t.schedule, ", not a transition");
  ofPlacement(t.fromState, s.fromPlacement == kNone ? s.placement : s.fromPlacement, path, ".from_state");
  ofPlacement(t.toState, s.placement, path, ".to_state");
  checkDurations(t.durationsNs, t.schedule, path);
}

} // namespace headrace::plan
