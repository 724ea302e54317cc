// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/FlexGenShares.h"

#include <algorithm>
#include <array>
#include <optional>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cost/lm_offload/LinearProgram.h"

namespace headrace::cost {
namespace {

// wg, cg, T_pre, T_gen.
constexpr size_t kVariables = 4;

// What is linear in the shares, at one place of them.
struct AtShares {
  LayerTasks prefill, decode;
  double deviceBytes = 0, hostBytes = 0;
};

absl::StatusOr<AtShares> atShares(const OffloadModel &model, const OffloadMachine &machine, OffloadSetting setting,
                                  const model::Percent &percent) {
  setting.percent = percent;
  ASSIGN_OR_RETURN(form, closedForm(model, machine, FlexGenRuntime(), setting));
  const OffloadBytes bytes = offloadBytes(model, setting);
  return AtShares{form.prefill, form.decode, static_cast<double>(bytes.device), static_cast<double>(bytes.host)};
}

// f(wg, cg) = at[0] + wg (at[1] - at[0]) + cg (at[2] - at[0]), at nothing, all weights, all KV on the device.
template <class F>
LinearConstraint atMost(const std::array<AtShares, 3> &at, const F &f, double bound, std::optional<size_t> time) {
  const double none = f(at[0]);
  LinearConstraint row{{f(at[1]) - none, f(at[2]) - none, 0, 0}, bound - none};
  if (time)
    row.coefficients[*time] = -1;
  return row;
}

absl::StatusOr<FlexGenShares> sharesWith(const OffloadModel &model, const OffloadMachine &machine,
                                         const OffloadSetting &setting, double mostCg, double hg) {
  const double hc = 100 - hg;
  std::array<AtShares, 3> at;
  const model::Percent places[] = {{0, 100, 0, 100, hg, hc}, {100, 0, 0, 100, hg, hc}, {0, 100, 100, 0, hg, hc}};
  for (size_t i = 0; i < at.size(); ++i) {
    ASSIGN_OR_RETURN(found, atShares(model, machine, setting, places[i]));
    at[i] = found;
  }
  const double layers = static_cast<double>(model.layers), iterations = static_cast<double>(setting.output - 1);
  LinearProgram program{.objective = {0, 0, layers, layers * iterations}, .constraints = {}};
  for (const size_t share : {0, 1}) {
    std::vector<double> one(kVariables, 0.0);
    one[share] = -1;
    program.constraints.push_back({one, 0});
    one[share] = 1;
    program.constraints.push_back({one, share == 0 ? 1 : mostCg / 100});
  }
  const auto add = [&](const auto &f, double bound, std::optional<size_t> time) {
    program.constraints.push_back(atMost(at, f, bound, time));
  };
  constexpr size_t kPre = 2, kGen = 3;
  add([](const AtShares &a) { return a.deviceBytes; }, static_cast<double>(machine.deviceBytes), {});
  add([](const AtShares &a) { return a.hostBytes; }, static_cast<double>(machine.hostBytes), {});
  add([](const AtShares &a) { return a.prefill.h2d(); }, 0, kPre);
  add([](const AtShares &a) { return a.prefill.d2h(); }, 0, kPre);
  add([](const AtShares &a) { return a.prefill.device(); }, 0, kPre);
  add([](const AtShares &a) { return a.decode.h2d() + a.decode.d2h(); }, 0, kGen);
  add([](const AtShares &a) { return a.decode.h2d() + a.decode.device() + a.decode.cpu(); }, 0, kGen);
  ASSIGN_OR_RETURN(solution, solveByVertices(program));
  const auto share = [&](size_t i) { return 100 * std::min(1.0, std::max(0.0, solution.variables[i])); };
  const double wg = share(0), cg = share(1);
  return FlexGenShares{.percent = {wg, 100 - wg, cg, 100 - cg, hg, hc},
                       .prefillLayer = solution.variables[kPre],
                       .decodeLayer = solution.variables[kGen],
                       .generate = solution.value};
}

} // namespace

absl::StatusOr<FlexGenShares> flexGenShares(const OffloadModel &model, const OffloadMachine &machine,
                                            const OffloadSetting &setting, const ShareLimits &limits) {
  std::optional<FlexGenShares> best;
  for (const double hg : {100.0, 0.0}) {
    if (hg < limits.leastHg)
      continue;
    const absl::StatusOr<FlexGenShares> shares = sharesWith(model, machine, setting, limits.mostCg, hg);
    if (shares.ok()) {
      if (!best || shares->generate < best->generate)
        best = *shares;
    } else if (!absl::IsResourceExhausted(shares.status())) {
      return shares.status();
    }
  }
  if (best)
    return *best;
  OffloadSetting host = setting;
  host.percent = model::Percent();
  if (limits.leastHg > 0)
    host.percent.hg = 100, host.percent.hc = 0;
  const OffloadBytes bytes = offloadBytes(model, host);
  return absl::ResourceExhaustedError(
      model::cat("no shares fit: with everything on the host ", bytes.host, " bytes of host and ", bytes.device,
                 " of device memory; the machine has ", machine.hostBytes, " and ", machine.deviceBytes));
}

} // namespace headrace::cost
