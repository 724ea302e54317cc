// SPDX-License-Identifier: Apache-2.0
//
// One iteration after the other: compose (which rows of which sequence), launch, read the tokens.
//
// A composed iteration needs the tokens sampled by the one before it. Where nothing on the host depends on what they
// are (no stop tokens, no logits to keep), the rows name them as "what request slot r sampled last" and the next
// iteration is launched before these are read; two iterations are then in flight, and the device never waits for the
// host.
#include "runtime/serve/BatchEngine.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/serve/KvBlocks.h"

namespace headrace::serve {
namespace {

constexpr size_t kInFlight = 2;

struct Sequence {
  const std::vector<int32_t> *prompt = nullptr;
  int32_t slot = 0;
  int64_t rows = 0;     // launched, prompt and decode
  int64_t sampled = 0;  // tokens whose iteration was launched
  bool stopped = false; // it sampled a stop token
  std::vector<int32_t> blocks;

  int64_t promptLeft() const { return std::max<int64_t>(0, static_cast<int64_t>(prompt->size()) - rows); }
};

// A launched iteration whose tokens are not yet read.
struct InFlight {
  uint64_t number = 0; // the runtime's count
  uint32_t variant = 0;
  int64_t launchNs = 0;
  std::vector<size_t> sampledOf; // sequences, in the order of their tokens
};

// Where a schedule leaves the logits, from the operands of its Sample step.
absl::StatusOr<plan::Operand> findLogits(const plan::Schedule &schedule) {
  size_t sample = schedule.steps.size();
  const plan::Operand *logits = nullptr;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    for (uint32_t o = step.firstOperand; o < step.firstOperand + step.operandCount; ++o) {
      const plan::Operand &operand = schedule.operands[o];
      if (step.kind == plan::StepKind::Compute && step.op == kernels::Op::Sample && operand.arg == plan::Arg::X) {
        sample = i;
        logits = &operand;
      }
    }
  }
  if (logits == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("schedule '", schedule.name, "' has no sampling step"));
  // They are read once the iteration has ended.
  for (size_t i = sample + 1; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    for (uint32_t o = step.firstOperand; o < step.firstOperand + step.operandCount; ++o)
      if (const plan::Operand &operand = schedule.operands[o];
          operand.access != plan::Access::Read && operand.space == plan::Space::Device &&
          operand.address < logits->address + logits->bytes && logits->address < operand.address + operand.bytes)
        return absl::FailedPreconditionError(
            absl::StrCat("schedule '", schedule.name, "': step ", i, " overwrites the logits, they cannot be kept"));
  }
  return *logits;
}

class Engine {
public:
  Engine(core::Runtime &runtime, const GenerateRequest &request)
      : runtime_(runtime), plan_(runtime.plan()), device_(runtime.device()), request_(request),
        depth_(request.stopTokens.empty() && !request.keepLogits ? kInFlight : 1),
        blocks_(plan_.kvBlocks, plan_.blockTokens) {}

  absl::StatusOr<GenerateResult> run() {
    if (absl::Status status = prepare(); !status.ok())
      return status;
    const core::DeviceCounters before = device_.counters();
    startNs_ = lastVisibleNs_ = device_.nowNs();
    absl::Status status = loop();
    // After a failure too: nothing of this call is left in flight.
    while (!inFlightEmpty()) {
      ++oldest_;
      if (absl::Status late = runtime_.awaitTokens().status(); status.ok())
        status = late;
    }
    if (absl::Status drained = device_.drain(); status.ok())
      status = drained;
    if (!status.ok())
      return status;
    finish(before);
    return std::move(result_);
  }

private:
  // All memory that the loop uses.
  absl::Status prepare() {
    const size_t count = request_.prompts.size();
    sequences_.resize(count);
    result_.tokens.resize(count);
    result_.firstTokenNs.assign(count, 0);
    lastTokenNs_.assign(count, 0);
    if (request_.keepLogits) {
      if (!device_.holdsData())
        return absl::FailedPreconditionError(
            absl::StrCat("device '", std::string(device_.kind()), "' holds no data, there are no logits to keep"));
      result_.logits.resize(count);
      for (const plan::Schedule &schedule : plan_.schedules) {
        logits_.emplace_back();
        if (schedule.shape == plan::ShapeClass::Transition)
          continue;
        absl::StatusOr<plan::Operand> logits = findLogits(schedule);
        if (!logits.ok())
          return logits.status();
        logits_.back() = *logits;
      }
    }
    for (size_t s = 0; s < count; ++s) {
      sequences_[s].prompt = &request_.prompts[s];
      sequences_[s].slot = static_cast<int32_t>(s);
      sequences_[s].blocks.reserve(static_cast<size_t>(plan_.metaLayout.maxBlocksPerSequence));
      result_.tokens[s].reserve(static_cast<size_t>(request_.maxNewTokens));
    }
    rows_.reserve(count);
    decodeIds_.resize(count);
    for (InFlight &iteration : inFlight_)
      iteration.sampledOf.reserve(count);
    for (const plan::Variant &variant : plan_.variants)
      if (variant.placement == runtime_.placement() &&
          plan_.schedules[variant.schedule].shape == plan::ShapeClass::Mixed)
        mixedTokens_ = std::max(mixedTokens_, variant.newTokens);
    return absl::OkStatus();
  }

