// SPDX-License-Identifier: Apache-2.0
//
// The host device computes what Hugging Face transformers computes, for every golden model.
#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/AttentionTiles.h"
#include "runtime/model/HfConfig.h"
#include "tests/golden/Faults.h"
#include "tests/golden/GoldenFixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::golden {
namespace {

class Golden : public GoldenFixture {};
class SixteenBitGolden : public Golden {};

// Checkpoints are named after their type.
std::vector<std::string> sixteenBitModels() {
  std::vector<std::string> names;
  for (const std::string &name : allModels())
    if (name.find("f16") != std::string::npos)
      names.push_back(name);
  return names;
}

TEST_P(Golden, TokensAreTransformersAndLogitsWithinTheTolerance) {
  const absl::StatusOr<RunResult> result = run(setup_);
  ASSERT_TRUE(result.ok()) << result.status();
  const Comparison comparison = compare(reference_, result->generated);
  RecordProperty("largest_difference", absl::StrCat(comparison.largestDifference));
  EXPECT_TRUE(comparison.tokensEqual) << comparison.firstDifference;
  EXPECT_LE(comparison.largestDifference, reference_.tolerance);
  EXPECT_EQ(result->tokensInFlight, reference_.tokens);
}

// Chunks of prompts beside rows that decode: 56 prompt ids or more in iterations of 13 rows.
TEST_P(Golden, PrefillInChunksBesideDecodingGivesTheBitsOfPrefillAtOnce) {
  const absl::StatusOr<RunResult> atOnce = run(setup_);
  ASSERT_TRUE(atOnce.ok()) << atOnce.status();
  EXPECT_EQ(atOnce->generated.prefillIterations, 1u);
  RunSetup chunked = setup_;
  chunked.mixedTokens = 13;
  const absl::StatusOr<RunResult> result = run(chunked);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->generated.prefillIterations, 5u);
  EXPECT_EQ(result->generated.tokens, reference_.tokens);
  EXPECT_TRUE(result->generated.logits == atOnce->generated.logits);
}

TEST_P(Golden, EveryPromptAloneGivesTheBitsItGivesInTheBatch) {
  const absl::StatusOr<RunResult> batch = run(setup_);
  ASSERT_TRUE(batch.ok()) << batch.status();
  for (size_t p = 0; p < reference_.prompts.size(); ++p) {
    RunSetup alone = setup_;
    alone.prompts = {reference_.prompts[p]};
    const absl::StatusOr<RunResult> result = run(alone);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->generated.tokens[0], batch->generated.tokens[p]) << "prompt " << p;
    EXPECT_TRUE(result->generated.logits[0] == batch->generated.logits[p]) << "prompt " << p;
  }
}

TEST_P(Golden, AnyNumberOfThreadsGivesTheBitsOfOne) {
  const absl::StatusOr<RunResult> one = run(setup_);
  ASSERT_TRUE(one.ok()) << one.status();
  for (const int threads : {2, 3, 5, 8}) {
    RunSetup shared = setup_;
    shared.threads = threads;
    const absl::StatusOr<RunResult> result = run(shared);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->generated.tokens, one->generated.tokens) << threads << " threads";
    EXPECT_TRUE(result->generated.logits == one->generated.logits) << threads << " threads";
    EXPECT_EQ(result->tokensInFlight, one->tokensInFlight) << threads << " threads";
  }
}

