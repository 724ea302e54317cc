// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/BatchRun.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/serve/engine/WrongLogits.h"

namespace headrace::serve {

BatchRun::BatchRun(core::Runtime &runtime)
    : runtime_(runtime), plan_(runtime.plan()), device_(runtime.device()), blocks_(runtime.kvBlocks()),
      mixedTokens_(plan_.placements.size(), 0) {
  for (const plan::Variant &variant : plan_.variants)
    if (plan_.schedules[variant.schedule].iterationClass == plan::IterationClass::Mixed)
      mixedTokens_[variant.placement] = std::max(mixedTokens_[variant.placement], variant.newTokens);
}

// All memory that the iterations use.
absl::Status BatchRun::prepare(const GenerateRequest &request) {
  if (active())
    return absl::FailedPreconditionError("a batch is running, another one cannot begin");
  RETURN_IF_ERROR(checkRequest(plan_, request));
  if (request.keepLogits)
    RETURN_IF_ERROR(logits_.prepare(plan_, device_));
  const size_t count = request.prompts.size();
  result_ = GenerateResult();
  result_.tokens.resize(count);
  result_.firstTokenNs.assign(count, 0);
  if (request.keepLogits)
    result_.logits.resize(count);
  sequences_.clear();
  sequences_.resize(count);
  for (size_t s = 0; s < count; ++s) {
    sequences_[s].prompt = &request.prompts[s];
    sequences_[s].blocks.reserve(static_cast<size_t>(plan_.metaLayout.maxBlocksPerSequence));
    result_.tokens[s].reserve(static_cast<size_t>(request.maxNewTokens));
  }
  rows_.reserve(count);
  decodeIds_.resize(count);
  readTokens_.reserve(count);
  for (InFlight &iteration : inFlight_) {
    iteration.rows.reserve(count);
    iteration.sampledOf.reserve(count);
  }
  depth_ = request.stopTokens.empty() && !request.keepLogits ? kInFlight : 1;
  newest_ = oldest_ = 0;
  gapNs_ = gaps_ = 0;
  before_ = device_.counters();
  startNs_ = lastVisibleNs_ = device_.nowNs();
  return absl::OkStatus();
}

absl::Status BatchRun::begin(const GenerateRequest &request) {
  RETURN_IF_ERROR(prepare(request));
  request_ = &request;
  return absl::OkStatus();
}

absl::Status BatchRun::beginPrefilled(const GenerateRequest &request, absl::Span<const int32_t> firstTokens) {
  if (firstTokens.size() != request.prompts.size())
    return absl::InvalidArgumentError(
        absl::StrCat(firstTokens.size(), " first tokens of ", request.prompts.size(), " prompts"));
  RETURN_IF_ERROR(prepare(request));
  request_ = &request;
  absl::Status status;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    Sequence &sequence = sequences_[s];
    sequence.rows = static_cast<int64_t>(sequence.prompt->size());
    if (status = blocks_.grow(sequence.blocks, sequence.rows); !status.ok())
      break;
    sequence.sampled = 1;
    accept(s, firstTokens[s], startNs_);
  }
  if (!status.ok())
    (void)end();
  return status;
}

// Where no prompt has more than a row left, an iteration of all sequences is one of decode.
bool BatchRun::promptsOnly() const {
  return request_->separatePrefill &&
         std::any_of(sequences_.begin(), sequences_.end(), [](const Sequence &s) { return s.promptLeft() > 1; });
}

bool BatchRun::done() const {
  return std::all_of(sequences_.begin(), sequences_.end(), [&](const Sequence &s) {
    const auto read = static_cast<int64_t>(result_.tokens[static_cast<size_t>(&s - sequences_.data())].size());
    return s.stopped || read == request_->maxNewTokens;
  });
}

bool BatchRun::prefilled() const {
  return std::none_of(result_.tokens.begin(), result_.tokens.end(), [](const auto &read) { return read.empty(); });
}

uint64_t BatchRun::oldestNumber() const {
  return oldest_ == newest_ ? 0 : inFlight_[oldest_ % kInFlight].launched.number;
}

// The token that a decoding sequence feeds in: itself if it was read, else where the device keeps it.
absl::Span<const int32_t> BatchRun::nextInput(size_t s) {
  const std::vector<int32_t> &read = result_.tokens[s];
  const bool known = static_cast<int64_t>(read.size()) == sequences_[s].sampled;
  decodeIds_[s] = known ? read.back() : -1 - static_cast<int32_t>(s);
  return absl::MakeConstSpan(&decodeIds_[s], 1);
}

