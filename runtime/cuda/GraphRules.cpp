// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/GraphRules.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/cuda/GraphOrder.h"

namespace headrace::cuda {
namespace {

using plan::Access;
using plan::Lane;
using plan::Space;

// Who wrote and read each byte last, while nodes are taken in an order that the graph allows.
struct Segment {
  uint64_t end = 0; // the begin is the key
  uint32_t writer = kNoPlanNode;
  std::vector<uint32_t> readers; // since the writer
};
using Segments = std::map<uint64_t, Segment>;

void splitAt(Segments &segments, uint64_t at) {
  auto it = segments.upper_bound(at);
  if (it == segments.begin())
    return;
  --it;
  if (it->first == at || it->second.end <= at)
    return;
  Segment upper = it->second;
  it->second.end = at;
  segments.emplace(at, std::move(upper));
}

// f for each segment of [begin, end), made where there is none.
template <typename F> void eachSegment(Segments &segments, uint64_t begin, uint64_t end, F f) {
  splitAt(segments, begin);
  splitAt(segments, end);
  uint64_t at = begin;
  while (at < end) {
    auto it = segments.lower_bound(at);
    if (it == segments.end() || it->first > at) {
      const uint64_t until = it == segments.end() ? end : std::min(end, it->first);
      it = segments.emplace(at, Segment{.end = until}).first;
    }
    f(it->second);
    at = it->second.end;
  }
}

class Checker {
public:
  Checker(const RecordedGraph &graph, size_t limit) : graph_(graph), limit_(limit), order_(graph) {}

  std::vector<GraphFault> run() {
    checkLanes();
    checkCount();
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      checkNode(i);
    if (!order_.acyclic()) {
      fault(GraphRule::Acyclic, "its edges have a cycle, or begin at a node that is not there");
      return std::move(faults_);
    }
    checkConflicts();
    checkCopyOrder();
    checkCpuOrder();
    checkSmallCopies();
    return std::move(faults_);
  }

private:
  void fault(GraphRule rule, std::string message) {
    if (faults_.size() < limit_)
      faults_.push_back({rule, std::move(message)});
  }
  static std::string at(uint32_t node, const RecordedNode &n) {
    return absl::StrCat("node ", node, " (", plan::laneName(n.lane), ", step ", n.step, ")");
  }
  std::string at(uint32_t node) const { return at(node, graph_.nodes[node]); }

  void checkLanes() {
    for (const Lane lane : kSideLanes) {
      uint32_t last = 0; // 1 + the lane's last node
      for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
        if (graph_.nodes[i].lane == lane)
          last = i + 1;
      const LaneUse &use = graph_.lanes[laneIndex(lane)];
      if (last != 0 && !use.forked)
        fault(GraphRule::LaneJoined, absl::StrCat("lane ", plan::laneName(lane), " is not forked from the origin"));
      if (last > use.joinedAt)
        fault(GraphRule::LaneJoined, absl::StrCat("lane ", plan::laneName(lane), " is not joined after its last node"));
    }
  }

  void checkCount() {
    std::vector<uint32_t> found(graph_.planNodes);
    for (const RecordedNode &node : graph_.nodes)
      if (node.planNode != kNoPlanNode && node.planNode < graph_.planNodes)
        ++found[node.planNode];
      else if (node.planNode != kNoPlanNode)
        fault(GraphRule::NodeCount, absl::StrCat("node ", node.planNode, " of a plan of ", graph_.planNodes));
    for (uint32_t i = 0; i < graph_.planNodes; ++i)
      if (found[i] != 1)
        fault(GraphRule::NodeCount, absl::StrCat("node ", i, " of the plan is there ", found[i], " times"));
  }

