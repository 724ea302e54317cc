// SPDX-License-Identifier: Apache-2.0
//
// The type of a kernel's argument, which its name begins with: emulated kernels are called with it.
#pragma once

#include <cstddef>
#include <string_view>

#include "kernels/CudaKernels.h"
#include "kernels/Kernels.h"

namespace headrace::cuda {

template <typename Args> void callWith(const void *function, const void *args) {
  reinterpret_cast<void (*)(const Args)>(const_cast<void *>(function))(*static_cast<const Args *>(args));
}

struct EmulatedCall {
  std::string_view kernel; // its name begins so
  void (*call)(const void *function, const void *args) = nullptr;
  size_t bytes = 0; // of the argument
};

template <typename Args> constexpr EmulatedCall emulatedCall(std::string_view kernel) {
  return {kernel, callWith<Args>, sizeof(Args)};
}

inline constexpr size_t kMostArgumentBytes = 256;

// A call of nothing where no kernel has such a name.
inline EmulatedCall callOf(std::string_view kernel) {
  constexpr EmulatedCall kCalls[] = {emulatedCall<kernels::EmbedArgs>("embed"),
                                     emulatedCall<kernels::KeepIdsArgs>("keep_ids"),
                                     emulatedCall<kernels::NormArgs>("norm"),
                                     emulatedCall<kernels::RopeAppendArgs>("rope_append"),
                                     emulatedCall<kernels::RotateArgs>("rotate"),
                                     emulatedCall<kernels::FetchRowsArgs>("fetch_rows"),
                                     emulatedCall<kernels::AttentionArgs>("attention"),
                                     emulatedCall<kernels::ActivateArgs>("activate"),
                                     emulatedCall<kernels::GatherRowsArgs>("gather_rows"),
                                     emulatedCall<kernels::SampleArgs>("sample"),
                                     emulatedCall<kernels::ActAppendArgs>("act_append"),
                                     emulatedCall<kernels::GatherActArgs>("gather_act"),
                                     emulatedCall<kernels::AppendActArgs>("append_act"),
                                     emulatedCall<kernels::BiasActivateArgs>("bias_activate"),
                                     emulatedCall<kernels::LinearArgs>("linear_packed"),
                                     emulatedCall<kernels::UnpackArgs>("unpack"),
                                     emulatedCall<kernels::PublishArgs>("publish")};
  for (const EmulatedCall &one : kCalls) {
    if (kernel.substr(0, one.kernel.size()) == one.kernel)
      return one;
  }
  return {};
}

} // namespace headrace::cuda
