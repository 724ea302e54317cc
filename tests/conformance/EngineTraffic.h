// SPDX-License-Identifier: Apache-2.0
//
// Requests that come and go at random on random plans: seats, budgets, ways of prefill, continuous and static batches,
// few KV blocks, split caches, preemption by swapping, stop tokens, cancellations, changes of placement, conversations
// that go on in the blocks of the turn before. A request's tokens are, bit for bit, those of the request alone, one row
// at a time on the all-resident plan with one mini-batch, and every KV block has one owner (ShadowKv.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "passes/algorithms/PickLayers.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/serve/engine/Engine.h"
#include "tests/conformance/ShadowKv.h"
#include "tests/support/LongRun.h"
#include "tests/support/RandomSplits.h"

namespace headrace {

using core::Draw;
using serve::EndReason;
using serve::EngineOptions;
using serve::EngineRequest;

// A plan on a device.
struct Loaded {
  plan::Plan plan;
  std::shared_ptr<core::Device> device;
  std::unique_ptr<core::Runtime> runtime;

  static std::unique_ptr<Loaded> load(const compiler::CompileRequest &asked, std::shared_ptr<core::Device> device) {
    auto plan = compiler::compile(asked);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok())
      return nullptr;
    auto out = std::make_unique<Loaded>(Loaded{*std::move(plan), std::move(device), nullptr});
    const auto weights = model::syntheticWeights(1);
    auto runtime = core::Runtime::load(out->plan, *out->device, {}, weights.get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    if (!runtime.ok())
      return nullptr;
    out->runtime = *std::move(runtime);
    return out;
  }
};

// Of a request that has the device to itself, a row an iteration: nothing of this is the engine's.
inline std::vector<int32_t> alone(Loaded &on, const EngineRequest &request) {
  std::vector<int32_t> ids = request.prompt, blocks;
  for (int64_t p = 0;; ++p) {
    EXPECT_TRUE(on.runtime->kvBlocks().grow(blocks, p + 1).ok());
    const auto variant = on.runtime->choose(1, 1, p + 1);
    EXPECT_TRUE(variant.ok()) << variant.status();
    const core::SequenceRows rows{.tokens = {&ids[static_cast<size_t>(p)], 1},
                                  .firstPosition = p,
                                  .blocks = blocks,
                                  .sample = true,
                                  .temperature = request.sampling.temperature,
                                  .topP = request.sampling.topP,
                                  .seed = request.sampling.seed,
                                  .topK = static_cast<int32_t>(request.sampling.topK),
                                  .minP = request.sampling.minP,
                                  .repetition = request.sampling.repetitionPenalty,
                                  .presence = request.sampling.presencePenalty,
                                  .frequency = request.sampling.frequencyPenalty,
                                  .promptTokens = static_cast<int64_t>(request.prompt.size())};
    EXPECT_TRUE(core::writeMeta(on.plan.metaLayout, on.plan.blockTokens, {&rows, 1}, on.device->meta()).ok());
    EXPECT_TRUE(on.runtime->launch(*variant).ok());
    const auto tokens = on.runtime->awaitTokens();
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    if (p + 1 < static_cast<int64_t>(request.prompt.size()))
      continue;
    ids.push_back((*tokens)[0]);
    const bool stop = std::count(request.stopTokens.begin(), request.stopTokens.end(), ids.back()) > 0;
    if (stop || ids.size() == request.prompt.size() + static_cast<size_t>(request.maxNewTokens))
      break;
  }
  on.runtime->kvBlocks().release(blocks);
  return {ids.begin() + static_cast<ptrdiff_t>(request.prompt.size()), ids.end()};
}

struct Seen {
  uint64_t iterations = 0, requests = 0, cases = 0, talks = 0, cancelled = 0, preemptions = 0, thrownAway = 0,
           padded = 0, changes = 0, chunked = 0, rowsChecked = 0, continued = 0, reused = 0, swapsOut = 0, swapsIn = 0,
           swapFallbacks = 0, withEmpty = 0, uneven = 0, offers = 0, compacted = 0, compactedActs = 0, grown = 0,
           shrunk = 0;
};

// A random plan with few KV blocks, in one to three placements.
inline compiler::CompileRequest anyPlan(Draw &draw, model::DeviceKind kind, int kvBits = 0) {
  compiler::CompileRequest asked = core::anyModel(draw, kind, kvBits);
  const int64_t context = *asked.goal.context, batch = *asked.goal.batch;
  asked.goal.kvTokens = draw.between(context, std::max(context, context * batch * 2 / 3));
  if (batch > 1 && draw.oneIn(2)) // room for a conversation beside whoever runs
    asked.goal.kvTokens =
        2 * ((context + asked.goal.blockTokens - 1) / asked.goal.blockTokens) * asked.goal.blockTokens;
  const int64_t blocks = *asked.goal.kvTokens / asked.goal.blockTokens;
  const bool split = draw.oneIn(2);
  for (int64_t left = draw.between(1, 3); left > 0; --left) {
    asked.placements.push_back(
        split ? core::anySplit(draw, asked.model, std::max<int64_t>(1, blocks - 1))
              : compiler::stated(asked.model, {left == 1 ? compiler::none() : compiler::interval(left - 1)}).front());
    asked.placements.back().name += " " + std::to_string(left);
  }
  Draw acts = draw;              // what else is drawn is the same with them and without
  if (acts.between(1, 5) == 2) { // with activation blocks, and so many fewer of keys and values
    const model::ActRatio share = acts.oneOf({model::ActRatio{1, 3}, model::ActRatio{1, 2}, model::ActRatio{3, 4}});
    const int64_t longest = (context + asked.goal.blockTokens - 1) / asked.goal.blockTokens;
    const int64_t kv = model::blocksOfKinds(share, blocks, batch, longest).kv;
    const int64_t away = acts.oneIn(2) ? asked.model->layers : acts.between(0, asked.model->layers);
    if (kv > 1) {
      asked.policy.actRatio = share;
      for (compiler::Candidate &candidate : asked.placements) {
        candidate.residency.setActAway(algorithms::evenLayers(asked.model->layers, away));
        if (const auto first = candidate.residency.firstKvBlockAway())
          candidate.residency.setKvAway(asked.model->layers, std::min<int64_t>(*first, kv - 1));
      }
    }
  }
  return asked;
}

// Layers' caches swapped whole through places, few and large ones or many and small ones: the engine goes from some to
// others as it runs.
inline compiler::CompileRequest anyPlaces(Draw &draw, model::DeviceKind kind, int kvBits = 0) {
  compiler::CompileRequest asked = core::anyModel(draw, kind, kvBits);
  model::ModelSpec spec = asked.model;
  spec.layers = draw.between(4, 6);
  asked.model = spec;
  asked.policy.name = "pie";
  asked.policy.none = true;
  asked.goal.expansion = model::kAutoExpansion;
  const int64_t sequence = (*asked.goal.context + asked.goal.blockTokens - 1) / asked.goal.blockTokens + 1;
  const model::Encoding kv = kvBits > 0                        ? model::Encoding::groups(kvBits, 32)
                             : kind == model::DeviceKind::Host ? model::DType::F32
                                                               : spec.dtype;
  const uint64_t block = kv.bytes(2 * spec.kvHeads * asked.goal.blockTokens, spec.headDim);
  asked.goal.kvDeviceMemory =
      static_cast<uint64_t>(spec.layers) * model::alignUp(static_cast<uint64_t>(sequence + draw.between(0, 3)) * block);
  return asked;
}

inline EngineOptions anyOptions(Draw &draw, const compiler::CompileRequest &asked) {
  EngineOptions options;
  options.maxNumSeqs = draw.oneIn(2) ? 0 : draw.between(1, *asked.goal.batch);
  options.maxNumBatchedTokens = draw.oneIn(2) ? 0 : draw.between(*asked.goal.batch / asked.goal.miniBatches, 5);
  options.watermark = draw.oneOf({0.0, 0.01, 0.2});
  options.prefill = draw.oneOf({serve::Prefill::Chunked, serve::Prefill::Separate, serve::Prefill::Whole});
  options.batching = draw.oneIn(3) ? serve::Batching::Static : serve::Batching::Continuous;
  options.depth = draw.oneIn(4) ? 1 : 2;
  return options;
}

// Swap memory of few blocks or of many; of none no sequence is swapped.
inline void anySwap(Draw &draw, const plan::Plan &plan, EngineOptions &options) {
  if (plan.actBlocks > 0) // of keys and values alone
    return;
  const int64_t blocks = draw.oneIn(4) ? 0 : draw.oneIn(2) ? draw.between(1, 3) : plan.kvBlocks;
  options.swapBytes = static_cast<uint64_t>(blocks) * plan::movedBlockBytes(plan);
  options.preemption = blocks == 0 || draw.oneIn(4)
                           ? draw.oneOf({serve::Preemption::Recompute, serve::Preemption::Auto})
                           : serve::Preemption::Swap;
}

inline EngineRequest anyRequest(Draw &draw, int64_t context, int64_t longest) {
  EngineRequest request;
  request.maxNewTokens = draw.between(1, std::min<int64_t>(context - 1, 24));
  for (int64_t left = draw.between(1, std::min(longest, context - request.maxNewTokens)); left > 0; --left)
    request.prompt.push_back(static_cast<int32_t>(draw.between(0, 149)));
  if (draw.oneIn(2)) // of 150 tokens 10 end it
    for (int32_t token = 0; token < 10; ++token)
      request.stopTokens.push_back(token);
  if (draw.oneIn(2))
    request.sampling = {.temperature = 0.8f, .topP = 0.9f, .seed = static_cast<uint64_t>(draw.between(0, 999))};
  if (draw.oneIn(2)) { // of all that it has had: however it was prefilled, and wherever that lies
    request.sampling.topK = draw.between(0, 60);
    request.sampling.minP = draw.oneOf({0.0f, 0.02f});
    request.sampling.repetitionPenalty = draw.oneOf({1.0f, 0.8f, 1.3f});
    request.sampling.presencePenalty = draw.oneOf({0.0f, 0.5f, -0.5f});
    request.sampling.frequencyPenalty = draw.oneOf({0.0f, 0.25f});
  }
  return request;
}

// One engine with requests that come and go, against what each of them gives alone.
class Traffic {
public:
  Traffic(Draw &draw, const compiler::CompileRequest &asked, std::shared_ptr<core::Device> device)
      : draw_(draw), asked_(asked), shadow_(std::make_shared<core::ShadowKv>(std::move(device))) {
    served_ = Loaded::load(asked, shadow_);
  }

