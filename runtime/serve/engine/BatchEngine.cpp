// SPDX-License-Identifier: Apache-2.0
//
// A batch run to its end on an engine of its own: all prompts are submitted before the first iteration.
#include "runtime/serve/engine/BatchEngine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/serve/engine/Engine.h"

namespace headrace::serve {
namespace {

// The means of its times, and the counters since `before`.
void setTimes(int64_t gapNs, int64_t gaps, const core::DeviceCounters &before, const core::DeviceCounters &now,
              GenerateResult &result) {
  double first = 0;
  int64_t begun = 0;
  for (size_t p = 0; p < result.tokens.size(); ++p) {
    first += static_cast<double>(result.firstTokenNs[p]);
    begun += !result.tokens[p].empty();
  }
  result.ttftMs = begun == 0 ? 0 : first / static_cast<double>(begun) * 1e-6;
  result.tpotMs = gaps == 0 ? 0 : static_cast<double>(gapNs) / static_cast<double>(gaps) * 1e-6;
  result.counters = now.since(before);
}

// What a batch's result is made of, from what its engine tells.
class Batch {
public:
  Batch(const Executor &on, const GenerateRequest &request)
      : on_(on), request_(request), lastTokenNs_(request.prompts.size(), 0) {
    const size_t count = request.prompts.size();
    result_.tokens.resize(count);
    result_.firstTokenNs.assign(count, 0);
    result_.ends.assign(count, EndReason::Length);
    if (request.keepLogits)
      result_.logits.resize(count);
    for (std::vector<int32_t> &tokens : result_.tokens)
      tokens.reserve(static_cast<size_t>(request.maxNewTokens));
    gapsOfIteration_.reserve(count);
  }

  absl::StatusOr<GenerateResult> run() {
    EngineOptions options;
    options.watermark = 0; // all that is to come is known
    options.maxNumSeqs = request_.maxNumSeqs;
    options.maxNumBatchedTokens = request_.maxNumBatchedTokens;
    options.batching = request_.batching;
    options.preemption = request_.preemption;
    options.swapBytes = request_.swapBytes;
    options.prefill = !request_.chunkedPrefill   ? Prefill::Whole
                      : request_.separatePrefill ? Prefill::Separate
                                                 : Prefill::Chunked;
    options.logits = request_.keepLogits;
    options.placementOf = request_.placementOf;
    options.onLaunch = request_.onLaunch;
    options.onToken = [this](const EngineToken &token) { add(token); };
    options.onIteration = [this](const EngineIteration &iteration) { add(iteration); };
    options.onEnd = [this](const EngineEnd &end) { add(end); };
    ASSIGN_OR_RETURN(engine, Engine::create(on_, std::move(options)));
    engine_ = engine.get();
    for (size_t p = 0; p < request_.prompts.size(); ++p) {
      Sampling sampling = request_.sampling;
      sampling.seed += p;
      RETURN_IF_ERROR(engine
                          ->submit({.prompt = request_.prompts[p],
                                    .maxNewTokens = request_.maxNewTokens,
                                    .sampling = sampling,
                                    .stopTokens = request_.stopTokens,
                                    .keepLogits = request_.keepLogits})
                          .status());
    }
    before_ = on_.counters();
    startNs_ = lastVisibleNs_ = on_.nowNs();
    absl::Status status = toEnd(*engine);
    result_.swapsOut = engine->counters().swapsOut;
    result_.swapsIn = engine->counters().swapsIn;
    result_.swapOutBytes = engine->counters().swapOutBytes;
    result_.swapInBytes = engine->counters().swapInBytes;
    result_.swapFallbacks = engine->counters().swapFallbacks;
    result_.iterations = engine->counters().iterations;
    result_.prefillIterations = engine->counters().prefillIterations;
    result_.preemptions = engine->counters().preemptions;
    result_.thrownAwayRows = engine->counters().thrownAwayRows;
    result_.paddedRows = engine->counters().paddedRows;
    result_.placementsNotTaken = engine->counters().placementsNotTaken;
    engine.reset(); // after a failure too: nothing of this call is left in flight
    if (request_.drain || !status.ok())
      if (absl::Status drained = on_.drain(); status.ok())
        status = drained;
    if (!status.ok())
      return status;
    return takeResult();
  }

private:
  absl::Status toEnd(Engine &engine) {
    for (bool interrupted = false;;) {
      if (!interrupted && request_.isInterrupted && request_.isInterrupted()) {
        interrupted = true;
        for (size_t p = 0; p < request_.prompts.size(); ++p)
          (void)engine.cancel(p + 1); // not known any more: it has ended
      }
      ASSIGN_OR_RETURN(more, engine.step());
      RETURN_IF_ERROR(failed_);
      if (!more)
        return absl::OkStatus();
    }
  }

