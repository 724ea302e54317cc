// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CuptiTrace.h"

#include <array>
#include <cstdlib>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/TokenMailbox.h"

#define RETURN_IF_CUPTI(name, call)                                                                                    \
  if (const CUptiResult result_ = (call); result_ != CUPTI_SUCCESS)                                                    \
  return cuptiFailed(cupti_, result_, name, "measuring with CUPTI")

namespace headrace::cuda {

static_assert(static_cast<int>(ChannelType::Compute) == CUPTI_CHANNEL_TYPE_COMPUTE &&
              static_cast<int>(ChannelType::AsyncCopy) == CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY &&
              static_cast<int>(ChannelType::Decompression) == CUPTI_CHANNEL_TYPE_DECOMP);

namespace {

// CONCURRENT_KERNEL: KERNEL would run kernels one behind another. Memsets: a library call may have one.
constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMSET};
// About 4000 records; CUPTI clears a buffer on the thread that launches, so it is not larger.
constexpr size_t kBufferBytes = size_t{1} << 20;

// What callbacks reach, who are given no context. Never destroyed: CUPTI's thread may outlive static objects.
struct Process {
  std::mutex mutex; // of both; never taken while CuptiTrace's is held
  CuptiTrace *trace = nullptr;
  std::vector<uint8_t *> buffers; // that CUPTI gave back
};
Process &process() {
  static auto *one = new Process;
  return *one;
}

template <typename Record> NodeRecord common(const Record &record) {
  return {.node = record.graphNodeId, .launch = record.correlationId, .start = record.start, .end = record.end};
}

NodeRecord nodeRecord(const CUpti_Activity &activity) {
  switch (activity.kind) {
  case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    return common(reinterpret_cast<const CUpti_ActivityKernel10 &>(activity));
  case CUPTI_ACTIVITY_KIND_MEMSET:
    return common(reinterpret_cast<const CUpti_ActivityMemset4 &>(activity));
  case CUPTI_ACTIVITY_KIND_MEMCPY: {
    const auto &copy = reinterpret_cast<const CUpti_ActivityMemcpy6 &>(activity);
    NodeRecord record = common(copy);
    record.copyBytes = copy.bytes;
    record.channelType = copy.channelType;
    record.channel = copy.channelID;
    return record;
  }
  default:
    return {};
  }
}

} // namespace

struct CuptiCallbacks {
  static void CUPTIAPI bufferWanted(uint8_t **buffer, size_t *size, size_t *most) {
    const std::lock_guard lock(process().mutex);
    *most = 0; // as many records as fit
    if (process().buffers.empty()) {
      *buffer = static_cast<uint8_t *>(std::aligned_alloc(64, kBufferBytes));
    } else {
      *buffer = process().buffers.back();
      process().buffers.pop_back();
    }
    *size = *buffer == nullptr ? 0 : kBufferBytes; // without a buffer records are dropped, and counted
  }

  static void CUPTIAPI bufferFilled(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    const std::lock_guard lock(process().mutex);
    if (process().trace != nullptr)
      take(*process().trace, buffer, valid);
    if (buffer != nullptr)
      process().buffers.push_back(buffer);
  }

  static void take(CuptiTrace &trace, uint8_t *buffer, size_t valid) {
    const std::lock_guard lock(trace.mutex_);
    CUpti_Activity *activity = nullptr;
    while (buffer != nullptr && valid > 0 &&
           trace.cupti_.nextRecord(buffer, valid, &activity) == CUPTI_SUCCESS) // else the end
      trace.records_.add(nodeRecord(*activity));
    size_t dropped = 0;
    if (trace.cupti_.droppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS)
      trace.records_.addDropped(dropped);
  }

