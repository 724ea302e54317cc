// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/PlanStructure.h"

#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/base/EnumCount.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/BufferIndex.h"

namespace headrace::plan {
namespace {

template <typename E> constexpr int value(E e) { return static_cast<int>(e); }
template <typename E> constexpr bool known(E e) { return value(e) < model::enumCount<E>(); }

class StructureCheck {
public:
  explicit StructureCheck(const Plan &plan) : plan_(plan) {}

  std::optional<StructureFault> run() {
    checkHeader();
    checkBuffers();
    for (size_t i = 0; i < plan_.placements.size() && ok(); ++i)
      checkPlacement(plan_.placements[i], absl::StrCat("placements[", i, "]"));
    for (size_t i = 0; i < plan_.states.size() && ok(); ++i)
      checkState(plan_.states[i], absl::StrCat("states[", i, "]"));
    for (size_t i = 0; i < plan_.schedules.size() && ok(); ++i)
      checkSchedule(static_cast<uint32_t>(i));
    for (size_t i = 0; i < plan_.variants.size() && ok(); ++i)
      checkVariant(i);
    for (size_t i = 0; i < plan_.choices.size() && ok(); ++i)
      checkChoice(i);
    for (size_t i = 0; i < plan_.transitions.size() && ok(); ++i)
      checkTransition(plan_.transitions[i], absl::StrCat("transitions[", i, "]"));
    return std::move(fault_);
  }

private:
  bool ok() const { return !fault_; }

  template <typename... Parts> bool fail(const Parts &...parts) {
    if (ok())
      fault_ = StructureFault{schedule_, step_, absl::StrCat(parts...)};
    return false;
  }

  template <typename E, typename... Path> bool enumerator(E e, const Path &...path) {
    return known(e) || fail(path..., " is ", value(e), ", expected 0 to ", model::enumCount<E>() - 1);
  }
  template <typename... Path> bool index(uint64_t i, uint64_t count, const Path &...path) {
    return i < count || fail(path..., " is ", i, ", expected less than ", count);
  }
  template <typename... Path> bool within(int64_t x, int64_t low, int64_t high, const Path &...path) {
    return (x >= low && x <= high) || fail(path..., " is ", x, ", expected ", low, " to ", high);
  }
  template <typename... Path> bool atMost(uint64_t x, uint64_t high, const Path &...path) {
    return x <= high || fail(path..., " is ", x, ", expected at most ", high);
  }
  template <typename... Path> bool aligned(uint64_t x, const Path &...path) {
    return x % model::kAlign == 0 || fail(path..., " is ", x, ", expected a multiple of ", model::kAlign);
  }
  // Text that is printed: short, and nothing that a terminal would obey. Lines may end only where `lines` says so.
  template <typename... Path> bool text(const std::string &s, size_t longest, bool lines, const Path &...path) {
    if (s.size() > longest)
      return fail(path..., " has ", s.size(), " bytes, expected at most ", longest);
    for (const char c : s)
      if ((static_cast<unsigned char>(c) < 0x20 && !(lines && c == '\n')) || c == 0x7f)
        return fail(path..., " has a control character, ", static_cast<int>(c));
    return true;
  }
  // A state of that placement, or one that holds nothing.
  template <typename... Path> bool ofPlacement(uint32_t state, uint32_t placement, const Path &...path) {
    const State &s = plan_.states[state];
    return s.contents.empty() || s.placement == placement ||
           fail(path..., " is ", state, ", a state of placement ", s.placement, ", expected one of ", placement);
  }
  // A range inside a buffer of `size` bytes, at an address.
  template <typename... Path>
  bool range(uint64_t offset, uint64_t bytes, uint64_t size, uint64_t address, const Path &...path) {
    if (bytes == 0 || bytes > size || offset > size - bytes)
      return fail(path..., " has bytes [", offset, ", ", offset, " + ", bytes, ") of a buffer of ", size);
    return atMost(address, kMaxBytes, path..., ".address") &&
           ((address - offset) % model::kAlign == 0 || fail(path..., ".address is ", address, " for offset ", offset,
                                                            ", expected to differ by a multiple of ", model::kAlign));
  }

