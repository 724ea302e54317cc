// SPDX-License-Identifier: Apache-2.0
//
// Where the CUDA kernels' tests run: the same tests on the emulator (kernels_emulated_test) and on a GPU
// (kernels_cuda_test). Memory is readable and writable by the test and by kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/CudaKernels.h"
#include "tests/unit/kernels/KernelTest.h"

namespace headrace::kernels {

struct KernelRun {
  CudaLaunch launch;
  const void *args = nullptr;
  void (*call)(const void *function, const void *args) = nullptr; // of a host function of the kernel's type
  const void *function = nullptr; // on the emulator: in place of the one that is called so
};

class TestDevice {
public:
  virtual ~TestDevice() = default;
  virtual void *allocate(size_t bytes) = 0; // 256-byte aligned
  virtual void release(void *memory) = 0;
  // Runs kernels side by side, to the end of all. `order` chooses among orders of blocks and threads where the device
  // has the choice.
  virtual void run(const std::vector<KernelRun> &runs, uint64_t order) = 0;
  virtual bool emulated() const = 0; // slow: tests take fewer and smaller shapes
};
TestDevice &testDevice();

template <typename Args> KernelRun kernelRun(const CudaLaunch &launch, const Args &args) {
  return {launch, &args, [](const void *function, const void *a) {
            reinterpret_cast<void (*)(const Args)>(const_cast<void *>(function))(*static_cast<const Args *>(a));
          }};
}
template <typename Args> void runKernel(const CudaLaunch &launch, const Args &args, uint64_t order = 0) {
  ASSERT_NE(launch.kernel, nullptr);
  testDevice().run({kernelRun(launch, args)}, order);
}
template <typename Args> void runOp(Op op, const Args &args, const CudaShape &shape, uint64_t order = 0) {
  const char *why = nullptr;
  const CudaLaunch launch = cudaLaunch(op, &args, shape, &why);
  ASSERT_NE(launch.kernel, nullptr) << why;
  runKernel(launch, args, order);
}

// As runOp with two blocks along the rows, which take the rows in turn.
template <typename Args> void runOpInTurn(Op op, const Args &args, const CudaShape &shape, uint64_t order = 0) {
  const char *why = nullptr;
  CudaLaunch launch = cudaLaunch(op, &args, shape, &why);
  ASSERT_NE(launch.kernel, nullptr) << why;
  launch.grid[0] = 2;
  runKernel(launch, args, order);
}

// Memory of the device with `T`s in it.
template <typename T> class DeviceArray {
public:
  explicit DeviceArray(size_t n) : count(n), memory(static_cast<T *>(testDevice().allocate(n * sizeof(T) + 1))) {}
  explicit DeviceArray(const std::vector<T> &values) : DeviceArray(values.size()) {
    if (!values.empty())
      std::memcpy(memory, values.data(), values.size() * sizeof(T));
  }
  DeviceArray(size_t n, T value) : DeviceArray(std::vector<T>(n, value)) {}
  DeviceArray(const DeviceArray &) = delete;
  DeviceArray &operator=(const DeviceArray &) = delete;
  ~DeviceArray() { testDevice().release(memory); }
  T *get() { return memory; }
  T &operator[](size_t i) { return memory[i]; }
  size_t size() const { return count; }
  std::vector<T> values() const { return {memory, memory + count}; }

private:
  size_t count;
  T *memory;
};

// As Stored, in device memory.
class DeviceStored {
public:
  DeviceStored(Elem e, const Floats &values) : elem(e), bytes(Stored(e, values).bytes) {}
  DeviceStored(Elem e, size_t n, float value) : DeviceStored(e, Floats(n, value)) {}
  void *data() { return bytes.get(); }
  Floats values() const {
    Stored stored;
    stored.elem = elem, stored.bytes = bytes.values();
    Floats result(stored.size());
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = stored.value(i);
    return result;
  }
  std::vector<uint8_t> raw() const { return bytes.values(); }

private:
  Elem elem;
  DeviceArray<uint8_t> bytes;
};

// A TestMeta's buffer, in device memory.
class DeviceMeta {
public:
  explicit DeviceMeta(TestMeta &meta) : bytes(std::vector<uint8_t>(start(meta), start(meta) + meta.byteCount())) {}
  IterationMeta *get() { return reinterpret_cast<IterationMeta *>(bytes.get()); }

private:
  static const uint8_t *start(TestMeta &meta) { return reinterpret_cast<const uint8_t *>(meta.get()); }
  DeviceArray<uint8_t> bytes;
};

// What rounding to the type does to a value of size one.
inline double roundingOf(Elem elem) { return elem == Elem::F32 ? 0x1p-24 : elem == Elem::F16 ? 0x1p-11 : 0x1p-8; }

} // namespace headrace::kernels
