// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ServeRequest.h"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {
namespace {

using model::cat;

constexpr int64_t kDefaultSeqs = 256; // vLLM's for years
// Rows of an iteration with prompts, and the smallest bucket of them: the compiler's own.
constexpr int64_t kDefaultBatchedTokens = 2048, kSmallestMixed = 16;

// least, twice, four times, ... and most.
std::vector<int64_t> powersOfTwo(int64_t least, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t size = least; size < most; size *= 2)
    out.push_back(size);
  out.push_back(most);
  return out;
}

void askForSizes(const BenchServeOptions &options, const ServeTraffic &traffic, model::Job &job) {
  model::Goal &goal = job.goal;
  if (!goal.batch) {
    const int64_t seats = options.scheduler.maxNumSeqs.value_or(
        std::min({kDefaultSeqs, traffic.count(), options.maxConcurrency.value_or(kDefaultSeqs),
                  options.scheduler.maxNumBatchedTokens.value_or(kDefaultSeqs)}));
    goal.batch = (seats + goal.miniBatches - 1) / goal.miniBatches * goal.miniBatches;
  }
  if (!goal.context)
    goal.context = std::min(traffic.longest(), job.model->spec->longestContext());
  if (goal.ttft) { // of what comes
    goal.inputLen = std::max<int64_t>(1, std::min(traffic.longestPrompt(), *goal.context - 1));
    goal.outputLen.reset();
  } else if (!goal.inputLen && !goal.outputLen && *goal.context > 1) { // what the plan is for
    const serve::RequestLengths lengths = traffic.meanLengths(*goal.context);
    goal.inputLen = lengths.prompt;
    goal.outputLen = lengths.output;
  }
  // A batch that is found has its KV.
  goal.autoKvTokens |=
      !goal.kvTokens && !goal.kvDeviceMemory && !job.policy.kvPlaces && job.policy.prefer != model::Prefer::Throughput;
}

// Where flags say how many rows an iteration has, or that prompts are not cut.
absl::Status askForRows(const BenchServeOptions &options, const ServeTraffic &traffic, AssembledJob &assembled) {
  model::Job &job = assembled.job;
  const std::optional<int64_t> asked = options.scheduler.maxNumBatchedTokens;
  if (!job.buckets.newTokens.empty() || (!asked && options.scheduler.chunkedPrefill))
    return absl::OkStatus();
  const int64_t miniBatches = job.goal.miniBatches;
  const bool expanded = job.goal.expansion && job.goal.kvDeviceMemory; // these two say how many there are
  int64_t all = job.goal.kvTokens.value_or(*job.goal.batch * *job.goal.context);
  if (expanded) {
    const absl::StatusOr<int64_t> tokens = kvTokensOf(job);
    if (!tokens.ok())
      return aboutInput(assembled.input, tokens.status());
    all = *tokens;
  }
  all /= miniBatches; // which buckets are of
  if (asked > all)
    return badNumber("--max-num-batched-tokens", *asked,
                     cat("at most ", all, ", the tokens of ",
                         job.goal.kvTokens ? std::string("--kv-tokens")
                         : expanded        ? std::string("--kv-device-memory with --expansion")
                                           : cat("batch ", *job.goal.batch, " x context ", *job.goal.context,
                                                 " (--kv-tokens says others)")));
  const int64_t whole = std::max(kDefaultBatchedTokens, std::min(traffic.longestPrompt(), *job.goal.context));
  // A bucket of prompts has more rows than sequences.
  const int64_t most = std::min(std::max(asked.value_or(whole), *job.goal.batch / miniBatches + 1), all);
  job.buckets.newTokens = powersOfTwo(std::min(kSmallestMixed, most), most);
  return absl::OkStatus();
}

} // namespace

absl::Status askForTraffic(const BenchServeOptions &options, const ServeTraffic &traffic, AssembledJob &assembled) {
  askForSizes(options, traffic, assembled.job);
  assembled.input.allowMissed = true;
  return askForRows(options, traffic, assembled);
}

} // namespace headrace::tools
