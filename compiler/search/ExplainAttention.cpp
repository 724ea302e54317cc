// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/ExplainAttention.h"

#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/choice/AmountText.h"
#include "runtime/cost/lm_offload/FittingShares.h"
#include "runtime/cost/lm_offload/MachineOf.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

// From which prompt on the CPU is faster, by the closed form; none: nowhere, or nothing is known of a CPU beside it.
std::optional<int64_t> onCpuFrom(Space &space, const Coordinates &at) {
  const CompileRequest &request = space.request(at);
  if (!request.hardware.cpu.known())
    return std::nullopt;
  const Target &target = space.target(at);
  const cost::OffloadSetting setting =
      cost::plannedSetting(request.model, target.kv, target.sequences(), target.choice.miniBatches);
  return cost::attendsOnCpuFrom(
      cost::plannedModel(request.model, request.hardware),
      cost::offloadMachine(request.hardware, request.model, setting.weights, setting.kv, target.deviceMemory),
      cost::kPlannedRuntime, setting);
}

} // namespace

std::string explainAttention(Space &space, const Scored &best) {
  std::string text;
  std::array<const Scored *, 2> tried{}; // on the device, on the CPU
  for (const auto &[at, scored] : space.tried())
    if (scored && space.free().attention)
      if (const Scored *&of = tried[at.attendsOnCpu ? 1 : 0]; of == nullptr || space.isBetter(*scored, *of))
        of = &*scored;
  const auto fits = [](const Scored *of) { return of != nullptr && of->overBytes == 0; };
  const auto said = [&](const Scored *of) -> std::string {
    if (!fits(of))
      return "nothing fits";
    if (of->late > 0)
      return "it is too late";
    return space.prefersMemory() ? bytesText(of->deviceBytes) : msText(static_cast<uint64_t>(of->aimNs));
  };
  if (fits(tried[0]) || fits(tried[1])) { // else what was found is at an end of the space
    absl::StrAppend(&text, ". Attention that was weighed, the best of each that was tried: on the device ",
                    said(tried[0]), ", on the CPU ", said(tried[1]));
    if (const std::optional<int64_t> from = onCpuFrom(space, best.at))
      absl::StrAppend(&text, "; by the closed form the CPU is faster from ", space.target(best.at).sequences(), " x ",
                      *from, " tokens (batch x context) on");
    else if (space.request().hardware.cpu.known())
      absl::StrAppend(&text, "; by the closed form the device is faster at every context that memory holds");
  }
  if (best.at.attendsOnCpu && best.at.miniBatches == 1)
    absl::StrAppend(&text, ". With one mini-batch the device waits for the CPU and the CPU for the device: nothing "
                           "overlaps");
  return text;
}

} // namespace headrace::compiler