  void checkNode(uint32_t index) {
    const RecordedNode &node = graph_.nodes[index];
    if ((node.kind == RecordedKind::Host) != (node.lane == Lane::Cpu) && node.kind != RecordedKind::Stamp &&
        node.planNode != kNoPlanNode)
      fault(GraphRule::CpuNode,
            absl::StrCat(at(index), node.kind == RecordedKind::Host ? " is the CPU's" : " is not the CPU's"));
    switch (node.kind) {
    case RecordedKind::Memory:
    case RecordedKind::Other:
      return fault(GraphRule::MemoryNode, absl::StrCat("node ", index, " is a ", node.otherKind, " node"));
    case RecordedKind::Stamp:
      return;
    case RecordedKind::Copy:
      return checkCopy(index, node);
    case RecordedKind::Kernel:
      return checkPointers(index, node, node.kernel.pointers);
    case RecordedKind::Library:
      return checkPointers(index, node, pointersOf(node.matmul));
    case RecordedKind::Host:
      return checkHost(index, node);
    }
  }

  void checkHost(uint32_t index, const RecordedNode &node) {
    for (const NodeAccess &access : node.accesses)
      if (access.space != Space::Host)
        fault(GraphRule::CpuNode, absl::StrCat(at(index), " is given bytes of the arena from ", access.begin, " on"));
    for (const NamedPointer &pointer : node.host.pointers)
      if (pointer.address != nullptr && !inside(pointer.address, 1, graph_.memory.bases.host, graph_.memory.slabBytes))
        fault(GraphRule::CpuNode, absl::StrCat(at(index), ": ", pointer.field, " points outside the pinned slab"));
    checkPointers(index, node, node.host.pointers);
  }

  static bool inside(const void *pointer, uint64_t bytes, const void *base, uint64_t limit) {
    const auto address = reinterpret_cast<uintptr_t>(pointer), begin = reinterpret_cast<uintptr_t>(base);
    return bytes <= limit && address >= begin && address - begin <= limit - bytes;
  }

  void checkCopy(uint32_t index, const RecordedNode &node) {
    const core::CopySides &copy = node.copy;
    const std::byte *host = copy.toDevice ? copy.source : copy.destination;
    const std::byte *device = copy.toDevice ? copy.destination : copy.source;
    if (copy.bytes == 0)
      fault(GraphRule::ZeroLength, absl::StrCat(at(index), " copies no bytes"));
    const bool asPlanned = std::any_of(node.accesses.begin(), node.accesses.end(), [&](const NodeAccess &access) {
      return access.space == Space::Device && access.rowBytes == copy.rowBytes && access.pitch == copy.pitch;
    });
    if (copy.inRows() && !asPlanned)
      fault(GraphRule::OneDimensional,
            absl::StrCat(at(index), " copies ", copy.rows(), " rows every ", copy.pitch, " bytes of the device"));
    if (!inside(host, copy.bytes, graph_.memory.bases.host, graph_.memory.slabBytes))
      fault(GraphRule::PinnedCopy, absl::StrCat(at(index), ": its host side is outside the pinned slab"));
    const uint64_t span = copy.inRows() ? (copy.rows() - 1) * copy.pitch + copy.rowBytes : copy.bytes;
    if (!inside(device, span, graph_.memory.bases.device, graph_.memory.arenaBytes))
      fault(GraphRule::PinnedCopy, absl::StrCat(at(index), ": its device side is outside the arena"));
    if (plan::toDevice(node.lane) != copy.toDevice || plan::computes(node.lane))
      fault(GraphRule::CopyOrder,
            absl::StrCat(at(index), " copies ", copy.toDevice ? "to" : "from", " the device in that lane"));
  }

