// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/StagedBatch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/serve/engine/Engine.h"

namespace headrace::serve {
namespace {

struct Sequence {
  size_t prompt = 0;
  std::vector<int32_t> tokens, blocks; // the prompt, and what was generated
  int64_t cached = 0;                  // of these
  bool running = false;
};

// Sequences by mini-batch and seat, and what the iteration that is on its way is made of.
struct MicroBatch {
  std::vector<std::vector<Sequence>> seats;
  std::vector<std::vector<core::SequenceRows>> rows;
  std::vector<std::vector<size_t>> of; // by mini-batch: whose rows they are
  std::vector<absl::Span<const core::SequenceRows>> spans;
  bool prefill = false, underWay = false;
};

absl::Status refuse(const char *what, const char *expected) {
  return absl::InvalidArgumentError(absl::StrCat(what, " beside stages: expected ", expected));
}

absl::Status check(const core::Stages &stages, const GenerateRequest &request) {
  RETURN_IF_ERROR(checkPrompts(stages.plan(), request));
  if (request.sampling.penalises())
    return refuse("penalties", "none: no stage has the ids of all tokens");
  if (request.keepLogits)
    return refuse("logits that are kept", "none");
  if (request.batching != Batching::Continuous)
    return refuse("static batching", "continuous batching");
  if (request.separatePrefill || !request.chunkedPrefill)
    return refuse("prompts apart from decoding", "chunks beside what decodes");
  if (request.placementOf)
    return refuse("placements that change", "one");
  return absl::OkStatus();
}

class StagedBatch {
public:
  StagedBatch(core::Stages &stages, const StagedSeats &seats, const GenerateRequest &request)
      : stages_(stages), request_(request), plan_(stages.plan()), budget_(engineBounds(plan_).maxNumBatchedTokens),
        batches_(seats.microBatches), lastNs_(request.prompts.size(), 0) {
    for (size_t which = 0; which < batches_.size(); ++which) {
      MicroBatch &batch = batches_[which];
      const auto sequences = static_cast<size_t>(seats.of(which));
      batch.seats.resize(plan_.miniBatches);
      batch.rows.resize(plan_.miniBatches);
      batch.of.resize(plan_.miniBatches);
      batch.spans.reserve(plan_.miniBatches);
      for (size_t i = 0; i < batch.seats.size(); ++i) {
        batch.seats[i].resize(sequences);
        for (Sequence &seat : batch.seats[i]) {
          seat.tokens.reserve(static_cast<size_t>(plan_.maxContext + 1));
          seat.blocks.reserve(static_cast<size_t>(plan_.metaLayout.maxBlocksPerSequence));
        }
        batch.rows[i].reserve(sequences);
        batch.of[i].reserve(sequences);
      }
    }
    result_.tokens.resize(request.prompts.size());
    for (std::vector<int32_t> &tokens : result_.tokens)
      tokens.reserve(static_cast<size_t>(request.maxNewTokens));
    result_.ends.assign(request.prompts.size(), EndReason::Length);
    result_.firstTokenNs.assign(request.prompts.size(), 0);
  }