  void run(int64_t requests) {
    ASSERT_NE(served_, nullptr);
    EngineOptions options = anyOptions(draw_, asked_);
    anySwap(draw_, served_->plan, options);
    budget_ = options.maxNumBatchedTokens > 0 ? options.maxNumBatchedTokens : asked_.buckets.newTokens.back();
    batching_ = options.batching;
    // A static batch has several requests where they come often, and each takes a part of the blocks.
    const bool inBatches = batching_ == serve::Batching::Static;
    const int64_t context = std::max<int64_t>(2, *asked_.goal.context / (inBatches ? 2 : 1));
    const int64_t longest = options.prefill == serve::Prefill::Whole ? budget_ : context;
    adapts_ = asked_.goal.expansion.has_value() && !inBatches;
    if (adapts_)
      options.expansion = {.window = 2, .judgedWindows = 1, .lookAgain = 2};
    else
      options.placementOf = [&](const plan::IterationSize &) { return anyPlacement(); };
    options.onToken = [&](const serve::EngineToken &token) { asked(token.request).tokens.push_back(token.token); };
    options.onEnd = [&](const serve::EngineEnd &end) {
      Asked &one = asked(end.request);
      EXPECT_FALSE(one.end.has_value()) << "request " << end.request << " ended twice";
      EXPECT_TRUE(end.why.ok()) << end.why;
      one.end = end.reason;
      one.reused = end.reusedTokens;
      seen.reused += static_cast<uint64_t>(end.reusedTokens);
      --live_;
    };
    auto engine = serve::Engine::create(*served_->runtime, std::move(options));
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = engine->get();
    const core::KvBlocks &blocks = served_->runtime->kvBlocks();
    int64_t least = blocks.limit();
    for (const plan::Placement &placement : served_->plan.placements)
      least = std::min(least, placement.kvBlocks);
    talks_ = !inBatches && least - 1 >= 2 * blocks.blocksFor(*asked_.goal.context);
    longest_ = std::min(longest, context);
    bool more = true;
    while (more || live_ > 0 || requests > 0) {
      if (requests > 0 && (!more || draw_.oneIn(inBatches ? 2 : 4))) {
        submit(anyTurn(anyRequest(draw_, context, longest)));
        --requests;
      }
      if (live_ > 0 && draw_.oneIn(60))
        cancelAny();
      anyOffer();
      const auto stepped = engine_->step();
      ASSERT_TRUE(stepped.ok()) << stepped.status();
      ASSERT_EQ(shadow_->found(), "");
      more = *stepped;
      checkBlocks();
    }
    const bool keeps = talks_ && served_->plan.actBlocks == 0; // blocks, for whoever continues
    if (keeps) {
      ASSERT_NO_FATAL_FAILURE(goOnAlone());
    }
    engine_->releaseBlocks(talk_);
    EXPECT_FALSE(engine_->swapping());
    for (uint32_t i = 0; i < served_->plan.miniBatches; ++i)
      EXPECT_EQ(served_->runtime->kvBlocks(i).endOfUse(), 1);
    EXPECT_EQ(served_->runtime->missingVariants(), 0u);
    seen.cases = 1;
    seen.talks = keeps;
    seen.iterations = engine_->counters().iterations;
    seen.preemptions = engine_->counters().preemptions;
    seen.thrownAway = batching_ == serve::Batching::Static ? 0 : engine_->counters().thrownAwayRows;
    seen.padded = engine_->counters().paddedRows;
    seen.rowsChecked = shadow_->rowsChecked();
    seen.withEmpty = shadow_->launchesWithEmpty();
    seen.uneven = shadow_->unevenLaunches();
    seen.compacted = engine_->counters().compactedBlocks;
    seen.compactedActs = (served_->plan.actBlocks > 0) ? seen.compacted : 0;
    seen.grown = engine_->counters().expansionsGrown;
    seen.shrunk = engine_->counters().expansionsShrunk;
    seen.swapsOut = engine_->counters().swapsOut;
    seen.swapsIn = engine_->counters().swapsIn;
    seen.swapFallbacks = engine_->counters().swapFallbacks;
  }

