// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/CheckKernels.h"

#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "kernels/CudaKernels.h"
#include "runtime/core/BindStep.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Mirrors.h"

namespace headrace::compiler {
namespace {

// Arguments as a device binds them; nothing is read through their addresses.
core::Bases anywhere() {
  auto *base = reinterpret_cast<std::byte *>(uintptr_t{1} << 40);
  return {base, base};
}

absl::Status checkCudaStep(const plan::Plan &plan, const core::BindContext &binding, const plan::Variant &variant,
                           uint32_t index) {
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  const plan::Step &step = schedule.steps[index];
  if (step.lane == plan::Lane::Cpu) // whose kernels are the host's
    return absl::OkStatus();
  const absl::StatusOr<core::BoundStep> bound = binding.bind(schedule, index, variant, anywhere());
  if (!bound.ok())
    return bound.status();
  const auto refused = [&](const std::string &why) {
    return why.empty()
               ? absl::OkStatus()
               : absl::UnimplementedError(absl::StrCat("no kernel of hardware ", plan.hardware.name, " for ",
                                                       kernels::opName(step.op), " of ", plan.model->name, ": ", why));
  };
  if (const auto *linear = std::get_if<kernels::LinearArgs>(&bound->args)) // calls of the library's, or a kernel
    return kernels::cudaLaunch(*linear).kernel != nullptr ? absl::OkStatus()
                                                          : refused(kernels::productRefusal(*linear));
  const char *why = "";
  if (const auto *rebuild = std::get_if<kernels::RebuildKvArgs>(&bound->args)) {
    if (rebuild->capacity == 0)
      return absl::OkStatus();
    const kernels::RebuildCalls calls = kernels::rebuildCalls(*rebuild, 0);
    if (kernels::cudaLaunch(calls.append, &why).kernel == nullptr)
      return refused(why);
    return refused(kernels::productRefusal(calls.product));
  }
  const kernels::CudaShape shape{
      .tokens = variant.newTokens, .sequences = variant.sequences, .context = variant.context};
  if (kernels::cudaLaunch(step.op, bound->argsPointer(), shape, &why).kernel != nullptr)
    return absl::OkStatus();
  return refused(kernels::cudaRefusal(step.op, bound->argsPointer(), why));
}

} // namespace

absl::Status checkKernels(const plan::Plan &plan) {
  switch (plan::backendOf(plan.hardware.kind)) {
  case kernels::Backend::Host:
    return absl::OkStatus(); // an op without a host kernel does not compile (kernels/host/HostTable.h)
  case kernels::Backend::Cuda:
    break;
  }
  const core::BindContext binding(plan, kernels::Order::RowMajor);
  std::set<std::tuple<uint32_t, int64_t, int64_t, int64_t>> seen; // what a launch depends on
  for (const plan::Variant &variant : plan.variants) {
    if (!seen.insert({variant.schedule, variant.newTokens, variant.sequences, variant.context}).second)
      continue;
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    for (uint32_t step = 0; step < schedule.steps.size(); ++step)
      // All layers are alike.
      if (schedule.steps[step].kind == plan::StepKind::Compute && schedule.steps[step].layer <= 0)
        if (absl::Status status = checkCudaStep(plan, binding, variant, step); !status.ok())
          return status;
  }
  return absl::OkStatus();
}

} // namespace headrace::compiler
