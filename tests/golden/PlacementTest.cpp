// SPDX-License-Identifier: Apache-2.0
//
// Where weights live does not change a bit: every placement and both start rules against the resident run.
#include "absl/strings/str_cat.h"
#include "tests/golden/GoldenFixture.h"

namespace headrace::golden {
namespace {

using model::Choice;
using model::Policy;
using model::StartRule;

struct Case {
  std::string name;
  Policy policy;
  int32_t offloadedLayers; // what the plan's placement must have
  bool embedding = false, head = false;
};

// Interval i offloads layers i - 1, 2i - 1, ...: floor(layers / i) of them. A tied table is embedding and head at once.
std::vector<Case> everyPlacement(const model::ModelSpec &spec) {
  const int64_t layers = spec.layers;
  const bool tied = spec.tiedEmbeddings;
  std::vector<Case> cases;
  for (const StartRule rule : {StartRule::Paper, StartRule::Eager}) {
    const std::string ruleName = rule == StartRule::Paper ? "paper" : "eager";
    Policy base;
    base.startRule = rule;
    const auto add = [&](const std::string &what, int64_t offloaded, bool embedding, bool head, auto change) {
      Case added{absl::StrCat(ruleName, ", ", what), base, static_cast<int32_t>(offloaded), embedding, head};
      added.policy.offloadEmbedding = embedding ? Choice::On : Choice::Off;
      added.policy.offloadHead = head ? Choice::On : Choice::Off;
      change(added.policy);
      cases.push_back(added);
    };
    const auto no = [](Policy &p) { p.none = true; };
    const auto interval = [](int64_t i) { return [i](Policy &p) { p.interval = i; }; };
    const auto count = [](int64_t n) { return [n](Policy &p) { p.offloadLayers = n; }; };
    add("interval none", 0, false, false, no);
    for (int64_t i = 1; i <= layers; ++i)
      add(absl::StrCat("interval ", i), layers / i, false, false, interval(i));
    for (int64_t n = 0; n <= layers; ++n)
      add(absl::StrCat(n, " layers"), n, false, false, count(n));
    if (!tied) {
      add("embedding", 0, true, false, count(0));
      add("head", 0, false, true, count(0));
    }
    add("embedding and head", 0, true, true, count(0));
    for (int64_t i = 1; i <= layers; ++i)
      add(absl::StrCat("embedding, head and interval ", i), layers / i, true, true, interval(i));
  }
  return cases;
}

class Placement : public GoldenFixture {};

TEST_P(Placement, LogitsAreBitIdenticalToTheResidentRun) {
  RunSetup setup = setup_;
  setup.maxNewTokens = 6;
  const absl::StatusOr<RunResult> resident = run(setup);
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_EQ(resident->offloadedLayers, 0);
  for (const Case &c : everyPlacement(setup.spec)) {
    SCOPED_TRACE(c.name);
    setup.policy = c.policy;
    const absl::StatusOr<RunResult> result = run(setup);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok())
      continue;
    EXPECT_EQ(result->offloadedLayers, c.offloadedLayers);
    EXPECT_EQ(result->offloadsEmbedding, c.embedding);
    EXPECT_EQ(result->offloadsHead, c.head);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    ASSERT_EQ(result->generated.logits.size(), resident->generated.logits.size());
    for (size_t p = 0; p < setup.prompts.size(); ++p)
      EXPECT_TRUE(result->generated.logits[p] == resident->generated.logits[p]) << "prompt " << p;
    if (c.offloadedLayers > 0) {
      EXPECT_GT(result->generated.counters.h2dBytes, resident->generated.counters.h2dBytes);
    }
  }
}

// No step reads a byte that the plan did not put there.
TEST_P(Placement, PoisonedMemoryDoesNotShow) {
  RunSetup setup = setup_;
  setup.prompts = reference_.prompts;
  setup.maxNewTokens = 6;
  const absl::StatusOr<RunResult> resident = run(setup);
  ASSERT_TRUE(resident.ok()) << resident.status();
  setup.poison = true;
  for (const Case &c : everyPlacement(setup.spec)) {
    SCOPED_TRACE(c.name);
    setup.policy = c.policy;
    const absl::StatusOr<RunResult> result = run(setup);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok())
      continue;
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Placement, testing::ValuesIn(modelNames()), testName);

} // namespace
} // namespace headrace::golden
