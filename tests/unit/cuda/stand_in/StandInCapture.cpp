// SPDX-License-Identifier: Apache-2.0
//
// Captures, graphs and their launches.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "kernels/IterationMeta.h"
#include "tests/unit/cuda/stand_in/StandInFaults.h"
#include "tests/unit/cuda/stand_in/StandInKernels.h"
#include "tests/unit/cuda/stand_in/StandInQueue.h"
#include "tests/unit/cuda/stand_in/StandInRuntime.h"

using namespace headrace::stand_in;

namespace {

uint64_t captures = 0;             // so many were begun
std::set<cudaStream_t> takingPart; // in the capture that is under way: one at a time
bool ownGraph = false;             // that was made when it began
std::vector<cudaGraphNode_t> leaves(const CUgraph_st &graph) {
  std::set<cudaGraphNode_t> all;
  for (const auto &node : graph.nodes)
    all.insert(node.get());
  for (const auto &[before, after] : graph.edges)
    all.erase(before);
  return {all.begin(), all.end()};
}

cudaError_t begin(cudaStream_t stream, cudaGraph_t graph, std::vector<cudaGraphNode_t> after) {
  if (!takingPart.empty() || stream->capture.number != 0)
    return failed(cudaErrorIllegalState);
  if (const cudaError_t error = checkHere(stream->device); error != cudaSuccess)
    return error;
  ownGraph = graph == nullptr;
  if (ownGraph) {
    graph = new CUgraph_st;
    given(Kind::Graphs, 1);
  }
  stream->capture = {++captures, graph, std::move(after)};
  stream->began = true;
  takingPart = {stream};
  return cudaSuccess;
}

cudaError_t kernel(const cudaKernelNodeParams &params, StandInWork &work) {
  const Runs runs = runsOf(params.func);
  if (runs.call == nullptr || runs.bytes > work.argument.size())
    return failed(cudaErrorInvalidDeviceFunction);
  if (params.sharedMemBytes > static_cast<unsigned>(sharedBytesOf(params.func)))
    return failed(cudaErrorInvalidValue);
  work.type = cudaGraphNodeTypeKernel;
  work.function = params.func;
  work.grid = params.gridDim;
  work.block = params.blockDim;
  work.sharedBytes = params.sharedMemBytes;
  work.publishes = kernelName(params.func) == "publish";
  std::memcpy(work.argument.data(), params.kernelParams[0], runs.bytes);
  return cudaSuccess;
}

cudaError_t addTo(cudaGraph_t graph, cudaGraphNode_t *made, const cudaGraphNode_t *after, size_t count,
                  const StandInWork &work) {
  *made = graph->add(work, {after, after + count});
  return *made == nullptr ? failed(cudaErrorInvalidValue) : cudaSuccess;
}

// The number of the iteration whose data were brought last.
void publish(const StandInWork &work) {
  headrace::kernels::PublishArgs args;
  std::memcpy(&args, work.argument.data(), sizeof args);
  const auto *meta = static_cast<const headrace::kernels::IterationMeta *>(lastSource());
  args.iterations[meta->iteration % headrace::kernels::kPublishSlots] = meta->iteration;
}

// As many as there is room for; how many there are.
template <typename T, typename Get> cudaError_t list(size_t all, T *out, size_t *count, Get get) {
  if (out != nullptr)
    for (size_t i = 0; i < std::min(all, *count); ++i)
      out[i] = get(i);
  *count = out == nullptr ? all : std::min(all, *count);
  return cudaSuccess;
}

} // namespace

