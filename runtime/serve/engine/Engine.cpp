// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/Engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/engine/Expansion.h"
#include "runtime/serve/engine/WrongLogits.h"

namespace headrace::serve {
namespace {

absl::Status refuse(const std::string &message) { return absl::InvalidArgumentError(message); }

// Tails that stay over an iteration's edge have to be brought anew once blocks were moved: few of all, and no cycle of
// iterations that would begin again.
bool mayCompact(const plan::Plan &plan, uint32_t placement) {
  for (const plan::Schedule &schedule : plan.schedules)
    if (schedule.placement == placement && schedule.period > 1)
      return false;
  size_t most = 0;
  for (const plan::State &state : plan.states)
    if (state.placement == placement)
      most = std::max(most, static_cast<size_t>(std::count_if(
                                state.contents.begin(), state.contents.end(), [&](const plan::Content &content) {
                                  return plan.buffers[content.buffer].kind == plan::BufferKind::Kv;
                                })));
  return most <= std::max<size_t>(1, static_cast<size_t>(plan.model->layers) * plan.miniBatches / 8);
}

} // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::create(const Executor &on, EngineOptions options) {
  core::Runtime &runtime = on.first();
  const plan::Plan &plan = on.plan();
  RETURN_IF_ERROR(checkEngineOptions(on, options));
  const int64_t seqs = options.maxNumSeqs == 0 ? engineBounds(plan).maxNumSeqs : options.maxNumSeqs;
  const auto turns = static_cast<int64_t>(on.microBatches());
  const int64_t ofOne = (ofOneMiniBatch(plan, seqs) + turns - 1) / turns; // of a micro-batch
  const auto watermark = static_cast<int64_t>(options.watermark * static_cast<double>(plan.mostContextBlocks()));
  const SchedulerLimits limits{.maxNumSeqs = ofOne,
                               .blockTokens = plan.blockTokens,
                               .watermarkBlocks = watermark,
                               .prefill = options.prefill,
                               .batching = options.batching,
                               .context = plan.maxContext};
  // Swap space takes keys and values.
  const bool swaps = !on.isStaged() && options.preemption != Preemption::Recompute &&
                     options.batching == Batching::Continuous && plan.actBlocks == 0;
  const uint64_t slot = plan::movedBlockBytes(plan);
  const uint64_t swapBytes = swaps ? options.swapBytes / slot * slot : 0;
  if (swapBytes > 0)
    RETURN_IF_ERROR(runtime.device().reserveSwap(swapBytes));
  std::unique_ptr<Engine> engine(new Engine(on, std::move(options), seqs, limits, swapBytes));
  engine->budgets_ = engine->mostRows_ = mixedBuckets(plan, ofOne);
  if (on.isStaged()) { // each takes the placement that it has for the size; what all of them hold
    int64_t most = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < on.stages(); ++i) {
      const std::vector<int64_t> of = mixedBuckets(on.stage(i).plan(), ofOne);
      most = std::min(most, *std::max_element(of.begin(), of.end()));
    }
    engine->budgets_.assign(engine->budgets_.size(), most);
  }
  engine->beginExpansion();
  if (const int64_t most = engine->options_.maxNumBatchedTokens; most > 0)
    for (int64_t &budget : engine->budgets_)
      budget = std::min(budget, most);
  if (engine->options_.logits)
    RETURN_IF_ERROR(engine->logits_.prepare(on.last().plan(), on.last().device()));
  return engine;
}

