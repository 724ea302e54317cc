// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/RecordedGraph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/cuda/GraphOrder.h"

namespace headrace::cuda {
namespace {

// An address relative to the memory it lies in.
std::string addressText(const GraphMemory &memory, const void *pointer) {
  if (pointer == nullptr)
    return "-";
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto inside = [&](const void *base, uint64_t bytes, const char *name) -> std::string {
    const auto begin = reinterpret_cast<uintptr_t>(base);
    return base != nullptr && address >= begin && address - begin < bytes
               ? absl::StrCat(name, "+0x", absl::Hex(address - begin))
               : "";
  };
  for (const std::string &text :
       {inside(memory.bases.device, memory.arenaBytes, "D"), inside(memory.bases.host, memory.slabBytes, "H"),
        inside(memory.frequencies, memory.frequencyBytes, "frequencies"),
        inside(memory.arrivals, kArrivalBytes, "arrivals"),
        inside(memory.publishedTokens, memory.publishedTokensBytes, "tokens"),
        inside(memory.publishedIterations, kernels::kPublishSlots * sizeof(uint64_t), "iterations")})
    if (!text.empty())
      return text;
  return "outside";
}

std::string pointersText(const GraphMemory &memory, const std::vector<NamedPointer> &pointers) {
  std::string text;
  for (const NamedPointer &pointer : pointers)
    absl::StrAppend(&text, " ", pointer.field, " ", addressText(memory, pointer.address));
  return text;
}

std::string launchText(const kernels::CudaLaunch &launch) {
  return absl::StrCat("kernel ", launch.kernel, " grid ", absl::StrJoin(launch.grid, " "), " block ",
                      absl::StrJoin(launch.block, " "), " shared ", launch.sharedBytes);
}

// All parameters of a node in one line: equal exactly for equal nodes but for the values inside argument structs.
std::string nodeText(const RecordedGraph &graph, const RecordedNode &node) {
  const GraphMemory &memory = graph.memory;
  switch (node.kind) {
  case RecordedKind::Kernel:
    return absl::StrCat(launchText(node.kernel.launch), pointersText(memory, node.kernel.pointers));
  case RecordedKind::Copy:
    return absl::StrCat("copy ", node.copy.toDevice ? "h2d " : "d2h ", node.copy.bytes, " bytes",
                        node.copy.inRows()
                            ? absl::StrCat(" in ", node.copy.rows(), " rows every ", node.copy.pitch, " of the device")
                            : "",
                        " ", addressText(memory, node.copy.source), " -> ", addressText(memory, node.copy.destination));
  case RecordedKind::Library:
    return absl::StrCat("library ", toText(node.matmul.shape), pointersText(memory, pointersOf(node.matmul)));
  case RecordedKind::Host:
    return absl::StrCat("host ", kernels::opName(node.host.bound.op), pointersText(memory, node.host.pointers));
  case RecordedKind::Stamp:
    return absl::StrCat("stamp ", node.event);
  case RecordedKind::Memory:
    return absl::StrCat("memory ", node.otherKind);
  case RecordedKind::Other:
    return absl::StrCat("other ", node.otherKind);
  }
  return "?";
}

// What a node is called in both graphs: its number in the plan, or its event.
std::string nameOf(const RecordedGraph &graph, uint32_t node) {
  const RecordedNode &n = graph.nodes[node];
  if (n.planNode != kNoPlanNode)
    return absl::StrCat("node ", n.planNode);
  return n.kind == RecordedKind::Stamp ? absl::StrCat("stamp ", n.event)
                                       : absl::StrCat("unplanned ", n.otherKind, " node");
}

} // namespace

std::string toText(const RecordedGraph &graph) {
  std::string text = absl::StrCat("graph ", graph.name, "\nmemory: arena ", graph.memory.arenaBytes, " bytes, slab ",
                                  graph.memory.slabBytes, " bytes\n");
  std::map<std::string, size_t> kinds;
  size_t edges = 0;
  for (size_t lane = 1; lane < kGraphLanes; ++lane)
    if (graph.lanes[lane].forked)
      absl::StrAppend(&text, "fork ", plan::laneName(static_cast<plan::Lane>(lane)), "\n");
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const RecordedNode &node = graph.nodes[i];
    const std::string what = nodeText(graph, node);
    ++kinds[what.substr(0, what.find(' '))];
    edges += node.after.size();
    absl::StrAppend(&text, i, " ", plan::laneName(node.lane));
    if (node.planNode != kNoPlanNode)
      absl::StrAppend(&text, " step ", node.step);
    absl::StrAppend(&text, ": ", what, node.after.empty() ? "" : "; after ", absl::StrJoin(node.after, " "), "\n");
  }
  for (size_t lane = 1; lane < kGraphLanes; ++lane)
    if (graph.lanes[lane].joinedAt != 0)
      absl::StrAppend(&text, "join ", plan::laneName(static_cast<plan::Lane>(lane)), "\n");
  absl::StrAppend(
      &text, graph.nodes.size(), " nodes (",
      absl::StrJoin(kinds, ", ",
                    [](std::string *out, const auto &kind) { absl::StrAppend(out, kind.first, " ", kind.second); }),
      "), ", edges, " edges\n");
  return text;
}

