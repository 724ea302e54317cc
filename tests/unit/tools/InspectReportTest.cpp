// SPDX-License-Identifier: Apache-2.0
#include "tools/report/InspectReport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/tools/TestPlan.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

TEST(InspectReport, HasEveryVariantsNumbers) {
  const std::vector<VariantReport> reports = reportVariants(testPlan());
  ASSERT_EQ(reports.size(), 1u);
  const VariantReport &r = reports[0];
  EXPECT_EQ(r.interval, "2");
  EXPECT_EQ(r.offloadedLayers, 1);
  EXPECT_EQ(r.deviceBytes.weights, 512u + 4 * 256 + 256); // embedding, layer 0, head
  EXPECT_EQ(r.deviceBytes.slots, 256u);
  EXPECT_EQ(r.deviceBytes.kv, 2560u);
  EXPECT_EQ(r.deviceBytes.activations, 512u);
  EXPECT_EQ(r.deviceBytes.workspace, 256u);
  EXPECT_EQ(r.deviceBytes.peak, 5632u);
  EXPECT_EQ(r.hostBytes, 1024u);
  EXPECT_EQ(r.linkBytes.h2d, 240u);
  EXPECT_EQ(r.linkBytes.d2h, 0u);
  EXPECT_EQ(r.predictedNs, 300u);
  EXPECT_EQ(r.limitingResource, "link h2d"); // 240 ns against 200 of compute
}

TEST(InspectReport, MaxTokensCountsTheCacheAndWhatTheBudgetLeaves) {
  // 4 blocks beside the scratch block; 8192 - 5632 = 2560 bytes are left, a block of both layers takes 512: 5 more;
  // (4 + 5) x 4 tokens.
  EXPECT_EQ(reportVariants(testPlan())[0].maxTokens, 36);
  plan::Plan tight = testPlan();
  tight.deviceMemory = 5632;
  EXPECT_EQ(reportVariants(tight)[0].maxTokens, 16);
}

TEST(InspectReport, ComputeLimitsWhereTheLinkIsNotBusier) {
  plan::Plan plan = testPlan();
  plan.variants[0].linkAloneNs = 200;
  EXPECT_EQ(reportVariants(plan)[0].limitingResource, "compute");
}

TEST(InspectReport, SaysWhatTheHashesCover) {
  plan::Plan plan = testPlan();
  EXPECT_THAT(
      inspectText(plan, "out.plan", false),
      HasSubstr("hash covers      the config, and the tensors' names, types, shapes and places; not the weights' "
                "values (compile --verify-weights)"));
  plan.weightHashes = {1, 2};
  EXPECT_THAT(inspectText(plan, "out.plan", false), HasSubstr("shapes and places; the weights' values have "));
  const auto hashOf = [](const plan::Plan &of) {
    return nlohmann::json::parse(inspectJson(of, "out.plan"))["model"]["weights_hash"];
  };
  const nlohmann::json hash = hashOf(plan);
  EXPECT_EQ(hash.get<std::string>().size(), 16u);
  plan.weightHashes = {2, 1};
  EXPECT_NE(hashOf(plan), hash);
  plan.weightHashes.clear();
  EXPECT_EQ(hashOf(plan), nullptr);
}

TEST(InspectReport, JsonHasTheFieldsByName) {
  const auto json = nlohmann::json::parse(inspectJson(testPlan(), "out.plan"));
  EXPECT_EQ(json["plan"], "out.plan");
  EXPECT_EQ(json["model"]["name"], "two-layers");
  EXPECT_EQ(json["budget_bytes"], 8192);
  EXPECT_EQ(json["arena_bytes"], 6144);
  EXPECT_EQ(json["host_bytes"], 1024);
  EXPECT_EQ(json["limiting_resource"], "link h2d");
  EXPECT_EQ(json["placements"][0]["weight_bytes_by_home"]["host"], 1024);
  const auto &v = json["variants"][0];
  EXPECT_EQ(v["key"]["new_tokens"], 2);
  EXPECT_EQ(v["key"]["sequences"], 2);
  EXPECT_EQ(v["key"]["context"], 16);
  EXPECT_EQ(v["key"]["placement"], "interval 2");
  EXPECT_EQ(v["interval"], 2);
  EXPECT_EQ(v["offloaded_layers"], 1);
  for (const char *kind : {"weights", "slots", "kv", "activations", "workspace", "peak"})
    EXPECT_GT(v["device_bytes"][kind], 0) << kind;
  EXPECT_EQ(v["host_bytes"], 1024);
  EXPECT_EQ(v["h2d_bytes"], 240);
  EXPECT_EQ(v["d2h_bytes"], 0);
  EXPECT_EQ(v["predicted_iteration_ms"], 0.0003);
  EXPECT_EQ(v["max_tokens"], 36);
  EXPECT_EQ(v["limiting_resource"], "link h2d");
}

TEST(InspectReport, IntervalIsNoneWhereNothingIsOffloadedAndNullForOtherLayers) {
  plan::Plan plan = testPlan();
  plan.placements[0].interval = 0;
  EXPECT_TRUE(nlohmann::json::parse(inspectJson(plan, ""))["variants"][0]["interval"].is_null());
  plan.placements[0].offloadedLayers = 0;
  EXPECT_EQ(nlohmann::json::parse(inspectJson(plan, ""))["variants"][0]["interval"], "none");
}

TEST(InspectReport, TextSaysWhatWhereAndWhy) {
  const std::string text = inspectText(testPlan(), "out.plan", false);
  EXPECT_THAT(text, HasSubstr("out.plan: two-layers on round"));
  EXPECT_THAT(text, HasSubstr("6.00 KiB of 8.00 KiB allowed (6144 of 8192 bytes)"));
  EXPECT_THAT(text, HasSubstr("interval 2: 1 layer (interval 2); start rule eager, 1 slots"));
  EXPECT_THAT(text, HasSubstr("1 of 2 layers is the fewest that fits"));
  EXPECT_THAT(text, HasSubstr("300 ns"));
}

TEST(InspectReport, TextThatIsNoUtf8DoesNotBreakTheJson) {
  plan::Plan plan = testPlan();
  plan.reason = "\xff\xfe";
  EXPECT_TRUE(nlohmann::json::accept(inspectJson(plan, "out.plan")));
}

TEST(InspectReport, DescribesPlacements) {
  const plan::Plan plan = testPlan();
  plan::Placement p;
  EXPECT_EQ(describePlacement(plan, p), "nothing");
  p.offloadsEmbedding = p.offloadsHead = true;
  EXPECT_EQ(describePlacement(plan, p), "embedding, head");
  p.offloadedLayers = 10;
  EXPECT_EQ(describePlacement(plan, p), "10 layers, embedding, head");
}

} // namespace
} // namespace headrace::tools