extern "C" {

// ---- captures

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  STAND_IN_CALL();
  return begin(stream, nullptr, {});
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *after,
                                          const cudaGraphEdgeData *, size_t count, cudaStreamCaptureMode) {
  STAND_IN_CALL();
  return begin(stream, graph, {after, after + count});
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  STAND_IN_CALL();
  for (const int device : {stream->device, event->device})
    if (const cudaError_t error = checkHere(device); error != cudaSuccess)
      return error;
  if (event->capture.number == 0 || event->capture.number != captures || takingPart.empty()) {
    if (stream->capture.number != 0)
      return failed(cudaErrorStreamCaptureIsolation);
    if (event->entry != 0 && !instant())
      stream->last = Queue::get().add(
          {.stream = stream, .device = stream->device, .work = [] { return true; }, .after = event->entry});
    return cudaSuccess;
  }
  takingPart.insert(stream);
  stream->capture.number = event->capture.number;
  stream->capture.graph = event->capture.graph;
  for (cudaGraphNode_t node : event->capture.after)
    if (std::find(stream->capture.after.begin(), stream->capture.after.end(), node) == stream->capture.after.end())
      stream->capture.after.push_back(node);
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **after, const cudaGraphEdgeData **edges,
                                     size_t *count) {
  STAND_IN_CALL();
  *status = stream->capture.number == 0 ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  if (id != nullptr)
    *id = stream->capture.number;
  if (graph != nullptr)
    *graph = stream->capture.graph;
  if (after != nullptr)
    *after = stream->capture.after.data();
  if (edges != nullptr)
    *edges = nullptr;
  if (count != nullptr)
    *count = stream->capture.after.size();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  const cudaError_t error = called(__func__); // a capture has ended even so
  *graph = nullptr;
  if (!stream->began)
    return failed(cudaErrorStreamCaptureUnmatched);
  const cudaGraph_t made = stream->capture.graph;
  // What others made last must be followed by the origin, which has joined them.
  bool joined = true;
  for (cudaStream_t other : takingPart)
    for (cudaGraphNode_t node : other->capture.after)
      if (const std::vector<cudaGraphNode_t> last = leaves(*made);
          std::find(last.begin(), last.end(), node) != last.end())
        joined &=
            std::find(stream->capture.after.begin(), stream->capture.after.end(), node) != stream->capture.after.end();
  for (cudaStream_t other : takingPart)
    other->capture = {};
  stream->began = false;
  takingPart.clear();
  if (joined && error == cudaSuccess)
    return *graph = made, cudaSuccess;
  if (std::exchange(ownGraph, false)) {
    delete made;
    given(Kind::Graphs, -1);
  }
  return error != cudaSuccess ? error : failed(cudaErrorStreamCaptureUnjoined);
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
  STAND_IN_CALL();
  StandInWork work;
  cudaKernelNodeParams params{};
  params.func = const_cast<void *>(function);
  params.gridDim = grid;
  params.blockDim = block;
  params.sharedMemBytes = static_cast<unsigned>(shared);
  params.kernelParams = arguments;
  const cudaError_t error = kernel(params, work);
  return error != cudaSuccess ? error : give(stream, work);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  STAND_IN_CALL();
  return give(stream, {.type = cudaGraphNodeTypeHost, .host = function, .hostData = data});
}

