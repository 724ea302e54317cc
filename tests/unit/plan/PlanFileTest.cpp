// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/value/PlanBytes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/support/LongRun.h"
#include "tests/support/SourceDir.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/PlanText.h"

namespace headrace::plan {
namespace {

using test::bytesOf;
using test::textOf;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

Plan somePlan() {
  for (const test::NamedOptions &named : test::variedPlans())
    if (named.name == "two classes and two placements")
      return test::makePlan(named.options);
  return {};
}

TEST(PlanFile, ReadsBackEveryFieldItWrites) {
  for (const test::NamedOptions &named : test::variedPlans()) {
    const Plan plan = test::makePlan(named.options);
    const absl::StatusOr<Plan> back = parse(bytesOf(serialize(plan)), "a.plan");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(textOf(*back), textOf(plan)) << named.name;
  }
}

TEST(PlanFile, ReadsBackCachesThatAreSplit) {
  std::vector<test::NamedOptions> plans = test::splitPlans(), back = test::writeBackPlans();
  plans.insert(plans.end(), back.begin(), back.end());
  for (const test::NamedOptions &named : plans) {
    const Plan plan = test::makePlan(named.options);
    const absl::StatusOr<Plan> read = parse(bytesOf(serialize(plan)), "a.plan");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(textOf(*read), textOf(plan)) << named.name;
  }
}

TEST(PlanFile, ReadsBackPackedWeightsAndCaches) {
  for (const test::NamedOptions &named : test::packedPlans()) {
    const Plan plan = test::makePlan(named.options);
    EXPECT_TRUE(plan.model->encodings.any());
    const absl::StatusOr<Plan> back = parse(bytesOf(serialize(plan)), "a.plan");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(textOf(*back), textOf(plan)) << named.name;
    EXPECT_EQ(back->model->encodings, plan.model->encodings);
    EXPECT_EQ(back->kvEncoding, plan.kvEncoding);
  }
}

TEST(PlanFile, ReadsBackActivationBlocks) {
  for (const test::NamedOptions &named : test::actPlans()) {
    Plan plan = test::makePlan(named.options);
    plan.policy.actRatio = plan.actRatio;
    const absl::StatusOr<Plan> back = parse(bytesOf(serialize(plan)), "a.plan");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(textOf(*back), textOf(plan)) << named.name;
    EXPECT_EQ(back->actBlocks, plan.actBlocks);
    EXPECT_EQ(back->contextBlocks, plan.contextBlocks);
    EXPECT_EQ(back->actRatio, plan.actRatio);
    EXPECT_EQ(back->policy.actRatio, plan.actRatio);
    EXPECT_EQ(back->metaLayout.firstActBlock, plan.kvBlocks);
    EXPECT_EQ(back->metaLayout.maxActBlocks, plan.actBlocks);
  }
  // Where there are none; that none were asked for stays apart from a share of 0.
  Plan plan = somePlan();
  plan.policy.actRatio = model::ActRatio{};
  const absl::StatusOr<Plan> none = parse(bytesOf(serialize(plan)), "a.plan");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->actBlocks, 0);
  EXPECT_EQ(none->contextBlocks, 0);
  EXPECT_EQ(none->actRatio, model::ActRatio{});
  EXPECT_EQ(none->policy.actRatio, model::ActRatio{});
  EXPECT_EQ(none->metaLayout.firstActBlock, kernels::MetaLayout{}.firstActBlock);
  EXPECT_EQ(none->metaLayout.maxActBlocks, 0);
  EXPECT_GT(serialize(plan).size(), serialize(somePlan()).size());
  EXPECT_EQ(parse(bytesOf(serialize(somePlan())), "a.plan")->policy.actRatio, std::nullopt);
}

TEST(PlanFile, ReadsBackWhatDescribesTheInputs) {
  Plan plan = somePlan();
  plan.compilerVersion = "1.2.3";
  plan.model->name = "naïve \"model\"";
  plan.model->rope = {true, 5e5, model::RopeScalingKind::Llama3, 8, 1.5, 4.5, 4096};
  plan.modelHash = "0123456789abcdef";
  plan.modelPath = "/models/tiny";
  plan.hardware = {"a10", model::DeviceKind::Cuda, {}, 24, 0, 25, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 0.25, 0.5,
                   0.75};
  plan.deviceMemory = uint64_t{8} << 30;
  plan.hardware.classes = {0.1, 0.2, 0.3, 4, 0.5, 6, 0.7, 0.8};
  plan.goal = {.deviceMemory = uint64_t{8} << 30,
               .batch = 8,
               .context = 2048,
               .kvTokens = 999,
               .kvDeviceMemory = uint64_t{3} << 30,
               .kvHostMemory = uint64_t{40} << 30,
               .expansion = 1.5,
               .kvEncoding = model::DType::BF16};
  plan.kvEncoding = model::DType::BF16;
  plan.policy = {"interval", false, 4, 10, model::StartRule::Paper, 2, model::AutoOnOff::On, model::AutoOnOff::Off};
  plan.policy.kvWriteBack = model::KvWriteBack::Dirty;
  plan.goal.ttft = std::chrono::nanoseconds(500'000'000);
  plan.goal.tpot = std::chrono::nanoseconds(52'312'345);
  plan.goal.sloFactor = 1.25;
  plan.goal.inputLen = 1000;
  plan.goal.outputLen = 24;
  plan.goal.busDevices = 3;
  plan.goal.record = "r.toml";
  plan.policy.placements = 8;
  plan.policy.kvPlaces = 5;
  plan.policy.residuals = model::Residuals::Host;
  for (uint32_t v = 0; v < plan.variants.size(); ++v)
    if (plan.variants[v].placement == 0)
      plan.choices.push_back({v, 100 + v, 200 + v, 300 + v, 400 + v});
  plan.reason = "because\nof this";
  plan.limitingResource = "compute";
  const absl::StatusOr<Plan> back = parse(bytesOf(serialize(plan)), "a.plan");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(textOf(*back), textOf(plan));
  EXPECT_EQ(back->goal.kvEncoding, model::DType::BF16);
  EXPECT_EQ(back->goal.kvDeviceMemory, uint64_t{3} << 30);
  EXPECT_EQ(back->goal.kvHostMemory, uint64_t{40} << 30);
  EXPECT_EQ(back->goal.expansion, 1.5);
  EXPECT_EQ(back->policy.slots, 2);
  EXPECT_EQ(back->policy.kvPlaces, 5);
  EXPECT_EQ(back->policy.residuals, model::Residuals::Host);
  EXPECT_EQ(back->hardware.linkEfficiency, 0.75);
  EXPECT_EQ(back->hardware.classes, plan.hardware.classes);
  EXPECT_EQ(back->goal.ttft, std::chrono::nanoseconds(500'000'000));
  EXPECT_EQ(back->goal.tpot, std::chrono::nanoseconds(52'312'345));
  EXPECT_EQ(back->goal.sloFactor, 1.25);
  EXPECT_EQ(back->goal.inputLen, 1000);
  EXPECT_EQ(back->goal.outputLen, 24);
  EXPECT_EQ(back->goal.busDevices, 3);
  EXPECT_EQ(back->goal.record, "r.toml");
  EXPECT_EQ(back->policy.placements, 8);
  ASSERT_EQ(back->choices.size(), plan.choices.size());
  ASSERT_FALSE(plan.choices.empty());
  for (size_t c = 0; c < plan.choices.size(); ++c) {
    EXPECT_EQ(back->choices[c].variant, plan.choices[c].variant);
    EXPECT_EQ(back->choices[c].sloNs, plan.choices[c].sloNs);
    EXPECT_EQ(back->choices[c].residentNs, plan.choices[c].residentNs);
    EXPECT_EQ(back->choices[c].layerComputeNs, plan.choices[c].layerComputeNs);
    EXPECT_EQ(back->choices[c].layerTransferNs, plan.choices[c].layerTransferNs);
  }
  // What was not asked for stays apart from what was asked to be 0; what the plan has itself is what it has.
  plan.goal = {};
  plan.policy.interval.reset();
  const absl::StatusOr<Plan> unset = parse(bytesOf(serialize(plan)), "a.plan");
  ASSERT_TRUE(unset.ok()) << unset.status();
  EXPECT_EQ(unset->goal.deviceMemory, plan.deviceMemory);
  EXPECT_EQ(unset->goal.kvEncoding, model::DType::BF16);
  EXPECT_EQ(unset->goal.kvDeviceMemory, std::nullopt);
  EXPECT_EQ(unset->goal.kvHostMemory, std::nullopt);
  EXPECT_EQ(unset->goal.expansion, std::nullopt);
  EXPECT_EQ(unset->goal.tpot, std::nullopt);
  EXPECT_EQ(unset->goal.sloFactor, std::nullopt);
  EXPECT_EQ(unset->goal.inputLen, std::nullopt);
  EXPECT_EQ(unset->goal.outputLen, std::nullopt);
  EXPECT_EQ(unset->goal.busDevices, 1);
  EXPECT_EQ(unset->policy.interval, std::nullopt);
}

TEST(PlanFile, KeepsTheWeightsHashesWhereThereAreAny) {
  Plan plan = somePlan();
  const std::string without = serialize(plan);
  EXPECT_THAT(parse(bytesOf(without), "a.plan")->weightHashes, testing::IsEmpty());
  for (uint64_t u = 0; u < static_cast<uint64_t>(plan.model->layers) * 4 + 2; ++u)
    plan.weightHashes.push_back(~u);
  const absl::StatusOr<Plan> back = parse(bytesOf(serialize(plan)), "a.plan");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->weightHashes, plan.weightHashes);
  EXPECT_GT(serialize(plan).size(), without.size());
}