// Computing in F32 on an F16 or BF16 checkpoint differs from transformers in BF16 by what BF16 arithmetic loses there.
TEST_P(SixteenBitGolden, LogitsAreWithinTheStatedBoundOfTransformersInBf16) {
  ASSERT_NE(setup_.spec.dtype, model::DType::F32);
  const absl::StatusOr<RunResult> result = run(setup_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_FALSE(reference_.bf16Logits.empty());
  double largest = 0;
  for (size_t p = 0; p < reference_.prompts.size(); ++p)
    largest = std::max(largest, largestDifference(result->generated.logits[p], reference_.bf16Logits[p]));
  // The bound is stated with four digits, 0.05% of it.
  EXPECT_LE(largest, reference_.bf16Bound * 1.0005 + reference_.tolerance);
  // transformers in BF16 is worse than the tolerance, else the checkpoint would prove nothing about computing in F32.
  EXPECT_GT(largest, 10 * reference_.tolerance);
}

TEST_P(Golden, FaultsRecordedAreThoseThatConcernTheModel) {
  std::vector<std::string> recorded;
  for (const auto &[fault, difference] : reference_.mutations) {
    recorded.push_back(fault);
    EXPECT_GT(difference, 10 * reference_.tolerance) << fault;
  }
  EXPECT_THAT(faultsOf(setup_.spec), testing::UnorderedElementsAreArray(recorded));
}

TEST_P(Golden, EveryFaultTurnsItRed) {
  for (const std::string &fault : faultsOf(setup_.spec)) {
    SCOPED_TRACE(fault);
    RunSetup faulty = setup_;
    ASSERT_TRUE(inject(fault, faulty).ok());
    const absl::StatusOr<RunResult> result = run(faulty);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(compare(reference_, result->generated).good(reference_.tolerance));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(allModels()), testName);
INSTANTIATE_TEST_SUITE_P(Models, SixteenBitGolden, testing::ValuesIn(sixteenBitModels()), testName);

TEST(GoldenFolder, EverySixteenBitCheckpointIsComparedInItsOwnType) {
  std::vector<std::string> expected;
  for (const std::string &name : allModels()) {
    const absl::StatusOr<model::HfFolder> model = model::readHfFolder(goldenFolder() + "/" + name);
    ASSERT_TRUE(model.ok()) << model.status();
    if (model->spec.dtype != model::DType::F32)
      expected.push_back(name);
  }
  EXPECT_EQ(sixteenBitModels(), expected);
}

TEST(GoldenFolder, EveryFolderWithAReferenceIsTested) {
  std::set<std::string> found;
  for (const auto &entry : std::filesystem::directory_iterator(goldenFolder()))
    if (std::filesystem::exists(entry.path() / "reference.json"))
      found.insert(entry.path().filename());
  EXPECT_THAT(allModels(), testing::UnorderedElementsAreArray(found));
}

// Each family with 7 and with 12 layers; between them all that the readers and kernels have options for.
TEST(GoldenFolder, ModelsCoverTheOptions) {
  std::multiset<std::pair<model::Family, int64_t>> shapes;
  bool qkNorm = false, grouped = false, tied = false, sharded = false, llama3 = false, linear = false,
       unevenHead = false;
  std::set<model::DType> dtypes;
  for (const std::string &name : modelNames()) {
    const std::string folder = absl::StrCat(goldenFolder(), "/", name);
    const absl::StatusOr<model::HfFolder> model = model::readHfFolder(folder);
    ASSERT_TRUE(model.ok()) << model.status();
    const model::ModelSpec *spec = &model->spec;
    shapes.insert({spec->family, spec->layers});
    grouped |= spec->kvHeads > 1 && spec->kvHeads < spec->heads;
    tied |= spec->tiedEmbeddings;
    sharded |= std::filesystem::exists(folder + "/model.safetensors.index.json");
    llama3 |= spec->rope.scaling == model::RopeScalingKind::Llama3 && spec->rope.originalMaxPositions == 16;
    linear |= spec->rope.scaling == model::RopeScalingKind::Linear;
    qkNorm |= spec->qkNorm;
    unevenHead |= spec->qRows() != spec->hidden;
    dtypes.insert(spec->dtype);
    EXPECT_NE(spec->hidden % 16, 0) << name;
    EXPECT_NE(spec->vocab % 16, 0) << name;
    EXPECT_NE(spec->intermediate % 16, 0) << name;
  }
  using model::Family;
  EXPECT_THAT(shapes, testing::ElementsAre(std::pair(Family::Opt, 7), std::pair(Family::Opt, 12),
                                           std::pair(Family::Llama, 7), std::pair(Family::Llama, 12),
                                           std::pair(Family::Qwen2, 7), std::pair(Family::Qwen2, 12),
                                           std::pair(Family::Mistral, 7), std::pair(Family::Mistral, 12),
                                           std::pair(Family::Qwen3, 7), std::pair(Family::Qwen3, 12)));
  EXPECT_TRUE(qkNorm && grouped && tied && sharded && llama3 && linear && unevenHead);
  EXPECT_EQ(dtypes.size(), 3u);
}

// Every head size that a tensor-core kernel is for, both 16-bit types, a group of 8 in both; contexts of more than one
// split of decode and prompts of more than one tile, but for OPT, whose table of positions would be too large.
TEST(GoldenFolder, TensorCoreModelsCoverTheKernels) {
  std::multiset<int64_t> sizes;
  std::set<std::pair<model::DType, int64_t>> groups;
  for (const std::string &name : tensorCoreModels()) {
    const absl::StatusOr<Reference> reference = readReference(name);
    ASSERT_TRUE(reference.ok()) << reference.status();
    const absl::StatusOr<model::HfFolder> model = model::readHfFolder(reference->folder);
    ASSERT_TRUE(model.ok()) << model.status();
    const model::ModelSpec &spec = model->spec;
    EXPECT_EQ(spec.layers, 2) << name;
    sizes.insert(spec.headDim);
    groups.insert({spec.dtype, spec.heads / spec.kvHeads});
    EXPECT_TRUE(spec.kvHeads > 1);
    EXPECT_GT(reference->prompts.back().size(), spec.family == model::Family::Opt
                                                    ? kernels::PrefillTiles::queries(1)
                                                    : kernels::CudaWorkspace::kSplitTokens)
        << name;
    EXPECT_GT(reference->ownTypeBound, 0) << name; // its tokens hold in 16 bits
    for (const auto &[fault, difference] : reference->mutations)
      EXPECT_GT(difference, 1.5 * reference->ownTypeBound) << name << ", " << fault;
  }
  EXPECT_THAT(sizes, testing::ElementsAre(64, 64, 80, 96, 128));
  EXPECT_TRUE(groups.contains({model::DType::F16, 8}) && groups.contains({model::DType::BF16, 8}));
}

TEST(GoldenFolder, OlderConfigOfTheSameModelGivesTheSameSpec) {
  const absl::StatusOr<model::HfFolder> newer = model::readHfFolder(goldenFolder() + "/llama-7-gqa-llama3-f32");
  const absl::StatusOr<model::HfFolder> older = model::readHfFolder(goldenFolder() + "/legacy-config");
  ASSERT_TRUE(newer.ok()) << newer.status();
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(older->spec.family, newer->spec.family);
  EXPECT_EQ(older->spec.layers, newer->spec.layers);
  EXPECT_EQ(older->spec.headDim, newer->spec.headDim);
  EXPECT_EQ(older->spec.kvHeads, newer->spec.kvHeads);
  EXPECT_EQ(older->spec.normEps, newer->spec.normEps);
  EXPECT_EQ(older->spec.dtype, newer->spec.dtype);
  EXPECT_EQ(older->spec.rope.enabled, newer->spec.rope.enabled);
  EXPECT_EQ(older->spec.rope.theta, newer->spec.rope.theta);
  EXPECT_EQ(older->spec.rope.scaling, model::RopeScalingKind::Llama3);
  EXPECT_EQ(older->spec.rope.scaling, newer->spec.rope.scaling);
  EXPECT_EQ(older->spec.rope.factor, newer->spec.rope.factor);
  EXPECT_EQ(older->spec.rope.lowFreqFactor, newer->spec.rope.lowFreqFactor);
  EXPECT_EQ(older->spec.rope.highFreqFactor, newer->spec.rope.highFreqFactor);
  EXPECT_EQ(older->spec.rope.originalMaxPositions, newer->spec.rope.originalMaxPositions);
}

} // namespace
} // namespace headrace::golden
