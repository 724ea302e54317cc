// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/OwnedGraph.h"

#include "runtime/base/Text.h"

namespace headrace::core {

absl::Status notOwned(std::string_view device) {
  return absl::InvalidArgumentError(model::cat(device, ": the graph was built by another device or for another plan"));
}

absl::Status checkUploaded(std::string_view device, const OwnedGraph &graph) {
  return graph.uploaded ? absl::OkStatus()
                        : absl::FailedPreconditionError(model::cat(device, ": the graph was not uploaded"));
}

} // namespace headrace::core