  // A request that was cancelled has some of its tokens, all others have all.
  void check(std::shared_ptr<core::Device> device) {
    compiler::CompileRequest resident = asked_;
    resident.placements = compiler::stated(resident.model, {compiler::none()});
    resident.goal.batch = *asked_.goal.batch / asked_.goal.miniBatches;
    if (asked_.goal.expansion) {
      resident.policy = {};
      resident.goal.expansion.reset();
      resident.goal.kvDeviceMemory.reset();
    } else {
      resident.goal.kvTokens = *asked_.goal.kvTokens / asked_.goal.miniBatches;
    }
    resident.goal.miniBatches = 1;
    resident.policy.actRatio.reset();
    resident.policy.actHome = model::ActHome::Auto;
    const auto by = Loaded::load(resident, std::move(device));
    ASSERT_NE(by, nullptr);
    for (const auto &[id, one] : all_) {
      ASSERT_TRUE(one.end.has_value()) << "request " << id << " has no end";
      std::vector<int32_t> expected = alone(*by, one.request);
      if (*one.end == EndReason::Cancelled) {
        ASSERT_LE(one.tokens.size(), expected.size());
        expected.resize(one.tokens.size());
      } else {
        const auto &stops = one.request.stopTokens;
        EXPECT_EQ(*one.end == EndReason::Stop, std::count(stops.begin(), stops.end(), expected.back()) > 0);
      }
      ASSERT_EQ(one.tokens, expected) << "request " << id;
    }
  }

