// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileThroughput.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/CompileSearched.h"
#include "compiler/choice/Resolve.h"
#include "compiler/search/Batches.h"
#include "compiler/search/Search.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"

namespace headrace::compiler {
namespace {

absl::Status refuse(absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("policy.prefer = \"throughput\": expected ", expected));
}

CompileRequest atBatch(const CompileRequest &request, int64_t batch) {
  CompileRequest of = request;
  of.goal.batch = batch;
  of.policy.prefer = model::Prefer::Latency;
  return of;
}

// Plays choices of one batch; adds to how many.
double tokensPerSecond(const CompileRequest &request, const Generator &policy, size_t &played) {
  const absl::StatusOr<Target> target = resolve(request);
  if (!target.ok()) // what is stated beside it rules it out
    return 0;
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs
                    : roofline.emplace(request.model, request.hardware, target->activation, target->kv);
  Space space(request, costs);
  space.hold(request.goal);
  const std::optional<Searched> searched = search(space, generatorsOf(policy, space));
  played += space.evaluated();
  if (!searched || searched->best.late > 0)
    return 0;
  const model::Goal &goal = request.goal;
  const int64_t output = goal.inputLen || goal.outputLen ? goal.outputLen.value_or(1) : 1;
  return static_cast<double>(*goal.batch) * static_cast<double>(output) * 1e9 / searched->best.aimNs;
}

} // namespace

absl::StatusOr<Draft> compileMostTokens(const CompileRequest &request, const Generator &policy) {
  const int64_t parts = request.goal.autoMiniBatches ? 1 : request.goal.miniBatches;
  if (!request.goal.batch)
    return refuse("goal.batch beside it, the most sequences at once");
  if (!request.buckets.sequences.empty())
    return refuse("no buckets.sequences beside it: it finds the batch");
  RETURN_IF_ERROR(resolve(request).status());
  size_t played = 0;
  std::vector<BatchRate> left = triedBatches(*request.goal.batch / parts, [&](int64_t batch) {
    return tokensPerSecond(atBatch(request, batch * parts), policy, played);
  });
  std::string tried;
  for (const BatchRate &one : left)
    absl::StrAppend(&tried, tried.empty() ? "" : ", ", one.batch * parts, " ",
                    one.tokensPerSecond > 0 ? absl::StrFormat("%.1f", one.tokensPerSecond) : "none");
  // The search of one batch that is compiled goes on where an objective turns out to be missed, and may end with less.
  std::erase_if(left, [](const BatchRate &one) { return one.tokensPerSecond == 0; });
  while (!left.empty()) {
    const int64_t best = bestBatch(left).batch, batch = best * parts;
    absl::StatusOr<Draft> draft = compileSearched(atBatch(request, batch), policy);
    if (!draft.ok() && absl::IsResourceExhausted(draft.status())) {
      std::erase_if(left, [&](const BatchRate &one) { return one.batch == best; });
      continue;
    }
    RETURN_IF_ERROR(draft.status());
    absl::StrAppend(&draft->reason, ". A batch of ", batch, " makes the most tokens a second of those up to ",
                    *request.goal.batch, " that were tried (", tried, "), by ", played, " choices that were played");
    return draft;
  }
  return compileSearched(atBatch(request, parts), policy);
}

} // namespace headrace::compiler
