// SPDX-License-Identifier: Apache-2.0
//
// Every test that needs a GPU is in this one program, which is run at the root of the tree (scripts/gpu-check does).
// Without a device it fails: nothing is skipped.
#include <cstdio>
#include <string>

#include "runtime/cuda/CudaDevice.h"
#include "gtest/gtest.h"

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests))
    return RUN_ALL_TESTS();
  if (const auto device = headrace::cuda::makeCudaDevice({}); !device.ok()) {
    std::fprintf(stderr, "gpu_tests: %s\n", std::string(device.status().message()).c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