  Seen seen;

private:
  struct Asked {
    EngineRequest request;
    std::vector<int32_t> tokens;
    std::optional<EndReason> end;
    int64_t reused = 0;
  };

  Asked &asked(uint64_t id) { return all_.at(id); }
  // With the row of a token that ended it.
  int64_t blocksOf(const Asked &one) const {
    return served_->runtime->kvBlocks().blocksFor(static_cast<int64_t>(one.request.prompt.size() + one.tokens.size()) +
                                                  (one.request.keepBlocks ? 1 : 0));
  }

  uint32_t anyPlacement() {
    const uint32_t now = served_->runtime->placement();
    const auto to =
        draw_.oneIn(5)
            ? static_cast<uint32_t>(draw_.between(0, static_cast<int64_t>(served_->plan.placements.size()) - 1))
            : now;
    seen.changes += to != now;
    return to;
  }

  // Of the blocks any number may be in use, now more, now less than there are: adaptive expansion, at random.
  void anyOffer() {
    if (batching_ == serve::Batching::Static || adapts_ || !offers_.oneIn(25))
      return;
    for (uint32_t i = 0; i < served_->plan.miniBatches; ++i) {
      core::KvBlocks &pool = served_->runtime->kvBlocks(i);
      pool.setOffered(offers_.oneIn(3) ? offers_.between(1, served_->plan.kvBlocks) : served_->plan.kvBlocks);
      seen.offers += pool.offered() < pool.used();
    }
  }

