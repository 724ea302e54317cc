// SPDX-License-Identifier: Apache-2.0
#include "tools/report/InspectReport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/tools/SplitTestPlan.h"
#include "tools/report/BenchReport.h"
#include "tools/report/ChoiceReport.h"

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

// 6144 bytes, of which 5 KV blocks of 512 for both layers: all else takes 3584. One block is the scratch block, of the
// others each holds 4 tokens.
TEST(BenchReport, MaxTokensLeavesTheScratchBlockOut) {
  EXPECT_EQ(maxTokens(testPlan(), 6144), 16);
  EXPECT_EQ(maxTokens(testPlan(), 3584 + 2 * 512), 4);
  for (const uint64_t bytes : {3584 + 2 * 512 - 1, 3584 + 512, 3584, 0})
    EXPECT_EQ(maxTokens(testPlan(), bytes), 0) << bytes;
}

TEST(ChoiceReport, TheGoalInWords) {
  plan::Plan plan = testPlan();
  plan.policy.name = "headrace";
  plan.goal.sloFactor.reset();
  plan.goal.instances = model::Instances::Together;
  plan.goal.busDevices = 1;
  EXPECT_EQ(describeGoal(plan), "headrace");
  plan.goal.tpot = std::chrono::milliseconds(50);
  plan.goal.instances = model::Instances::Apart;
  plan.goal.busDevices = 2;
  EXPECT_EQ(describeGoal(plan), "headrace, TPOT 50ms, prefill and decode on instances apart, 2 devices on the bus");
}

TEST(InspectReport, MaxTokensCountsTheCacheAndWhatTheBudgetLeaves) {
  // 4 blocks beside the scratch block; 8192 - 5632 = 2560 bytes are left, a block of both layers takes 512: 5 more;
  // (4 + 5) x 4 tokens.
  EXPECT_EQ(reportVariants(testPlan())[0].maxTokens, 36);
  plan::Plan tight = testPlan();
  tight.deviceMemory = 5632;
  EXPECT_EQ(reportVariants(tight)[0].maxTokens, 16);
}

TEST(InspectReport, SplitCachesAreSaidByHomeAndByDirection) {
  plan::Plan plan = splitTestPlan();
  plan.placements[0].slots.push_back({/*address=*/0, 4 * 256}); // where the tail is copied to
  const std::vector<VariantReport> reports = reportVariants(plan);
  ASSERT_EQ(reports.size(), 2u);
  const VariantReport &noTails = reports[kNoTails], &tails = reports[kTails];
  EXPECT_EQ(noTails.placement, "interval 2, no tails");
  EXPECT_EQ(tails.placement, "interval 2");
  for (const VariantReport *r : {&noTails, &tails}) {
    EXPECT_EQ(r->deviceBytes.kv, 2 * 256u);
    EXPECT_EQ(r->hostBytes, 1024u + 2 * 4 * 256); // layer 1's weights, 4 blocks of both layers
  }
  EXPECT_EQ(noTails.linkBytes.h2d, 90u);
  EXPECT_EQ(noTails.linkBytes.d2h, 0u);
  EXPECT_EQ(tails.linkBytes.h2d, 1024u + 90);
  EXPECT_EQ(tails.linkBytes.d2h, 8u);
  const std::string homes = "1 of 5 blocks on the device (512 B), 4 at home on the host (2.00 KiB), brought through "
                            "slots of 1.00 KiB";
  EXPECT_EQ(kvHomesText(plan, 0), homes);
  EXPECT_EQ(describePlacement(plan, plan.placements[0]), "1 layer (interval 2), KV blocks from 1 on");
  EXPECT_THAT(inspectText(plan, "out.plan", false), HasSubstr("\n  KV homes         " + homes + "\n"));
  const auto json = nlohmann::json::parse(inspectJson(plan, "out.plan"));
  EXPECT_EQ(json["placements"][0]["kv_blocks"], 5);
  EXPECT_EQ(json["placements"][0]["kv_blocks_on_device"], 1);
  for (const uint32_t variant : {kNoTails, kTails}) { // one placement, told apart by what may be in use
    EXPECT_EQ(json["variants"][variant]["key"]["placement"], "interval 2");
    EXPECT_EQ(json["variants"][variant]["key"]["kv_blocks"], variant == kTails ? 5 : 1);
  }
  EXPECT_EQ(json["placements"][0]["kv_bytes_by_home"]["device"], 512);
  EXPECT_EQ(json["placements"][0]["kv_bytes_by_home"]["host"], 2048);
  EXPECT_EQ(json["placements"][0]["kv_slot_bytes"], 1024);
  EXPECT_EQ(json["placements"][0]["kv_device_bytes"], 1536);
  EXPECT_EQ(json["placements"][0]["weight_bytes_by_home"]["host"], 1024);
  EXPECT_EQ(json["variants"][kTails]["d2h_bytes"], 8);
  EXPECT_EQ(json["variants"][kTails]["host_bytes"], 3072);
}

TEST(InspectReport, HomesOfKvAreNamedWhereThereAreSeveralPlacements) {
  plan::Plan plan = splitTestPlan();
  plan.placements.push_back(plan.placements[0]);
  plan.placements[1].name = "other";
  EXPECT_THAT(inspectText(plan, "out.plan", false), HasSubstr("  KV homes         other: 1 of 5 blocks"));
  EXPECT_EQ(kvHomesText(testPlan(), 0), ""); // nothing to say of caches that are whole
  EXPECT_EQ(inspectText(testPlan(), "out.plan", false).find("KV homes"), std::string::npos);
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
  EXPECT_EQ(json["device_memory_bytes"], 8192);
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
  for (plan::Extent &extent : plan.placements[0].extents)
    extent.space = plan::Space::Device;
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
  plan::Plan plan = testPlan();
  plan::Placement p;
  EXPECT_EQ(describePlacement(plan, p), "nothing");
  p.extents = {{.buffer = 0, .space = plan::Space::Host}, {.buffer = 9}};
  EXPECT_EQ(describePlacement(plan, p), "embedding");
  model::ModelSpec tied = *plan.model;
  tied.tiedEmbeddings = true;
  plan.model = tied;
  EXPECT_EQ(describePlacement(plan, p), "embedding, head");
  plan.model = testPlan().model;
  p.extents = {{.buffer = 2, .space = plan::Space::Host}, // out and up of layer 0, all of layer 1 but qkv, the head
               {.buffer = 3, .space = plan::Space::Host},
               {.buffer = 5},
               {.buffer = 6, .space = plan::Space::Host},
               {.buffer = 9, .space = plan::Space::Host}};
  EXPECT_EQ(describePlacement(plan, p), "2 layers, head");
}

} // namespace
} // namespace headrace::tools
