// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

std::vector<Extent> extentsOf(const Placement &p, uint32_t buffer) {
  std::vector<Extent> out;
  std::copy_if(p.extents.begin(), p.extents.end(), std::back_inserter(out),
               [&](const Extent &e) { return e.buffer == buffer; });
  return out;
}
uint64_t bytesOf(const Plan &plan, int64_t blocks) { return static_cast<uint64_t>(blocks) * plan.kvBlockBytes(); }
bool isTransition(const Schedule &s) { return s.iterationClass == IterationClass::Transition; }

// Blocks [0, r) of each layer on the device, those of a number side by side; the others, if any, in the slab.
bool homesAreRight(const Plan &plan, const Placement &p) {
  const int64_t resident = blocksOnDevice(plan, p);
  bool ok = resident >= 1 && resident <= p.kvBlocks && p.kvBlocks <= plan.kvBlocks;
  std::set<uint64_t> begins;
  for (int32_t layer = 0; layer < plan.model->layers; ++layer) {
    const std::vector<Extent> extents = extentsOf(p, plan.kvBuffer(layer));
    ok &= extents.size() == (resident < p.kvBlocks ? 2 : 1);
    if (!ok)
      return false;
    const Extent &device = extents.front();
    ok &= device.space == Space::Device && device.interleaved && device.bufferOffset == 0 &&
          device.bytes == bytesOf(plan, resident);
    begins.insert(device.address);
    if (extents.size() == 2) {
      const Extent &host = extents.back();
      ok &= host.space == Space::Host && !host.interleaved && host.direct && host.bufferOffset == device.bytes &&
            host.bytes == bytesOf(plan, p.kvBlocks - resident);
    }
  }
  uint64_t expected = *begins.begin();
  ok &= expected % model::kAlign == 0 && begins.size() == static_cast<size_t>(plan.model->layers);
  for (const uint64_t begin : begins) {
    ok &= begin == expected;
    expected += plan.kvBlockBytes();
  }
  return ok;
}

// On the device, blocks that are at home there are whole and among the other layers'; those of the tail are not.
bool isRight(const Plan &plan, const Placement &p, const Operand &o) {
  if (plan.buffers[o.buffer].kind != BufferKind::Kv || o.space != Space::Device)
    return true;
  const Extent home = extentsOf(p, o.buffer).front();
  const uint64_t block = plan.kvBlockBytes(), number = o.bufferOffset / block;
  if (!o.interleaved)
    return o.bufferOffset >= home.bytes;
  return o.bufferOffset == number * block && o.bytes % block == 0 && o.bufferOffset + o.bytes <= home.bytes &&
         o.address == home.address + number * plan.kvStride();
}

} // namespace

Caches cachesOf(const Plan &plan) {
  Caches out;
  for (const Placement &p : plan.placements)
    for (const Extent &e : p.extents) {
      if (plan.buffers[e.buffer].kind != BufferKind::Kv)
        continue;
      out.interleaved |= e.interleaved;
      if (e.space != Space::Host)
        continue;
      const auto first = static_cast<int64_t>(e.bufferOffset / plan.kvBlockBytes());
      if (out.mirroredFrom == 0 || first < out.mirroredFrom)
        out.mirroredFrom = first;
      out.byte0.try_emplace(e.buffer, e.address - e.bufferOffset);
    }
  for (const Placement &p : plan.placements)
    out.mirroredTo = out.mirroredFrom > 0 ? std::max(out.mirroredTo, p.kvBlocks) : 0;
  if (!out.interleaved)
    out = {};
  return out;
}

int64_t blocksOnDevice(const Plan &plan, const Placement &placement) {
  return static_cast<int64_t>(extentsOf(placement, plan.kvBuffer(0)).front().bytes / plan.kvBlockBytes());
}
int64_t blocksInUse(const Plan &plan, const Schedule &s) {
  return s.kvBlocks > 0 ? s.kvBlocks : plan.placements[s.placement].kvBlocks;
}

