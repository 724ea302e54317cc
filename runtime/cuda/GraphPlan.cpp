// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/GraphPlan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::cuda {
namespace {

using plan::Arg;
using plan::Lane;
using plan::Operand;
using plan::Space;
using plan::StepKind;

template <typename Args> KernelCall kernelCall(const kernels::CudaLaunch &launch, const Args &args) {
  KernelCall call{.launch = launch, .args = std::vector<std::byte>(sizeof(Args)), .pointers = pointersOf(args)};
  std::memcpy(call.args.data(), &args, sizeof(Args));
  return call;
}

class Planner {
public:
  Planner(const GraphPlanRequest &request, const plan::Schedule &schedule, const plan::Variant *variant)
      : request_(request), plan_(request.plan), schedule_(schedule), variant_(variant) {}

  absl::StatusOr<GraphPlan> make() {
    graph_.transition = variant_ == nullptr;
    graph_.steps = static_cast<uint32_t>(schedule_.steps.size());
    graph_.memory = request_.memory;
    for (uint32_t i = 0; i < schedule_.steps.size(); ++i) {
      firstNode_.push_back(static_cast<uint32_t>(graph_.nodes.size()));
      RETURN_IF_ERROR(add(i));
    }
    // An iteration without its tokens would be waited for without end, a transition has none.
    if (publishes_ != (variant_ == nullptr ? 0 : 1))
      return absl::InvalidArgumentError(absl::StrCat("schedule '", schedule_.name, "': ", publishes_,
                                                     " publish steps, expected ", variant_ == nullptr ? 0 : 1));
    RETURN_IF_ERROR(addWaits());
    return std::move(graph_);
  }

private:
  absl::Status refuse(uint32_t index, const std::string &message) const {
    return absl::InvalidArgumentError(absl::StrCat("schedule '", schedule_.name, "', step ", index, ": ", message));
  }

  absl::Status add(uint32_t index) {
    const plan::Step &step = schedule_.steps[index];
    if (laneIndex(step.lane) >= kGraphLanes)
      return refuse(index,
                    absl::StrCat("lane '", plan::laneName(step.lane), "': a CUDA graph has compute, h2d and d2h"));
    if (step.firstOperand > schedule_.operands.size() ||
        step.operandCount > schedule_.operands.size() - step.firstOperand)
      return refuse(index, "its operands are outside the schedule's list");
    if (step.kind == StepKind::Copy)
      return addCopy(index);
    if (!plan::computes(step.lane))
      return refuse(index, absl::StrCat(step.kind == StepKind::Publish ? "publish" : "compute", " in lane '",
                                        plan::laneName(step.lane), "'"));
    if (variant_ == nullptr)
      return refuse(index, "a transition has copies only");
    return step.kind == StepKind::Publish ? addPublish(index) : addCompute(index);
  }

  GraphNode &append(uint32_t index, NodeKind kind) {
    graph_.nodes.push_back({.step = index, .lane = schedule_.steps[index].lane, .kind = kind});
    return graph_.nodes.back();
  }

  absl::Span<const Operand> operands(uint32_t index) const {
    const plan::Step &step = schedule_.steps[index];
    return absl::MakeConstSpan(schedule_.operands).subspan(step.firstOperand, step.operandCount);
  }
  static NodeAccess accessOf(const Operand &operand) {
    return {operand.space, operand.address, operand.address + operand.bytes, operand.access};
  }
  std::vector<NodeAccess> accesses(uint32_t index) const {
    std::vector<NodeAccess> all;
    for (const Operand &operand : operands(index))
      all.push_back(accessOf(operand));
    return all;
  }

  absl::Status addCompute(uint32_t index) {
    const plan::Step &step = schedule_.steps[index];
    absl::StatusOr<core::BoundStep> bound = request_.binding.bind(schedule_, index, *variant_, request_.memory.bases);
    if (!bound.ok())
      return bound.status();
    if (const auto *linear = std::get_if<kernels::LinearArgs>(&bound->args))
      return addLinear(index, *linear);
    // The final norm has a row a sequence; a grid for all new tokens would be mostly idle.
    const bool sampledRows = step.op == kernels::Op::Norm && step.part == plan::Part::Head;
    const kernels::CudaShape shape{.tokens = sampledRows ? variant_->sequences : variant_->newTokens,
                                   .sequences = variant_->sequences,
                                   .context = variant_->context};
    const char *why = "";
    const kernels::CudaLaunch launch = kernels::cudaLaunch(step.op, bound->argsPointer(), shape, &why);
    if (launch.kernel == nullptr)
      return refuse(index, absl::StrCat("no kernel for ", kernels::opName(step.op), ": ", why));
    GraphNode &node = append(index, NodeKind::Kernel);
    node.kernel = std::visit([&](const auto &args) { return kernelCall(launch, args); }, bound->args);
    node.accesses = accesses(index);
    return absl::OkStatus();
  }

