// SPDX-License-Identifier: Apache-2.0
//
// A CUDA device that cannot be had says why and what to do, whatever this machine has and however this was built.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda/CudaDevice.h"

namespace headrace::cuda {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(CudaRefusal, ADeviceIsThereOrItIsSaidWhyNot) {
  const auto device = makeCudaDevice({});
  if (device.ok()) {
    EXPECT_EQ((*device)->kind(), "cuda");
    return;
  }
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable) << device.status(); // exit status 1
  EXPECT_THAT(std::string(device.status().message()),
              AnyOf(HasSubstr("built without CUDA"), HasSubstr("no NVIDIA driver answers"),
                    HasSubstr("expected 13.0 or later: update"), HasSubstr("the driver knows no GPU"),
                    HasSubstr("build with CMAKE_CUDA_ARCHITECTURES"), HasSubstr("HEADRACE_CUDA_LIBRARIES")));
}

TEST(CudaRefusal, NoGpuHasThisNumber) {
  const auto device = makeCudaDevice({.index = 1000});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable);
}

TEST(CudaRefusal, DeviceNames) {
  EXPECT_EQ(*deviceIndex("cuda"), 0);
  EXPECT_EQ(*deviceIndex("cuda:0"), 0);
  EXPECT_EQ(*deviceIndex("cuda:12"), 12);
  for (const char *bad : {"", "host", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda0", "cuda:99999999999"})
    EXPECT_EQ(deviceIndex(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
}

} // namespace
} // namespace headrace::cuda
