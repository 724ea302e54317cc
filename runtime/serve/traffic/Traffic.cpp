// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/Traffic.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/traffic/Random.h"

namespace headrace::serve {
namespace {

absl::Status refuse(const std::string &message) { return absl::InvalidArgumentError(message); }

absl::Status check(absl::Span<const TrafficRequest> requests, const TrafficOptions &options) {
  int64_t before = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    if (requests[r].arrivalNs < before)
      return refuse(r == 0 ? absl::StrCat("request 0 arrives at ", requests[r].arrivalNs, " ns, expected 0 or more")
                           : absl::StrCat("request ", r, " arrives at ", requests[r].arrivalNs, " ns, before request ",
                                          r - 1, " at ", before, " ns"));
    before = requests[r].arrivalNs;
  }
  if (options.maxConcurrency < 0)
    return refuse(absl::StrCat("max concurrency = ", options.maxConcurrency, ", expected 0 or more"));
  if (options.sampleEveryNs < 0)
    return refuse(absl::StrCat("sample interval = ", options.sampleEveryNs, " ns, expected 0 or more"));
  return absl::OkStatus();
}

// One call of runTraffic().
class TrafficRun {
public:
  TrafficRun(const Executor &on, absl::Span<const TrafficRequest> requests, const TrafficOptions &options)
      : on_(on), device_(on.first().device()), plan_(on.plan()), requests_(requests), options_(options) {
    int64_t tokens = 0;
    out_.requests.reserve(requests.size());
    for (const TrafficRequest &request : requests) {
      out_.requests.push_back({.arrivalNs = request.arrivalNs, .promptTokens = request.tokensOfPrompt()});
      tokens += std::clamp<int64_t>(request.outputTokens - 1, 0, plan_.maxContext);
    }
    ofId_.reserve(requests.size());
    if (options.keepTokenTimes)
      out_.itlNs.reserve(static_cast<size_t>(tokens));
    out_.sampleEveryNs = options.sampleEveryNs;
    if (options.sampleEveryNs > 0)
      out_.samples.reserve(kMostSamples);
  }

  absl::StatusOr<TrafficResult> run() {
    EngineOptions engineOptions = options_.engine;
    engineOptions.onToken = [this](const EngineToken &token) { onToken(token); };
    engineOptions.onEnd = [this](const EngineEnd &end) { onEnd(end); };
    const size_t depth = engineOptions.depth;
    ASSIGN_OR_RETURN(engine, Engine::create(on_, std::move(engineOptions)));
    engine_ = engine.get();
    const core::DeviceCounters before = on_.counters();
    startNs_ = device_.nowNs();
    if (plan_.goal.expansion == model::kAutoExpansion) // whichever placements it comes to
      out_.kvBlocks = plan_.miniBatches * plan_.mostContextBlocks();
    for (bool more = true; more || next_ < requests_.size();) {
      if (!more)
        RETURN_IF_ERROR(device_.waitUntil(startNs_ + requests_[next_].arrivalNs));
      if (!on_.isStaged() && engine->inFlight() < depth)
        (void)device_.meta(); // a launch waits for its staging copy: who comes meanwhile joins it
      submitUntil(device_.nowNs() - startNs_);
      ASSIGN_OR_RETURN(stepped, engine->step(nextArrivalNs()));
      more = stepped;
      sampleUntil(device_.nowNs() - startNs_);
      out_.kvBlocks =
          std::max(out_.kvBlocks, plan_.miniBatches * (plan_.actBlocks > 0 ? plan_.mostContextBlocks()
                                                                           : on_.first().kvBlocks().limit() - 1));
      out_.peakKvBlocks = std::max(out_.peakKvBlocks, blocksInUse());
    }
    if (options_.sampleEveryNs > 0 && (out_.samples.empty() || device_.nowNs() - startNs_ > sampleNs_))
      keepSample();
    out_.engine = engine->counters();
    out_.device = on_.counters().since(before);
    return std::move(out_);
  }

private:
  int64_t blocksInUse() const { // of all mini-batches
    int64_t blocks = 0;
    for (uint32_t i = 0; i < plan_.miniBatches; ++i)
      blocks += on_.first().kvBlocks(i).used();
    return blocks;
  }

  // Of the next that comes, on the device's clock, where it may be let in.
  int64_t nextArrivalNs() const {
    const bool full = inEngine_ == options_.maxConcurrency && inEngine_ > 0;
    return next_ == requests_.size() || full ? core::kForeverNs : startNs_ + requests_[next_].arrivalNs;
  }

  // Those that have come, as far as maxConcurrency lets them in.
  void submitUntil(int64_t now) {
    for (; next_ < requests_.size() && requests_[next_].arrivalNs <= now; ++next_) {
      if (inEngine_ == options_.maxConcurrency && inEngine_ > 0)
        return;
      RequestTimes &times = out_.requests[next_];
      times.arrivalNs = std::max(times.arrivalNs, letInNs_);
      times.why = submit(next_);
      if (!times.why.ok())
        continue;
      ++inEngine_;
      ofId_.push_back(next_);
    }
  }