  // On the thread that instantiates.
  static void CUPTIAPI resource(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    if (domain != CUPTI_CB_DOMAIN_RESOURCE || id != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
      return;
    auto &trace = *static_cast<CuptiTrace *>(user);
    const auto *graph =
        static_cast<const CUpti_GraphData *>(static_cast<const CUpti_ResourceData *>(data)->resourceDescriptor);
    uint64_t original = 0, clone = 0;
    if (graph == nullptr || trace.cupti_.graphNodeId(graph->originalNode, &original) != CUPTI_SUCCESS ||
        trace.cupti_.graphNodeId(graph->node, &clone) != CUPTI_SUCCESS)
      return; // its step will have no record, which is reported
    const std::lock_guard lock(trace.mutex_);
    if (trace.following_ != nullptr)
      trace.following_->addClone(original, clone);
  }
};

absl::StatusOr<std::unique_ptr<CuptiTrace>> CuptiTrace::start(const std::vector<std::string> &folders) {
  ASSIGN_OR_RETURN(cupti, openCupti(folders));
  std::unique_ptr<CuptiTrace> trace(new CuptiTrace(std::move(cupti)));
  {
    const std::lock_guard lock(process().mutex);
    if (process().trace != nullptr)
      return absl::UnavailableError("measuring with CUPTI: another device of this process is measured: one at a time");
    process().trace = trace.get();
  }
  // Its destructor undoes what was done where this fails.
  RETURN_IF_ERROR(trace->enable());
  return trace;
}

absl::Status CuptiTrace::enable() {
  RETURN_IF_CUPTI("cuptiSubscribe", cupti_.subscribe(&subscriber_, CuptiCallbacks::resource, this));
  RETURN_IF_CUPTI("cuptiEnableCallback", cupti_.enableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE,
                                                               CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED));
  RETURN_IF_CUPTI("cuptiActivityRegisterCallbacks",
                  cupti_.registerCallbacks(CuptiCallbacks::bufferWanted, CuptiCallbacks::bufferFilled));
  for (const CUpti_ActivityKind kind : kKinds)
    RETURN_IF_CUPTI("cuptiActivityEnable", cupti_.enable(kind));
  return absl::OkStatus();
}

CuptiTrace::~CuptiTrace() {
  {
    const std::lock_guard lock(process().mutex);
    if (process().trace != this)
      return; // it never began
  }
  if (subscriber_ != nullptr) {
    for (const CUpti_ActivityKind kind : kKinds)
      (void)cupti_.disable(kind);
    (void)cupti_.flushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); // gives the buffers back
    (void)cupti_.unsubscribe(subscriber_);
  }
  const std::lock_guard lock(process().mutex);
  process().trace = nullptr;
}

absl::StatusOr<uint64_t> CuptiTrace::nodeId(const std::string &during, CUgraphNode node) const {
  uint64_t id = 0;
  if (const CUptiResult result = cupti_.graphNodeId(node, &id); result != CUPTI_SUCCESS)
    return cuptiFailed(cupti_, result, "cuptiGetGraphNodeId", during);
  return id;
}

void CuptiTrace::watch(const StepNodes &nodes) {
  const std::lock_guard lock(mutex_);
  records_.watch(nodes);
}

uint64_t CuptiTrace::now() const {
  uint64_t time = 0;
  return cupti_.timestamp(&time) == CUPTI_SUCCESS ? time : 0;
}

// Of several samples the one whose host times are closest: the thread was not interrupted in between.
absl::StatusOr<ClockPair> CuptiTrace::clocks() const {
  ClockPair best;
  int64_t least = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    uint64_t recorded = 0;
    const int64_t before = monotonicNs();
    RETURN_IF_CUPTI("cuptiGetTimestamp", cupti_.timestamp(&recorded));
    const int64_t after = monotonicNs();
    if (after - before < least) {
      least = after - before;
      best = {.recorded = recorded, .host = before + (after - before) / 2};
    }
  }
  return best;
}

absl::Status CuptiTrace::collect(const std::string &graph, const StepNodes &nodes, uint64_t launchedAt,
                                 std::vector<core::StepTime> &times) {
  ASSIGN_OR_RETURN(pair, clocks());
  uint32_t missing = 0;
  // Buffers with a record that CUPTI has not completed yet are delivered only when forced.
  for (const uint32_t flag : {uint32_t{0}, static_cast<uint32_t>(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)}) {
    RETURN_IF_CUPTI("cuptiActivityFlushAll", cupti_.flushAll(flag));
    const std::lock_guard lock(mutex_);
    missing = joinSteps(nodes, records_.records(), launchedAt, pair, times);
    if (missing == 0)
      return absl::OkStatus();
  }
  times.clear();
  const std::lock_guard lock(mutex_);
  return recordsMissing(graph, missing, nodes, records_);
}

std::vector<CopyChannel> CuptiTrace::channels(const StepNodes &nodes) const {
  const std::lock_guard lock(mutex_);
  return channelsOf(nodes, records_.records());
}

FollowClones::FollowClones(CuptiTrace *trace, StepNodes &nodes) : trace_(trace) {
  if (trace_ == nullptr)
    return;
  const std::lock_guard lock(trace_->mutex_);
  trace_->following_ = &nodes;
}

FollowClones::~FollowClones() {
  if (trace_ == nullptr)
    return;
  const std::lock_guard lock(trace_->mutex_);
  trace_->following_ = nullptr;
}

} // namespace headrace::cuda