bool cachesAreRight(const Plan &plan) {
  const Caches caches = cachesOf(plan);
  bool ok = true;
  for (const Placement &p : plan.placements) {
    if (!ok || !caches.interleaved)
      break;
    ok &= homesAreRight(plan, p);
    for (const Extent &e : p.extents) // a block has one place on the device and one on the host
      if (plan.buffers[e.buffer].kind == BufferKind::Kv)
        ok &= e.space == Space::Host ? e.address - e.bufferOffset == caches.byte0.at(e.buffer)
                                     : e.address == extentsOf(plan.placements.front(), e.buffer).front().address;
  }
  for (const auto &[buffer, byte0] : caches.byte0)
    ok &= (byte0 + bytesOf(plan, caches.mirroredFrom)) % model::kAlign == 0;
  for (const Schedule &s : plan.schedules)
    for (const Operand &o : s.operands)
      ok = ok &&
           (!caches.interleaved || o.buffer >= plan.buffers.size() || isRight(plan, plan.placements[s.placement], o));
  for (const Schedule &s : plan.schedules) {
    if (!ok || s.kvBlocks == 0)
      continue;
    const Placement &p = plan.placements[s.placement];
    ok &= caches.interleaved && !isTransition(s) && s.kvBlocks == blocksOnDevice(plan, p) && s.kvBlocks < p.kvBlocks;
  }
  return ok;
}

void addBrokenCacheRules(const Plan &plan, const Caches &caches, std::set<Rule> &rules) {
  if (!caches.interleaved)
    return;
  int64_t most = 0;
  for (const Placement &p : plan.placements)
    most = std::max(most, p.kvBlocks);
  if (plan.kvBlocks != most)
    rules.insert(Rule::Accounting);
  for (int32_t layer = 0; layer < plan.model->layers; ++layer) {
    const uint32_t buffer = plan.kvBuffer(layer);
    if (plan.buffers[buffer].bytes != model::alignUp(bytesOf(plan, plan.kvBlocks)))
      rules.insert(Rule::Structure);
  }
}

void addBrokenCacheRules(const Plan &plan, const Caches &caches, const Schedule &s, const Step &step,
                         std::set<Rule> &rules) {
  if (step.kind != StepKind::Compute)
    return;
  std::map<Arg, Operand> args;
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
    args[s.operands[k].arg] = s.operands[k];
  const bool appends = step.op == kernels::Op::RopeAppend, attends = step.op == kernels::Op::Attention;
  const Placement &p = plan.placements[s.placement];
  const int64_t resident = blocksOnDevice(plan, p), inUse = blocksInUse(plan, s);
  const bool hasTail = caches.interleaved && (appends || attends) && inUse > resident;
  const bool hasHome = caches.mirroredFrom > 0 && appends && inUse > caches.mirroredFrom;
  const auto breaks = [&](bool broken, Rule rule) {
    if (broken)
      rules.insert(rule);
  };
  breaks(args.contains(Arg::KvTail) != hasTail || args.contains(Arg::KvHome) != hasHome, Rule::Structure);
  if (!caches.interleaved || !(appends || attends))
    return;
  const auto blocks = [&](Arg arg, Space space, bool interleaved, int64_t from, int64_t to) {
    const Operand &o = args[arg];
    breaks(o.buffer != plan.kvBuffer(step.layer) || o.space != space || o.interleaved != interleaved ||
               o.bufferOffset != bytesOf(plan, from) || o.bytes != bytesOf(plan, to - from),
           Rule::Structure);
  };
  blocks(Arg::Kv, Space::Device, true, 0, resident);
  if (hasTail && args.contains(Arg::KvTail)) {
    blocks(Arg::KvTail, Space::Device, false, resident, inUse);
    const Operand &tail = args[Arg::KvTail];
    breaks(tail.access != (appends ? Access::ReadWrite : Access::Read), Rule::Structure);
    breaks(appends && std::none_of(p.slots.begin(), p.slots.end(),
                                   [&](const Slot &slot) {
                                     return slot.address <= tail.address &&
                                            tail.address + tail.bytes <= slot.address + slot.bytes;
                                   }),
           Rule::SlotTooSmall);
    breaks(tail.address % model::kAlign != 0, Rule::Structure);
  }
  if (hasHome && args.contains(Arg::KvHome)) {
    blocks(Arg::KvHome, Space::Host, false, caches.mirroredFrom, inUse);
    const Operand &home = args[Arg::KvHome];
    breaks(home.access != Access::ReadWrite, Rule::Structure);
    breaks(home.address != caches.byte0.at(plan.kvBuffer(step.layer)) + home.bufferOffset, Rule::HostRange);
    breaks(!step.direct, Rule::WrongSpace);
  }
}

} // namespace headrace::plan::test
