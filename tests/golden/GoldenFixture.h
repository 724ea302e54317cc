// SPDX-License-Identifier: Apache-2.0
//
// A golden model, read and ready to run: the parameter is its name.
#pragma once

#include <algorithm>
#include <string>

#include "runtime/model/HfConfig.h"
#include "tests/golden/GoldenRun.h"
#include "tests/golden/Reference.h"
#include "gtest/gtest.h"

namespace headrace::golden {

inline std::string testName(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class GoldenFixture : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    absl::StatusOr<Reference> reference = readReference(GetParam());
    ASSERT_TRUE(reference.ok()) << reference.status();
    reference_ = *std::move(reference);
    absl::StatusOr<model::HfFolder> model = model::readHfFolder(reference_.folder);
    ASSERT_TRUE(model.ok()) << model.status();
    setup_.checkpoint = model->checkpoint;
    setup_.spec = model->spec;
    setup_.prompts = reference_.prompts;
    setup_.maxNewTokens = static_cast<int64_t>(reference_.tokens[0].size());
  }

  // A bucket of so many rows that tiles of 128 queries run: each prompt three times, in a plan for contexts of 600.
  void widenToLargeTiles() {
    const auto threeTimes = [](auto &list) {
      const auto once = list;
      for (int i = 0; i < 2; ++i)
        list.insert(list.end(), once.begin(), once.end());
    };
    threeTimes(setup_.prompts);
    threeTimes(reference_.tokens);
    threeTimes(reference_.logits);
    setup_.context = 600;
    setup_.mixedTokens = 4096;
    setup_.wholePrompts = true;
  }

  // Bit for bit the resident run's through the same variants, and as near as two that hold to the bound through others.
  // Whether it was the same ones.
  bool expectLogitsOf(const RunResult &resident, const RunResult &result) const {
    if (result.buckets == resident.buckets || reference_.ownTypeBound == 0) {
      EXPECT_TRUE(result.generated.logits == resident.generated.logits);
      return true;
    }
    for (size_t p = 0; p < resident.generated.logits.size(); ++p)
      EXPECT_LE(largestDifference(result.generated.logits[p], resident.generated.logits[p]),
                2 * reference_.ownTypeBound);
    return false;
  }

  Reference reference_;
  RunSetup setup_; // of the host device, everything resident
};

} // namespace headrace::golden
