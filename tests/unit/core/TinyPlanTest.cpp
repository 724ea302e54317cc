// SPDX-License-Identifier: Apache-2.0
//
// The plans that other tests run are valid ones.
#include "tests/support/TinyPlan.h"

#include <gtest/gtest.h>

#include "runtime/plan/proof/PlanVerifier.h"

namespace headrace::core {
namespace {

TEST(TinyPlan, IsWhatTheVerifierAccepts) {
  for (const model::ModelSpec &spec : {tinyLlama(5), tinyOpt(5)})
    for (const std::vector<int64_t> &offloaded :
         std::vector<std::vector<int64_t>>{{}, {0}, {1, 3}, {0, 2, 4}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}})
      for (bool wrap : {false, true})
        for (bool direct : {false, true})
          if (!direct || !spec.tiedEmbeddings) {
            const plan::Plan plan =
                tinyPlan({.spec = spec, .offloaded = offloaded, .offloadEmbedding = direct, .wrap = wrap});
            const absl::Status status = plan::verifyPlan(plan, "tiny");
            EXPECT_TRUE(status.ok()) << status << "\n"
                                     << spec.name << ", " << offloaded.size() << " layers off, wrap " << wrap;
          }
}

} // namespace
} // namespace headrace::core