// ---- graphs

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned) {
  STAND_IN_CALL();
  *graph = new CUgraph_st;
  given(Kind::Graphs, 1);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const cudaError_t error = called(__func__);
  delete graph;
  given(Kind::Graphs, -1);
  return error;
}
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                   const cudaKernelNodeParams *params) {
  STAND_IN_CALL();
  StandInWork work;
  const cudaError_t error = kernel(*params, work);
  return error != cudaSuccess ? error : addTo(graph, made, after, count, work);
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *after,
                                     size_t count, void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  STAND_IN_CALL();
  const StandInCopy copy{
      static_cast<std::byte *>(to), static_cast<const std::byte *>(from), bytes, 1, bytes, bytes, kind};
  const cudaError_t error = checkCopy(copy);
  return error != cudaSuccess ? error
                              : addTo(graph, made, after, count, {.type = cudaGraphNodeTypeMemcpy, .copy = copy});
}
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                   const cudaMemcpy3DParms *params) {
  STAND_IN_CALL();
  return addTo(
      graph, made, after, count,
      {.type = cudaGraphNodeTypeMemcpy,
       .copy = {static_cast<std::byte *>(params->dstPtr.ptr), static_cast<const std::byte *>(params->srcPtr.ptr),
                params->extent.width, params->extent.height * params->extent.depth, params->dstPtr.pitch,
                params->srcPtr.pitch, params->kind}});
}
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *after,
                                        size_t count, cudaEvent_t event) {
  STAND_IN_CALL();
  return addTo(graph, made, after, count, {.type = cudaGraphNodeTypeEventRecord, .event = event});
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *made, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                 const cudaHostNodeParams *params) {
  STAND_IN_CALL();
  return addTo(graph, made, after, count,
               {.type = cudaGraphNodeTypeHost, .host = params->fn, .hostData = params->userData});
}
cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams *params) {
  STAND_IN_CALL();
  *params = {};
  params->fn = node->work.host, params->userData = node->work.hostData;
  return cudaSuccess;
}
// A programmatic edge as any other: on the emulator a kernel ends before the next one starts.
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     const cudaGraphEdgeData *data, size_t count) {
  STAND_IN_CALL();
  for (size_t i = 0; i < count; ++i) {
    const bool full = data == nullptr || data[i].type == cudaGraphDependencyTypeDefault;
    const bool kernels = from[i]->work.type == cudaGraphNodeTypeKernel && to[i]->work.type == cudaGraphNodeTypeKernel;
    if ((!full && (!kernels || data[i].from_port == 0)) ||
        std::find(graph->edges.begin(), graph->edges.end(), std::pair(from[i], to[i])) != graph->edges.end())
      return failed(cudaErrorInvalidValue);
    graph->edges.emplace_back(from[i], to[i]);
    graph->edgeData.push_back(data == nullptr ? cudaGraphEdgeData{} : data[i]);
  }
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  STAND_IN_CALL();
  return list(graph->nodes.size(), nodes, count, [&](size_t i) { return graph->nodes[i].get(); });
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *data,
                              size_t *count) {
  STAND_IN_CALL();
  if (data != nullptr)
    std::copy_n(graph->edgeData.begin(), std::min(*count, graph->edges.size()), data);
  size_t all = *count;
  (void)list(graph->edges.size(), from, &all, [&](size_t i) { return graph->edges[i].first; });
  return list(graph->edges.size(), to, count, [&](size_t i) { return graph->edges[i].second; });
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType *type) {
  STAND_IN_CALL();
  return *type = node->work.type, cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams *params) {
  STAND_IN_CALL();
  *params = {};
  params->func = const_cast<void *>(node->work.function);
  params->gridDim = node->work.grid;
  params->blockDim = node->work.block;
  params->sharedMemBytes = node->work.sharedBytes;
  params->kernelParams = &node->argumentPointer;
  return cudaSuccess;
}
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms *params) {
  STAND_IN_CALL();
  const StandInCopy &copy = node->work.copy;
  *params = {};
  params->srcPtr = {const_cast<std::byte *>(copy.from), copy.fromPitch, copy.width, copy.rows};
  params->dstPtr = {copy.to, copy.toPitch, copy.width, copy.rows};
  params->extent = {copy.width, copy.rows, 1};
  params->kind = copy.kind;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  STAND_IN_CALL();
  for (const auto &node : graph->nodes) {
    if (const cudaError_t error = checkHere(node->device); error != cudaSuccess)
      return error;
    if (node->work.type == cudaGraphNodeTypeMemcpy)
      if (const cudaError_t error = checkCopy(node->work.copy); error != cudaSuccess)
        return error;
    if (node->work.type == cudaGraphNodeTypeEventRecord)
      if (const cudaError_t error = checkHere(node->work.event->device); error != cudaSuccess)
        return error;
  }
  *exec = new CUgraphExec_st{std::make_shared<const StandInRun>(*graph), currentDevice()};
  given(Kind::Executables, 1);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const cudaError_t error = called(__func__);
  if (const cudaError_t elsewhere = checkHere(exec->device); elsewhere != cudaSuccess)
    return elsewhere;
  delete exec;
  given(Kind::Executables, -1);
  return error;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  STAND_IN_CALL();
  const cudaError_t error = checkHere(exec->device);
  return error != cudaSuccess ? error : checkHere(stream->device);
}
// Launches under way keep theirs.
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void *to, const void *from,
                                               size_t bytes, cudaMemcpyKind kind) {
  STAND_IN_CALL();
  if (instant())
    return cudaSuccess;
  const StandInCopy copy{
      static_cast<std::byte *>(to), static_cast<const std::byte *>(from), bytes, 1, bytes, bytes, kind};
  if (const cudaError_t error = checkHere(exec->device); error != cudaSuccess)
    return error;
  if (const cudaError_t error = checkCopy(copy); error != cudaSuccess)
    return error;
  auto changed = std::make_shared<StandInRun>(*exec->run);
  for (StandInRun::Node &one : changed->nodes)
    if (one.made == node) {
      if (one.work.type != cudaGraphNodeTypeMemcpy || one.work.copy.rows != 1 || bytes == 0)
        return failed(cudaErrorInvalidValue);
      one.work.copy = copy;
      exec->run = std::move(changed);
      return cudaSuccess;
    }
  return failed(cudaErrorInvalidValue);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  STAND_IN_CALL();
  if (const cudaError_t error = checkHere(exec->device); error != cudaSuccess)
    return error;
  if (const cudaError_t error = checkHere(stream->device); error != cudaSuccess)
    return error;
  if (instant()) {
    for (const StandInRun::Node &node : exec->run->nodes)
      if (node.work.publishes)
        publish(node.work);
    return cudaSuccess;
  }
  auto launch = std::make_shared<StandInLaunch>(exec->run, nextOrder());
  stream->last = Queue::get().add(
      {.stream = stream, .device = stream->device, .work = [launch] { return launch->step(); }, .graph = true});
  return cudaSuccess;
}

} // extern "C"