  absl::StatusOr<GenerateResult> run() {
    const core::DeviceCounters before = stages_.counters();
    startNs_ = stages_.group().nowNs();
    size_t oldest = 0, underWay = 0; // micro-batches in the order in which they have begun
    std::vector<size_t> order(batches_.size());
    for (size_t i = 0; i < batches_.size(); ++i) {
      ASSIGN_OR_RETURN(begun, begin(batches_[i]));
      if (begun)
        order[(oldest + underWay++) % order.size()] = i;
    }
    while (underWay > 0) {
      const size_t i = order[oldest];
      oldest = (oldest + 1) % order.size();
      --underWay;
      ASSIGN_OR_RETURN(tokens, stages_.await());
      batches_[i].underWay = false;
      take(batches_[i], tokens);
      // A micro-batch that had no sequence may have one now that blocks are free.
      for (size_t next = 0; next < batches_.size(); ++next) {
        const size_t at = (i + next) % batches_.size();
        if (batches_[at].underWay)
          continue;
        ASSIGN_OR_RETURN(begun, begin(batches_[at]));
        if (begun)
          order[(oldest + underWay++) % order.size()] = at;
      }
    }
    finish(before);
    return std::move(result_);
  }

private:
  // Whether it has anything to do.
  absl::StatusOr<bool> begin(MicroBatch &batch) {
    if (request_.isInterrupted && request_.isInterrupted())
      interrupted_ = true;
    admit(batch);
    batch.spans.clear();
    batch.prefill = false;
    bool any = false;
    for (uint32_t m = 0; m < plan_.miniBatches; ++m) {
      compose(batch, m);
      any |= !batch.rows[m].empty();
      batch.spans.emplace_back(batch.rows[m]);
    }
    if (!any)
      return false;
    RETURN_IF_ERROR(stages_.begin(batch.spans));
    batch.underWay = true;
    return true;
  }

  // Waiting prompts, the first first, to free seats.
  void admit(MicroBatch &batch) {
    for (uint32_t m = 0; m < plan_.miniBatches; ++m)
      for (Sequence &seat : batch.seats[m]) {
        if (interrupted_ && seat.running)
          end(seat, m, EndReason::Cancelled);
        if (seat.running || interrupted_ || next_ == request_.prompts.size())
          continue;
        const std::vector<int32_t> &prompt = request_.prompts[next_];
        seat.tokens.assign(prompt.begin(), prompt.end());
        seat.cached = 0;
        seat.prompt = next_;
        if (!stages_.grow(m, seat.blocks, static_cast<int64_t>(prompt.size()) + request_.maxNewTokens).ok())
          continue; // another mini-batch may have room
        seat.running = true;
        ++next_;
      }
  }

  // What decodes, then chunks of prompts as far as the plan's iterations go; where it has none for prompts, a row each.
  void compose(MicroBatch &batch, uint32_t m) {
    std::vector<core::SequenceRows> &rows = batch.rows[m];
    std::vector<size_t> &of = batch.of[m];
    rows.clear();
    of.clear();
    int64_t left = budget_ > 0 ? budget_ : static_cast<int64_t>(batch.seats[m].size());
    for (const bool decodes : {true, false})
      for (size_t s = 0; s < batch.seats[m].size(); ++s) {
        Sequence &seat = batch.seats[m][s];
        const int64_t known = static_cast<int64_t>(seat.tokens.size()) - seat.cached;
        const auto prompt = static_cast<int64_t>(request_.prompts[seat.prompt].size());
        if (!seat.running || (seat.cached >= prompt) != decodes || left == 0)
          continue;
        const int64_t count = std::min(known, budget_ > 0 ? left : int64_t{1});
        left -= count;
        batch.prefill |= !decodes;
        rows.push_back(
            {.tokens =
                 absl::MakeConstSpan(seat.tokens).subspan(static_cast<size_t>(seat.cached), static_cast<size_t>(count)),
             .firstPosition = seat.cached,
             .blocks = seat.blocks,
             .sample = count == known,
             .requestSlot = static_cast<int32_t>(s),
             .temperature = request_.sampling.temperature,
             .topP = request_.sampling.topP,
             .seed = request_.sampling.seed + seat.prompt,
             .topK = static_cast<int32_t>(request_.sampling.topK),
             .minP = request_.sampling.minP,
             .promptTokens = prompt});
        of.push_back(s);
      }
  }

  void take(MicroBatch &batch, absl::Span<const int32_t> tokens) {
    const int64_t now = stages_.group().nowNs();
    ++result_.iterations;
    result_.prefillIterations += batch.prefill ? 1 : 0;
    size_t at = 0;
    for (uint32_t m = 0; m < plan_.miniBatches; ++m)
      for (size_t i = 0; i < batch.rows[m].size(); ++i) {
        Sequence &seat = batch.seats[m][batch.of[m][i]];
        seat.cached += static_cast<int64_t>(batch.rows[m][i].tokens.size());
        if (batch.rows[m][i].sample)
          add(seat, m, tokens[at++], now);
      }
  }

