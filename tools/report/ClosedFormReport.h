// SPDX-License-Identifier: Apache-2.0
//
// `compile --explain`: LM-Offload's closed form (runtime/cost/lm_offload) of a plan's first placement, with the rates
// of the plan's hardware profile: what a layer's tasks take, what its decisions would be and by which numbers, beside
// what the plan's timeline was played to take.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "runtime/cost/Record.h"
#include "runtime/cost/lm_offload/Decisions.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

struct ClosedFormReport {
  cost::OffloadSetting setting; // the plan's: shares by bytes; lengths as stated, else half of the context each
  cost::ClosedForm form;
  // An iteration of the plan's largest decode bucket: by the closed form, and as it was played.
  int64_t context = 0;
  double formSeconds = 0, playedSeconds = 0;
  // Weights and KV each as they are and in 4 bits, each setting with the shares that are fastest of those that fit; the
  // attention on the CPU among them where the profile has a rate for it, as none has yet. None: nothing fits.
  std::optional<cost::Decisions> decisions;
  bool weighsCpu = false;
};

// `loading`: the record's that the plan was priced with, for T_init; 0 bytes: none. InvalidArgument: the closed form
// refuses the setting (a context of 2 at least).
absl::StatusOr<ClosedFormReport> reportClosedForm(const plan::Plan &plan, const cost::MeasuredLoading &loading);
std::string closedFormText(const plan::Plan &plan, const ClosedFormReport &report);
nlohmann::ordered_json closedFormJson(const ClosedFormReport &report);

} // namespace headrace::tools
