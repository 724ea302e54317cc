// SPDX-License-Identifier: Apache-2.0
//
// Where a golden model's weights may live.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::golden {

struct PlacementCase {
  std::string name;
  model::Policy policy;
  int32_t offloadedLayers; // what the plan's placement must have
  bool embedding = false, head = false;
};

// Interval i offloads layers i - 1, 2i - 1, ...: floor(layers / i) of them. A tied table is embedding and head at once.
inline std::vector<PlacementCase> everyPlacement(const model::ModelSpec &spec) {
  using model::AutoOnOff;
  using model::Policy;
  using model::StartRule;
  const int64_t layers = spec.layers;
  const bool tied = spec.tiedEmbeddings;
  std::vector<PlacementCase> cases;
  for (const StartRule rule : {StartRule::Paper, StartRule::Eager}) {
    const std::string ruleName = rule == StartRule::Paper ? "paper" : "eager";
    Policy base;
    base.startRule = rule;
    const auto add = [&](const std::string &what, int64_t offloaded, bool embedding, bool head, auto change) {
      PlacementCase added{absl::StrCat(ruleName, ", ", what), base, static_cast<int32_t>(offloaded), embedding, head};
      added.policy.offloadEmbedding = embedding ? AutoOnOff::On : AutoOnOff::Off;
      added.policy.offloadHead = head ? AutoOnOff::On : AutoOnOff::Off;
      change(added.policy);
      cases.push_back(added);
    };
    const auto no = [](Policy &p) { p.none = true; };
    const auto interval = [](int64_t i) { return [i](Policy &p) { p.interval = i; }; };
    const auto count = [](int64_t n) { return [n](Policy &p) { p.offloadLayers = n; }; };
    add("interval none", 0, false, false, no);
    for (int64_t i = 1; i <= layers; ++i)
      add(absl::StrCat("interval ", i), layers / i, false, false, interval(i));
    for (int64_t n = 0; n <= layers; ++n)
      add(absl::StrCat(n, " layers"), n, false, false, count(n));
    if (!tied) {
      add("embedding", 0, true, false, count(0));
      add("head", 0, false, true, count(0));
    }
    add("embedding and head", 0, true, true, count(0));
    for (int64_t i = 1; i <= layers; ++i)
      add(absl::StrCat("embedding, head and interval ", i), layers / i, true, true, interval(i));
  }
  return cases;
}

} // namespace headrace::golden