TEST(PlanFile, WritesTheSameBytesForTheSamePlan) {
  const std::string once = serialize(somePlan());
  EXPECT_EQ(once, serialize(somePlan()));
  EXPECT_EQ(once, serialize(*parse(bytesOf(once), "a.plan")));
  EXPECT_EQ(once.substr(4, 4), "HRPL");
}

TEST(PlanFile, ReadsFromAnyAlignment) {
  const std::string text = serialize(somePlan());
  for (size_t shift = 1; shift < 8; ++shift) {
    const std::string shifted = std::string(shift, 'x') + text;
    EXPECT_TRUE(parse(bytesOf(shifted).subspan(shift), "a.plan").ok()) << shift;
  }
}

TEST(PlanFile, RefusesWhatIsNotAPlan) {
  EXPECT_EQ(parse({}, "a.plan").status().message(),
            "a.plan: not a plan file (identifier \"HRPL\" expected at byte 4, the file has 0 bytes)");
  const std::string json(1000, '{');
  EXPECT_THAT(std::string(parse(bytesOf(json), "a.plan").status().message()), HasSubstr("not a plan file"));
  std::string damaged = encode(somePlan());
  damaged[0] = '\xff'; // the offset of the root
  damaged[3] = '\x7f';
  EXPECT_EQ(parse(bytesOf(sealed(damaged)), "a.plan").status().message(),
            "a.plan: damaged plan file (FlatBuffers verifier)");
}

