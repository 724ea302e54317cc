// SPDX-License-Identifier: Apache-2.0
//
// A libcupti with the real one's functions and records, for tests on machines without a GPU: node ids are addresses,
// clones and launches are what the test says (FakeCupti.h).
#include "tests/unit/cuda/FakeCupti.h"

#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

FakeCupti state;
CUpti_CallbackFunc callback = nullptr;
void *callbackUser = nullptr;
int subscriberStorage = 0;
CUpti_BuffersCallbackRequestFunc wanted = nullptr;
CUpti_BuffersCallbackCompleteFunc filled = nullptr;
struct Pending {
  bool copy;
  uint64_t node, start, end;
  uint32_t launch;
};
std::vector<Pending> pending;

bool failsNow(const char *call) { return ++state.calls[call] == state.nth && state.failing == call; }
#define FAKE_CALL()                                                                                                    \
  do {                                                                                                                 \
    if (failsNow(__func__))                                                                                            \
      return CUPTI_ERROR_UNKNOWN;                                                                                      \
  } while (false)

template <typename Record> void put(uint8_t *at, CUpti_ActivityKind kind, const Pending &one) {
  Record record{};
  record.kind = kind;
  record.graphNodeId = one.node;
  record.correlationId = one.launch;
  record.start = one.start;
  record.end = one.end;
  if constexpr (std::is_same_v<Record, CUpti_ActivityMemcpy6>) {
    record.bytes = 4096;
    record.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
    record.channelID = 3;
  }
  std::memcpy(at, &record, sizeof(record));
}

// Records in a buffer: CUPTI's own sizes are between it and its nextRecord(); here all have the largest.
constexpr size_t kStride = 512;
static_assert(kStride >= sizeof(CUpti_ActivityKernel10) && kStride >= sizeof(CUpti_ActivityMemcpy6));

} // namespace

extern "C" {

FakeCupti *headraceFakeCupti() { return &state; }
void headraceFakeCuptiClone(uint64_t original, uint64_t clone) {
  CUpti_GraphData graph{};
  graph.originalNode = reinterpret_cast<CUgraphNode>(original);
  graph.node = reinterpret_cast<CUgraphNode>(clone);
  CUpti_ResourceData data{};
  data.resourceDescriptor = &graph;
  if (callback != nullptr && state.cloneCallbacks)
    callback(callbackUser, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, &data);
}
void headraceFakeCuptiRecord(bool copy, uint64_t node, uint32_t launch, uint64_t start, uint64_t end) {
  if (!state.enabledKinds.empty())
    pending.push_back({copy, node, start, end, launch});
}

CUptiResult cuptiGetVersion(uint32_t *version) {
  FAKE_CALL();
  *version = state.version;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char **text) {
  FAKE_CALL();
  *text = "A_NAMED_ERROR";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetTimestamp(uint64_t *time) {
  FAKE_CALL();
  *time = state.now;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
  FAKE_CALL();
  *id = reinterpret_cast<uint64_t>(node);
  return *id == 0 ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function, void *user) {
  FAKE_CALL();
  if (state.otherSubscriber)
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&subscriberStorage);
  callback = function;
  callbackUser = user;
  ++state.subscribers;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  const bool fails = failsNow(__func__);
  callback = nullptr;
  --state.subscribers;
  return fails ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) {
  FAKE_CALL();
  if (domain == CUPTI_CB_DOMAIN_RESOURCE && id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
    state.cloneCallbacks = enable != 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  FAKE_CALL();
  wanted = request;
  filled = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  FAKE_CALL();
  if (kind == CUPTI_ACTIVITY_KIND_KERNEL) // would run kernels one behind another
    return CUPTI_ERROR_INVALID_KIND;
  state.enabledKinds.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const bool fails = failsNow(__func__);
  state.enabledKinds.erase(kind);
  return fails ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  FAKE_CALL();
  if (state.onlyForced && flag != CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)
    return CUPTI_SUCCESS;
  size_t next = 0;
  while (next < pending.size()) {
    uint8_t *buffer = nullptr;
    size_t size = 0, most = 0;
    wanted(&buffer, &size, &most);
    if (buffer == nullptr)
      return CUPTI_ERROR_OUT_OF_MEMORY;
    state.buffersHeld = state.buffersSeen.insert(buffer).second ? state.buffersHeld + 1 : state.buffersHeld;
    size_t valid = 0;
    // A few records a buffer, so that launches are spread over several.
    for (int i = 0; i < 3 && next < pending.size() && valid + kStride <= size; ++i, ++next, valid += kStride)
      if (pending[next].copy)
        put<CUpti_ActivityMemcpy6>(buffer + valid, CUPTI_ACTIVITY_KIND_MEMCPY, pending[next]);
      else
        put<CUpti_ActivityKernel10>(buffer + valid, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, pending[next]);
    filled(nullptr, 0, buffer, size, valid);
  }
  pending.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
  FAKE_CALL();
  uint8_t *next = *record == nullptr ? buffer : reinterpret_cast<uint8_t *>(*record) + kStride;
  if (next + kStride > buffer + valid)
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity *>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t *dropped) {
  FAKE_CALL();
  *dropped = state.dropped;
  state.dropped = 0;
  return CUPTI_SUCCESS;
}

} // extern "C"