  // Ids count from 1 in the order of the prompts.
  static size_t promptOf(uint64_t id) { return static_cast<size_t>(id - 1); }

  void add(const EngineToken &token) {
    const size_t p = promptOf(token.request);
    result_.tokens[p].push_back(token.token);
    if (request_.keepLogits)
      result_.logits[p].insert(result_.logits[p].end(), token.logits.begin(), token.logits.end());
    if (result_.tokens[p].size() == 1) {
      result_.firstTokenNs[p] = token.visibleNs - startNs_;
    } else {
      const int64_t gap = token.visibleNs - lastTokenNs_[p];
      gapNs_ += gap;
      ++gaps_;
      gapsOfIteration_.push_back(gap);
    }
    lastTokenNs_[p] = token.visibleNs;
    result_.durationNs = std::max(result_.durationNs, token.visibleNs - startNs_);
    if (request_.onToken && !request_.onToken(p, token.token)) {
      result_.ends[p] = EndReason::Stop;
      (void)engine_->cancel(token.request); // not known any more: it was the last
    }
  }

  void add(const EngineIteration &iteration) {
    const int64_t visibleNs = iteration.visibleNs;
    IterationSeen seen{iteration.variant, visibleNs - std::max(iteration.launchNs, lastVisibleNs_), iteration.prefill};
    for (const int64_t gap : gapsOfIteration_) {
      int64_t &longest = gap > visibleNs - lastVisibleNs_ ? seen.waitedNs : seen.gapNs;
      longest = std::max(longest, gap);
    }
    gapsOfIteration_.clear();
    lastVisibleNs_ = visibleNs;
    if (request_.onIteration)
      request_.onIteration(seen);
  }

  void add(const EngineEnd &end) {
    if (end.reason == EndReason::Failed && failed_.ok())
      failed_ = absl::Status(end.why.code(), absl::StrCat("prompt ", promptOf(end.request), ", ", end.why.message()));
    EndReason &ended = result_.ends[promptOf(end.request)];
    if (ended != EndReason::Stop && end.reason != EndReason::Failed) // a reply that onToken ended is cancelled
      ended = end.reason;
    if (request_.onEnd && request_.onEnd(promptOf(end.request)))
      ended = EndReason::Stop;
  }

  GenerateResult takeResult() {
    setTimes(gapNs_, gaps_, before_, on_.counters(), result_);
    return std::move(result_);
  }

  const Executor on_;
  const GenerateRequest &request_;
  GenerateResult result_;
  Engine *engine_ = nullptr;
  absl::Status failed_; // the first that did
  core::DeviceCounters before_;
  std::vector<int64_t> lastTokenNs_; // of each prompt
  std::vector<int64_t> gapsOfIteration_;
  int64_t startNs_ = 0, lastVisibleNs_ = 0, gapNs_ = 0, gaps_ = 0;
};

} // namespace

absl::StatusOr<GenerateResult> generate(const Executor &on, const GenerateRequest &request) {
  RETURN_IF_ERROR(
      checkPrompts(on.plan(), request, request.placementOf || on.isStaged() ? plan::kNone : on.first().placement()));
  return Batch(on, request).run();
}

} // namespace headrace::serve
