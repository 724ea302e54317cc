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

  Reference reference_;
  RunSetup setup_; // of the host device, everything resident
};

} // namespace headrace::golden
