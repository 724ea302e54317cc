// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerPlan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/StepUnits.h"

namespace headrace::profile {
namespace {

using cost::Phase;
using plan::Lane;

constexpr uint64_t kCopiesAlone = 4;    // one behind the other in a launch
constexpr uint64_t kMostCopies = 16;    // beside one iteration
constexpr uint64_t kCopiesBeside = 3;   // of the largest size, that the iteration should last for
constexpr uint64_t kLeastWaited = 4096; // bytes of a copy that a layer waits for
constexpr uint64_t kStarts = 8;         // copies that wait for a step
constexpr uint64_t kUnknown = ~uint64_t{0};

uint64_t sumOf(const std::vector<uint64_t> &durations) {
  return std::accumulate(durations.begin(), durations.end(), uint64_t{0});
}

class Maker {
public:
  Maker(plan::Plan resident, uint64_t copyBytes)
      : costs_(resident.model, resident.hardware, resident.activationDtype, resident.kvEncoding) {
    plan::Plan &plan = out_.plan;
    plan = std::move(resident);
    copyBytes = model::alignUp(copyBytes);
    // Four ranges of their own: nothing that is copied meets what computes.
    deviceTo_ = plan.arenaBytes;
    deviceFrom_ = deviceTo_ + copyBytes;
    plan.arenaBytes = plan.deviceMemory = deviceFrom_ + copyBytes;
    hostFrom_ = plan.hostBytes;
    hostTo_ = hostFrom_ + copyBytes;
    plan.hostBytes = hostTo_ + copyBytes;
    plan.variants.clear();
    for (uint32_t i = 0; i < plan.schedules.size(); ++i) {
      if (plan.schedules[i].iterationClass == plan::IterationClass::Decode)
        decode_ = i;
      if (plan.schedules[i].iterationClass == plan::IterationClass::Mixed)
        mixed_ = i;
      sites_.push_back(sitesOf(plan, plan.schedules[i]));
    }
  }

  void addCell(const cost::CellKey &cell) {
    out_.cells.push_back(cell);
    out_.cellGraphs.push_back(addVariant(cell, scheduleOf(cell), durationsOf(cell)));
  }

  void addCopies(uint64_t bytes) {
    CopyGraphs graphs;
    graphs.bytes = bytes;
    const std::vector<uint64_t> compute = durationsOf(out_.besideCell);
    const uint64_t computeNs = sumOf(compute);
    for (const bool toDevice : {true, false}) {
      const size_t direction = toDevice ? 0 : 1;
      const uint64_t ns = std::max<uint64_t>(1, costs_.copyNs(bytes, toDevice));
      graphs.alone[direction] = copiesAlone(bytes, toDevice);

      plan::Schedule beside = out_.plan.schedules[scheduleOf(out_.besideCell)];
      std::vector<uint64_t> durations = compute;
      const uint64_t count = std::clamp<uint64_t>(computeNs / ns, 1, kMostCopies);
      for (uint64_t i = 0; i < count; ++i)
        append(beside, durations, bytes, toDevice);
      out_.plan.schedules.push_back(std::move(beside));
      graphs.beside[direction] =
          addVariant(out_.besideCell, static_cast<uint32_t>(out_.plan.schedules.size() - 1), std::move(durations));
    }
    plan::Schedule both = emptySchedule("copies of both directions");
    std::vector<uint64_t> durations;
    append(both, durations, bytes, true);
    append(both, durations, bytes, false);
    graphs.both = addTransition(std::move(both), std::move(durations));
    out_.copies.push_back(graphs);
  }

  void addLoads(uint64_t bytes) {
    CopyGraphs graphs;
    graphs.bytes = bytes;
    graphs.alone[0] = copiesAlone(bytes, true);
    out_.copies.push_back(graphs);
  }