int64_t BatchRun::rowsOf(const Sequence &sequence, bool prompts, bool promptsOnly, int64_t tokens, int64_t most) const {
  const int64_t left = sequence.promptLeft();
  if (!prompts)
    return promptsOnly || left != 0 || ended(sequence) ? 0 : 1;
  return most == 0 ? std::min<int64_t>(left, 1) : std::min(left, most - tokens);
}

plan::IterationSize BatchRun::nextSize(uint32_t placement) const {
  plan::IterationSize size{0, 0, 0};
  const bool promptsOnly = this->promptsOnly();
  for (const bool prompts : {false, true})
    for (const Sequence &sequence : sequences_)
      if (const int64_t rows = rowsOf(sequence, prompts, promptsOnly, size.tokens, mixedTokens(placement)); rows > 0) {
        size.tokens += rows;
        ++size.sequences;
        size.context = std::max(size.context, sequence.rows + rows);
      }
  return size;
}

absl::StatusOr<bool> BatchRun::launchNext(uint32_t placement) {
  if (!active())
    return absl::FailedPreconditionError("no batch has begun");
  if (placement >= plan_.placements.size())
    return absl::InvalidArgumentError(
        absl::StrCat("placement ", placement, " asked for, the plan has ", plan_.placements.size()));
  if (inFlight() >= depth_)
    return false;
  rows_.clear();
  InFlight &next = inFlight_[newest_ % kInFlight];
  next.rows.clear();
  next.sampledOf.clear();
  int64_t tokens = 0, context = 0;
  bool prefill = false;
  const bool promptsOnly = this->promptsOnly();
  for (const bool prompts : {false, true}) // decoding sequences first
    for (size_t s = 0; s < sequences_.size(); ++s) {
      Sequence &sequence = sequences_[s];
      const int64_t rows = rowsOf(sequence, prompts, promptsOnly, tokens, mixedTokens(placement));
      if (rows <= 0)
        continue;
      prefill |= prompts;
      const absl::Span<const int32_t> ids =
          prompts ? absl::MakeConstSpan(*sequence.prompt)
                        .subspan(static_cast<size_t>(sequence.rows), static_cast<size_t>(rows))
                  : nextInput(s);
      RETURN_IF_ERROR(addRows(s, ids, next, tokens, context));
    }
  if (rows_.empty())
    return false;
  ASSIGN_OR_RETURN(variant, runtime_.chooseIn(placement, tokens, static_cast<int64_t>(rows_.size()), context));
  RETURN_IF_ERROR(core::writeMeta(plan_.metaLayout, plan_.blockTokens, rows_, device_.meta()));
  const int64_t launchNs = device_.nowNs();
  RETURN_IF_ERROR(runtime_.launch(variant));
  next.launched = {runtime_.launched(), variant, placement, launchNs, prefill, next.rows};
  lastLaunched_ = next.launched;
  ++newest_;
  ++result_.iterations;
  result_.prefillIterations += prefill;
  return true;
}

absl::Status BatchRun::addRows(size_t s, absl::Span<const int32_t> ids, InFlight &iteration, int64_t &tokens,
                               int64_t &context) {
  Sequence &sequence = sequences_[s];
  const int64_t count = static_cast<int64_t>(ids.size()), after = sequence.rows + count;
  RETURN_IF_ERROR(blocks_.grow(sequence.blocks, after));
  const bool sample = after >= static_cast<int64_t>(sequence.prompt->size());
  rows_.push_back({.tokens = ids,
                   .firstPosition = sequence.rows,
                   .blocks = sequence.blocks,
                   .sample = sample,
                   .requestSlot = static_cast<int32_t>(s),
                   .temperature = request_->sampling.temperature,
                   .topP = request_->sampling.topP,
                   .seed = request_->sampling.seed + s});
  iteration.rows.push_back({static_cast<uint32_t>(s), sequence.rows, count, sample});
  sequence.rows = after;
  if (sample) {
    ++sequence.sampled;
    iteration.sampledOf.push_back(static_cast<uint32_t>(s));
  }
  tokens += count;
  context = std::max(context, after);
  return absl::OkStatus();
}