  absl::Status addLinear(uint32_t index, const kernels::LinearArgs &args) {
    const uint64_t workspace = kernels::linearWorkspaceBytes(kernels::Backend::Cuda, args.capacity, args.n, args.k);
    absl::StatusOr<LinearCalls> calls = splitLinear(args, workspace, request_.fuse);
    if (!calls.ok())
      return refuse(index, std::string(calls.status().message()));
    GraphNode &product = append(index, NodeKind::Library);
    product.matmul = calls->matmul;
    std::vector<NodeAccess> after;
    for (const Operand &operand : operands(index)) {
      // The rows of the second node; the first one takes the bucket's and reads no count.
      const bool isBias = operand.arg == Arg::Bias && !calls->matmul.shape.bias;
      if (!isBias && operand.arg != Arg::Meta)
        product.accesses.push_back(accessOf(operand));
      if (isBias || operand.arg == Arg::Meta)
        after.push_back(accessOf(operand));
      if (operand.arg == Arg::Y) {
        after.push_back(accessOf(operand));
        after.back().access = plan::Access::ReadWrite;
      }
    }
    if (!calls->after)
      return absl::OkStatus();
    const kernels::BiasActivateArgs second{.count = args.count,
                                           .y = args.y,
                                           .bias = calls->bias,
                                           .n = args.n,
                                           .capacity = args.capacity,
                                           .epilogue = calls->epilogue,
                                           .result = args.result};
    const kernels::CudaLaunch launch = kernels::cudaLaunch(second);
    if (launch.kernel == nullptr)
      return refuse(
          index, absl::StrCat("no kernel for bias and ", epilogueName(calls->epilogue), " on ", elemName(args.result)));
    GraphNode &node = append(index, NodeKind::Kernel);
    node.kernel = kernelCall(launch, second);
    node.accesses = std::move(after);
    return absl::OkStatus();
  }

  absl::Status addPublish(uint32_t index) {
    const Operand *output = nullptr;
    for (const Operand &operand : operands(index))
      if (operand.arg == Arg::Output)
        output = &operand;
    const int64_t sequences = plan_.metaLayout.maxSequences;
    if (output == nullptr || output->space != Space::Device ||
        output->bytes < static_cast<uint64_t>(sequences) * sizeof(int32_t))
      return refuse(index, absl::StrCat("publish needs the output of ", sequences, " sequences on the device"));
    const plan::Extent *meta = nullptr;
    for (const plan::Extent &extent : plan_.placements[0].extents)
      if (extent.buffer == plan_.metaBuffer() && extent.space == Space::Device && extent.bufferOffset == 0)
        meta = &extent;
    if (meta == nullptr)
      return refuse(index, "the plan's meta buffer has no home on the device");
    std::byte *device = request_.memory.bases.device;
    const kernels::PublishArgs args{.meta = reinterpret_cast<const kernels::IterationMeta *>(device + meta->address),
                                    .output = reinterpret_cast<const int32_t *>(device + output->address),
                                    .tokens = request_.memory.publishedTokens,
                                    .iterations = request_.memory.publishedIterations,
                                    .maxSequences = sequences};
    const kernels::CudaLaunch launch = kernels::cudaLaunch(args);
    if (launch.kernel == nullptr)
      return refuse(index, "no kernel for publish");
    GraphNode &node = append(index, NodeKind::Kernel);
    node.kernel = kernelCall(launch, args);
    node.accesses = {accessOf(*output),
                     {Space::Device, meta->address, meta->address + meta->bytes, plan::Access::Read}};
    ++publishes_;
    return absl::OkStatus();
  }

  absl::Status addCopy(uint32_t index) {
    const plan::Step &step = schedule_.steps[index];
    if (step.operandCount != 2)
      return refuse(index, absl::StrCat("a copy has 2 operands, this one ", step.operandCount));
    const Operand &source = operands(index)[0], &destination = operands(index)[1];
    const bool toDevice = plan::toDevice(step.lane);
    if (plan::computes(step.lane) || source.space != (toDevice ? Space::Host : Space::Device) ||
        destination.space != (toDevice ? Space::Device : Space::Host))
      return refuse(index, absl::StrCat("a copy in lane '", plan::laneName(step.lane),
                                        "' whose sides are not those of its direction"));
    if (source.bytes != destination.bytes)
      return refuse(index, absl::StrCat("a copy of ", source.bytes, " bytes to ", destination.bytes));
    absl::StatusOr<std::byte *> from = side(index, source), to = side(index, destination);
    if (!from.ok())
      return from.status();
    if (!to.ok())
      return to.status();
    GraphNode &node = append(index, NodeKind::Copy);
    node.copy = {.toDevice = toDevice, .destination = *to, .source = *from, .bytes = source.bytes};
    node.accesses = accesses(index);
    node.accesses[0].access = plan::Access::Read;
    node.accesses[1].access = plan::Access::Write;
    return absl::OkStatus();
  }

