// SPDX-License-Identifier: Apache-2.0
//
// Bytes that only look like a plan: never a crash, never memory on their word.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "flatbuffers/flatbuffers.h"
#include "plan_generated.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/plan/value/PlanBytes.h"
#include "tests/unit/plan/AllocationGuard.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/PlanText.h"

namespace headrace::plan {
namespace {

using test::bytesOf;

constexpr size_t kPartsOfSplit = 18; // all that partsOfSplit() names

std::vector<std::string> files() {
  std::vector<std::string> out;
  std::set<std::string> parts;
  for (const auto &plans : {test::variedPlans(), test::splitPlans(), test::writeBackPlans()})
    for (const test::NamedOptions &named : plans) {
      const Plan plan = test::makePlan(named.options);
      parts.merge(test::partsOfSplit(plan));
      out.push_back(encode(plan));
    }
  EXPECT_EQ(parts.size(), kPartsOfSplit);
  const std::vector<test::NamedOptions> residuals = test::residualPlans();
  for (size_t i = 0; i < residuals.size(); i += 5)
    out.push_back(encode(test::makePlan(residuals[i].options)));
  const std::vector<test::NamedOptions> acts = test::actPlans();
  for (size_t i = 0; i < acts.size(); i += 5)
    out.push_back(encode(test::makePlan(acts[i].options)));
  return out;
}

// Seals (what the checksum keeps out is tested with PlanFile), reads and verifies, within a multiple of the file's own
// size. Tables of a few bytes become structs of a hundred or
// two, and the verifier keeps clocks and maps of what it was given.
bool accepted(const std::string &bytes) {
  const std::string text = sealed(bytes);
  const test::AllocationGuard guard;
  const absl::StatusOr<Plan> plan = parse(bytesOf(text), "a.plan");
  const bool valid = plan.ok() && findViolations(*plan).empty();
  EXPECT_LE(guard.peakBytes(), 64 * text.size() + (1 << 20)) << "for a file of " << text.size() << " bytes";
  return valid;
}

TEST(UntrustedPlan, IsAcceptedWhole) {
  for (const std::string &file : files())
    EXPECT_TRUE(accepted(file));
}

TEST(UntrustedPlan, IsRefusedTruncated) {
  for (const std::string &file : files()) {
    for (size_t size = 0; size < file.size(); size += 1 + file.size() / 97)
      EXPECT_FALSE(accepted(file.substr(0, size))) << size << " of " << file.size();
    EXPECT_FALSE(accepted(file.substr(0, file.size() - 9))); // the last bytes may be padding
  }
}

TEST(UntrustedPlan, SurvivesFlippedBits) {
  const std::vector<std::string> originals = files();
  std::mt19937_64 random(7);
  int refused = 0;
  constexpr int kTurns = 8000;
  for (int turn = 0; turn < kTurns; ++turn) {
    std::string file = originals[random() % originals.size()];
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips)
      file[random() % file.size()] ^= static_cast<char>(1u << random() % 8);
    refused += !accepted(file);
  }
  // What is left are names, amounts of compute steps, paddings and the like.
  EXPECT_GE(refused, kTurns / 2);
}

TEST(UntrustedPlan, SurvivesBytesOverwrittenWithExtremes) {
  const std::vector<std::string> originals = files();
  std::mt19937_64 random(11);
  constexpr uint64_t kExtremes[] = {0,          1,           0x7f,       0xff,       0x7fff, 0xffff,     0x7fffffff,
                                    0x80000000, 0xffffffffu, 1ull << 53, 1ull << 62, ~0ull,  ~0ull - 255};
  for (int turn = 0; turn < 8000; ++turn) {
    std::string file = originals[random() % originals.size()];
    for (uint64_t writes = 1 + random() % 3; writes > 0; --writes) {
      const size_t width = size_t{1} << random() % 4;
      const uint64_t value = kExtremes[random() % std::size(kExtremes)];
      std::memcpy(&file[random() % (file.size() / width - 1) * width], &value, width);
    }
    accepted(file);
  }
}

TEST(UntrustedPlan, SurvivesPiecesOfOtherPlans) {
  const std::vector<std::string> originals = files();
  std::mt19937_64 random(13);
  for (int turn = 0; turn < 2000; ++turn) {
    std::string file = originals[random() % originals.size()];
    const std::string &other = originals[random() % originals.size()];
    const size_t length = 8 + random() % 512, from = random() % (other.size() - length);
    file.replace(random() % (file.size() - length) / 8 * 8, length, other, from / 8 * 8, length);
    accepted(file);
  }
}

// A plan's inputs have one spelling, and no keys but a job's.
TEST(UntrustedPlan, HasItsInputsAsTheyAreWritten) {
  const std::string text = encode(test::makePlan(test::packedPlans()[2].options));
  const auto refusal = [&](const std::string &was, const std::string &is) { // as long
    std::string changed = text;
    changed.replace(changed.find(was), was.size(), is);
    return std::string(parse(bytesOf(sealed(changed)), "a.plan").status().message());
  };
  EXPECT_THAT(refusal("up=q8:128", "up=q3:128"),
              testing::HasSubstr("model.weight_encoding = \"qkv=q4,up=q3:128\": expected"));
  EXPECT_THAT(refusal("up=q8:128", "up=q8:129"),
              testing::HasSubstr("model.weight_encoding = \"qkv=q4,up=q8:129\": expected"));
  EXPECT_THAT(refusal("heads = ", "heaps = "), testing::HasSubstr("model.heads is missing"));
  EXPECT_THAT(refusal("[goal]\n", "[gaol]\n"), testing::HasSubstr("a.plan: inputs: no section [goal]"));
  EXPECT_EQ(refusal("heads = ", "heads =\t"),
            "a.plan: inputs: not as headrace writes them: \"heads =\\t2\": expected \"heads = 2\"");
  EXPECT_THAT(refusal("kind = \"host\"", "kind = \"hose\""), testing::HasSubstr("hardware.kind = \"hose\": expected"));
}

// FlatBuffers lets many offsets name one table: a hundred kilobytes would unfold into hundreds of megabytes.
TEST(UntrustedPlan, MayNotUseTheSameBytesTwice) {
  flatbuffers::FlatBufferBuilder fbb;
  const auto name = fbb.CreateString("x");
  const auto inputs = fbb.CreateString(inputsOf(test::makePlan(test::packedPlans().front().options)));
  const auto variant = fb::CreateVariant(fbb, 1, 1, 1, 0, 0, fbb.CreateVector(std::vector<uint64_t>(10000, 1)));
  const auto variants = fbb.CreateVector(std::vector<flatbuffers::Offset<fb::Variant>>(5000, variant));
  const auto buffers = fbb.CreateVector(std::vector<flatbuffers::Offset<fb::Buffer>>());
  const auto placements = fbb.CreateVector(std::vector<flatbuffers::Offset<fb::Placement>>());
  const auto states = fbb.CreateVector(std::vector<flatbuffers::Offset<fb::State>>());
  const auto schedules = fbb.CreateVector(std::vector<flatbuffers::Offset<fb::Schedule>>());
  const auto transitions = fbb.CreateVector(std::vector<flatbuffers::Offset<fb::Transition>>());
  fbb.Finish(fb::CreatePlan(fbb, kFormatVersion, name, inputs, name, name, 0, name, name, 0, 2, 4, 4, 4, 64, 0, 0,
                            buffers, placements, states, schedules, variants, transitions),
             "HRPL");
  const std::string text(reinterpret_cast<const char *>(fbb.GetBufferPointer()), fbb.GetSize());
  const test::AllocationGuard guard; // 5000 x 10000 x 8 bytes would be 400 MB
  EXPECT_EQ(std::string(parse(bytesOf(sealed(text)), "a.plan").status().message()),
            "a.plan: the same bytes are used by more than one field");
  EXPECT_LE(guard.peakBytes(), 16 * text.size());
}

} // namespace
} // namespace headrace::plan