  // One conversation at a time: a request that keeps its blocks, and once it has ended one that goes on from all of
  // its tokens, or from where they were changed.
  EngineRequest anyTurn(EngineRequest request) {
    if (!talks_ || !draw_.oneIn(2) || (talk_ != 0 && !asked(talk_).end))
      return request;
    request.keepBlocks = true;
    if (talk_ == 0)
      return request;
    const Asked &before = asked(talk_);
    std::vector<int32_t> prompt = before.request.prompt;
    prompt.insert(prompt.end(), before.tokens.begin(), before.tokens.end());
    if (draw_.oneIn(3))
      prompt.resize(static_cast<size_t>(draw_.between(1, static_cast<int64_t>(prompt.size()))));
    prompt.insert(prompt.end(), request.prompt.begin(), request.prompt.end());
    const int64_t most = std::min(longest_, *asked_.goal.context - request.maxNewTokens);
    prompt.resize(std::min(prompt.size(), static_cast<size_t>(most)));
    request.prompt = std::move(prompt);
    request.continues = talk_;
    request.keepBlocks = !draw_.oneIn(4);
    return request;
  }

  // With nobody else there, a conversation goes on from all that it had: of its tokens but the last, of which there may
  // be no row, none is computed again.
  void goOnAlone() {
    EngineRequest request{.prompt = {1, 2, 3}, .maxNewTokens = 1, .keepBlocks = true};
    if (talk_ == 0 || asked(talk_).end == EndReason::Cancelled) { // which may have had none of its tokens
      engine_->releaseBlocks(talk_);
      talk_ = 0;
      request.prompt.resize(static_cast<size_t>(std::min<int64_t>(3, longest_)));
      ASSERT_NO_FATAL_FAILURE(serve(request));
    }
    const Asked &before = asked(talk_);
    request.prompt = before.request.prompt;
    request.prompt.insert(request.prompt.end(), before.tokens.begin(), before.tokens.end());
    const auto had = static_cast<int64_t>(request.prompt.size());
    request.prompt.push_back(4);
    request.prompt.resize(
        std::min(request.prompt.size(), static_cast<size_t>(std::min(longest_, *asked_.goal.context - 1))));
    request.continues = talk_;
    ASSERT_NO_FATAL_FAILURE(serve(request));
    EXPECT_GE(asked(talk_).reused, std::min(had, static_cast<int64_t>(request.prompt.size())) - 1);
  }
  void serve(const EngineRequest &request) {
    submit(request);
    while (live_ > 0) {
      const auto stepped = engine_->step();
      ASSERT_TRUE(stepped.ok()) << stepped.status();
      ASSERT_EQ(shadow_->found(), "");
    }
  }

  void submit(const EngineRequest &request) {
    const auto id = engine_->submit(request);
    ASSERT_TRUE(id.ok()) << id.status();
    if (request.keepBlocks || request.continues != 0)
      talk_ = request.keepBlocks ? *id : 0;
    seen.continued += request.continues != 0;
    all_[*id] = {request, {}, std::nullopt};
    ++live_;
    ++seen.requests;
    seen.chunked += static_cast<int64_t>(request.prompt.size()) > budget_;
  }