  absl::Status submit(size_t r) {
    const TrafficRequest &asked = requests_[r];
    if (asked.tokensOfPrompt() > plan_.maxContext) // before so many are made up
      return refuse(
          absl::StrCat("the prompt has ", asked.tokensOfPrompt(), " tokens, the plan's context is ", plan_.maxContext));
    EngineRequest request{
        .maxNewTokens = asked.outputTokens, .sampling = options_.sampling, .stopTokens = options_.stopTokens};
    request.sampling.seed += r;
    if (asked.prompt.empty())
      makeUpPrompt(asked.promptTokens, plan_.model->vocab, options_.promptSeed, r, request.prompt);
    else
      request.prompt = asked.prompt;
    return engine_->submit(std::move(request)).status();
  }

  void onToken(const EngineToken &token) {
    const size_t r = ofId_[token.request - 1];
    RequestTimes &times = out_.requests[r];
    const int64_t ns = token.visibleNs - startNs_;
    if (times.outputTokens++ == 0)
      times.firstTokenNs = ns;
    else if (options_.keepTokenTimes)
      out_.itlNs.push_back(ns - times.lastTokenNs);
    times.lastTokenNs = ns;
    out_.durationNs = std::max(out_.durationNs, ns);
    if (options_.onToken)
      options_.onToken(r, token);
  }

  void onEnd(const EngineEnd &end) {
    RequestTimes &times = out_.requests[ofId_[end.request - 1]];
    if (end.startNs >= 0)
      times.startNs = end.startNs - startNs_;
    times.preemptions = end.preemptions;
    times.reason = end.reason;
    times.why = end.why;
    if (inEngine_-- == options_.maxConcurrency)
      letInNs_ = end.ns - startNs_;
  }

  // Time passes while the engine waits for tokens, and what they change comes after: until now all was as after the
  // step before.
  void sampleUntil(int64_t now) {
    if (options_.sampleEveryNs == 0)
      return;
    for (;;) {
      if (out_.samples.size() == kMostSamples)
        thinSamples();
      const int64_t end = sampleNs_ + out_.sampleEveryNs;
      if (end > now)
        break;
      countOutside(end - 1);
      keepSample();
      sampleNs_ = end;
      most_ = end < now ? last_ : EngineSample();
    }
    if (sampleNs_ < now)
      countOutside(now);
    const size_t running = engine_->seated();
    last_ = {0, blocksInUse(), static_cast<uint32_t>(running),
             static_cast<uint32_t>(static_cast<size_t>(inEngine_) - running)};
    most_.kvBlocks = std::max(most_.kvBlocks, last_.kvBlocks);
    most_.running = std::max(most_.running, last_.running);
    most_.waiting = std::max(most_.waiting, last_.waiting);
  }

  // Those that have come by then and were not submitted wait as well; with maxConcurrency they have not come.
  void countOutside(int64_t ns) {
    while (came_ < requests_.size() && requests_[came_].arrivalNs <= ns)
      ++came_;
    const size_t outside = options_.maxConcurrency == 0 ? came_ - std::min(came_, next_) : 0;
    most_.waiting = std::max(most_.waiting, last_.waiting + static_cast<uint32_t>(outside));
  }

  void keepSample() {
    most_.ns = sampleNs_;
    out_.samples.push_back(most_);
  }

  // Of every two one that is the most of both.
  void thinSamples() {
    std::vector<EngineSample> &all = out_.samples;
    for (size_t i = 0; 2 * i < all.size(); ++i) {
      const EngineSample &a = all[2 * i], &b = all[std::min(2 * i + 1, all.size() - 1)];
      all[i] = {a.ns, std::max(a.kvBlocks, b.kvBlocks), std::max(a.running, b.running), std::max(a.waiting, b.waiting)};
    }
    all.resize((all.size() + 1) / 2);
    out_.sampleEveryNs *= 2;
  }

  const Executor on_;
  core::Device &device_;
  const plan::Plan &plan_;
  const absl::Span<const TrafficRequest> requests_;
  const TrafficOptions &options_;
  Engine *engine_ = nullptr;
  int64_t startNs_ = 0;
  size_t next_ = 0;          // to be submitted
  size_t came_ = 0;          // by the last sample
  int64_t inEngine_ = 0;     // submitted and not ended
  int64_t letInNs_ = 0;      // when maxConcurrency last began to let requests in: those that came before waited
  std::vector<size_t> ofId_; // the request of engine id 1, 2, ...
  int64_t sampleNs_ = 0;     // when the sample that is being taken began
  EngineSample most_, last_; // of that sample; after the last step
  TrafficResult out_;
};

} // namespace

void makeUpPrompt(int64_t tokens, int64_t vocab, uint64_t seed, uint64_t request, std::vector<int32_t> &out) {
  Random random(seed, Stream::PromptIds, request);
  out.clear();
  out.reserve(static_cast<size_t>(std::max<int64_t>(tokens, 0)));
  for (int64_t t = 0; t < tokens; ++t)
    out.push_back(static_cast<int32_t>(random.between(0, vocab - 1)));
}

absl::StatusOr<TrafficResult> runTraffic(const Executor &on, absl::Span<const TrafficRequest> requests,
                                         const TrafficOptions &options) {
  RETURN_IF_ERROR(check(requests, options));
  return TrafficRun(on, requests, options).run();
}

} // namespace headrace::serve
