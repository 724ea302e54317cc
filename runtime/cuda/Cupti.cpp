// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Cupti.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::cuda {

absl::StatusOr<Cupti> openCupti(const std::vector<std::string> &folders) {
  absl::StatusOr<DynamicLibrary> library = DynamicLibrary::open({"libcupti.so.13"}, folders);
  if (!library.ok()) {
    const absl::Status named = library.status(); // of the name that is wanted
    library = DynamicLibrary::open({"libcupti.so"}, folders);
    if (!library.ok())
      return named;
  }
  Cupti cupti{};
  cupti.path = library->path();
  RETURN_IF_ERROR(library->find("cuptiGetVersion", cupti.version));
  uint32_t version = 0;
  // 130001 is of CUDA 13.0; before CUDA 13 the numbers were small.
  if (cupti.version(&version) != CUPTI_SUCCESS || version / 10000 != CUPTI_API_VERSION / 10000)
    return absl::UnavailableError(absl::StrCat(cupti.path, " is version ", version, ": expected CUDA 13's CUPTI, ",
                                               CUPTI_API_VERSION, " or a later one of the same series"));
  RETURN_IF_ERROR(library->find("cuptiGetResultString", cupti.resultString));
  RETURN_IF_ERROR(library->find("cuptiGetTimestamp", cupti.timestamp));
  RETURN_IF_ERROR(library->find("cuptiGetGraphNodeId", cupti.graphNodeId));
  RETURN_IF_ERROR(library->find("cuptiSubscribe", cupti.subscribe));
  RETURN_IF_ERROR(library->find("cuptiUnsubscribe", cupti.unsubscribe));
  RETURN_IF_ERROR(library->find("cuptiEnableCallback", cupti.enableCallback));
  RETURN_IF_ERROR(library->find("cuptiActivityRegisterCallbacks", cupti.registerCallbacks));
  RETURN_IF_ERROR(library->find("cuptiActivityEnable", cupti.enable));
  RETURN_IF_ERROR(library->find("cuptiActivityDisable", cupti.disable));
  RETURN_IF_ERROR(library->find("cuptiActivityFlushAll", cupti.flushAll));
  RETURN_IF_ERROR(library->find("cuptiActivityGetNextRecord", cupti.nextRecord));
  RETURN_IF_ERROR(library->find("cuptiActivityGetNumDroppedRecords", cupti.droppedRecords));
  return cupti;
}

absl::Status cuptiFailed(const Cupti &cupti, CUptiResult result, const char *call, const std::string &during) {
  const char *name = nullptr;
  if (cupti.resultString(result, &name) != CUPTI_SUCCESS || name == nullptr)
    name = "unknown error";
  const std::string message = absl::StrCat(during, ": ", call, ": ", name, " (", static_cast<int>(result), ")");
  switch (result) {
  case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
    return absl::UnavailableError(absl::StrCat(message, ": another tool measures this process"));
  case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    return absl::UnavailableError(absl::StrCat(message, ": the driver lets only administrators measure"));
  case CUPTI_ERROR_NOT_INITIALIZED:
    return absl::UnavailableError(message);
  default:
    return absl::InternalError(message);
  }
}

} // namespace headrace::cuda
