// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/GraphPlan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/plan/value/BlockRuns.h"

namespace headrace::cuda {
namespace {

using plan::Arg;
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
  Planner(const GraphPlanRequest &request, const core::GraphSource &source)
      : request_(request), plan_(request.plan), source_(source), schedule_(*source.schedule), variant_(source.variant) {
  }

  absl::StatusOr<GraphPlan> make() {
    RETURN_IF_ERROR(core::checkSteps(source_));
    graph_.transition = variant_ == nullptr;
    graph_.bucket = source_.bucket;
    graph_.steps = static_cast<uint32_t>(schedule_.steps.size());
    graph_.memory = request_.memory;
    for (uint32_t i = 0; i < schedule_.steps.size(); ++i) {
      firstNode_.push_back(static_cast<uint32_t>(graph_.nodes.size()));
      RETURN_IF_ERROR(add(i));
    }
    RETURN_IF_ERROR(addWaits());
    return std::move(graph_);
  }

private:
  absl::Status refuse(uint32_t index, const std::string &message) const {
    return core::refuseStep(schedule_, index, message);
  }

  absl::Status add(uint32_t index) {
    switch (schedule_.steps[index].kind) {
    case StepKind::Compute:
      return addCompute(index);
    case StepKind::Copy:
      return addCopy(index);
    case StepKind::Publish:
      return addPublish(index);
    }
    return refuse(index, "no such kind of step");
  }

  GraphNode &append(uint32_t index, NodeKind kind) {
    graph_.nodes.push_back({.step = index, .lane = schedule_.steps[index].lane, .kind = kind});
    return graph_.nodes.back();
  }

  absl::Span<const Operand> operands(uint32_t index) const {
    const plan::Step &step = schedule_.steps[index];
    return absl::MakeConstSpan(schedule_.operands).subspan(step.firstOperand, step.operandCount);
  }
  NodeAccess accessOf(const Operand &operand) const {
    NodeAccess access{operand.space, operand.address, operand.address + operand.bytes, operand.access};
    const uint64_t block = operand.interleaved ? plan_.kvBlockBytes() : 0;
    if (operand.bytes > block && block > 0 && block != plan_.kvStride()) {
      access.rowBytes = block;
      access.pitch = plan_.kvStride();
      access.end = operand.address + (operand.bytes / block - 1) * access.pitch + block;
    }
    return access;
  }
  std::vector<NodeAccess> accesses(uint32_t index) const {
    std::vector<NodeAccess> all;
    for (const Operand &operand : operands(index))
      all.push_back(accessOf(operand));
    return all;
  }

  absl::Status addCompute(uint32_t index) {
    const plan::Step &step = schedule_.steps[index];
    ASSIGN_OR_RETURN(bound, request_.binding.bind(schedule_, index, *variant_, request_.memory.bases));
    if (step.lane == plan::Lane::Cpu)
      return addOnCpu(index, bound);
    if (const auto *linear = std::get_if<kernels::LinearArgs>(&bound.args)) {
      const kernels::CudaLaunch launch = kernels::cudaLaunch(*linear);
      if (launch.kernel == nullptr)
        return addLinear(index, *linear);
      GraphNode &node = append(index, NodeKind::Kernel);
      node.kernel = kernelCall(launch, *linear);
      node.accesses = accesses(index);
      return absl::OkStatus();
    }
    if (const auto *rebuild = std::get_if<kernels::RebuildKvArgs>(&bound.args))
      return addRebuild(index, *rebuild);
    // The final norm has a row a sequence; a grid for all new tokens would be mostly idle.
    const bool sampledRows = step.op == kernels::Op::Norm && step.part == plan::Part::Head;
    const kernels::CudaShape shape{.tokens = sampledRows ? variant_->sequences : variant_->newTokens,
                                   .sequences = variant_->sequences,
                                   .context = variant_->context};
    const char *why = "";
    const kernels::CudaLaunch launch = kernels::cudaLaunch(step.op, bound.argsPointer(), shape, &why);
    if (launch.kernel == nullptr)
      return refuse(index, absl::StrCat("no kernel for ", kernels::opName(step.op), ": ",
                                        kernels::cudaRefusal(step.op, bound.argsPointer(), why)));
    GraphNode &node = append(index, NodeKind::Kernel);
    node.kernel = std::visit([&](const auto &args) { return kernelCall(launch, args); }, bound.args);
    node.accesses = accesses(index);
    return absl::OkStatus();
  }

