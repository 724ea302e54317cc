// SPDX-License-Identifier: Apache-2.0
//
// In a program that was built without CUDA.
#include "runtime/cuda/CudaDevice.h"
#include "runtime/cuda/CudaGroup.h"
#include "runtime/cuda/Gpus.h"

namespace headrace::cuda {
namespace {

absl::Status notBuiltIn() {
  return absl::UnavailableError("cuda device: not built in: this program was built without CUDA (cmake --preset cuda "
                                "builds it); use --device host or --device sim");
}

} // namespace

absl::StatusOr<std::unique_ptr<core::Device>> makeCudaDevice(const CudaOptions &) { return notBuiltIn(); }
absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeCudaGroup(absl::Span<const CudaOptions>) { return notBuiltIn(); }

absl::StatusOr<std::vector<Gpu>> gpus() { return std::vector<Gpu>(); }
absl::StatusOr<GraphCosts> graphCosts(const core::Device &) { return absl::UnavailableError("no cuda device"); }
absl::Status useAlgorithmsBeside(core::Device &, const std::string &) { return absl::OkStatus(); }
std::string algorithmsOf(const core::Device &) { return ""; }
absl::StatusOr<std::string> measuredBy(const core::Device &) { return absl::UnavailableError("no cuda device"); }
absl::StatusOr<std::string> cuptiRefused(const core::Device &) { return absl::UnavailableError("no cuda device"); }
absl::StatusOr<std::vector<CopyChannel>> copyChannels(const core::Device &) {
  return absl::UnavailableError("no cuda device");
}

} // namespace headrace::cuda
