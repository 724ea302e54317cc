// SPDX-License-Identifier: Apache-2.0
//
// Where weights live does not change a bit: every placement and both start rules against the resident run.
#include "absl/strings/str_cat.h"
#include "runtime/model/HfConfig.h"
#include "tests/golden/GoldenRun.h"
#include "tests/golden/Reference.h"
#include "gtest/gtest.h"

namespace headrace::golden {
namespace {

using model::Choice;
using model::Policy;
using model::StartRule;

struct Case {
  std::string name;
  Policy policy;
  int32_t offloadedLayers; // what the plan's placement must have
};

// Interval i offloads layers i - 1, 2i - 1, ...: floor(layers / i) of them.
std::vector<Case> everyPlacement(int64_t layers) {
  std::vector<Case> cases;
  for (const StartRule rule : {StartRule::Paper, StartRule::Eager}) {
    const std::string ruleName = rule == StartRule::Paper ? "paper" : "eager";
    Policy base;
    base.startRule = rule;
    base.offloadEmbedding = base.offloadHead = Choice::Off;
    const auto add = [&](const std::string &what, int64_t offloaded, auto change) {
      Case added{absl::StrCat(ruleName, ", ", what), base, static_cast<int32_t>(offloaded)};
      change(added.policy);
      cases.push_back(added);
    };
    add("interval none", 0, [](Policy &p) { p.none = true; });
    for (int64_t i = 1; i <= layers; ++i)
      add(absl::StrCat("interval ", i), layers / i, [&](Policy &p) { p.interval = i; });
    for (int64_t n = 0; n <= layers; ++n)
      add(absl::StrCat(n, " layers"), n, [&](Policy &p) { p.offloadLayers = n; });
    add("embedding", 0, [](Policy &p) {
      p.none = true;
      p.offloadEmbedding = Choice::On;
    });
    add("head", 0, [](Policy &p) {
      p.none = true;
      p.offloadHead = Choice::On;
    });
    add("embedding, head and interval 2", layers / 2, [](Policy &p) {
      p.interval = 2;
      p.offloadEmbedding = p.offloadHead = Choice::On;
    });
  }
  return cases;
}

std::string testName(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Placement : public testing::TestWithParam<std::string> {};

TEST_P(Placement, LogitsAreBitIdenticalToTheResidentRun) {
  const absl::StatusOr<Reference> reference = readReference(GetParam());
  ASSERT_TRUE(reference.ok()) << reference.status();
  const absl::StatusOr<model::ModelSpec> spec = model::readHfFolder(reference->folder);
  ASSERT_TRUE(spec.ok()) << spec.status();
  RunSetup setup;
  setup.folder = reference->folder;
  setup.spec = *spec;
  setup.prompts = reference->prompts;
  setup.maxNewTokens = 6;
  const absl::StatusOr<RunResult> resident = run(setup);
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_EQ(resident->offloadedLayers, 0);
  for (const Case &c : everyPlacement(spec->layers)) {
    SCOPED_TRACE(c.name);
    setup.policy = c.policy;
    const absl::StatusOr<RunResult> result = run(setup);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->offloadedLayers, c.offloadedLayers);
    EXPECT_EQ(result->offloadsEmbedding, c.policy.offloadEmbedding == Choice::On);
    EXPECT_EQ(result->offloadsHead, c.policy.offloadHead == Choice::On);
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
  const absl::StatusOr<Reference> reference = readReference(GetParam());
  ASSERT_TRUE(reference.ok()) << reference.status();
  const absl::StatusOr<model::ModelSpec> spec = model::readHfFolder(reference->folder);
  ASSERT_TRUE(spec.ok()) << spec.status();
  RunSetup setup;
  setup.folder = reference->folder;
  setup.spec = *spec;
  setup.prompts = reference->prompts;
  setup.maxNewTokens = 6;
  const absl::StatusOr<RunResult> resident = run(setup);
  ASSERT_TRUE(resident.ok()) << resident.status();
  setup.poison = true;
  for (const Case &c : everyPlacement(spec->layers)) {
    SCOPED_TRACE(c.name);
    setup.policy = c.policy;
    const absl::StatusOr<RunResult> result = run(setup);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Placement, testing::ValuesIn(modelNames()), testName);

} // namespace
} // namespace headrace::golden
