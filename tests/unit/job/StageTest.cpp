// SPDX-License-Identifier: Apache-2.0
//
// Stages of a model: which units they have, of which tensors, and that these are the model's.
#include <gmock/gmock.h>

#include "runtime/base/TomlReader.h"
#include "runtime/job/TomlText.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Shape.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/model/WeightSource.h"

namespace headrace::model {
namespace {

using testing::HasSubstr;

// Five layers, cut behind the second and the fourth.
ModelSpec whole(bool tied) {
  ModelSpec spec;
  spec.name = "five";
  spec.family = Family::Llama;
  spec.layers = 5;
  spec.hidden = 32;
  spec.heads = spec.kvHeads = 2;
  spec.headDim = 16;
  spec.intermediate = 48;
  spec.vocab = 80;
  spec.maxPositions = 64;
  spec.rope.enabled = true;
  spec.dtype = DType::F32;
  spec.tiedEmbeddings = tied;
  return spec;
}
std::vector<ModelSpec> stagesOf(const ModelSpec &spec) {
  return {stageOf(spec, 0, 2), stageOf(spec, 2, 2), stageOf(spec, 4, 1)};
}

TEST(Stage, OnlyTheFirstEmbedsAndOnlyTheLastHasAHead) {
  const std::vector<ModelSpec> stages = stagesOf(whole(false));
  for (size_t i = 0; i < stages.size(); ++i) {
    ASSERT_TRUE(validate(stages[i], "f").ok()) << validate(stages[i], "f");
    const WeightLayout layout = layoutWeights(stages[i]);
    EXPECT_EQ(layout.units.size(), static_cast<size_t>(unitCount(stages[i].layers)));
    EXPECT_EQ(layout.has(layout.embeddingUnit()), i == 0);
    EXPECT_EQ(layout.has(layout.headUnit()), i == 2);
    EXPECT_EQ(stages[i].embeds(), i == 0);
    EXPECT_EQ(stages[i].hasHead(), i == 2);
  }
  EXPECT_TRUE(whole(false).embeds() && whole(false).hasHead() && !whole(false).isStage());
  EXPECT_FALSE(stageOf(whole(false), 0, 5).isStage()); // all of it
}

// Their units are the model's, with the same tensors of the checkpoint.
TEST(Stage, UnitsOfAllAreTheModels) {
  for (const bool tied : {false, true}) {
    const ModelSpec spec = whole(tied);
    const WeightLayout all = layoutWeights(spec);
    size_t next = 0;
    uint64_t bytes = 0;
    for (const ModelSpec &stage : stagesOf(spec))
      for (const Unit &unit : layoutWeights(stage).units) {
        if (unit.absent())
          continue;
        const Unit &of = all.units[next++];
        EXPECT_EQ(unit.role, of.role);
        EXPECT_EQ(unit.modelLayer, of.layer);
        for (const Tensor &tensor : of.tensors)
          EXPECT_EQ(unit.find(tensor.role)->sources, tensor.sources);
        bytes += unit.bytes;
      }
    EXPECT_EQ(next, all.units.size());
    EXPECT_EQ(bytes, all.totalBytes() + (tied ? uint64_t{80} * 32 * 4 : 0)); // the last has a copy of the table
  }
}

TEST(Stage, MadeUpWeightsAreTheModels) {
  const auto source = syntheticWeights(7);
  const auto filled = [&](const Unit &unit) {
    std::vector<std::byte> bytes(unit.bytes);
    EXPECT_TRUE(source->fill(unit, MatrixOrder::RowMajor, absl::MakeSpan(bytes)).ok());
    return bytes;
  };
  const WeightLayout all = layoutWeights(whole(false)), second = layoutWeights(stagesOf(whole(false))[1]);
  EXPECT_EQ(filled(second.units[static_cast<size_t>(second.layerUnit(1, UnitRole::Up))]),
            filled(all.units[static_cast<size_t>(all.layerUnit(3, UnitRole::Up))]));
  const WeightLayout tied = layoutWeights(whole(true)), last = layoutWeights(stagesOf(whole(true))[2]);
  const Unit &head = last.units.back();
  const Tensor &copy = *head.find(TensorRole::Matrix), &table = tied.tokenTable();
  const std::vector<std::byte> ofHead = filled(head), ofTable = filled(tied.units.front());
  ASSERT_EQ(copy.bytes, table.bytes);
  EXPECT_TRUE(std::equal(ofHead.begin() + static_cast<std::ptrdiff_t>(copy.offset),
                         ofHead.begin() + static_cast<std::ptrdiff_t>(copy.offset + copy.bytes),
                         ofTable.begin() + static_cast<std::ptrdiff_t>(table.offset)));
}

TEST(Stage, TextComesBackAndSaysWhatItIsOf) {
  const ModelSpec spec = whole(true), stage = stageOf(spec, 2, 2);
  const std::string text = toToml(shapeEntries(stage));
  EXPECT_THAT(text, HasSubstr("stage_first_layer = 2\nstage_of_layers = 5\nstage_tied_head = true\n"));
  const auto parsed = [](const std::string &of, bool ofPlan) {
    const TomlValue document = *parseToml(of, "f");
    TomlReader table(document, "f", "");
    return parseShapeTable(table, "f", "", nullptr, ofPlan);
  };
  const auto again = parsed(text, true);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->stage, stage.stage);
  EXPECT_EQ(toToml(shapeEntries(*again)), text);
  EXPECT_EQ(toToml(shapeEntries(wholeOf(*again))), toToml(shapeEntries(spec)));
  EXPECT_THAT(toToml(shapeEntries(spec)), testing::Not(HasSubstr("stage")));
  EXPECT_THAT(std::string(parsed(text, false).status().message()), HasSubstr("stage_first_layer")); // a shape file's
}

// What a tied model leaves in its type its stages do, too: tokens would be others.
TEST(Stage, HeadsOfTiedModelsAreNotPacked) {
  for (const bool tied : {false, true})
    for (const ModelSpec &stage : stagesOf(whole(tied))) {
      const WeightEncodings packed = ofModel(packedIn(4, stage), stage);
      EXPECT_EQ(packed, ofModel(packedIn(4, whole(tied)), whole(tied))) << stage.stage.first;
      EXPECT_EQ(packed[UnitRole::Head].has_value(), !tied);
    }
  ModelSpec stage = stagesOf(whole(true)).back();
  stage.encodings = ofModel(packedIn(4, stage), stage);
  const TomlValue document = *parseToml(toToml(shapeEntries(stage)), "f");
  TomlReader table(document, "f", "");
  const auto again = parseShapeTable(table, "f", "", nullptr, /*ofPlan=*/true);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->encodings, stage.encodings);
  stage.encodings[UnitRole::Head] = Encoding::groups(4, 32);
  EXPECT_THAT(std::string(validate(stage, "f").message()), HasSubstr("none of the head"));
}

TEST(Stage, RefusesWhatIsNoPart) {
  ModelSpec stage = stageOf(whole(false), 2, 2);
  const auto refusal = [&] { return std::string(validate(stage, "f").message()); };
  stage.stage.first = 4;
  EXPECT_EQ(refusal(), "f: stage_first_layer = 4: expected an integer from 0 to 3");
  stage.stage = {.first = 0, .of = 2};
  EXPECT_EQ(refusal(), "f: layers = 2: expected fewer than stage_of_layers = 2");
  stage.stage = {.first = 1};
  EXPECT_THAT(refusal(), HasSubstr("f: stage_of_layers = 0: expected "));
  stage = stageOf(whole(true), 0, 2);
  stage.tiedEmbeddings = true;
  EXPECT_EQ(refusal(), "f: tied_embeddings = true: expected false of a stage, which has stage_tied_head");
}

} // namespace
} // namespace headrace::model