  // Small copies, each after another step of the iteration, spread evenly: the copies wait, never the steps.
  void addStarts(uint64_t bytes) {
    plan::Schedule schedule = out_.plan.schedules[scheduleOf(out_.besideCell)];
    std::vector<uint64_t> durations = durationsOf(out_.besideCell);
    const uint64_t steps = durations.size();
    for (uint64_t i = 1; i <= kStarts; ++i) {
      append(schedule, durations, bytes, true);
      schedule.edges.push_back({static_cast<uint32_t>(steps * i / (kStarts + 1)),
                                static_cast<uint32_t>(schedule.steps.size() - 1), plan::EdgeKind::Pacing});
    }
    out_.plan.schedules.push_back(std::move(schedule));
    out_.starts =
        addVariant(out_.besideCell, static_cast<uint32_t>(out_.plan.schedules.size() - 1), std::move(durations));
  }

  // A copy before each layer, which the layer waits for and which waits for the layer before the last: what a ring of
  // two does. Each takes half as long again as a layer computes, by the plan's prices, if that is in the range.
  void addWaiting(const cost::CellKey &cell, uint64_t most) {
    const uint32_t index = scheduleOf(cell);
    const plan::Schedule from = out_.plan.schedules[index];
    const std::vector<uint64_t> compute = durationsOf(cell);
    const auto layers = static_cast<size_t>(out_.plan.model->layers);
    const double share = 1.5 * static_cast<double>(sumOf(compute)) / static_cast<double>(layers) /
                         static_cast<double>(std::max<uint64_t>(1, costs_.copyNs(most, true)));
    const auto wanted = static_cast<uint64_t>(std::min(1.0, share) * static_cast<double>(most));
    const uint64_t bytes = std::min(most, std::max(kLeastWaited, wanted / model::kAlign * model::kAlign));

    plan::Schedule schedule = from;
    schedule.steps.clear();
    schedule.edges.clear();
    std::vector<uint64_t> durations;
    std::vector<uint32_t> moved(from.steps.size()); // where a step of `from` is now
    std::vector<uint32_t> last(layers, 0);          // of a layer
    int32_t before = -1;
    for (size_t i = 0; i < from.steps.size(); ++i) {
      const int32_t layer = from.steps[i].layer;
      if (layer > before) {
        append(schedule, durations, bytes, true);
        const auto copy = static_cast<uint32_t>(schedule.steps.size() - 1);
        if (layer >= 2)
          schedule.edges.push_back({last[static_cast<size_t>(layer) - 2], copy, plan::EdgeKind::War});
        schedule.edges.push_back({copy, copy + 1, plan::EdgeKind::Raw});
        before = layer;
      }
      moved[i] = static_cast<uint32_t>(schedule.steps.size());
      if (layer >= 0)
        last[static_cast<size_t>(layer)] = moved[i];
      schedule.steps.push_back(from.steps[i]);
      durations.push_back(compute[i]);
    }
    for (const plan::Edge &edge : from.edges)
      schedule.edges.push_back({moved[edge.from], moved[edge.to], edge.kind});
    out_.plan.schedules.push_back(std::move(schedule));
    out_.waiting.push_back(
        {cell, addVariant(cell, static_cast<uint32_t>(out_.plan.schedules.size() - 1), std::move(durations))});
  }

