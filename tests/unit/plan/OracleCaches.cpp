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

// Blocks [0, r) of each cache on the device, if any, those of a number side by side; the others, if any, in the slab.
bool homesAreRight(const Plan &plan, const Placement &p) {
  const int64_t resident = blocksOnDevice(plan, p);
  bool ok = resident >= 0 && resident <= p.kvBlocks && p.kvBlocks >= 1 && p.kvBlocks <= plan.kvBlocks;
  std::set<uint64_t> begins;
  for (uint32_t buffer = 0; buffer < plan.buffers.size(); ++buffer) {
    if (plan.buffers[buffer].kind != BufferKind::Kv)
      continue;
    const std::vector<Extent> extents = extentsOf(p, buffer);
    ok &= extents.size() == static_cast<size_t>((resident > 0) + (resident < p.kvBlocks));
    if (!ok)
      return false;
    if (resident > 0) {
      const Extent &device = extents.front();
      ok &= device.space == Space::Device && device.interleaved && device.bufferOffset == 0 &&
            device.bytes == bytesOf(plan, resident);
      begins.insert(device.address);
    }
    if (resident < p.kvBlocks) {
      const Extent &host = extents.back();
      ok &= host.space == Space::Host && !host.interleaved && host.direct &&
            host.bufferOffset == bytesOf(plan, resident) && host.bytes == bytesOf(plan, p.kvBlocks - resident);
    }
  }
  if (resident == 0)
    return ok;
  uint64_t expected = *begins.begin();
  ok &= expected % model::kAlign == 0 && begins.size() == static_cast<size_t>(plan.model->layers) * plan.miniBatches;
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
  if (home.space != Space::Device)
    return !o.interleaved;
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
      out.byBlocks |= e.interleaved || e.space == Space::Host;
      if (e.space != Space::Host)
        continue;
      const auto first = static_cast<int64_t>(e.bufferOffset / plan.kvBlockBytes());
      out.mirroredFrom = out.mirrored ? std::min(out.mirroredFrom, first) : first;
      out.mirrored = true;
      out.byte0.try_emplace(e.buffer, e.address - e.bufferOffset);
    }
  for (const Placement &p : plan.placements)
    out.mirroredTo = out.mirrored ? std::max(out.mirroredTo, p.kvBlocks) : 0;
  return out;
}

int64_t blocksOnDevice(const Plan &plan, const Placement &placement) {
  const Extent first = extentsOf(placement, plan.kvBuffer(0)).front();
  return first.space == Space::Host ? 0 : static_cast<int64_t>(first.bytes / plan.kvBlockBytes());
}
int64_t blocksInUse(const Plan &plan, const Schedule &s) {
  return s.kvBlocks > 0 ? s.kvBlocks : plan.placements[s.placement].kvBlocks;
}

bool cachesAreRight(const Plan &plan) {
  const Caches caches = cachesOf(plan);
  bool ok = true;
  std::map<uint32_t, uint64_t> onDevice; // by buffer: where its first block is
  for (const Placement &p : plan.placements) {
    if (!ok || !caches.byBlocks)
      break;
    ok &= homesAreRight(plan, p);
    for (const Extent &e : p.extents) // a block has one place on the device and one on the host
      if (plan.buffers[e.buffer].kind == BufferKind::Kv)
        ok &= e.space == Space::Host ? e.address - e.bufferOffset == caches.byte0.at(e.buffer)
                                     : e.address == onDevice.try_emplace(e.buffer, e.address).first->second;
  }
  for (const auto &[buffer, byte0] : caches.byte0)
    ok &= (byte0 + bytesOf(plan, caches.mirroredFrom)) % model::kAlign == 0;
  for (const Schedule &s : plan.schedules)
    for (const Operand &o : s.operands)
      ok =
          ok && (!caches.byBlocks || o.buffer >= plan.buffers.size() || isRight(plan, plan.placements[s.placement], o));
  for (const Schedule &s : plan.schedules) {
    if (!ok || s.kvBlocks == 0)
      continue;
    const Placement &p = plan.placements[s.placement];
    ok &= caches.byBlocks && !isTransition(s) && s.kvBlocks == blocksOnDevice(plan, p) && s.kvBlocks < p.kvBlocks;
  }
  return ok;
}

void addBrokenCacheRules(const Plan &plan, const Caches &caches, std::set<Rule> &rules) {
  if (!caches.byBlocks)
    return;
  int64_t most = 0;
  for (const Placement &p : plan.placements)
    most = std::max(most, p.kvBlocks);
  if (plan.kvBlocks != most)
    rules.insert(Rule::Accounting);
  for (uint32_t buffer = 0; buffer < plan.buffers.size(); ++buffer) {
    if (plan.buffers[buffer].kind == BufferKind::Kv &&
        plan.buffers[buffer].bytes != model::alignUp(bytesOf(plan, plan.kvBlocks)))
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
  const bool cacheStep = appends || attends;
  const bool hasTail = caches.byBlocks && cacheStep && inUse > resident;
  // Of an append whose tail a copy writes back only the blocks that are on the device and in others' tails.
  const bool mayHaveHome = caches.mirrored && appends && inUse > caches.mirroredFrom;
  const bool mustHaveHome = mayHaveHome && resident > caches.mirroredFrom;
  const auto breaks = [&](bool broken, Rule rule) {
    if (broken)
      rules.insert(rule);
  };
  breaks(args.contains(Arg::KvTail) != hasTail, Rule::Structure);
  breaks(args.contains(Arg::KvHome) ? !mayHaveHome : mustHaveHome, Rule::Structure);
  breaks(args.contains(Arg::Kv) != (cacheStep && (!caches.byBlocks || resident > 0)), Rule::Structure);
  if (!caches.byBlocks || !cacheStep)
    return;
  const auto blocks = [&](Arg arg, Space space, bool interleaved, int64_t from, int64_t to) {
    const Operand &o = args[arg];
    breaks(o.buffer != plan.kvBuffer(step.layer, step.miniBatch) || o.space != space || o.interleaved != interleaved ||
               o.bufferOffset != bytesOf(plan, from) || o.bytes != bytesOf(plan, to - from),
           Rule::Structure);
  };
  if (args.contains(Arg::Kv))
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
  if (mayHaveHome && args.contains(Arg::KvHome)) {
    const Operand &home = args[Arg::KvHome];
    const bool toResident = mustHaveHome && home.bufferOffset + home.bytes == bytesOf(plan, resident);
    blocks(Arg::KvHome, Space::Host, false, caches.mirroredFrom, toResident ? std::min(resident, inUse) : inUse);
    breaks(home.access != Access::ReadWrite, Rule::Structure);
    breaks(home.address != caches.byte0.at(plan.kvBuffer(step.layer, step.miniBatch)) + home.bufferOffset,
           Rule::HostRange);
    breaks(!step.direct, Rule::WrongSpace);
  }
}

} // namespace headrace::plan::test
