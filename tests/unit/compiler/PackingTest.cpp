// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/Packing.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/PlanFile.h"
#include "tests/unit/compiler/Requests.h"

namespace headrace::compiler {
namespace {

using model::AllowQuantized;
using model::Encoding;
using model::UnitRole;
using testing::HasSubstr;

// A host whose link brings a byte in the time of ten on the device. Groups of 64 divide the 64 columns of qkv, out, up
// and head, of 32 the 96 of down; heads are of 32.
CompileRequest packable() {
  CompileRequest r = request(tinyLlama(4));
  r.model->hidden = 64;
  r.model->heads = 2;
  r.model->kvHeads = 2;
  r.model->headDim = 32;
  r.model->intermediate = 96;
  return r;
}

CompileRequest allowing(AllowQuantized allowed) {
  CompileRequest r = packable();
  r.goal.allowQuantized = allowed;
  return r;
}

TEST(Packing, WhatIsAllowedBeginsWithWhatIs) {
  EXPECT_EQ(allowedWeights(packable()), std::vector<model::WeightEncodings>(1));
  EXPECT_EQ(allowedKv(packable()), (std::vector<std::optional<Encoding>>{std::nullopt}));
  EXPECT_EQ(allowedKv(allowing(AllowQuantized::Weights)).size(), 1u);
  EXPECT_EQ(allowedWeights(allowing(AllowQuantized::Kv)).size(), 1u);
  const std::vector<model::WeightEncodings> weights = allowedWeights(allowing(AllowQuantized::Both));
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_FALSE(weights[0].any());
  EXPECT_EQ(model::weightEncodingText(weights[1]), "qkv=q8,out=q8,up=q8,down=q8:32,head=q8");
  EXPECT_EQ(weights[2][UnitRole::Down], Encoding::groups(4, 32));
  EXPECT_EQ(allowedKv(allowing(AllowQuantized::Both)),
            (std::vector<std::optional<Encoding>>{std::nullopt, Encoding::groups(8), Encoding::groups(4)}));
}

TEST(Packing, OfATiedHeadNothingIsPacked) {
  CompileRequest r = packable();
  r.model->tiedEmbeddings = true;
  r.hashOf = [](const model::ModelSpec &spec) { return model::weightEncodingText(spec); };
  Choice choice;
  choice.encodings.weights = model::packedIn(4, r.model);
  EXPECT_EQ(choice.encodings.weights[UnitRole::Head], Encoding::groups(4)); // of a model that has its own
  const CompileRequest of = asChosen(r, choice);
  EXPECT_EQ(of.model->encodings[UnitRole::Head], std::nullopt);
  EXPECT_EQ(of.modelHash, "qkv=q4,out=q4,up=q4,down=q4:32");
  EXPECT_TRUE(model::validate(of.model, "").ok()) << model::validate(of.model, "");
  EXPECT_EQ(asChosen(r, Choice()).modelHash, r.modelHash);
}

std::string refused(const std::function<void(CompileRequest &)> &change) {
  CompileRequest r = allowing(AllowQuantized::Both);
  change(r);
  const absl::Status status = compile(r).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(Packing, WhatIsAllowedIsNotStatedToo) {
  const std::string key = "goal.allow_quantized = \"both\": expected ";
  EXPECT_THAT(refused([](CompileRequest &r) { r.goal.kvEncoding = Encoding::groups(8); }),
              HasSubstr(key + "no kv_dtype beside it, which is q8"));
  EXPECT_THAT(refused([](CompileRequest &r) { r.model->encodings[UnitRole::Up] = Encoding::groups(4); }),
              HasSubstr(key + "no weight_encoding beside it, which is up=q4"));
  EXPECT_THAT(refused([](CompileRequest &r) { r.model->headDim = 16, r.model->heads = 4; }),
              HasSubstr(key + "heads that groups of 64 or 32 divide: those of tiny-llama-4 are of 16"));
  EXPECT_THAT(
      refused([](CompileRequest &r) { r.model->hidden = 40, r.model->intermediate = 40, r.model->headDim = 20; }),
      HasSubstr(key + "a model with an operand whose input features groups of 32, 64 or 128 divide"));
  EXPECT_THAT(refused([](CompileRequest &r) { r.goal.expansion = model::kAutoExpansion; }),
              HasSubstr(key + "an expansion that is stated"));
}

// The plan is the one of the goal that states what was found.
TEST(Packing, APlanWithWhatWasFoundIsThePlanThatStatesIt) {
  const uint64_t weights = model::layoutWeights(packable().model).totalBytes();
  for (const AllowQuantized allowed : {AllowQuantized::Weights, AllowQuantized::Kv, AllowQuantized::Both})
    for (const char *policy : {"joint", "interval"}) {
      SCOPED_TRACE(absl::StrCat(policy, " ", std::string(model::allowQuantizedName(allowed))));
      CompileRequest r = allowing(allowed);
      r.policy.name = policy;
      r.goal.deviceMemory = weights; // which leaves none for caches
      const absl::StatusOr<plan::Plan> found = compile(r);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_THAT(found->reason, HasSubstr(". Encodings that are allowed, the best of each that was tried: as it is "));
      EXPECT_EQ(found->model->encodings.any(), allowed != AllowQuantized::Kv);
      EXPECT_EQ(found->kvEncoding.packed(), allowed != AllowQuantized::Weights);
      r.goal.allowQuantized = AllowQuantized::Nothing;
      r.model->encodings = found->model->encodings;
      r.goal.kvEncoding = found->kvEncoding;
      const absl::StatusOr<plan::Plan> stated = compile(r);
      ASSERT_TRUE(stated.ok()) << stated.status();
      EXPECT_EQ(plan::planHash(*found), plan::planHash(*stated));
    }
}

// Of a device that computes so slowly that reading takes no time, unpacking is all that packing changes.
TEST(Packing, NothingIsPackedWhereThatIsNoBetter) {
  CompileRequest r = allowing(AllowQuantized::Both);
  r.hardware.flopsF32 = 1e6;
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->model->encodings.any());
  EXPECT_FALSE(plan->kvEncoding.packed());
}

TEST(Packing, WhatFitsPackedAloneIsFound) {
  CompileRequest r = allowing(AllowQuantized::Weights);
  r.policy.name = "none";
  r.goal.deviceMemory = model::layoutWeights(r.model).totalBytes() + 100'000; // caches and activations take 600 KB
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->reason, HasSubstr("as it is does not fit, "));
  r.goal.allowQuantized = AllowQuantized::Nothing;
  EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted);
}

// Each pass unpacks the layer again.
TEST(Packing, SaysWhatIsPackedAndThePassesThatUnpackIt) {
  CompileRequest r = packable();
  r.model->encodings = model::packedIn(4, r.model);
  const absl::StatusOr<plan::Plan> one = compile(r);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(one->reason, HasSubstr(". Weights are in qkv=q4,out=q4,up=q4,down=q4:32,head=q4: "));
  EXPECT_THAT(one->reason, HasSubstr("; a pass unpacks them in "));
  r.goal.miniBatches = 2;
  const absl::StatusOr<plan::Plan> two = compile(r);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_THAT(two->reason, HasSubstr("; each of 2 passes unpacks them in "));
}

} // namespace
} // namespace headrace::compiler