TEST(PlanFile, RefusesEveryCutExtensionAndFlippedBit) {
  const std::string whole = serialize(somePlan()), body = encode(somePlan());
  EXPECT_EQ(whole, sealed(body));
  EXPECT_EQ(whole.size(), body.size() + 24);
  const auto message = [](const std::string &bytes) {
    const absl::Status status = parse(bytesOf(bytes), "a.plan").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  constexpr const char *kWhole = " bytes without a plan's end: expected a plan that nothing was cut off or put behind, "
                                 "of this version of headrace; compile the plan again";
  for (size_t size = 16; size < whole.size(); ++size)
    EXPECT_EQ(message(whole.substr(0, size)), "a.plan: " + std::to_string(size) + kWhole);
  for (const std::string &behind : {std::string(1, '\0'), std::string(100, '\0'), whole.substr(whole.size() - 24)})
    EXPECT_THAT(message(whole + behind), HasSubstr("compile the plan again"));
  EXPECT_EQ(message(body), "a.plan: " + std::to_string(body.size()) + kWhole); // written before plans had an end
  EXPECT_EQ(message(body + std::string(8, '\0') + whole.substr(body.size())),
            "a.plan: " + std::to_string(body.size() + 8) + " bytes before its end: expected the " +
                std::to_string(body.size()) + " it names; compile the plan again");
  const size_t stride = 70 / casesOf(10, 70); // each bit with HEADRACE_LONG
  for (size_t bit = 0; bit < 8 * whole.size(); bit += stride) {
    std::string flipped = whole;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(parse(bytesOf(flipped), "a.plan").ok()) << "bit " << bit;
  }
  std::string changed = whole;
  changed[64] ^= 1;
  EXPECT_THAT(message(changed), HasSubstr("a.plan: checksum "));
}

// Seeds of another format would tell the fuzzer nothing: make_plan_corpus writes them anew.
TEST(PlanFile, TheFuzzersSeedsAreOfThisFormat) {
  int seeds = 0;
  std::set<std::string> parts;
  for (const auto &entry : std::filesystem::directory_iterator(sourceDir() + "/tests/fuzz/corpus/fuzz_plan")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const absl::StatusOr<Plan> plan = decode(bytesOf(bytes), entry.path().filename());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(verifyPlan(*plan, entry.path().filename()).ok());
    parts.merge(test::partsOfSplit(*plan));
    ++seeds;
  }
  EXPECT_EQ(seeds, 14);
  EXPECT_EQ(parts.size(), 18u); // all that partsOfSplit() names
}

TEST(PlanFile, RefusesAnotherVersion) {
  for (const uint32_t version : {7u, 9u}) {
    Plan plan = somePlan();
    plan.version = version;
    EXPECT_EQ(parse(bytesOf(serialize(plan)), "a.plan").status().message(),
              "a.plan: version is " + std::to_string(version) +
                  ", this program reads version 8; compile the plan again");
  }
}

// --- files -----------------------------------------------------------------------------------------------------------

class PlanOnDisk : public testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/headrace-plan-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string &name) const { return (folder_ / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto &entry : fs::directory_iterator(folder_))
      out.push_back(entry.path().filename());
    return out;
  }

  fs::path folder_;
};

