// SPDX-License-Identifier: Apache-2.0
//
// The host slab: which byte of which buffer each of its bytes is.
#include <map>

#include "absl/strings/str_cat.h"
#include "runtime/plan/proof/VerifyParts.h"

namespace headrace::plan {
namespace {

// One slab serves all placements: a byte of it is one byte of one buffer.
class HostSlab {
public:
  HostSlab(const Plan &plan, Report &report) : plan_(plan), report_(report) {}

  // [address, address + bytes) is a buffer's from byte `offset` on. `whose`: for messages.
  void claim(const std::string &whose, uint32_t buffer, uint64_t offset, uint64_t address, uint64_t bytes) {
    const Home home{address + bytes, buffer, address - offset};
    const auto fail = [&](auto &&...parts) {
      report_.add(Rule::HostRange, kNone, kNone,
                  absl::StrCat(whose, ": ", plan_.buffers[buffer].name, " [", address, ", ", home.end, ") ", parts...));
    };
    if (home.end > plan_.hostBytes)
      fail("ends beyond the host slab of ", plan_.hostBytes, " bytes");
    // Placements may cut a buffer at different bytes; where ranges meet, the bytes must be the same, and the ranges
    // become one.
    auto it = slab_.upper_bound(address);
    if (it != slab_.begin() && std::prev(it)->second.end > address)
      --it;
    if (it != slab_.end() && it->first <= address && it->second.end >= home.end && it->second.same(home))
      return; // as in an earlier placement
    uint64_t begin = address, end = home.end;
    while (it != slab_.end() && it->first < home.end) {
      if (!it->second.same(home)) {
        fail("in the host slab shares bytes with another buffer");
        return;
      }
      begin = std::min(begin, it->first);
      end = std::max(end, it->second.end);
      it = slab_.erase(it);
    }
    slab_.emplace(begin, Home{end, buffer, home.base});
  }

  // What the steps of a schedule have there for themselves shares no bytes with any of that.
  void transient(uint32_t schedule, const Local &local) {
    const uint64_t begin = local.hostAddress, end = begin + local.buffer.bytes;
    const auto fail = [&](auto &&...parts) {
      report_.add(Rule::HostRange, schedule, kNone,
                  absl::StrCat(local.buffer.name, " [", begin, ", ", end, ") in the host slab ", parts...));
    };
    if (end > plan_.hostBytes)
      fail("ends beyond the ", plan_.hostBytes, " bytes of it");
    const auto after = slab_.lower_bound(end);
    if (after != slab_.begin() && std::prev(after)->second.end > begin)
      fail("shares bytes with ", plan_.buffers[std::prev(after)->second.buffer].name);
  }

private:
  struct Home {
    uint64_t end = 0;
    uint32_t buffer = 0;
    uint64_t base = 0;
    bool same(const Home &other) const { return buffer == other.buffer && base == other.base; }
  };
  const Plan &plan_;
  Report &report_;
  std::map<uint64_t, Home> slab_; // by begin; disjoint
};

} // namespace

void verifyHostSlab(const Plan &plan, const CacheHomes &caches, Report &report) {
  HostSlab slab(plan, report);
  const bool mirrors = caches.mirrors();
  for (const Placement &placement : plan.placements) {
    const std::string whose = "placement " + placement.name;
    for (const Extent &e : placement.extents)
      if (e.space == Space::Host && !(mirrors && plan.buffers[e.buffer].kind == BufferKind::Kv))
        slab.claim(whose, e.buffer, e.bufferOffset, e.address, e.bytes);
  }
  // All that any placement may write, whatever part of it is at home there.
  for (uint32_t buffer = 0; buffer < plan.buffers.size() && mirrors; ++buffer)
    if (plan.buffers[buffer].kind == BufferKind::Kv)
      slab.claim("mirrored caches", buffer, caches.mirrorBegin(), caches.slabBase(buffer) + caches.mirrorBegin(),
                 caches.mirrorEnd() - caches.mirrorBegin());
  if (const uint32_t meta = plan.ioBuffer(Io::Meta); plan.metaOnHost != kNowhere)
    slab.claim("the cpu lane", meta, 0, plan.metaOnHost, plan.buffers[meta].bytes);
  for (uint32_t i = 0; i < plan.schedules.size() && !report.full(); ++i)
    for (const Local &local : plan.schedules[i].locals)
      if (local.hostAddress != kNowhere)
        slab.transient(i, local);
}

} // namespace headrace::plan