Engine::Engine(const Executor &on, EngineOptions options, int64_t maxNumSeqs, const SchedulerLimits &limits,
               uint64_t swapBytes)
    : on_(on), runtime_(on.first()), plan_(on.plan()), device_(runtime_.device()), options_(std::move(options)),
      maxNumSeqs_(maxNumSeqs), limits_(limits), scheduler_(limits), padded_(plan_), swap_(plan_, swapBytes),
      swapPrice_(plan_), miniBatches_(on.microBatches() * plan_.miniBatches),
      depth_(on.isStaged() ? 1 : options_.depth), underWay_(on.microBatches(), 0), rows_(miniBatches_.size()),
      inFlight_(std::max<size_t>(2, on.microBatches())) {
  for (uint32_t p = 0; p < plan_.placements.size(); ++p) {
    const plan::CacheMap &caches = runtime_.caches(p);
    compacts_.push_back(!on.isStaged() && (caches.actsOnHost() || caches.split()) && mayCompact(plan_, p));
  }
  const auto ofOne = static_cast<size_t>(limits.maxNumSeqs), seqs = ofOne * miniBatches_.size();
  const int64_t seats = ofOneMiniBatch(plan_, maxNumSeqs);
  for (uint32_t i = 0; i < miniBatches_.size(); ++i) {
    MiniBatch &one = miniBatches_[i];
    one.number = i % plan_.miniBatches;
    one.blocks = &runtime_.kvBlocks(one.number);
    int64_t first = 0; // request slots of all micro-batches are apart
    for (size_t before = 0; before < i / plan_.miniBatches; ++before)
      first += seatsOfMicroBatch(seats, on.microBatches(), before);
    for (int64_t slot = first + seatsOfMicroBatch(seats, on.microBatches(), i / plan_.miniBatches); slot-- > first;)
      one.freeSlots.push_back(static_cast<int32_t>(slot));
    one.views.reserve(ofOne);
    one.composition.clear(ofOne); // takes the room that iterations need
    one.rows.reserve(ofOne);
  }
  cancelled_.reserve(seqs); // the two take turns
  cancels_.reserve(seqs);
  told_.reserve(seqs);
  for (InFlight &iteration : inFlight_)
    iteration.rows.reserve(seqs);
  wrong_.reserve(inFlight_.size() * seqs);
  moving_.reserve(static_cast<size_t>(std::min(swap_.slots(), plan_.miniBatches * plan_.kvBlocks))); // each has a block
}

Engine::~Engine() {
  for (; oldest_ != newest_; ++oldest_) {
    const EngineIteration &launched = oldestInFlight().launched;
    (void)on_.await({launched.number, launched.variant});
  }
  for (const Sequence *one : moving_)
    if (one->swapTicket != 0)
      (void)device_.awaitCopied(one->swapTicket);
  for (Sequences *sequences : {&waiting_, &leaving_, &kept_})
    for (Sequence &sequence : *sequences)
      poolOf(sequence).release(sequence.blocks);
  for (MiniBatch &one : miniBatches_)
    for (Sequence &sequence : one.running)
      one.blocks->release(sequence.blocks);
  if (expansion_)
    for (MiniBatch &one : miniBatches_)
      one.blocks->setOffered(plan_.kvBlocks);
  if (swap_.slots() > 0)
    (void)device_.reserveSwap(0);
}