  void checkHeader();
  void checkAliases();
  void checkBuffers();
  void checkPlacement(const Placement &placement, const std::string &path);
  void checkState(const State &state, const std::string &path);
  void checkSchedule(uint32_t i);
  bool checkStep(const Schedule &schedule, uint32_t i, const std::string &path);
  bool checkOperand(const Schedule &schedule, uint32_t i, const std::string &path);
  void checkEdges(const Schedule &schedule, const std::string &path);
  bool checkDurations(const std::vector<uint64_t> &durations, uint32_t schedule, const std::string &path);
  void checkVariant(size_t i);
  void checkChoice(size_t i);
  void checkTransition(const Transition &transition, const std::string &path);

  const Plan &plan_;
  uint32_t schedule_ = kNone, step_ = kNone; // what is being checked, for the fault
  std::optional<StructureFault> fault_;
};

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
  if (plan_.policy.startRule == model::StartRule::Ahead) // some policies' own, not to be asked for
    fail("policy.start_rule is ", static_cast<int>(plan_.policy.startRule), ", expected 0 to 1");
  text(plan_.goal.record, kLongestText, false, "goal.record");
  if (plan_.goal.sloFactor && !std::isfinite(*plan_.goal.sloFactor))
    fail("goal.slo_factor is ", *plan_.goal.sloFactor, ", expected a finite factor");
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
  const model::Hardware &h = plan_.hardware;
  for (const auto &[name, figure] : {std::pair{"flops_f32", h.flopsF32},
                                     {"flops_f16", h.flopsF16},
                                     {"memory_bandwidth", h.memoryBandwidth},
                                     {"h2d_bandwidth", h.h2dBandwidth},
                                     {"d2h_bandwidth", h.d2hBandwidth},
                                     {"duplex_bandwidth", h.duplexBandwidth},
                                     {"copy_latency", h.copyLatency},
                                     {"launch_overhead", h.launchOverhead},
                                     {"flops_efficiency", h.flopsEfficiency},
                                     {"memory_efficiency", h.memoryEfficiency},
                                     {"link_efficiency", h.linkEfficiency}})
    if (!std::isfinite(figure) || figure < 0)
      fail("hardware.", name, " is ", figure, ", expected a finite figure that is not negative");
  enumerator(h.kind, "hardware.kind");
  enumerator(plan_.activationDtype, "activation_dtype");
  enumerator(plan_.kvDtype, "kv_dtype");
  // 2^20 tokens a block, 2^31 blocks, 2^31 heads x dimension: checked as a product with the KV buffers' size.
  within(plan_.blockTokens, 1, int64_t{1} << 20, "block_tokens");
  within(plan_.kvBlocks, 1, model::kMaxDimension, "kv_blocks");
  within(plan_.maxContext, 1, model::kMaxDimension, "max_context");
  const kernels::MetaLayout &meta = plan_.metaLayout;
  within(meta.maxTokens, 1, int64_t{1} << 26, "max_tokens");
  within(meta.maxSequences, 1, int64_t{1} << 24, "max_sequences");
  within(meta.maxBlocksPerSequence, 1, int64_t{1} << 28, "max_blocks_per_sequence");
  if (ok() && kernels::metaBytes(meta) >= kMaxMetaBytes)
    fail("max_tokens ", meta.maxTokens, ", max_sequences ", meta.maxSequences, " and max_blocks_per_sequence ",
         meta.maxBlocksPerSequence, " make a meta buffer of ", kernels::metaBytes(meta), " bytes, expected less than ",
         kMaxMetaBytes);
  atMost(plan_.arenaBytes, kMaxBytes, "arena_bytes");
  atMost(plan_.hostBytes, kMaxBytes, "host_bytes");
  checkAliases();
  for (const auto &[name, count] : {std::pair{"placements", plan_.placements.size()},
                                    {"states", plan_.states.size()},
                                    {"schedules", plan_.schedules.size()},
                                    {"variants", plan_.variants.size()}})
    if (count == 0 || count > kMaxSchedules)
      fail(name, " has ", count, " entries, expected 1 to ", kMaxSchedules);
  atMost(plan_.transitions.size(), kMaxSchedules, "the number of transitions");
}

// Whole pages behind the arena, of pages in the arena.
void StructureCheck::checkAliases() {
  const uint64_t page = plan_.pageBytes;
  if (page == 0) {
    if (!plan_.aliases.empty())
      fail("aliases has ", plan_.aliases.size(), " entries, expected none with page_bytes 0");
    return;
  }
  if (page % model::kAlign != 0 || page > kMaxPageBytes || (page & (page - 1)) != 0)
    fail("page_bytes is ", page, ", expected a power of two from ", model::kAlign, " to ", kMaxPageBytes);
  if (plan_.aliases.empty() || plan_.aliases.size() > kMaxAliases)
    fail("aliases has ", plan_.aliases.size(), " entries, expected 1 to ", kMaxAliases);
  if (ok() && plan_.arenaBytes % page != 0)
    fail("arena_bytes is ", plan_.arenaBytes, ", expected a multiple of page_bytes ", page);
  uint64_t end = plan_.arenaBytes;
  for (size_t i = 0; i < plan_.aliases.size() && ok(); ++i) {
    const Alias &a = plan_.aliases[i];
    if (a.bytes == 0 || a.bytes % page != 0 || a.address % page != 0 || a.arenaAddress % page != 0)
      fail("aliases[", i, "] maps ", a.address, ", + ", a.bytes, " to ", a.arenaAddress, ", expected pages of ", page);
    else if (a.address < end || a.address > kMaxBytes || a.bytes > kMaxBytes)
      fail("aliases[", i, "] maps ", a.address, ", + ", a.bytes, ", expected a range from ", end, " to ", kMaxBytes);
    else if (a.bytes > plan_.arenaBytes || a.arenaAddress > plan_.arenaBytes - a.bytes)
      fail("aliases[", i, "] maps to ", a.arenaAddress, ", + ", a.bytes, ", beyond the arena of ", plan_.arenaBytes);
    else
      end = a.address + a.bytes;
  }
}

// What Buffer::index may be at most.
uint32_t largestIndex(BufferKind kind, int64_t layers) {
  switch (kind) {
  case BufferKind::Weight:
    return static_cast<uint32_t>(model::unitCount(layers) - 1);
  case BufferKind::Io:
    return model::enumCount<Io>() - 1;
  case BufferKind::Kv:
  case BufferKind::Activation:
  case BufferKind::Workspace:
    return 0;
  case BufferKind::Act:
  case BufferKind::Packed:
  case BufferKind::Staging:
    return kMaxBuffers - 1;
  }
  return 0;
}

void StructureCheck::checkBuffers() {
  if (!ok())
    return;
  atMost(plan_.buffers.size(), kMaxBuffers, "the number of buffers");
  const int64_t layers = plan_.model->layers;
  std::map<std::tuple<BufferKind, int32_t, uint32_t>, size_t> seen;
  for (size_t i = 0; i < plan_.buffers.size() && ok(); ++i) {
    const Buffer &buffer = plan_.buffers[i];
    if (!text(buffer.name, model::kLongestName, false, "buffers[", i, "].name") ||
        !enumerator(buffer.kind, "buffers[", i, "].kind"))
      return;
    if (isTransient(buffer.kind))
      fail("buffers[", i, "].kind is ", value(buffer.kind), " (", bufferKindName(buffer.kind),
           "), which is a schedule's own");
    within(buffer.layer, buffer.kind == BufferKind::Kv || buffer.kind == BufferKind::Act ? 0 : -1,
           buffer.kind == BufferKind::Io ? -1 : layers - 1, "buffers[", i, "].layer");
    atMost(buffer.index, largestIndex(buffer.kind, layers), "buffers[", i, "].index");
    if (buffer.bytes == 0)
      fail("buffers[", i, "].bytes is 0");
    aligned(buffer.bytes, "buffers[", i, "].bytes");
    atMost(buffer.bytes, kMaxBytes, "buffers[", i, "].bytes");
    const auto [at, isNew] = seen.try_emplace({buffer.kind, buffer.layer, buffer.index}, i);
    if (!isNew)
      fail("buffers[", i, "] is ", bufferKindName(buffer.kind), " ", buffer.index, " of layer ", buffer.layer,
           ", as buffers[", at->second, "] is");
  }
  if (!ok())
    return;
  // What every model needs. The layer of a weight is its unit's: checked with its size (VerifySizes.cpp).
  const BufferIndex index(plan_);
  for (uint32_t unit = 0; unit <= largestIndex(BufferKind::Weight, layers) && ok(); ++unit)
    if (index.weight(unit) == kNone)
      fail("buffers has no weight ", unit, ", a model of ", layers, " layers has ",
           largestIndex(BufferKind::Weight, layers) + 1);
  for (int64_t layer = 0; layer < layers && ok(); ++layer)
    if (index.kv(layer) == kNone)
      fail("buffers has no kv of layer ", layer);
  for (const Io io : {Io::Meta, Io::Sampled, Io::Output})
    if (index.io(io) == kNone)
      fail("buffers has no io ", value(io));
}

constexpr int64_t kMostStartItems = int64_t{1} << 20;

void StructureCheck::checkPlacement(const Placement &placement, const std::string &path) {
  text(placement.name, model::kLongestName, false, path, ".name");
  enumerator(placement.startRule, path, ".start_rule");
  within(placement.startItems, 0, placement.startRule == model::StartRule::Ahead ? kMostStartItems : 0, path,
         ".start_items");
  within(placement.kvBlocks, plan_.pageBytes == 0 ? plan_.kvBlocks : 1, plan_.kvBlocks, path, ".kv_blocks");
  uint64_t buffer = 0, offset = 0; // where the next extent must begin
  for (size_t i = 0; i < placement.extents.size() && ok(); ++i) {
    const Extent &extent = placement.extents[i];
    const std::string at = absl::StrCat(path, ".extents[", i, "]");
    if (!enumerator(extent.space, at, ".space") || !enumerator(extent.encoding, at, ".encoding") ||
        !index(extent.buffer, plan_.buffers.size(), at, ".buffer"))
      return;
    if (extent.buffer != buffer || extent.bufferOffset != offset) {
      fail(at, " begins at byte ", extent.bufferOffset, " of buffer ", extent.buffer, ", expected byte ", offset,
           " of buffer ", buffer);
      return;
    }
    const uint64_t size = plan_.buffers[buffer].bytes;
    range(extent.bufferOffset, extent.bytes, size, extent.address, at);
    aligned(extent.bytes, at, ".bytes");
    if (extent.direct && extent.space != Space::Host)
      fail(at, ".direct is set, but its home is not the host");
    offset += extent.bytes;
    if (offset == size) {
      ++buffer;
      offset = 0;
    }
  }
  if (ok() && buffer != plan_.buffers.size())
    fail(path, ".extents end at byte ", offset, " of buffer ", buffer, ", expected the end of buffer ",
         plan_.buffers.size() - 1);
  for (size_t i = 0; i < placement.slots.size() && ok(); ++i) {
    const Slot &slot = placement.slots[i];
    if (slot.bytes == 0)
      fail(path, ".slots[", i, "].bytes is 0");
    aligned(slot.address, path, ".slots[", i, "].address");
    aligned(slot.bytes, path, ".slots[", i, "].bytes");
    atMost(slot.address, kMaxBytes, path, ".slots[", i, "].address");
    atMost(slot.bytes, kMaxBytes, path, ".slots[", i, "].bytes");
  }
}

void StructureCheck::checkState(const State &state, const std::string &path) {
  index(state.placement, plan_.placements.size(), path, ".placement");
  if (&state == &plan_.states.front() && !state.contents.empty())
    fail(path, " has ", state.contents.size(), " contents, expected the empty state");
  uint64_t end = 0;
  for (size_t i = 0; i < state.contents.size() && ok(); ++i) {
    const Content &content = state.contents[i];
    if (!index(content.buffer, plan_.buffers.size(), path, ".contents[", i, "].buffer") ||
        !range(content.bufferOffset, content.bytes, plan_.buffers[content.buffer].bytes, content.address, path,
               ".contents[", i, "]"))
      return;
    if (content.address < end)
      fail(path, ".contents[", i, "].address is ", content.address, ", expected at least ", end,
           ", the end of the content before it");
    end = content.address + content.bytes;
  }
}

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
    aligned(local.buffer.bytes, at, ".bytes");
    aligned(local.address, at, ".address");
    atMost(local.buffer.bytes, kMaxBytes, at, ".bytes");
    atMost(local.address, kMaxBytes, at, ".address");
  }
  for (size_t k = 0; k < s.steps.size() && ok(); ++k) {
    step_ = static_cast<uint32_t>(k);
    checkStep(s, step_, path);
  }
  step_ = kNone;
  checkEdges(s, path);
  schedule_ = kNone;
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
  if (constexpr int kMost = model::enumCount<Arg>(); step.operandCount > kMost)
    return fail(at(), ".operand_count is ", step.operandCount, ", expected at most ", kMost);
  if (step.layer < -1 || step.layer >= plan_.model->layers)
    return fail(at(), ".layer is ", step.layer, ", expected -1 to ", plan_.model->layers - 1);
  if (step.flops > uint64_t{1} << 62 || step.deviceBytes > kMaxBytes || step.linkBytes > kMaxBytes)
    return fail(at(), " has amounts beyond measure: flops ", step.flops, ", device_bytes ", step.deviceBytes,
                ", link_bytes ", step.linkBytes);
  if (s.iterationClass == IterationClass::Transition && step.kind != StepKind::Copy)
    return fail(at(), ".kind is ", value(step.kind), ", a transition has copies only");
  uint32_t seen = 0;
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k) {
    if (!checkOperand(s, k, path))
      return false;
    const uint32_t bit = 1u << value(s.operands[k].arg);
    if (seen & bit)
      return fail(at(), " has two operands for ", argName(s.operands[k].arg));
    seen |= bit;
  }
  if (step.kind != StepKind::Copy)
    return true;
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
  const uint64_t size = plan_.buffer(s, operand.buffer).bytes;
  if (operand.bytes == 0 || operand.bytes > size || operand.bufferOffset > size - operand.bytes ||
      operand.address > kMaxBytes || (operand.address - operand.bufferOffset) % model::kAlign != 0)
    return range(operand.bufferOffset, operand.bytes, size, operand.address, at());
  if (operand.buffer < persistent)
    return true;
  if (operand.space != Space::Device)
    return fail(at(), ".space is ", value(operand.space), ", a transient buffer is on the device");
  const uint64_t address = s.locals[operand.buffer - persistent].address + operand.bufferOffset;
  return operand.address == address ||
         fail(at(), ".address is ", operand.address, ", expected ", address, ", where the transient buffer lies");
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
  const auto key = [](const Variant &x) { return std::tie(x.placement, x.newTokens, x.sequences, x.context); };
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

} // namespace

std::optional<StructureFault> findStructureFault(const Plan &plan) { return StructureCheck(plan).run(); }

} // namespace headrace::plan
