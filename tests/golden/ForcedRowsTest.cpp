// SPDX-License-Identifier: Apache-2.0
//
// Every position's logits, whatever the chunks are: the bits that an engine keeps of the positions it samples; and what
// packing does to them, held against the twin's, which is nothing.
#include "runtime/serve/engine/ForcedRows.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "tests/golden/GoldenFixture.h"
#include "tests/support/PackedSpec.h"
#include "tests/support/TwinWeights.h"
#include "tools/report/Drift.h"

namespace headrace::golden {
namespace {

using Ids = std::vector<int32_t>;

// A plan of so many rows an iteration, run.
class Forced {
public:
  Forced(RunSetup setup, int64_t rows, int64_t context) : device_(host::makeHostDevice({.unpaced = true})) {
    setup.prompts.assign(static_cast<size_t>(rows), Ids{0});
    setup.context = setup.kvTokens = context;
    absl::StatusOr<plan::Plan> plan = compilePlan(setup);
    EXPECT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    const absl::StatusOr<std::shared_ptr<const model::WeightSource>> weights = weightsOf(setup);
    EXPECT_TRUE(weights.ok()) << weights.status();
    absl::StatusOr<std::unique_ptr<core::Runtime>> runtime =
        core::Runtime::load(plan_, *device_, {}, weights->get(), core::LoadOptions());
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }

  // Of all positions of each prompt.
  std::vector<std::vector<float>> logits(const std::vector<Ids> &prompts) {
    absl::StatusOr<serve::ForcedRows> rows = serve::ForcedRows::create(*runtime_);
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::vector<std::vector<float>> out;
    for (const Ids &ids : prompts) {
      out.emplace_back();
      rows->restart();
      while (rows->rows() < static_cast<int64_t>(ids.size())) {
        const int64_t left = static_cast<int64_t>(ids.size()) - rows->rows();
        const absl::Status status = rows->next(ids, std::min(left, rows->mostRows()), out.back());
        EXPECT_TRUE(status.ok()) << status;
        if (!status.ok())
          return out;
      }
    }
    return out;
  }

private:
  const std::unique_ptr<core::Device> device_;
  plan::Plan plan_;
  std::unique_ptr<core::Runtime> runtime_;
};

class ForcedLogits : public GoldenFixture {
protected:
  static int64_t longest(const std::vector<Ids> &prompts) {
    size_t most = 0;
    for (const Ids &ids : prompts)
      most = std::max(most, ids.size());
    return static_cast<int64_t>(most);
  }
};

// Prompts with what was generated behind them. Those of up to 100 tokens are forced one by one, too.
TEST_P(ForcedLogits, AreThoseOfTheEngineWhateverTheChunks) {
  setup_.maxNewTokens = 6;
  const absl::StatusOr<RunResult> generated = run(setup_);
  ASSERT_TRUE(generated.ok()) << generated.status();
  std::vector<Ids> ids = setup_.prompts;
  for (size_t p = 0; p < ids.size(); ++p) {
    const Ids &tokens = generated->generated.tokens[p];
    ids[p].insert(ids[p].end(), tokens.begin(), tokens.end());
  }
  const std::vector<std::vector<float>> whole = Forced(setup_, longest(ids), longest(ids)).logits(ids);
  const auto vocab = static_cast<size_t>(setup_.spec.vocab);
  for (size_t p = 0; p < ids.size(); ++p) {
    ASSERT_EQ(whole[p].size(), ids[p].size() * vocab);
    const std::vector<float> &kept = generated->generated.logits[p];
    const auto first = whole[p].begin() + static_cast<ptrdiff_t>((setup_.prompts[p].size() - 1) * vocab);
    EXPECT_TRUE(std::equal(kept.begin(), kept.end(), first)) << p;
  }
  EXPECT_TRUE(Forced(setup_, 5, longest(ids)).logits(ids) == whole);
  if (longest(ids) <= 100) {
    EXPECT_TRUE(Forced(setup_, 1, longest(ids)).logits(ids) == whole);
  }
}

TEST_P(ForcedLogits, OfAPackedModelDriftFromItsTwinsByNothing) {
  const model::ModelSpec spec = model::roundedUp(setup_.spec);
  if (setup_.prompts.back().size() > 100)
    setup_.prompts.pop_back();
  const std::vector<Ids> &ids = setup_.prompts;
  const std::shared_ptr<const model::WeightSource> weights = model::syntheticWeights(11);
  const auto logitsOf = [&](const model::ModelSpec &of, std::shared_ptr<const model::WeightSource> from) {
    RunSetup setup = setup_;
    setup.spec = of;
    setup.weights = std::move(from);
    return Forced(setup, 16, longest(ids)).logits(ids);
  };
  const auto driftFrom = [&](const std::vector<std::vector<float>> &full,
                             const std::vector<std::vector<float>> &packed) {
    std::vector<tools::PositionDrift> out;
    const auto vocab = static_cast<size_t>(spec.vocab);
    for (size_t p = 0; p < ids.size(); ++p)
      for (size_t i = 0; i < ids[p].size(); ++i)
        out.push_back(tools::driftOf(absl::MakeConstSpan(full[p]).subspan(i * vocab, vocab),
                                     absl::MakeConstSpan(packed[p]).subspan(i * vocab, vocab),
                                     i + 1 < ids[p].size() ? std::optional(ids[p][i + 1]) : std::nullopt));
    return out;
  };
  const std::vector<std::vector<float>> full = logitsOf(spec, weights);
  double kl[2] = {0, 0};
  for (const bool q4 : {false, true}) {
    SCOPED_TRACE(q4);
    const model::ModelSpec packed = model::packedSpec(spec, q4 ? "q4:32" : "q8:32");
    const std::vector<std::vector<float>> logits = logitsOf(packed, weights);
    const auto twin = logitsOf(model::twinOf(packed), std::make_shared<model::TwinWeights>(packed, weights));
    for (const tools::PositionDrift &drift : driftFrom(twin, logits)) {
      EXPECT_EQ(drift.largest, 0);
      EXPECT_EQ(drift.mean, 0);
      EXPECT_EQ(drift.kl, 0);
      EXPECT_TRUE(drift.sameFirst);
      EXPECT_EQ(drift.fullLoss, drift.packedLoss);
    }
    kl[q4] = tools::summaryOf(driftFrom(full, logits)).meanKl;
  }
  EXPECT_GT(kl[0], 0);
  EXPECT_GT(kl[1], 10 * kl[0]); // steps are 17 times as long, and KL goes by their square
}

INSTANTIATE_TEST_SUITE_P(Models, ForcedLogits, testing::ValuesIn(allModels()), testName);

} // namespace
} // namespace headrace::golden