  void checkPointers(uint32_t index, const RecordedNode &node, const std::vector<NamedPointer> &pointers) {
    const GraphMemory &memory = graph_.memory;
    for (const NamedPointer &pointer : pointers) {
      bool known = pointer.address == nullptr ||
                   inside(pointer.address, 1, memory.frequencies, memory.frequencyBytes) ||
                   inside(pointer.address, 1, memory.arrivals, kArrivalBytes) ||
                   inside(pointer.address, 1, memory.publishedTokens, memory.publishedTokensBytes) ||
                   inside(pointer.address, 1, memory.publishedIterations, kernels::kPublishSlots * sizeof(uint64_t));
      for (const NodeAccess &access : node.accesses) {
        const std::byte *base = access.space == Space::Host ? memory.bases.host : memory.bases.device;
        known = known || inside(pointer.address, 1, base + access.begin, access.end - access.begin);
      }
      if (!known)
        fault(GraphRule::StrayPointer,
              absl::StrCat(at(index), ": ", pointer.field, " points to bytes that the plan does not give it"));
    }
  }

  // Nodes in an order that the graph allows; two that conflict and have no path between them would be found in
  // whichever order they stand.
  void checkConflicts() {
    Segments device, host;
    const auto need = [&](GraphRule rule, uint32_t earlier, uint32_t later, const NodeAccess &access) {
      if (earlier != later && !order_.before(earlier, later) && reported_.insert({earlier, later}).second)
        fault(rule, absl::StrCat("no path from ", at(earlier), " to ", at(later), ", which share bytes of ",
                                 access.space == Space::Host ? "the slab" : "the arena", " in [", access.begin, ", ",
                                 access.end, ")"));
    };
    // The plan's order says which of two is to come first, the graph's edges whether it does.
    for (uint32_t i : byPlan()) {
      for (const NodeAccess &access : graph_.nodes[i].accesses) {
        Segments &segments = access.space == Space::Host ? host : device;
        const bool reads = access.access != Access::Write, writes = access.access != Access::Read;
        const auto take = [&](Segment &segment) {
          if (segment.writer != kNoPlanNode)
            need(reads ? GraphRule::ReadAfterWrite : GraphRule::WriteAfterWrite, segment.writer, i, access);
          if (writes) {
            for (uint32_t reader : segment.readers)
              need(GraphRule::WriteAfterRead, reader, i, access);
            segment.writer = i;
            segment.readers.clear();
          }
          if (reads && !writes)
            segment.readers.push_back(i);
        };
        eachRun(access, [&](uint64_t begin, uint64_t end) { eachSegment(segments, begin, end, take); });
      }
    }
  }

