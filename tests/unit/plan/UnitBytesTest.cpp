// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/proof/UnitBytes.h"

#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan {
namespace {

using model::UnitRole;

TEST(UnitBytes, RoundNumbers) {
  model::ModelSpec spec = test::tinyLlama(2); // F32, hidden 32, q 32 and k and v 16 each, MLP 48, vocabulary 96
  spec.encodings[UnitRole::Qkv] = model::Encoding::groups(4, 32);
  spec.encodings[UnitRole::Head] = model::Encoding::groups(8, 32);
  EXPECT_EQ(unitBytes(spec, UnitRole::Qkv).matrix, 64u * (4 + 16));
  EXPECT_EQ(unitBytes(spec, UnitRole::Qkv).unit, 1280u + 256); // and a norm
  EXPECT_EQ(unitBytes(spec, UnitRole::Head).matrix, 96u * (4 + 32));
  EXPECT_EQ(unitBytes(spec, UnitRole::Head).unit, 3584u + 256); // 3456, to 14 x 256
  EXPECT_EQ(unitBytes(spec, UnitRole::Down).unit, 32u * 48 * 4);
  EXPECT_EQ(unitBytes(spec, UnitRole::Embedding).unit, 96u * 32 * 4);
  spec.tiedEmbeddings = true;
  spec.encodings[UnitRole::Head].reset();
  EXPECT_EQ(unitBytes(spec, UnitRole::Head).matrix, 0u);
}

TEST(UnitBytes, AreTheLayouts) {
  std::vector<model::ModelSpec> specs;
  for (const test::NamedOptions &named : test::packedPlans())
    specs.push_back(named.options.model);
  for (const bool tied : {false, true})
    for (const model::DType dtype : {model::DType::F32, model::DType::F16, model::DType::BF16})
      for (model::ModelSpec spec : {test::tinyLlama(2), test::tinyOpt(2), test::tinyQwen3(2)}) {
        spec.tiedEmbeddings = tied;
        spec.dtype = dtype;
        spec.vocab = 101;
        specs.push_back(spec);
        std::string expected;
        spec.intermediate = 160;
        spec.encodings = *model::weightEncodingsFromText("q8:32", spec, expected);
        specs.push_back(spec);
      }
  for (const model::ModelSpec &spec : specs)
    for (const model::Unit &unit : model::layoutWeights(spec).units) {
      const UnitBytes bytes = unitBytes(spec, unit.role);
      EXPECT_EQ(bytes.unit, unit.bytes) << unit.name;
      const model::Tensor *matrix =
          unit.find(unit.role == UnitRole::Embedding ? model::TensorRole::TokenTable : model::TensorRole::Matrix);
      EXPECT_EQ(bytes.matrix, matrix != nullptr ? matrix->bytes : 0) << unit.name;
    }
}

TEST(UnitBytes, PackedPlansAreAccepted) {
  for (const test::NamedOptions &named : test::packedPlans()) {
    const std::vector<Violation> violations = findViolations(test::makePlan(named.options));
    EXPECT_TRUE(violations.empty()) << named.name << ": " << violations.front().message;
  }
}

} // namespace
} // namespace headrace::plan