absl::Status Engine::refuses(const EngineRequest &request) const {
  RETURN_IF_ERROR(checkRequest(plan_, request));
  if (request.keepLogits && !options_.logits)
    return absl::FailedPreconditionError("the request keeps logits, the engine was made without");
  const int64_t longest = *std::max_element(budgets_.begin(), budgets_.end());
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  if (isStatic() && request.continues != 0)
    return refuse("the request continues another, expected continuous batching: static batches pad whole prompts");
  if (options_.prefill == Prefill::Whole && tokens > std::max<int64_t>(longest, 1))
    return refuse(absl::StrCat("the prompt has ", tokens, " tokens, without chunked prefill an iteration holds ",
                               std::max<int64_t>(longest, 1)));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Engine::submit(EngineRequest request) {
  RETURN_IF_ERROR(refuses(request));
  return enlist(std::move(request), inbox_);
}

absl::StatusOr<uint64_t> Engine::enlist(EngineRequest request, Sequences &into) {
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  request.prompt.reserve(request.prompt.size() + static_cast<size_t>(request.maxNewTokens));
  const std::scoped_lock lock(mutex_);
  if (closed_)
    return absl::FailedPreconditionError("the engine was shut down, it takes no more requests");
  if (request.continues != 0 && isLive(request.continues))
    return absl::FailedPreconditionError(
        absl::StrCat("request ", request.continues, ", which is to be continued, has not ended"));
  if (free_.empty()) {
    const auto most = static_cast<size_t>(plan_.metaLayout.maxBlocksPerSequence);
    free_.emplace_back().blocks.reserve(most);
    free_.back().swapSlots.reserve(swap_.slots() > 0 ? most : 0);
  }
  Sequence &sequence = free_.front();
  std::vector<int32_t> blocks = std::move(sequence.blocks), slots = std::move(sequence.swapSlots);
  sequence = Sequence{.id = nextId_++,
                      .ids = std::move(request.prompt),
                      .promptTokens = tokens,
                      .maxNewTokens = request.maxNewTokens,
                      .sampling = request.sampling,
                      .stopTokens = std::move(request.stopTokens),
                      .keepLogits = request.keepLogits,
                      .keepBlocks = request.keepBlocks && plan_.actBlocks == 0,
                      .continues = request.continues,
                      .prefill = tokens,
                      .blocks = std::move(blocks),
                      .swapSlots = std::move(slots),
                      .self = free_.begin()};
  if (liveFrom_ > live_.size() / 2) {
    live_.erase(live_.begin(), live_.begin() + static_cast<std::ptrdiff_t>(liveFrom_));
    liveFrom_ = 0;
  }
  live_.push_back(sequence.id);
  into.splice(into.end(), free_, sequence.self);
  return sequence.id;
}

bool Engine::isLive(uint64_t id) const {
  return std::binary_search(live_.begin() + static_cast<std::ptrdiff_t>(liveFrom_), live_.end(), id);
}

absl::Status Engine::cancel(uint64_t id) {
  const std::scoped_lock lock(mutex_);
  if (!isLive(id))
    return absl::NotFoundError(absl::StrCat("request ", id, " is not known: it was not submitted, or has ended"));
  cancels_.push_back(id);
  return absl::OkStatus();
}

void Engine::shutdown() {
  const std::scoped_lock lock(mutex_);
  closed_ = true;
}

absl::StatusOr<bool> Engine::step(int64_t untilNs) {
  RETURN_IF_ERROR(broken_);
  absl::StatusOr<bool> done = advance(untilNs);
  broken_ = done.status();
  return done;
}

absl::StatusOr<bool> Engine::launch(const EngineEdge &edge) {
  RETURN_IF_ERROR(broken_);
  absl::StatusOr<bool> launched = launchAt(edge);
  broken_ = launched.status();
  return launched;
}

absl::Status Engine::read() {
  RETURN_IF_ERROR(broken_);
  if (inFlight() == 0)
    return absl::FailedPreconditionError("no iteration is in flight");
  return broken_ = readOldest();
}

uint64_t Engine::oldestNumber() const { return inFlight() == 0 ? 0 : oldestInFlight().launched.number; }

absl::StatusOr<bool> Engine::advance(int64_t untilNs) {
  takeIn();
  RETURN_IF_ERROR(pollSwaps());
  if (mayLaunch()) {
    ASSIGN_OR_RETURN(launched, launchNext());
    if (launched)
      return true;
  }
  if (inFlight() == 0) {
    if (!swapping())
      return false;
    RETURN_IF_ERROR(awaitSwap());
    return true;
  }
  ASSIGN_OR_RETURN(there, on_.waitUntil(untilNs));
  if (there)
    RETURN_IF_ERROR(readOldest());
  return true;
}

void Engine::takeIn() {
  {
    const std::scoped_lock lock(mutex_);
    waiting_.splice(waiting_.end(), inbox_);
    cancelled_.swap(cancels_);
    free_.splice(free_.end(), done_);
  }
  for (const uint64_t id : cancelled_)
    cancelNow(id);
  cancelled_.clear();
}

size_t Engine::running() const {
  size_t count = 0;
  for (const MiniBatch &one : miniBatches_)
    count += one.running.size();
  return count;
}

size_t Engine::seated() const {
  const auto countIn = [&](const Sequences &sequences) {
    return static_cast<size_t>(std::count_if(sequences.begin(), sequences.end(), [&](const Sequence &s) {
      return s.joined && !s.ended && s.seatedFrom <= oldest_;
    }));
  };
  size_t count = countIn(leaving_);
  for (const MiniBatch &one : miniBatches_)
    count += countIn(one.running);
  return count;
}

void Engine::cancelNow(uint64_t id) {
  const auto endIn = [&](Sequences &sequences) {
    for (Sequence &sequence : sequences)
      if (sequence.id == id && !sequence.ended) {
        end(sequence, EndReason::Cancelled, device_.nowNs());
        return true;
      }
    return false;
  };
  for (MiniBatch &one : miniBatches_)
    if (endIn(one.running))
      return;
  (void)(endIn(waiting_) || endIn(leaving_));
}

absl::Status Engine::readOldest() {
  RETURN_IF_ERROR(readOne());
  if (wrong_.empty())
    return absl::OkStatus();
  while (inFlight() > 0) // the second pass has the device to itself
    RETURN_IF_ERROR(readOne());
  RETURN_IF_ERROR(finishSwaps());
  reportWrong();
  return absl::OkStatus();
}

absl::Status Engine::readOne() {
  InFlight &iteration = oldestInFlight();
  ++oldest_;
  --underWay_[iteration.microBatch];
  ASSIGN_OR_RETURN(awaited, on_.await({iteration.launched.number, iteration.launched.variant}));
  const absl::Span<const int32_t> tokens = awaited.tokens;
  const auto sampled = static_cast<size_t>(
      std::count_if(iteration.rows.begin(), iteration.rows.end(), [](const Rows &rows) { return rows.sample; }));
  if (tokens.size() != sampled)
    return absl::InternalError(
        absl::StrCat("iteration ", iteration.launched.number, ": ", tokens.size(), " tokens, expected ", sampled));
  iteration.launched.visibleNs = awaited.visibleNs;
  iteration.launched.variant = awaited.variant;
  const size_t wrongBefore = wrong_.size();
  told_.clear();
  if (options_.tellRows)
    for (const Rows &rows : iteration.rows)
      told_.push_back({rows.sequence->id, rows.firstPosition, rows.count, rows.sample});
  iteration.launched.rows = told_;
  size_t index = 0, first = 0; // of the tokens; of those of the mini-batch
  for (size_t r = 0; r < iteration.rows.size(); ++r) {
    const Rows &rows = iteration.rows[r];
    Sequence &sequence = *rows.sequence;
    --sequence.inFlight;
    if (r > 0 && rows.miniBatch != iteration.rows[r - 1].miniBatch)
      first = index;
    const size_t i = index;
    index += rows.sample;
    if (sequence.ended) {
      counters_.thrownAwayRows += static_cast<uint64_t>(rows.count);
      settle(sequence);
    } else if (rows.sample && tokens[i] == kernels::kNotFinite) {
      wrong_.push_back(
          {&sequence, rows.firstPosition + rows.count, iteration.launched.placement, 0, iteration.launched.visibleNs});
      sequence.ended = true; // told with the report
      ++sequence.inFlight;
      leave(sequence);
    } else if (rows.sample) {
      RETURN_IF_ERROR(accept(sequence, tokens[i], i - first, iteration.launched));
    }
  }
  adapt(iteration.launched);
  for (size_t w = wrongBefore; w < wrong_.size(); ++w)
    wrong_[w].others = wrong_.size() - wrongBefore - 1;
  if (options_.onIteration)
    options_.onIteration(iteration.launched);
  return absl::OkStatus();
}

absl::Status Engine::accept(Sequence &sequence, int32_t token, size_t index, const EngineIteration &iteration) {
  if (sequence.keepLogits) {
    keptRow_.clear();
    RETURN_IF_ERROR(
        logits_.read(on_.last().plan(), on_.last().device(), iteration.variant, numberOf(sequence), index, keptRow_));
  }
  sequence.ids.push_back(token);
  const bool stop =
      std::find(sequence.stopTokens.begin(), sequence.stopTokens.end(), token) != sequence.stopTokens.end();
  if (options_.onToken)
    options_.onToken({sequence.id, token, iteration.visibleNs,
                      sequence.keepLogits ? absl::MakeConstSpan(keptRow_) : absl::Span<const float>()});
  if (stop || sequence.read() == sequence.maxNewTokens)
    end(sequence, stop ? EndReason::Stop : EndReason::Length, iteration.visibleNs);
  return absl::OkStatus();
}

void Engine::reportWrong() {
  std::sort(wrong_.begin(), wrong_.end(), [](const Wrong &a, const Wrong &b) {
    return a.ns != b.ns ? a.ns < b.ns : a.sequence->id < b.sequence->id;
  });
  for (const Wrong &wrong : wrong_) {
    Sequence &sequence = *wrong.sequence;
    const std::string message = wrongLogitsMessage(
        wrong.position, wrong.others,
        on_.isStaged() ? "which step made them is not looked for over stages"
                       : firstWrongStep(runtime_, sequence.ids, numberOf(sequence), sequence.blocks, wrong.placement,
                                        std::max<int64_t>(mostRows_[wrong.placement], 1)));
    --sequence.inFlight;
    end(sequence, EndReason::Failed, wrong.ns, absl::AbortedError(message));
  }
  wrong_.clear();
}

void Engine::end(Sequence &sequence, EndReason reason, int64_t ns, absl::Status why) {
  sequence.ended = true;
  if (!sequence.joined) {
    takeOverNow(sequence);
    leaving_.splice(leaving_.end(), waiting_, sequence.self);
  }
  if (!isStatic() || reason == EndReason::Failed)
    leave(sequence);
  EngineEnd told{sequence.id, reason, ns, sequence.startNs, sequence.preemptions, sequence.reused, std::move(why)};
  settle(sequence);
  leaveTogether();
  {
    const std::scoped_lock lock(mutex_);
    // Those before it are few, as they came earlier.
    const auto first = live_.begin() + static_cast<std::ptrdiff_t>(liveFrom_++);
    const auto at = std::lower_bound(first, live_.end(), told.request);
    std::move_backward(first, at, at + 1);
  }
  if (options_.onEnd)
    options_.onEnd(told);
}

// Its seat is free, and its request slot: launches run one after another, so what comes to write the slot comes after
// what is in flight has read it.
void Engine::leave(Sequence &sequence) {
  if (sequence.slot < 0)
    return;
  MiniBatch &of = miniBatches_[sequence.miniBatch];
  of.freeSlots.push_back(sequence.slot);
  sequence.slot = -1;
  leaving_.splice(leaving_.end(), of.running, sequence.self);
}

// Of a static batch: all tokens of all of it are there, or on their way.
bool Engine::isOver(const MiniBatch &of) const {
  return isStatic() && std::all_of(of.running.begin(), of.running.end(),
                                   [](const Sequence &s) { return s.ended || s.sampled >= s.maxNewTokens; });
}

// A static batch leaves once all of its mini-batches are over.
void Engine::leaveTogether() {
  if (!std::all_of(miniBatches_.begin(), miniBatches_.end(), [this](const MiniBatch &one) { return isOver(one); }))
    return;
  for (MiniBatch &one : miniBatches_)
    while (!one.running.empty()) {
      Sequence &sequence = one.running.front();
      leave(sequence);
      if (sequence.ended)
        settle(sequence);
    }
}

// Gives back what an ended sequence has once it has left and nothing in flight uses it.
void Engine::settle(Sequence &sequence) {
  if (sequence.inFlight > 0 || sequence.slot >= 0 || sequence.moves())
    return;
  if (sequence.away == Away::Swapped) { // its blocks are gone
    swap_.giveBack(sequence.swapSlots);
    sequence.away = Away::No;
    sequence.rows = 0;
  }
  if (sequence.keepBlocks)
    return kept_.splice(kept_.end(), leaving_, sequence.self);
  poolOf(sequence).release(sequence.blocks);
  done_.splice(done_.end(), leaving_, sequence.self);
}

} // namespace headrace::serve