  // The pairs of decoding in the order of their time.
  std::vector<cost::CellKey> decodeByTime(absl::Span<const cost::CellKey> cells) const {
    std::vector<std::pair<uint64_t, cost::CellKey>> timed;
    for (const cost::CellKey &cell : cells)
      if (cell.phase == cost::Phase::Decode)
        timed.emplace_back(sumOf(durationsOf(cell)), cell);
    std::stable_sort(timed.begin(), timed.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
    std::vector<cost::CellKey> sorted;
    sorted.reserve(timed.size());
    for (const auto &[ns, cell] : timed)
      sorted.push_back(cell);
    return sorted;
  }

  void chooseBeside(absl::Span<const cost::CellKey> cells, uint64_t largest) {
    const uint64_t enough = kCopiesBeside * std::max(costs_.copyNs(largest, true), costs_.copyNs(largest, false));
    uint64_t best = kUnknown;
    for (const cost::CellKey &cell : cells) {
      const uint64_t ns = sumOf(durationsOf(cell));
      const bool better = best == kUnknown ? true : best < enough ? ns > best : ns >= enough && ns < best;
      if (better) {
        best = ns;
        out_.besideCell = cell;
      }
    }
  }

  AnalyzerPlan take() { return std::move(out_); }

private:
  // Where every sequence brings one row, the schedule of decoding does.
  uint32_t scheduleOf(const cost::CellKey &cell) const {
    return cell.phase == Phase::Decode || cell.sequence == 1 ? decode_ : mixed_;
  }

  std::vector<uint64_t> durationsOf(const cost::CellKey &cell) const {
    const uint32_t schedule = scheduleOf(cell);
    cost::Bucket bucket = cost::bucketOf(cell.phase, cell.batch, cell.sequence);
    bucket.actRows = actRowsOf(out_.plan, cell);
    std::array<uint64_t, cost::kSites> price;
    price.fill(kUnknown);
    std::vector<uint64_t> durations;
    durations.reserve(sites_[schedule].size());
    for (size_t i = 0; i < sites_[schedule].size(); ++i) {
      const plan::Step &step = out_.plan.schedules[schedule].steps[i];
      const std::optional<cost::Site> site = sites_[schedule][i];
      if (step.kind != plan::StepKind::Compute || !site) { // no site: rebuild_kv, act_append
        const bool computes = step.kind == plan::StepKind::Compute;
        durations.push_back(computes ? costs_.computeNs({step.op, model::UnitRole::Qkv}, bucket, step.direct) : 0);
        continue;
      }
      uint64_t &ns = price[static_cast<size_t>(*site)];
      if (ns == kUnknown)
        ns = costs_.computeNs(cost::opSiteOf(*site), bucket, false);
      durations.push_back(ns);
    }
    return durations;
  }

  core::GraphKey addVariant(const cost::CellKey &cell, uint32_t schedule, std::vector<uint64_t> durations) {
    const cost::Bucket bucket = cost::bucketOf(cell.phase, cell.batch, cell.sequence);
    plan::Variant variant{.newTokens = bucket.tokens,
                          .sequences = bucket.sequences,
                          .context = bucket.context,
                          .placement = 0,
                          .schedule = schedule,
                          .durationsNs = std::move(durations)};
    uint64_t link[plan::kLanes] = {};
    for (size_t i = 0; i < variant.durationsNs.size(); ++i)
      link[static_cast<size_t>(out_.plan.schedules[schedule].steps[i].lane)] += variant.durationsNs[i];
    variant.computeAloneNs = link[static_cast<size_t>(Lane::Compute)];
    variant.linkAloneNs = std::max(link[static_cast<size_t>(Lane::H2D)], link[static_cast<size_t>(Lane::D2H)]);
    variant.predictedNs = std::max(variant.computeAloneNs, variant.linkAloneNs);
    out_.plan.variants.push_back(std::move(variant));
    return {.transition = false, .index = static_cast<uint32_t>(out_.plan.variants.size() - 1)};
  }

  core::GraphKey copiesAlone(uint64_t bytes, bool toDevice) {
    plan::Schedule schedule = emptySchedule("copies");
    std::vector<uint64_t> durations;
    for (uint64_t i = 0; i < kCopiesAlone; ++i)
      append(schedule, durations, bytes, toDevice);
    return addTransition(std::move(schedule), std::move(durations));
  }

  core::GraphKey addTransition(plan::Schedule schedule, std::vector<uint64_t> durations) {
    out_.plan.schedules.push_back(std::move(schedule));
    plan::Transition transition;
    transition.schedule = static_cast<uint32_t>(out_.plan.schedules.size() - 1);
    transition.predictedNs = sumOf(durations);
    transition.durationsNs = std::move(durations);
    out_.plan.transitions.push_back(std::move(transition));
    return {.transition = true, .index = static_cast<uint32_t>(out_.plan.transitions.size() - 1)};
  }

  static plan::Schedule emptySchedule(const char *name) {
    plan::Schedule schedule;
    schedule.name = name;
    schedule.iterationClass = plan::IterationClass::Transition;
    return schedule;
  }

  // A copy behind those of its direction, beside everything else.
  void append(plan::Schedule &schedule, std::vector<uint64_t> &durations, uint64_t bytes, bool toDevice) {
    if (schedule.locals.empty() || schedule.locals.back().buffer.kind != plan::BufferKind::Workspace ||
        schedule.locals.back().buffer.name != "copied")
      schedule.locals.push_back(
          {{"copied", plan::BufferKind::Workspace, -1, model::alignUp(bytes)}, toDevice ? deviceTo_ : deviceFrom_});
    const auto buffer = static_cast<uint32_t>(out_.plan.buffers.size() + schedule.locals.size() - 1);
    plan::Step step;
    step.kind = plan::StepKind::Copy;
    step.lane = toDevice ? Lane::H2D : Lane::D2H;
    step.part = plan::Part::Movement;
    step.firstOperand = static_cast<uint32_t>(schedule.operands.size());
    step.operandCount = 2;
    step.deviceBytes = step.linkBytes = bytes;
    schedule.steps.push_back(step);
    plan::Operand host{.buffer = buffer, .space = plan::Space::Host, .bytes = bytes};
    plan::Operand device{.buffer = buffer, .space = plan::Space::Device, .bytes = bytes};
    host.address = toDevice ? hostFrom_ : hostTo_;
    device.address = toDevice ? deviceTo_ : deviceFrom_;
    plan::Operand &source = toDevice ? host : device, &destination = toDevice ? device : host;
    source.arg = plan::Arg::Source;
    destination.arg = plan::Arg::Destination;
    destination.access = plan::Access::Write;
    schedule.operands.push_back(source);
    schedule.operands.push_back(destination);
    durations.push_back(costs_.copyNs(bytes, toDevice));
  }

  AnalyzerPlan out_;
  const cost::Roofline costs_;
  std::vector<std::vector<std::optional<cost::Site>>> sites_; // of the compiled schedules
  uint32_t decode_ = 0, mixed_ = 0;
  uint64_t deviceTo_ = 0, deviceFrom_ = 0, hostFrom_ = 0, hostTo_ = 0;
};

} // namespace

std::vector<std::optional<cost::Site>> sitesOf(const plan::Plan &plan, const plan::Schedule &schedule) {
  const model::WeightLayout layout = model::layoutWeights(plan.model);
  std::vector<std::optional<cost::Site>> sites;
  sites.reserve(schedule.steps.size());
  for (const plan::Step &step : schedule.steps) {
    if (step.kind != plan::StepKind::Compute) {
      sites.push_back(step.kind == plan::StepKind::Publish ? std::optional(cost::Site::Sample) : std::nullopt);
      continue;
    }
    sites.push_back(cost::siteOf({step.op, plan::unitOf(plan, layout, schedule, step)}));
  }
  return sites;
}

int64_t actRowsOf(const plan::Plan &plan, const cost::CellKey &cell) {
  plan::Variant variant;
  variant.sequences = cell.batch;
  variant.context = cell.sequence;
  return plan::actRows(plan, variant);
}

AnalyzerPlan makeLinesPlan(plan::Plan kept, absl::Span<const cost::CellKey> cells, absl::Span<const uint64_t> sizes) {
  Maker maker(std::move(kept), *std::max_element(sizes.begin(), sizes.end()));
  for (const cost::CellKey &cell : cells)
    maker.addCell(cell);
  for (const uint64_t bytes : sizes)
    maker.addLoads(bytes);
  return maker.take();
}

AnalyzerPlan makeAnalyzerPlan(plan::Plan resident, absl::Span<const cost::CellKey> cells,
                              absl::Span<const uint64_t> sizes, uint64_t copyBytes) {
  Maker maker(std::move(resident), copyBytes);
  if (!sizes.empty())
    maker.chooseBeside(cells, sizes.back());
  for (const cost::CellKey &cell : cells)
    maker.addCell(cell);
  for (const uint64_t bytes : sizes)
    maker.addCopies(bytes);
  if (!sizes.empty())
    maker.addStarts(sizes.front());
  if (const std::vector<cost::CellKey> decode = maker.decodeByTime(cells); !sizes.empty() && !decode.empty()) {
    maker.addWaiting(decode[decode.size() / 2], sizes.back());
    maker.addWaiting(decode.front(), sizes.back());
  }
  return maker.take();
}

} // namespace headrace::profile