  std::vector<uint32_t> byPlan() const {
    std::vector<uint32_t> nodes;
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].planNode != kNoPlanNode)
        nodes.push_back(i);
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](uint32_t a, uint32_t b) { return graph_.nodes[a].planNode < graph_.nodes[b].planNode; });
    return nodes;
  }

  void checkCopyOrder() {
    std::map<bool, uint32_t> last; // by direction
    for (uint32_t i : byPlan()) {
      if (graph_.nodes[i].kind != RecordedKind::Copy)
        continue;
      const bool toDevice = graph_.nodes[i].copy.toDevice;
      if (const auto it = last.find(toDevice); it != last.end() && !order_.before(it->second, i))
        fault(GraphRule::CopyOrder,
              absl::StrCat("no path from ", at(it->second), " to ", at(i), ", the next copy of its direction"));
      last[toDevice] = i;
    }
  }

  void checkCpuOrder() {
    uint32_t last = kNoPlanNode;
    for (uint32_t i : byPlan()) {
      if (graph_.nodes[i].kind != RecordedKind::Host)
        continue;
      if (last != kNoPlanNode && !order_.before(last, i))
        fault(GraphRule::CpuNode, absl::StrCat("no path from ", at(last), " to ", at(i), ", the CPU's next"));
      last = i;
    }
  }

  static bool overlap(const NodeAccess &a, const NodeAccess &b) {
    if (a.begin >= b.end || b.begin >= a.end)
      return false;
    bool found = false;
    eachRun(a, [&](uint64_t begin, uint64_t end) {
      eachRun(b, [&](uint64_t from, uint64_t to) { found |= begin < to && from < end; });
    });
    return found;
  }

  // The compute node that first reads what a copy brings, after it; kNoPlanNode: none in this graph.
  uint32_t firstReader(uint32_t copy, const std::vector<uint32_t> &nodes) const {
    const NodeAccess *brought = nullptr;
    for (const NodeAccess &access : graph_.nodes[copy].accesses)
      if (access.space == Space::Device && access.access != Access::Read)
        brought = &access;
    if (brought == nullptr)
      return kNoPlanNode;
    for (uint32_t i : nodes)
      if (plan::computes(graph_.nodes[i].lane) && order_.before(copy, i))
        for (const NodeAccess &access : graph_.nodes[i].accesses)
          if (access.space == Space::Device && access.access != Access::Write && overlap(access, *brought))
            return i;
    return kNoPlanNode;
  }

  void checkSmallCopies() {
    std::vector<uint32_t> small, large;
    const std::vector<uint32_t> nodes = byPlan();
    for (uint32_t i : nodes)
      if (graph_.nodes[i].kind == RecordedKind::Copy && graph_.nodes[i].copy.toDevice)
        (graph_.nodes[i].copy.bytes < kSmallCopyBytes ? small : large).push_back(i);
    if (small.empty())
      return;
    std::map<uint32_t, uint32_t> readers;
    for (uint32_t bulk : large)
      readers[bulk] = firstReader(bulk, nodes);
    for (uint32_t copy : small) {
      const uint32_t reader = firstReader(copy, nodes);
      if (reader == kNoPlanNode)
        continue; // nothing waits for it here
      for (uint32_t bulk : large) {
        const uint32_t other = readers[bulk];
        const bool neededByThen = other != kNoPlanNode && (other == reader || order_.before(other, reader));
        if (!order_.before(copy, bulk) && !neededByThen)
          fault(GraphRule::SmallCopy,
                absl::StrCat(at(copy), ": ", graph_.nodes[copy].copy.bytes, " bytes that ", at(reader),
                             " needs wait for the ", graph_.nodes[bulk].copy.bytes, " bytes of ", at(bulk)));
      }
    }
  }

  const RecordedGraph &graph_;
  const size_t limit_;
  const GraphOrder order_;
  std::vector<GraphFault> faults_;
  std::set<std::pair<uint32_t, uint32_t>> reported_;
};

} // namespace

const char *graphRuleName(GraphRule rule) {
  switch (rule) {
  case GraphRule::Acyclic:
    return "Acyclic";
  case GraphRule::LaneJoined:
    return "LaneJoined";
  case GraphRule::NodeCount:
    return "NodeCount";
  case GraphRule::MemoryNode:
    return "MemoryNode";
  case GraphRule::PinnedCopy:
    return "PinnedCopy";
  case GraphRule::OneDimensional:
    return "OneDimensional";
  case GraphRule::ZeroLength:
    return "ZeroLength";
  case GraphRule::StrayPointer:
    return "StrayPointer";
  case GraphRule::CpuNode:
    return "CpuNode";
  case GraphRule::CopyOrder:
    return "CopyOrder";
  case GraphRule::SmallCopy:
    return "SmallCopy";
  case GraphRule::ReadAfterWrite:
    return "ReadAfterWrite";
  case GraphRule::WriteAfterRead:
    return "WriteAfterRead";
  case GraphRule::WriteAfterWrite:
    return "WriteAfterWrite";
  }
  return "?";
}

std::vector<GraphFault> findFaults(const RecordedGraph &graph, size_t limit) { return Checker(graph, limit).run(); }

absl::Status checkGraph(const RecordedGraph &graph) {
  for (const GraphFault &fault : findFaults(graph))
    if (fault.rule != GraphRule::SmallCopy)
      return absl::InternalError(absl::StrCat(graph.name, ": ", graphRuleName(fault.rule), ": ", fault.message));
  return absl::OkStatus();
}

} // namespace headrace::cuda
