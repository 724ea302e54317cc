// SPDX-License-Identifier: Apache-2.0
//
// A plan for one instance keeps its promise: whatever prompts come, from the iteration that ends the last of them every
// gap between a sequence's tokens is within the objective of its bucket, with the change from prompts to decode and
// every other. Random models, hardware and objectives; what is promised is read from the plan's choices, what happens
// is played in virtual time by the runtime as `simulate` runs it.
#include <gtest/gtest.h>

#include <random>

#include "compiler/Compile.h"
#include "runtime/core/Runtime.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/LongRun.h"

namespace headrace {
namespace {

class Draw {
public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t integer(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool one(int64_t in) { return integer(1, in) == 1; }
  double between(double least, double most) { // even in the logarithm
    return least * std::pow(most / least, static_cast<double>(random_() >> 11u) / 9007199254740992.0);
  }
  template <typename T> T of(std::initializer_list<T> values) {
    return values.begin()[integer(0, static_cast<int64_t>(values.size()) - 1)];
  }

private:
  std::mt19937_64 random_;
};

compiler::CompileRequest anyRequest(Draw &draw, int64_t mostLayers) {
  compiler::CompileRequest r;
  model::ModelSpec &m = *r.model;
  m.name = "any";
  m.family = model::Family::Llama;
  m.layers = draw.integer(1, mostLayers);
  m.heads = draw.of<int64_t>({4, 8, 16, 32});
  m.kvHeads = m.heads / draw.of<int64_t>({1, 2, 4});
  m.headDim = draw.of<int64_t>({16, 64, 128});
  m.hidden = m.heads * m.headDim;
  m.intermediate = m.hidden * draw.of<int64_t>({2, 3, 4});
  m.vocab = draw.of<int64_t>({50, 1000, 32000});
  m.maxPositions = 4096;
  m.rope.enabled = true; // as the family is
  m.tiedEmbeddings = draw.one(3);
  m.dtype = draw.of({model::DType::F32, model::DType::BF16});
  model::Hardware &h = r.hardware;
  h.name = "any";
  h.kind = model::DeviceKind::Cuda;
  h.memoryBytes = h.hostMemoryBytes = uint64_t{1} << 42;
  h.flopsF32 = draw.between(1e11, 1e14);
  h.flopsF16 = 2 * h.flopsF32;
  h.memoryBandwidth = draw.between(1e10, 3e12);
  h.h2dBandwidth = h.d2hBandwidth = h.memoryBandwidth / draw.between(2, 200);
  h.duplexBandwidth = h.h2dBandwidth * draw.of({1.0, 1.5, 2.0});
  h.copyLatency = draw.of({0.0, 1e-6, 2e-5});
  h.launchOverhead = draw.of({0.0, 2e-6});
  h.flopsEfficiency = h.memoryEfficiency = 0.7;
  h.linkEfficiency = 1;
  r.goal.batch = draw.of<int64_t>({1, 3, 8, 64});
  r.goal.context = draw.of<int64_t>({32, 200, 1000});
  r.buckets.contexts =
      draw.one(2) ? std::vector<int64_t>{*r.goal.context} : std::vector<int64_t>{*r.goal.context / 4, *r.goal.context};
  r.buckets.sequences = draw.one(2) || *r.goal.batch == 1 ? std::vector<int64_t>{*r.goal.batch}
                                                          : std::vector<int64_t>{*r.goal.batch / 2, *r.goal.batch};
  r.buckets.newTokens = r.buckets.sequences;
  r.buckets.newTokens.push_back(*r.goal.batch * draw.of<int64_t>({2, 8, 16}));
  return r;
}

// With times that can be met, or nearly: around what the iterations without offloading take.
void anyObjective(Draw &draw, compiler::CompileRequest &r) {
  compiler::CompileRequest resident = r;
  resident.goal.sloFactor = 1;
  resident.policy.name = "none";
  const absl::StatusOr<plan::Plan> plan = compiler::compile(resident);
  ASSERT_TRUE(plan.ok()) << plan.status();
  uint64_t decodeNs = 1, mixedNs = 1;
  for (const plan::Variant &v : plan->variants)
    (plan->schedules[v.schedule].iterationClass == plan::IterationClass::Decode ? decodeNs : mixedNs) = v.predictedNs;
  r.policy.name = draw.one(4) ? "select-n" : "headrace";
  if (draw.one(3)) {
    r.goal.sloFactor = draw.between(1, 6);
  } else {
    r.goal.tpot = std::chrono::nanoseconds(static_cast<uint64_t>(static_cast<double>(decodeNs) * draw.between(1, 8)));
    if (!draw.one(3))
      r.goal.ttft = std::chrono::nanoseconds(static_cast<uint64_t>(static_cast<double>(mixedNs) * draw.between(1, 8)));
  }
  if (draw.one(3))
    r.goal.deviceMemory = static_cast<uint64_t>(static_cast<double>(plan->arenaBytes) * draw.between(0.5, 1.1));
}

uint64_t objectiveOf(const plan::Plan &plan, uint32_t variant) {
  const plan::Variant &v = plan.variants[variant];
  uint64_t least = 0; // of the smallest decode bucket that holds it
  for (const plan::BucketChoice &choice : plan.choices) {
    const plan::Variant &c = plan.variants[choice.variant];
    if (least == 0 && plan.schedules[c.schedule].iterationClass == plan::IterationClass::Decode &&
        c.sequences >= v.sequences && c.context >= v.context)
      least = choice.sloNs;
  }
  return least;
}

struct Played {
  uint64_t gaps = 0, late = 0;
  double worst = 0; // over its objective
};

void play(Draw &draw, const plan::Plan &plan, Played &played) {
  serve::GenerateRequest request;
  const int64_t prompts = draw.integer(1, *plan.goal.batch);
  request.maxNewTokens = draw.integer(2, std::min<int64_t>(40, *plan.goal.context - 1));
  for (int64_t p = 0; p < prompts; ++p)
    request.prompts.emplace_back(static_cast<size_t>(draw.integer(1, *plan.goal.context - request.maxNewTokens)), 1);
  request.separatePrefill = draw.one(2);
  if (draw.one(2)) // sequences that end before the others
    for (int32_t id = 0; id < static_cast<int32_t>(plan.model->vocab) / 10; ++id)
      request.stopTokens.push_back(id);
  request.placementOf = [&](const plan::IterationSize &size) { return *plan::chosenPlacement(plan, size); };
  request.onIteration = [&](const serve::IterationSeen &seen) {
    if (seen.prefill || seen.gapNs < 0)
      return;
    const uint64_t objective = objectiveOf(plan, seen.variant);
    const auto gap = static_cast<uint64_t>(seen.gapNs);
    ++played.gaps;
    played.late += gap > objective;
    played.worst = std::max(played.worst, static_cast<double>(gap) / static_cast<double>(objective));
  };
  const std::unique_ptr<core::Device> device = sim::makeSimDevice();
  const auto runtime = core::Runtime::load(plan, *device, {}, nullptr, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const auto result = serve::generate(**runtime, request);
  ASSERT_TRUE(result.ok()) << result.status();
}

// What follows these words in a refusal; none if they are not there.
std::optional<double> numberAfter(const std::string &message, const std::string &words) {
  const size_t at = message.find(words);
  return at == std::string::npos ? std::nullopt : std::optional(std::stod(message.substr(at + words.size())));
}

// A goal with the minima that a refusal names is met; one with a five-thousandth less is not.
void expectItsMinimaHold(const compiler::CompileRequest &refused, const std::string &message, int &inexact) {
  compiler::CompileRequest request = refused;
  bool any = false;
  const auto take = [&](const char *words, std::optional<std::chrono::nanoseconds> model::Goal::*member) {
    for (const char *of : {"", " of one"})
      if (const auto ms = numberAfter(message, std::string("the minimum ") + words + of + " is ")) {
        // Of one instance each minimum is for the other objective as it is.
        if (any && *of != 0)
          continue;
        request.goal.*member = std::chrono::nanoseconds(std::llround(*ms * 1e6));
        any = true;
      }
  };
  take("TPOT", &model::Goal::tpot);
  take("TTFT", &model::Goal::ttft);
  for (const char *of : {"", " of one"})
    if (const auto factor = numberAfter(message, std::string("the minimum slo_factor") + of + " is ")) {
      request.goal.sloFactor = *factor;
      any = true;
    }
  if (const auto bytes = numberAfter(message, "the minimum memory is "); bytes && !any) {
    request.goal.deviceMemory = static_cast<uint64_t>(*bytes);
    any = true;
  }
  if (!any)
    return;
  const auto held = compiler::compile(request);
  EXPECT_TRUE(held.ok()) << held.status() << "\nafter " << message;
  const auto less = [](auto &value) { *value -= *value / 5000; };
  if (request.goal.sloFactor)
    less(request.goal.sloFactor);
  else if (request.goal.tpot != refused.goal.tpot)
    less(request.goal.tpot);
  else if (request.goal.ttft != refused.goal.ttft)
    less(request.goal.ttft);
  else
    less(request.goal.deviceMemory);
  if (request.goal.sloFactor.value_or(1) < 1)
    return;
  if (const auto below = compiler::compile(request); below.ok()) {
    ++inexact;
    std::printf("met below the minimum by %zu placements, %s\n%s\n", below->placements.size(), below->reason.c_str(),
                message.c_str());
  }
}

TEST(ObjectiveGaps, NoGapBehindTheLastPromptIsLongerThanPromised) {
  const bool all = longRun(); // 500 models of any size
  const uint64_t cases = all ? 500 : 60;
  int refused = 0, moving = 0, several = 0, inexact = 0;
  Played total;
  for (uint64_t seed = 1; seed <= cases; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    compiler::CompileRequest request = anyRequest(draw, all ? 90 : 12);
    anyObjective(draw, request);
    const absl::StatusOr<plan::Plan> plan = compiler::compile(request);
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted) << plan.status();
      ++refused;
      expectItsMinimaHold(request, std::string(plan.status().message()), inexact);
      continue;
    }
    moving += plan::offloadedWeights(*plan, plan->placements.front()).layers > 0;
    several += plan->placements.size() > 1;
    for (int batch = 0; batch < 4; ++batch) {
      Played played;
      play(draw, *plan, played);
      EXPECT_EQ(played.late, 0U) << "of " << played.gaps << ", the longest " << played.worst << " x its objective; "
                                 << plan->reason;
      total.gaps += played.gaps;
      total.worst = std::max(total.worst, played.worst);
    }
  }
  // Not all refused, and not all without anything to move.
  EXPECT_GT(moving, static_cast<int>(cases) / 3);
  // Minima below which a goal is met: what a search finds for one bucket may by chance serve all of them a little
  // better than what it finds for all.
  EXPECT_LE(10 * inexact, refused);
  std::printf("%d of %d refused; %d offload layers, %d have several placements; %d gaps, the longest %.4f x\n", refused,
              static_cast<int>(cases), moving, several, static_cast<int>(total.gaps), total.worst);
}

} // namespace
} // namespace headrace