  void add(Sequence &seat, uint32_t m, int32_t token, int64_t now) {
    std::vector<int32_t> &tokens = result_.tokens[seat.prompt];
    tokens.push_back(token);
    seat.tokens.push_back(token);
    if (tokens.size() == 1) {
      result_.firstTokenNs[seat.prompt] = now - startNs_;
    } else {
      gapNs_ += now - lastNs_[seat.prompt];
      ++gaps_;
    }
    lastNs_[seat.prompt] = now;
    result_.durationNs = now - startNs_;
    const bool goesOn = !request_.onToken || request_.onToken(seat.prompt, token);
    const bool stops =
        std::find(request_.stopTokens.begin(), request_.stopTokens.end(), token) != request_.stopTokens.end();
    if (stops || !goesOn)
      end(seat, m, EndReason::Stop);
    else if (static_cast<int64_t>(tokens.size()) == request_.maxNewTokens)
      end(seat, m, EndReason::Length);
  }

  void end(Sequence &seat, uint32_t m, EndReason reason) {
    seat.running = false;
    stages_.release(m, seat.blocks);
    result_.ends[seat.prompt] = reason;
    if (request_.onEnd && request_.onEnd(seat.prompt))
      result_.ends[seat.prompt] = EndReason::Stop;
  }

  void finish(const core::DeviceCounters &before) {
    for (; next_ < request_.prompts.size(); ++next_)
      result_.ends[next_] = EndReason::Cancelled;
    int64_t first = 0, count = 0;
    for (size_t p = 0; p < result_.tokens.size(); ++p)
      if (!result_.tokens[p].empty()) {
        first += result_.firstTokenNs[p];
        ++count;
      }
    result_.ttftMs = count == 0 ? 0 : static_cast<double>(first) / static_cast<double>(count) * 1e-6;
    result_.tpotMs = gaps_ == 0 ? 0 : static_cast<double>(gapNs_) / static_cast<double>(gaps_) * 1e-6;
    result_.counters = stages_.counters().since(before);
  }

  core::Stages &stages_;
  const GenerateRequest &request_;
  const plan::Plan &plan_;
  const int64_t budget_; // new rows of a mini-batch, where some are of prompts; 0: one of each sequence
  std::vector<MicroBatch> batches_;
  std::vector<int64_t> lastNs_; // by prompt
  GenerateResult result_;
  size_t next_ = 0; // the first prompt that waits
  bool interrupted_ = false;
  int64_t startNs_ = 0, gapNs_ = 0, gaps_ = 0;
};

} // namespace

StagedSeats stagedSeats(const plan::Plan &plan, size_t stages, const StagedLimits &limits) {
  int64_t all = engineBounds(plan).maxNumSeqs;
  if (limits.sequences > 0)
    all = std::min(all, limits.sequences);
  StagedSeats seats;
  seats.sequences = std::max<int64_t>(1, (all + plan.miniBatches - 1) / plan.miniBatches);
  seats.microBatches =
      std::min(limits.microBatches > 0 ? limits.microBatches : stages, static_cast<size_t>(seats.sequences));
  return seats;
}

int64_t StagedSeats::of(size_t microBatch) const {
  const auto split = static_cast<int64_t>(microBatches), which = static_cast<int64_t>(microBatch);
  return sequences / split + (which < sequences % split ? 1 : 0);
}

absl::StatusOr<GenerateResult> generateStaged(core::Stages &stages, const StagedSeats &seats,
                                              const GenerateRequest &request) {
  RETURN_IF_ERROR(check(stages, request));
  return StagedBatch(stages, seats, request).run();
}

} // namespace headrace::serve
