// SPDX-License-Identifier: Apache-2.0
//
// Homes of caches that are interleaved: that the layers share out one range of the device among them, so that all
// others may look at it as one; and that a block at home on the host is at one place in all placements.
#include "absl/strings/str_cat.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/VerifyParts.h"

namespace headrace::plan {
namespace {

// The caches' addresses are one block apart from each other, in some order.
//
//   base   | kv.1 | kv.0 | kv.2 |   then each of them again, for the next block
void verifyRegion(const Plan &plan, const CacheHomes &caches, uint32_t index, std::vector<uint64_t> &addresses,
                  Report &report) {
  const Placement &placement = plan.placements[index];
  const auto add = [&](Rule rule, auto &&...parts) {
    report.add(rule, kNone, kNone, absl::StrCat("placement ", placement.name, ": ", parts...));
  };
  const uint64_t base = caches.regionBegin(index), block = caches.blockBytes();
  const auto layers = static_cast<uint64_t>(plan.model->layers);
  if (base % model::kAlign != 0)
    add(Rule::Structure, "the caches begin at ", base, ", expected a multiple of ", model::kAlign);
  std::vector<uint32_t> there(layers, kNone); // by place
  for (const Extent &e : placement.extents) {
    if (!e.interleaved)
      continue;
    const std::string &name = plan.buffers[e.buffer].name;
    const uint64_t place = (e.address - base) / block;
    if ((e.address - base) % block != 0 || place >= layers) {
      add(Rule::Structure, name, " is at ", e.address, ", expected one of ", layers, " places, every ", block,
          " bytes from ", base, " on");
    } else if (there[place] != kNone) {
      add(Rule::Overlap, plan.buffers[there[place]].name, " and ", name, " share bytes, both are at ", e.address);
    } else {
      there[place] = e.buffer;
    }
    if (addresses[e.buffer] == UINT64_MAX)
      addresses[e.buffer] = e.address;
    else if (addresses[e.buffer] != e.address)
      add(Rule::Structure, name, " is at ", e.address, ", in an earlier placement it is at ", addresses[e.buffer]);
  }
}

// The tails of all placements are parts of one run a layer.
void verifyTails(const Plan &plan, const CacheHomes &caches, Report &report) {
  for (const Placement &placement : plan.placements)
    for (const Extent &e : placement.extents)
      if (const Buffer &buffer = plan.buffers[e.buffer]; buffer.kind == BufferKind::Kv && e.space == Space::Host &&
                                                         e.address - e.bufferOffset != caches.slabBase(e.buffer))
        report.add(Rule::HostRange, kNone, kNone,
                   absl::StrCat("placement ", placement.name, ": ", buffer.name, " from byte ", e.bufferOffset,
                                " on is at ", e.address, " in the host slab, in another placement it is at ",
                                caches.slabBase(e.buffer) + e.bufferOffset));
  for (uint32_t i = 0; i < plan.buffers.size(); ++i)
    if (const uint64_t begin = caches.slabBase(i) + caches.mirrorBegin();
        plan.buffers[i].kind == BufferKind::Kv && begin % model::kAlign != 0)
      report.add(Rule::Structure, kNone, kNone,
                 absl::StrCat(plan.buffers[i].name, " begins at ", begin, " in the host slab, expected a multiple of ",
                              model::kAlign));
}

} // namespace

void verifyCaches(const Plan &plan, const CacheHomes &caches, Report &report) {
  if (!caches.interleaved())
    return;
  std::vector<uint64_t> addresses(plan.buffers.size(), UINT64_MAX); // in the placements seen so far
  for (uint32_t i = 0; i < plan.placements.size() && !report.full(); ++i)
    verifyRegion(plan, caches, i, addresses, report);
  if (caches.mirrors())
    verifyTails(plan, caches, report);
}

} // namespace headrace::plan