  void cancelAny() {
    std::vector<uint64_t> live;
    for (const auto &[id, one] : all_)
      if (!one.end)
        live.push_back(id);
    const uint64_t id = live[static_cast<size_t>(draw_.between(0, static_cast<int64_t>(live.size()) - 1))];
    EXPECT_TRUE(engine_->cancel(id).ok());
    ++seen.cancelled;
  }

  // With nothing in flight, no more blocks are in use than the tokens that were told need; in a static batch each seat
  // has those of the context at most.
  void checkBlocks() {
    if (engine_->inFlight() > 0 || engine_->swapping()) // one that was cancelled keeps its blocks as long
      return;
    const core::KvBlocks &blocks = served_->runtime->kvBlocks();
    int64_t most = 0;
    if (batching_ == serve::Batching::Static)
      most = static_cast<int64_t>(engine_->running()) * blocks.blocksFor(*asked_.goal.context);
    else
      for (const auto &[id, one] : all_)
        most += !one.end || id == talk_ ? blocksOf(one) : 0;
    for (const auto &[id, one] : all_)
      if (!one.end && one.request.continues != 0) // they may be the other's still
        most += blocksOf(asked(one.request.continues));
    int64_t inUse = 0;
    for (uint32_t i = 0; i < served_->plan.miniBatches; ++i)
      inUse += served_->runtime->kvBlocks(i).blocksInUseAbove(0);
    ASSERT_LE(inUse, most);
  }

  Draw &draw_;
  Draw offers_{1}; // its own: the traffic is what it would be without
  const compiler::CompileRequest asked_;
  const std::shared_ptr<core::ShadowKv> shadow_;
  std::unique_ptr<Loaded> served_;
  serve::Engine *engine_ = nullptr;
  std::map<uint64_t, Asked> all_;
  int64_t live_ = 0, budget_ = 0, longest_ = 0;
  bool adapts_ = false; // the engine finds the expansion
  bool talks_ = false;  // there are blocks for a conversation that stays
  uint64_t talk_ = 0;   // the last request that keeps its blocks
  serve::Batching batching_ = serve::Batching::Continuous;
};

inline void add(Seen &sum, const Seen &one) {
  for (uint64_t Seen::*count :
       {&Seen::iterations, &Seen::requests,      &Seen::cancelled, &Seen::preemptions,   &Seen::thrownAway,
        &Seen::padded,     &Seen::changes,       &Seen::chunked,   &Seen::rowsChecked,   &Seen::continued,
        &Seen::reused,     &Seen::swapsOut,      &Seen::swapsIn,   &Seen::swapFallbacks, &Seen::withEmpty,
        &Seen::uneven,     &Seen::cases,         &Seen::talks,     &Seen::offers,        &Seen::compacted,
        &Seen::grown,      &Seen::compactedActs, &Seen::shrunk})
    sum.*count += one.*count;
}

// Every kind of thing has happened, and often.
inline void expectAll(const Seen &sum) {
  EXPECT_GT(sum.cancelled, sum.iterations / 400);
  EXPECT_GT(sum.preemptions, sum.iterations / 400);
  EXPECT_GT(sum.thrownAway, sum.iterations / 400);
  EXPECT_GT(sum.padded, sum.iterations / 100);
  EXPECT_GT(sum.changes, sum.iterations / 20);
  EXPECT_GT(sum.chunked, sum.requests / 20);
  EXPECT_GE(sum.talks * 20, sum.cases); // one in four to seven has the room
  EXPECT_GT(sum.continued, sum.talks);  // once more than where nobody else is there
  EXPECT_GT(sum.reused, sum.continued);
  EXPECT_GT(sum.rowsChecked, sum.iterations * 10);
  EXPECT_GT(sum.offers, sum.iterations / 2000);
  EXPECT_GT(sum.compacted, sum.iterations / 1000);
  // One case in so many: none of a few thousand iterations.
  EXPECT_GE(sum.compactedActs, sum.iterations / 10000);
  EXPECT_GT(sum.swapsOut, sum.iterations / 1000);
  EXPECT_GT(sum.swapsIn, sum.iterations / 1000);
  EXPECT_GT(sum.swapFallbacks, sum.iterations / 10000);
}

} // namespace headrace