namespace {

using NodesByName = std::map<std::string, std::vector<uint32_t>>;

NodesByName nodesByName(const RecordedGraph &graph) {
  NodesByName nodes;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    nodes[nameOf(graph, i)].push_back(i);
  return nodes;
}

// Edges of `graph` that no path of `other` stands for, in the order of their nodes' names.
std::vector<std::string> edgesWithoutPath(const RecordedGraph &graph, const RecordedGraph &other,
                                          const NodesByName &others) {
  std::set<std::pair<std::string, std::string>> there, missing; // the edges of `other`; those of `graph`
  for (uint32_t i = 0; i < other.nodes.size(); ++i)
    for (const uint32_t before : other.nodes[i].after)
      there.insert({nameOf(other, before), nameOf(other, i)});
  const GraphOrder order(other); // says nothing of a graph with a cycle
  const auto only = [&](const std::string &name) {
    const auto it = others.find(name);
    return it != others.end() && it->second.size() == 1 ? it->second[0] : kNoPlanNode;
  };
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    for (const uint32_t before : graph.nodes[i].after) {
      const std::string from = nameOf(graph, before), to = nameOf(graph, i);
      const uint32_t a = only(from), b = only(to);
      const bool path = order.acyclic() && a != kNoPlanNode && b != kNoPlanNode && order.before(a, b);
      if (!path && !there.contains({from, to}))
        missing.insert({from, to});
    }
  std::vector<std::string> text;
  text.reserve(missing.size());
  for (const auto &[from, to] : missing)
    text.push_back(absl::StrCat("edge ", from, " -> ", to));
  return text;
}

} // namespace

std::vector<std::string> differences(const RecordedGraph &recorded, const RecordedGraph &listed) {
  std::vector<std::string> result;
  const NodesByName wanted = nodesByName(recorded), found = nodesByName(listed);
  for (const auto &[name, nodes] : wanted) {
    const auto it = found.find(name);
    if (it == found.end() || it->second.size() != nodes.size()) {
      result.push_back(absl::StrCat(name, ": ", nodes.size(), " recorded, ",
                                    it == found.end() ? size_t{0} : it->second.size(), " listed"));
      continue;
    }
    const RecordedNode &a = recorded.nodes[nodes[0]], &b = listed.nodes[it->second[0]];
    const std::string textA = nodeText(recorded, a), textB = nodeText(listed, b);
    if (textA != textB)
      result.push_back(absl::StrCat(name, ": recorded '", textA, "', listed '", textB, "'"));
    else if (a.kernel.args.size() != b.kernel.args.size())
      result.push_back(absl::StrCat(name, ": ", a.kernel.args.size(), " bytes of arguments recorded, ",
                                    b.kernel.args.size(), " listed"));
  }
  for (const auto &[name, nodes] : found)
    if (!wanted.contains(name))
      result.push_back(absl::StrCat(name, ": not recorded, ", nodes.size(), " listed"));
  for (const std::string &edge : edgesWithoutPath(recorded, listed, found))
    result.push_back(edge + ": recorded, not listed");
  for (const std::string &edge : edgesWithoutPath(listed, recorded, wanted))
    result.push_back(edge + ": listed, not recorded");
  return result;
}

} // namespace headrace::cuda