  absl::Status addOnCpu(uint32_t index, const core::BoundStep &bound) {
    if (bound.op != kernels::Op::Append && bound.op != kernels::Op::Attention)
      return refuse(index,
                    absl::StrCat(kernels::opName(bound.op), " in lane 'cpu': beside CUDA the CPU appends and attends"));
    GraphNode &node = append(index, NodeKind::Host);
    node.host = hostCall(bound);
    node.accesses = accesses(index);
    return absl::OkStatus();
  }

  absl::Status addLinear(uint32_t index, const kernels::LinearArgs &args) {
    std::vector<NodeAccess> of, after;
    for (const Operand &operand : operands(index)) {
      // The rows of the second node; the first one takes the bucket's and reads no count.
      if (operand.arg != Arg::Meta && operand.arg != Arg::Bias)
        of.push_back(accessOf(operand));
      if (operand.arg == Arg::Meta)
        after.push_back(accessOf(operand));
      if (operand.arg == Arg::Y) {
        after.push_back(accessOf(operand));
        after.back().access = plan::Access::ReadWrite;
      }
    }
    return addProduct(index, args, std::move(of), std::move(after));
  }

  // A product and, where the library cannot fuse all of it, what follows: with what they access beside the bias.
  absl::Status addProduct(uint32_t index, const kernels::LinearArgs &args, std::vector<NodeAccess> of,
                          std::vector<NodeAccess> after) {
    const bool packed = args.packing.codeBits != 0;
    const int64_t unpackedBytes = packed ? static_cast<int64_t>(model::dtypeBytes(plan_.activationDtype)) : 0;
    const uint64_t workspace = kernels::CudaWorkspace::productBytes(args.n, args.k, unpackedBytes);
    absl::StatusOr<LinearCalls> calls = splitLinear(args, workspace, request_.fuse);
    if (!calls.ok())
      return refuse(index, std::string(calls.status().message()));
    const bool biasInside = calls->parts.front().matmul.shape.bias;
    for (const Operand &operand : operands(index))
      if (operand.arg == Arg::Bias)
        (biasInside ? of : after).push_back(accessOf(operand));
    for (const LinearPart &part : calls->parts) {
      if (part.unpack)
        RETURN_IF_ERROR(addUnpack(index, *part.unpack));
      GraphNode &product = append(index, NodeKind::Library);
      product.matmul = part.matmul;
      product.accesses = of;
      if (part.unpack) // in its place a part of the workspace, which the library writes to as well
        std::erase_if(product.accesses, [&](const NodeAccess &one) { return isWeight(index, one); });
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

  bool isWeight(uint32_t index, const NodeAccess &access) const {
    for (const Operand &operand : operands(index))
      if (operand.arg == Arg::Weight && operand.space == access.space && operand.address == access.begin)
        return true;
    return false;
  }

  absl::Status addUnpack(uint32_t index, const kernels::UnpackArgs &args) {
    const kernels::CudaLaunch launch = kernels::cudaLaunch(args);
    if (launch.kernel == nullptr)
      return refuse(index, absl::StrCat("no kernel to unpack to ", elemName(args.activation)));
    GraphNode &node = append(index, NodeKind::Kernel);
    node.kernel = kernelCall(launch, args);
    node.accesses = accessing(index, {Arg::Weight, Arg::Workspace}, plan::Access::Write);
    return absl::OkStatus();
  }

  // Of a step's operands those, its workspace by what is said.
  std::vector<NodeAccess> accessing(uint32_t index, std::initializer_list<Arg> which, plan::Access workspace) const {
    std::vector<NodeAccess> all;
    for (const Operand &operand : operands(index))
      if (std::find(which.begin(), which.end(), operand.arg) != which.end()) {
        all.push_back(accessOf(operand));
        if (operand.arg == Arg::Workspace)
          all.back().access = workspace;
      }
    return all;
  }

  // Keys and values a chunk of rows at a time: gather, product, append.
  absl::Status addRebuild(uint32_t index, const kernels::RebuildKvArgs &args) {
    const int64_t chunk = kernels::rebuildRows(kernels::Backend::Cuda, args.capacity);
    for (int64_t first = 0; first < args.capacity; first += chunk) {
      const kernels::RebuildCalls calls = kernels::rebuildCalls(args, first);
      GraphNode &gather = append(index, NodeKind::Kernel);
      gather.kernel = kernelCall(kernels::cudaLaunch(calls.gather), calls.gather);
      gather.accesses = accessing(index, {Arg::Meta, Arg::Act, Arg::Workspace}, plan::Access::Write);
      RETURN_IF_ERROR(addProduct(index, calls.product,
                                 accessing(index, {Arg::Weight, Arg::Workspace}, plan::Access::ReadWrite),
                                 accessing(index, {Arg::Meta, Arg::Workspace}, plan::Access::ReadWrite)));
      const char *why = "";
      const kernels::CudaLaunch launch = kernels::cudaLaunch(calls.append, &why);
      if (launch.kernel == nullptr)
        return refuse(index, absl::StrCat("no kernel for rebuild_kv: ", why));
      GraphNode &appended = append(index, NodeKind::Kernel);
      appended.kernel = kernelCall(launch, calls.append);
      appended.accesses = accessing(index, {Arg::Meta, Arg::NormWeights, Arg::Workspace, Arg::Y}, plan::Access::Read);
    }
    return absl::OkStatus();
  }

  absl::Status addPublish(uint32_t index) {
    const Operand *output = nullptr;
    for (const Operand &operand : operands(index))
      if (operand.arg == Arg::Output)
        output = &operand;
    const int64_t sequences = plan_.mostSampled();
    if (output == nullptr || output->space != Space::Device ||
        output->bytes < static_cast<uint64_t>(sequences) * sizeof(int32_t))
      return refuse(index, absl::StrCat("publish needs the output of ", sequences, " sequences on the device"));
    const plan::Extent *meta = nullptr;
    const uint32_t buffer = plan_.ioBuffer(plan::Io::Meta);
    for (const plan::Extent &extent : plan_.placements[0].extents)
      if (extent.buffer == buffer && extent.space == Space::Device && extent.bufferOffset == 0)
        meta = &extent;
    if (meta == nullptr)
      return refuse(index, "the plan's meta buffer has no home on the device");
    std::byte *device = request_.memory.bases.device;
    const auto *first = reinterpret_cast<const kernels::IterationMeta *>(device + meta->address);
    const kernels::PublishArgs args{.meta = first,
                                    .last = kernels::metaOf(plan_.metaLayout, first, plan_.miniBatches - 1),
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
    for (const Operand &operand : operands(index)) // rows that a stage sends, which the host finds there
      if (operand.arg == Arg::Residual)
        node.accesses.push_back(accessOf(operand));
    return absl::OkStatus();
  }

  absl::Status addCopy(uint32_t index) {
    const core::GraphSpaces spaces{request_.memory.bases, plan_.arenaBytes, plan_.hostBytes};
    ASSIGN_OR_RETURN(sides, core::copySides(plan_, schedule_, index, spaces));
    GraphNode &node = append(index, NodeKind::Copy);
    node.copy = sides;
    if (sides.inRows())
      node.copy.sized.reset(); // of an executable graph only 1-D copy nodes can be changed: it copies all
    node.accesses = accesses(index);
    node.accesses[0].access = plan::Access::Read;
    node.accesses[1].access = plan::Access::Write;
    return absl::OkStatus();
  }

  // A step's first node waits for the last node of each step that it waits for.
  absl::Status addWaits() {
    ASSIGN_OR_RETURN(waits, core::stepWaits(schedule_));
    firstNode_.push_back(static_cast<uint32_t>(graph_.nodes.size()));
    for (uint32_t step = 0; step < waits.size(); ++step) {
      std::vector<uint32_t> &nodes = graph_.nodes[firstNode_[step]].waits;
      for (const uint32_t last : waits[step]) {
        if (last == plan::kNone)
          continue;
        nodes.push_back(firstNode_[last + 1] - 1);
        graph_.nodes[nodes.back()].signals = true;
      }
      std::sort(nodes.begin(), nodes.end());
    }
    return absl::OkStatus();
  }

  const GraphPlanRequest &request_;
  const plan::Plan &plan_;
  const core::GraphSource source_;
  const plan::Schedule &schedule_;
  const plan::Variant *variant_;
  GraphPlan graph_;
  std::vector<uint32_t> firstNode_; // of each step; then the number of nodes
};

} // namespace

HostCall hostCall(const core::BoundStep &bound) {
  return {bound, std::visit([](const auto &args) { return pointersOf(args); }, bound.args)};
}

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
  ASSIGN_OR_RETURN(source, core::graphSource(plan, key));
  absl::StatusOr<GraphPlan> graph = Planner(request, source).make();
  if (!graph.ok())
    return absl::Status(graph.status().code(),
                        absl::StrCat(graphName(plan, key), ": ", std::string(graph.status().message())));
  graph->name = graphName(plan, key);
  return graph;
}

} // namespace headrace::cuda