absl::Status BatchRun::readOldest() {
  if (oldest_ == newest_)
    return absl::FailedPreconditionError("no iteration is in flight");
  const InFlight &iteration = inFlight_[oldest_ % kInFlight];
  ++oldest_;
  ASSIGN_OR_RETURN(tokens, runtime_.awaitTokens());
  const LaunchedIteration &launched = iteration.launched;
  if (tokens.size() != iteration.sampledOf.size())
    return absl::InternalError(absl::StrCat("iteration ", launched.number, ": ", tokens.size(), " tokens, expected ",
                                            iteration.sampledOf.size()));
  if (std::find(tokens.begin(), tokens.end(), kernels::kNotFinite) != tokens.end())
    return wrongLogits(iteration, tokens);
  const int64_t visibleNs = device_.tokensVisibleNs(launched.number);
  if (request_->keepLogits)
    for (size_t i = 0; i < tokens.size(); ++i)
      if (absl::Status status =
              logits_.read(plan_, device_, launched.variant, i, result_.logits[iteration.sampledOf[i]]);
          !status.ok())
        return status;
  readTokens_.clear();
  for (size_t i = 0; i < tokens.size(); ++i)
    accept(iteration.sampledOf[i], tokens[i], visibleNs);
  lastRead_ = {launched.number, launched.variant, visibleNs, readTokens_};
  if (request_->onIteration) {
    IterationSeen seen{launched.variant, visibleNs - std::max(launched.launchNs, lastVisibleNs_), launched.prefill};
    for (const ReadToken &token : readTokens_) {
      int64_t &longest = token.gapNs > visibleNs - lastVisibleNs_ ? seen.waitedNs : seen.gapNs;
      longest = std::max(longest, token.gapNs);
    }
    request_->onIteration(seen);
  }
  lastVisibleNs_ = visibleNs;
  return absl::OkStatus();
}

void BatchRun::accept(size_t s, int32_t token, int64_t visibleNs) {
  Sequence &sequence = sequences_[s];
  std::vector<int32_t> &out = result_.tokens[s];
  out.push_back(token);
  int64_t gap = -1;
  if (out.size() == 1) {
    result_.firstTokenNs[s] = visibleNs - startNs_;
  } else {
    gap = visibleNs - sequence.lastTokenNs;
    gapNs_ += gap;
    ++gaps_;
  }
  sequence.lastTokenNs = visibleNs;
  readTokens_.push_back({static_cast<uint32_t>(s), token, gap});
  sequence.stopped =
      std::find(request_->stopTokens.begin(), request_->stopTokens.end(), token) != request_->stopTokens.end();
  if (!keepBlocks_ && (sequence.stopped || static_cast<int64_t>(out.size()) == request_->maxNewTokens))
    blocks_.release(sequence.blocks);
}

GenerateResult BatchRun::takeResult() {
  setTimes(gapNs_, gaps_, before_, device_.counters(), result_);
  return std::move(result_);
}

absl::Status BatchRun::wrongLogits(const InFlight &iteration, absl::Span<const int32_t> tokens) {
  size_t wrong = 0, first = sequences_.size();
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] == kernels::kNotFinite) {
      ++wrong;
      first = std::min<size_t>(first, iteration.sampledOf[i]);
    }
  const auto rows = std::find_if(iteration.rows.begin(), iteration.rows.end(),
                                 [&](const ComposedRows &one) { return one.sequence == first; });
  const uint32_t placement = iteration.launched.placement;
  absl::Status late = awaitRest(); // the pass has the device to itself
  std::vector<int32_t> ids = *sequences_[first].prompt;
  ids.insert(ids.end(), result_.tokens[first].begin(), result_.tokens[first].end());
  const std::string step = late.ok() ? firstWrongStep(runtime_, ids, sequences_[first].blocks, placement,
                                                      std::max<int64_t>(mixedTokens(placement), 1))
                                     : absl::StrCat("then: ", std::string(late.message()));
  return absl::AbortedError(
      absl::StrCat("prompt ", first, ", ", wrongLogitsMessage(rows->firstPosition + rows->rows, wrong - 1, step)));
}

absl::Status BatchRun::awaitRest() {
  absl::Status status;
  while (oldest_ != newest_) {
    ++oldest_;
    if (absl::Status late = runtime_.awaitTokens().status(); status.ok())
      status = late;
  }
  return status;
}

absl::Status BatchRun::end() {
  absl::Status status = awaitRest();
  for (Sequence &sequence : sequences_)
    blocks_.release(sequence.blocks);
  request_ = nullptr;
  return status;
}

} // namespace headrace::serve
