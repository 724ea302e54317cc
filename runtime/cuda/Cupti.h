// SPDX-License-Identifier: Apache-2.0
//
// The functions of CUPTI that are used, found at run time.
#pragma once

#include <cupti.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cuda/DynamicLibrary.h"

namespace headrace::cuda {

struct Cupti {
  decltype(&::cuptiGetVersion) version;
  decltype(&::cuptiGetResultString) resultString;
  decltype(&::cuptiGetTimestamp) timestamp;
  decltype(&::cuptiGetGraphNodeId) graphNodeId;
  decltype(&::cuptiSubscribe) subscribe;
  decltype(&::cuptiUnsubscribe) unsubscribe;
  decltype(&::cuptiEnableCallback) enableCallback;
  decltype(&::cuptiActivityRegisterCallbacks) registerCallbacks;
  decltype(&::cuptiActivityEnable) enable;
  decltype(&::cuptiActivityDisable) disable;
  decltype(&::cuptiActivityFlushAll) flushAll;
  decltype(&::cuptiActivityGetNextRecord) nextRecord;
  decltype(&::cuptiActivityGetNumDroppedRecords) droppedRecords;
  std::string path;
};

// Unavailable where there is none, or one that is not of CUDA 13: records of others have other layouts.
absl::StatusOr<Cupti> openCupti(const std::vector<std::string> &folders);

// "measuring with CUPTI: cuptiSubscribe: CUPTI_ERROR_... (39)".
absl::Status cuptiFailed(const Cupti &cupti, CUptiResult result, const char *call, const std::string &during);

} // namespace headrace::cuda
