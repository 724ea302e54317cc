// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/ArgPointers.h"

namespace headrace::cuda {

std::vector<NamedPointer> pointersOf(const kernels::EmbedArgs &a) {
  return {{"meta", a.meta}, {"table", a.table}, {"positions", a.positions}, {"sampled", a.sampled}, {"x", a.x}};
}
std::vector<NamedPointer> pointersOf(const kernels::NormArgs &a) {
  return {{"count", a.count}, {"x", a.x}, {"weight", a.weight}, {"bias", a.bias}, {"y", a.y}};
}
std::vector<NamedPointer> pointersOf(const kernels::LinearArgs &a) {
  return {{"count", a.count},        {"x", a.x}, {"w", a.w}, {"bias", a.bias}, {"y", a.y}, {"residual", a.residual},
          {"workspace", a.workspace}};
}
std::vector<NamedPointer> pointersOf(const kernels::RopeAppendArgs &a) {
  return {{"meta", a.meta}, {"qkv", a.qkv}, {"inverseFrequencies", a.inverseFrequencies}, {"kv", a.kv}};
}
std::vector<NamedPointer> pointersOf(const kernels::AttentionArgs &a) {
  return {{"meta", a.meta}, {"qkv", a.qkv}, {"kv", a.kv}, {"out", a.out}, {"workspace", a.workspace}};
}
std::vector<NamedPointer> pointersOf(const kernels::ActivateArgs &a) {
  return {{"count", a.count}, {"gateUp", a.gateUp}, {"y", a.y}};
}
std::vector<NamedPointer> pointersOf(const kernels::GatherRowsArgs &a) {
  return {{"meta", a.meta}, {"x", a.x}, {"y", a.y}};
}
std::vector<NamedPointer> pointersOf(const kernels::SampleArgs &a) {
  return {
      {"meta", a.meta}, {"logits", a.logits}, {"sampled", a.sampled}, {"output", a.output}, {"workspace", a.workspace}};
}
std::vector<NamedPointer> pointersOf(const kernels::BiasActivateArgs &a) {
  return {{"count", a.count}, {"y", a.y}, {"bias", a.bias}};
}
std::vector<NamedPointer> pointersOf(const kernels::PublishArgs &a) {
  return {{"meta", a.meta}, {"output", a.output}, {"tokens", a.tokens}, {"iterations", a.iterations}};
}
std::vector<NamedPointer> pointersOf(const MatMul &a) {
  return {{"x", a.x}, {"w", a.w}, {"bias", a.bias}, {"residual", a.residual}, {"y", a.y}, {"workspace", a.workspace}};
}

} // namespace headrace::cuda