  absl::Status loop() {
    for (;;) {
      if (newest_ - oldest_ < depth_) {
        absl::StatusOr<bool> launched = launchNext();
        if (!launched.ok())
          return launched.status();
        if (*launched)
          continue;
      }
      if (inFlightEmpty())
        return absl::OkStatus();
      if (absl::Status status = readOldest(); !status.ok())
        return status;
    }
  }

  bool inFlightEmpty() const { return oldest_ == newest_; }
  bool done(const Sequence &sequence) const { return sequence.stopped || sequence.sampled == request_.maxNewTokens; }

  // Decoding sequences get a row each; what is left of the largest bucket goes to prompts, in the order of the request.
  // False if there is nothing to launch.
  absl::StatusOr<bool> launchNext() {
    rows_.clear();
    const size_t at = newest_ % kInFlight;
    InFlight &next = inFlight_[at];
    next.sampledOf.clear();
    int64_t tokens = 0, context = 0;
    const bool promptsOnly = request_.separatePrefill && anyPromptLeft();
    if (!promptsOnly)
      for (size_t s = 0; s < sequences_.size(); ++s)
        if (!done(sequences_[s]) && sequences_[s].promptLeft() == 0)
          if (absl::Status status = addRows(s, nextInput(s), next, tokens, context); !status.ok())
            return status;
    bool prefill = false;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const int64_t left = sequences_[s].promptLeft();
      const int64_t chunk = mixedTokens_ == 0 ? std::min<int64_t>(left, 1) : std::min(left, mixedTokens_ - tokens);
      if (left == 0 || chunk <= 0)
        continue;
      prefill = true;
      const absl::Span<const int32_t> ids =
          absl::MakeConstSpan(*sequences_[s].prompt)
              .subspan(static_cast<size_t>(sequences_[s].rows), static_cast<size_t>(chunk));
      if (absl::Status status = addRows(s, ids, next, tokens, context); !status.ok())
        return status;
    }
    if (rows_.empty())
      return false;
    absl::StatusOr<uint32_t> variant = runtime_.choose(tokens, static_cast<int64_t>(rows_.size()), context);
    if (!variant.ok())
      return variant.status();
    if (absl::Status status = core::writeMeta(plan_.metaLayout, plan_.blockTokens, rows_, device_.meta()); !status.ok())
      return status;
    next.variant = *variant;
    next.launchNs = device_.nowNs();
    if (absl::Status status = runtime_.launch(*variant); !status.ok())
      return status;
    next.number = runtime_.launched();
    ++newest_;
    ++result_.iterations;
    result_.prefillIterations += prefill;
    return true;
  }

  bool anyPromptLeft() const {
    return std::any_of(sequences_.begin(), sequences_.end(), [](const Sequence &s) { return s.promptLeft() != 0; });
  }

  // The token that a decoding sequence feeds in: itself if it was read, else where the device keeps it.
  absl::Span<const int32_t> nextInput(size_t s) {
    const std::vector<int32_t> &read = result_.tokens[s];
    const bool known = static_cast<int64_t>(read.size()) == sequences_[s].sampled;
    decodeIds_[s] = known ? read.back() : -1 - sequences_[s].slot;
    return absl::MakeConstSpan(&decodeIds_[s], 1);
  }

  absl::Status addRows(size_t s, absl::Span<const int32_t> ids, InFlight &iteration, int64_t &tokens,
                       int64_t &context) {
    Sequence &sequence = sequences_[s];
    const int64_t after = sequence.rows + static_cast<int64_t>(ids.size());
    if (absl::Status status = blocks_.grow(sequence.blocks, after); !status.ok())
      return status;
    const bool sample = after >= static_cast<int64_t>(sequence.prompt->size());
    rows_.push_back({.tokens = ids,
                     .firstPosition = sequence.rows,
                     .blocks = sequence.blocks,
                     .sample = sample,
                     .requestSlot = sequence.slot,
                     .temperature = request_.sampling.temperature,
                     .topP = request_.sampling.topP,
                     .seed = request_.sampling.seed + s});
    sequence.rows = after;
    if (sample) {
      ++sequence.sampled;
      iteration.sampledOf.push_back(s);
    }
    tokens += static_cast<int64_t>(ids.size());
    context = std::max(context, after);
    return absl::OkStatus();
  }