TEST_F(PlanOnDisk, IsReadBackAndVerified) {
  ASSERT_TRUE(writePlan(somePlan(), path("a.plan")).ok());
  const absl::StatusOr<Plan> back = readPlan(path("a.plan"));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(textOf(*back), textOf(somePlan()));
  EXPECT_THAT(names(), testing::ElementsAre("a.plan"));
}

TEST_F(PlanOnDisk, IsRefusedIfItBreaksARule) {
  Plan plan = somePlan();
  plan.deviceMemory = plan.arenaBytes - 256;
  ASSERT_TRUE(writePlan(plan, path("a.plan")).ok());
  EXPECT_EQ(readPlan(path("a.plan")).status().message(), path("a.plan") + ": arena_bytes is " +
                                                             std::to_string(plan.arenaBytes) + ", device_memory is " +
                                                             std::to_string(plan.deviceMemory) + " [over budget]");
}

TEST_F(PlanOnDisk, ReplacesWhatWasThere) {
  std::ofstream(path("a.plan")) << "something else";
  fs::create_symlink(path("a.plan"), path("link.plan"));
  ASSERT_TRUE(writePlan(somePlan(), path("link.plan")).ok());
  EXPECT_TRUE(fs::is_symlink(path("link.plan")));
  EXPECT_TRUE(readPlan(path("a.plan")).ok());
}

TEST_F(PlanOnDisk, IsNamedWhereItCannotBeWritten) {
  const absl::Status noFolder = writePlan(somePlan(), path("none/a.plan"));
  EXPECT_EQ(noFolder.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(noFolder.message(), path("none/a.plan") + ": cannot write: No such file or directory");
  const absl::Status aFolder = writePlan(somePlan(), folder_.string());
  EXPECT_EQ(aFolder.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(aFolder.message(), folder_.string() + ": cannot write: not a regular file");
  EXPECT_EQ(writePlan(somePlan(), "/dev/null").message(), "/dev/null: cannot write: not a regular file");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(PlanOnDisk, LeavesNothingHalfWritten) {
  std::ofstream(path("a.plan")) << "what was there";
  // As a full disk: writing beyond 1000 bytes fails.
  struct rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {1000, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = writePlan(somePlan(), path("a.plan"));
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), path("a.plan") + ": cannot write: File too large");
  EXPECT_THAT(names(), testing::ElementsAre("a.plan"));
  std::string kept;
  std::getline(std::ifstream(path("a.plan")), kept);
  EXPECT_EQ(kept, "what was there");
}

TEST_F(PlanOnDisk, IsNamedWhereItCannotBeRead) {
  EXPECT_EQ(readPlan(path("none.plan")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(readPlan(path("none.plan")).status().message(),
            path("none.plan") + ": cannot read: No such file or directory");
  EXPECT_EQ(readPlan(folder_.string()).status().message(), folder_.string() + ": a folder: expected a regular file");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(readPlan(path("pipe")).status().message(), path("pipe") + ": a FIFO: expected a regular file");
}

TEST_F(PlanOnDisk, IsNotReadIfItIsTooLarge) {
  std::ofstream(path("huge.plan")) << "";
  ASSERT_EQ(::truncate(path("huge.plan").c_str(), (off_t{1} << 30) + 1), 0);
  EXPECT_EQ(readPlan(path("huge.plan")).status().message(),
            path("huge.plan") + ": 1073741825 bytes, a plan file has at most 1073741824");
}

TEST_F(PlanOnDisk, MayBeTruncated) {
  ASSERT_TRUE(writePlan(somePlan(), path("a.plan")).ok());
  ASSERT_EQ(::truncate(path("a.plan").c_str(), 1000), 0);
  EXPECT_THAT(std::string(readPlan(path("a.plan")).status().message()), StartsWith(path("a.plan") + ": "));
}

} // namespace
} // namespace headrace::plan
