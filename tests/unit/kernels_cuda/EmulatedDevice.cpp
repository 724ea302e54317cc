// SPDX-License-Identifier: Apache-2.0
//
// The kernels' own source compiled for the host, and the device that runs it.
#include "tests/unit/kernels_cuda/Emulator.h"

#include "kernels/cuda/CudaAttentionAny.cu"
#include "kernels/cuda/CudaAttentionDecode.cu"
#include "kernels/cuda/CudaAttentionPrefill.cu"
#include "kernels/cuda/CudaPackedProduct.cu"
#include "kernels/cuda/CudaRopeAppend.cu"
#include "kernels/cuda/CudaRows.cu"
#include "tests/unit/kernels_cuda/TestDevice.h"

namespace headrace::kernels {
namespace {

class EmulatedDevice : public TestDevice {
public:
  void *allocate(size_t bytes) override { return ::operator new(bytes, std::align_val_t(256)); }
  void release(void *memory) override { ::operator delete(memory, std::align_val_t(256)); }
  void run(const std::vector<KernelRun> &runs, uint64_t order) override {
    struct Context {
      const void *function;
      const KernelRun *run;
    };
    std::vector<Context> contexts;
    for (const KernelRun &one : runs) {
      contexts.push_back({one.function != nullptr ? one.function : cudaEntry(one.launch.kernel), &one});
      ASSERT_NE(contexts.back().function, nullptr) << one.launch.kernel;
    }
    std::vector<emulator::Grid> grids;
    for (const Context &context : contexts)
      grids.push_back({context.run->launch,
                       [](const void *opaque) {
                         const auto &c = *static_cast<const Context *>(opaque);
                         c.run->call(c.function, c.run->args);
                       },
                       &context});
    emulator::runGrids(grids, order);
  }
  bool emulated() const override { return true; }
};

} // namespace

TestDevice &testDevice() {
  static EmulatedDevice device;
  return device;
}

} // namespace headrace::kernels