  absl::Status readOldest() {
    const InFlight &iteration = inFlight_[oldest_ % kInFlight];
    ++oldest_;
    absl::StatusOr<absl::Span<const int32_t>> tokens = runtime_.awaitTokens();
    if (!tokens.ok())
      return tokens.status();
    if (tokens->size() != iteration.sampledOf.size())
      return absl::InternalError(absl::StrCat("iteration ", iteration.number, ": ", tokens->size(),
                                              " tokens, expected ", iteration.sampledOf.size()));
    const int64_t visibleNs = device_.tokensVisibleNs(iteration.number);
    if (request_.keepLogits)
      if (absl::Status status = keepLogits(iteration); !status.ok())
        return status;
    for (size_t i = 0; i < tokens->size(); ++i)
      accept(iteration.sampledOf[i], (*tokens)[i], visibleNs);
    if (request_.onIteration)
      request_.onIteration(iteration.variant, visibleNs - std::max(iteration.launchNs, lastVisibleNs_));
    lastVisibleNs_ = visibleNs;
    return absl::OkStatus();
  }

  void accept(size_t s, int32_t token, int64_t visibleNs) {
    Sequence &sequence = sequences_[s];
    std::vector<int32_t> &out = result_.tokens[s];
    out.push_back(token);
    if (out.size() == 1) {
      result_.firstTokenNs[s] = visibleNs - startNs_;
    } else {
      gapNs_ += visibleNs - lastTokenNs_[s];
      ++gaps_;
    }
    lastTokenNs_[s] = visibleNs;
    sequence.stopped =
        std::find(request_.stopTokens.begin(), request_.stopTokens.end(), token) != request_.stopTokens.end();
    if (sequence.stopped || static_cast<int64_t>(out.size()) == request_.maxNewTokens)
      blocks_.release(sequence.blocks);
  }

  absl::Status keepLogits(const InFlight &iteration) {
    const uint64_t vocab = static_cast<uint64_t>(plan_.model.vocab);
    const plan::Operand &logits = logits_[plan_.variants[iteration.variant].schedule];
    for (size_t i = 0; i < iteration.sampledOf.size(); ++i) {
      std::vector<float> &out = result_.logits[iteration.sampledOf[i]];
      const size_t before = out.size();
      out.resize(before + vocab);
      absl::Span<std::byte> bytes(reinterpret_cast<std::byte *>(out.data() + before), vocab * sizeof(float));
      if (absl::Status status = device_.readDevice(logits.address + i * vocab * sizeof(float), bytes); !status.ok())
        return status;
    }
    return absl::OkStatus();
  }

  void finish(const core::DeviceCounters &before) {
    double first = 0;
    for (int64_t ns : result_.firstTokenNs)
      first += static_cast<double>(ns);
    result_.ttftMs = first / static_cast<double>(result_.firstTokenNs.size()) * 1e-6;
    result_.tpotMs = gaps_ == 0 ? 0 : static_cast<double>(gapNs_) / static_cast<double>(gaps_) * 1e-6;
    result_.counters = device_.counters();
    result_.counters.launches -= before.launches;
    result_.counters.h2dBytes -= before.h2dBytes;
    result_.counters.d2hBytes -= before.d2hBytes;
    result_.counters.stallNs -= before.stallNs;
  }

  core::Runtime &runtime_;
  const plan::Plan &plan_;
  core::Device &device_;
  const GenerateRequest &request_;
  const size_t depth_;
  KvBlocks blocks_;
  int64_t mixedTokens_ = 0; // the largest bucket that takes several rows a sequence

  std::vector<Sequence> sequences_;
  std::vector<core::SequenceRows> rows_; // of the iteration being composed
  std::vector<int32_t> decodeIds_;       // one a sequence
  std::array<InFlight, kInFlight> inFlight_;
  size_t newest_ = 0, oldest_ = 0;    // launched, read
  std::vector<plan::Operand> logits_; // one a schedule, if kept

  GenerateResult result_;
  std::vector<int64_t> lastTokenNs_;
  int64_t startNs_ = 0, lastVisibleNs_ = 0, gapNs_ = 0, gaps_ = 0;
};

} // namespace

absl::StatusOr<GenerateResult> generate(core::Runtime &runtime, const GenerateRequest &request) {
  if (absl::Status status = checkRequest(runtime.plan(), request); !status.ok())
    return status;
  return Engine(runtime, request).run();
}

} // namespace headrace::serve
