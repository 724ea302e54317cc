// SPDX-License-Identifier: Apache-2.0
//
// Packed KV caches through the recorded CUDA graphs, the kernels' own source run on the host: kernels for packed caches
// run and no others, and with caches away a run is the one whose caches stay on the device (all ways to be away, in
// heads of one size: tests/choices). Of models whose heads no group divides the sizes are rounded up, with weights from
// a seed.
#include "tests/golden/GoldenFixture.h"
#include "tests/golden/SplitCase.h"
#include "tests/support/LongRun.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"

namespace headrace::golden {
namespace {

using algorithms::WriteBack;
using model::Encoding;

constexpr int64_t kBlockTokens = 4, kNewTokens = 3;
constexpr int64_t kSmallest = 32; // group

class EmulatedPackedKv : public GoldenFixture {
protected:
  void SetUp() override {
    GoldenFixture::SetUp();
    setup_.hardware = "h200";
    setup_.makeDevice = [this] { return cuda::makeEmulatedGraphDevice({.order = ++order_, .ran = &ran_}); };
    setup_.prompts.resize(2);
    setup_.maxNewTokens = kNewTokens;
    setup_.blockTokens = kBlockTokens;
    if (setup_.spec.headDim % kSmallest == 0)
      return;
    setup_.spec.headDim = (setup_.spec.headDim + kSmallest - 1) / kSmallest * kSmallest;
    setup_.weights = model::syntheticWeights(11);
  }

  std::set<std::string> ran_; // kernels
  uint64_t order_ = 0;
};

// In 8 bits and in 4 with HEADRACE_LONG, else in one of them, others for each model, in turns.
TEST_P(EmulatedPackedKv, RunsAreThoseWithCachesOnTheDevice) {
  size_t longest = 0;
  for (const std::vector<int32_t> &prompt : setup_.prompts)
    longest = std::max(longest, prompt.size());
  const int64_t ofOne = (static_cast<int64_t>(longest) + kNewTokens + kBlockTokens - 1) / kBlockTokens;
  const int64_t blocks = 1 + static_cast<int64_t>(setup_.prompts.size()) * ofOne;
  for (const int bits : {8, 4}) {
    if (!longRun() && bits / 4 % 2 != static_cast<int>(GetParam().size() / 3 % 2))
      continue;
    SCOPED_TRACE(testing::Message() << bits << " bits");
    setup_.kvEncoding = Encoding::groups(bits);
    ran_.clear();
    const absl::StatusOr<RunResult> resident = run(setup_);
    ASSERT_TRUE(resident.ok()) << resident.status();
    for (const std::string &kernel : ran_)
      if (kernel.starts_with("attention_") || kernel.starts_with("rope_append_")) {
        EXPECT_TRUE(kernel.ends_with("_packed")) << kernel;
      }
    const SplitCase away{.resident = 2, .interval = 2, .decode = WriteBack::Dirty, .mixed = WriteBack::Mirror};
    const absl::StatusOr<RunResult> result = run(withCase(setup_, away, blocks));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->residentBlocks, 2);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    if (result->buckets == resident->buckets) {
      EXPECT_TRUE(result->generated.logits == resident->generated.logits);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedPackedKv, testing::ValuesIn(modelsOfEachKernel()), testName);

// Models of F32 compute on both devices in F32: packed rows are packed alike.
class EmulatedPackedKvF32 : public EmulatedPackedKv {};

TEST_P(EmulatedPackedKvF32, TokensAreTheHosts) {
  setup_.kvEncoding = Encoding::groups(4);
  RunSetup host = setup_;
  host.hardware = "host";
  host.makeDevice = nullptr;
  const absl::StatusOr<RunResult> one = run(setup_), other = run(host);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(one->generated.tokens, other->generated.tokens);
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedPackedKvF32, testing::ValuesIn([] {
                           std::vector<std::string> names = allModels();
                           std::erase_if(names, [](const std::string &name) { return !name.ends_with("-f32"); });
                           return names;
                         }()),
                         testName);

} // namespace
} // namespace headrace::golden