  absl::StatusOr<std::byte *> side(uint32_t index, const Operand &operand) const {
    const bool host = operand.space == Space::Host;
    const uint64_t limit = host ? plan_.hostBytes : plan_.arenaBytes;
    if (operand.bytes > limit || operand.address > limit - operand.bytes)
      return refuse(index, absl::StrCat("bytes [", operand.address, ", +", operand.bytes, ") are outside the ",
                                        host ? "host slab" : "arena", " of ", limit));
    return (host ? request_.memory.bases.host : request_.memory.bases.device) + operand.address;
  }

  // A lane runs in order, so of several edges from one lane the last says it all, and nothing is left to wait for if an
  // earlier node of the own lane has waited for as much.
  absl::Status addWaits() {
    firstNode_.push_back(static_cast<uint32_t>(graph_.nodes.size()));
    constexpr uint32_t kNever = plan::kNone;
    std::vector<std::array<uint32_t, kGraphLanes>> latest(graph_.nodes.size(), {kNever, kNever, kNever});
    for (const plan::Edge &edge : schedule_.edges) {
      if (edge.from >= edge.to || edge.to >= schedule_.steps.size())
        return absl::InvalidArgumentError(
            absl::StrCat("schedule '", schedule_.name, "': edge from step ", edge.from, " to ", edge.to));
      if (schedule_.steps[edge.from].lane == schedule_.steps[edge.to].lane)
        continue;
      const uint32_t from = firstNode_[edge.from + 1] - 1; // the last node of that step
      uint32_t &entry = latest[firstNode_[edge.to]][laneIndex(schedule_.steps[edge.from].lane)];
      entry = entry == kNever ? from : std::max(entry, from);
    }
    std::array<std::array<uint32_t, kGraphLanes>, kGraphLanes> waited;
    for (auto &lane : waited)
      lane.fill(kNever);
    for (uint32_t n = 0; n < graph_.nodes.size(); ++n)
      for (size_t lane = 0; lane < kGraphLanes; ++lane) {
        uint32_t &last = waited[laneIndex(graph_.nodes[n].lane)][lane];
        const uint32_t want = latest[n][lane];
        if (want == kNever || (last != kNever && want <= last))
          continue;
        last = want;
        graph_.nodes[n].waits.push_back(want);
        graph_.nodes[want].signals = true;
      }
    for (GraphNode &node : graph_.nodes)
      std::sort(node.waits.begin(), node.waits.end());
    return absl::OkStatus();
  }

  const GraphPlanRequest &request_;
  const plan::Plan &plan_;
  const plan::Schedule &schedule_;
  const plan::Variant *variant_;
  GraphPlan graph_;
  std::vector<uint32_t> firstNode_; // of each step; then the number of nodes
  int publishes_ = 0;
};

} // namespace

std::string graphName(const plan::Plan &plan, const core::GraphKey &key) {
  if (key.transition) {
    const plan::Transition &transition = plan.transitions[key.index];
    return absl::StrCat("transition ", key.index, " (state ", transition.fromState, " to ", transition.toState, ")");
  }
  const plan::Variant &variant = plan.variants[key.index];
  return absl::StrCat("variant ", key.index, " (",
                      variant.placement < plan.placements.size() ? plan.placements[variant.placement].name : "?", ", ",
                      variant.newTokens, " tokens x ", variant.sequences, " sequences x ", variant.context, ")");
}

absl::StatusOr<GraphPlan> planGraph(const GraphPlanRequest &request, const core::GraphKey &key) {
  const plan::Plan &plan = request.plan;
  const size_t count = key.transition ? plan.transitions.size() : plan.variants.size();
  const char *what = key.transition ? "transition" : "variant";
  if (key.index >= count)
    return absl::InvalidArgumentError(absl::StrCat(what, " ", key.index, " to build, the plan has ", count));
  const uint32_t schedule = key.transition ? plan.transitions[key.index].schedule : plan.variants[key.index].schedule;
  if (schedule >= plan.schedules.size())
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", key.index, ": schedule ", schedule, ", the plan has ", plan.schedules.size()));
  absl::StatusOr<GraphPlan> graph =
      Planner(request, plan.schedules[schedule], key.transition ? nullptr : &plan.variants[key.index]).make();
  if (!graph.ok())
    return absl::Status(graph.status().code(),
                        absl::StrCat(graphName(plan, key), ": ", std::string(graph.status().message())));
  graph->name = graphName(plan, key);
  return graph;
}

} // namespace headrace::cuda
