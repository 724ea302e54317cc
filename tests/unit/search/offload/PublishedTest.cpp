// SPDX-License-Identifier: Apache-2.0
//
// What others have measured against what is predicted for the same setting. Two rows calibrate one figure each, named
// before anything was compared; the others are held out. A miss is explained by the one input that would have to
// differ.
//
//   A   r/Vllm, "The 35x Performance Tax: vLLM's CPU Offloading is a Trap for Production" (1onqfx7): Qwen2-7B in 16
//   bits
//       on an RTX 4090, --cpu-offload-gb 20, which is all layers, read in place: 1.65 tokens/s; without 56.87.
//       28 layers of 0.466 GB in 606 ms: a link of 21.5 GB/s. Calibrates the link.
//   B   a user's: Qwen2.5-7B in 16 bits within 8 GB, 17 of 28 layers brought ahead, batch 1: 2.67 tokens/s
//       (no page of it was found again). Held out.
//   D   a user's: Llama-2-70B in 16 bits on an RTX 4090, all from host memory, batch 1: over 5 s a token (likewise).
//   K   FlexGen, benchmark/batch_size_table.md and its paper's appendix: OPT-6.7B on a T4, all of it there: 25.26
//       tokens/s of batch 2 with 512 + 32 tokens, 53.29 of batch 4 with 256 + 32. Calibrates the T4's memory.
//   G   the same: DeepSpeed ZeRO-Inference, OPT-30B on that T4, weights in host memory, batch 4, 512 + 32: 0.60
//       tokens/s. Held out.
#include "compiler/search/Space.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

constexpr double kLinkOfA = 21.5e9;

model::Hardware withLink(model::Hardware hardware, double bandwidth) {
  return model::withH2dBandwidth(std::move(hardware), bandwidth);
}

// Seconds that an iteration of decode at the longest context takes, or of all of a request's, with so many layers away;
// with any memory.
double predictedSeconds(CompileRequest r, int64_t away, bool embedding = false) {
  r.policy.actRatio = model::ActRatio();
  r.hardware.hostMemoryBytes = 0;
  const absl::StatusOr<Target> target = resolve(r);
  EXPECT_TRUE(target.ok()) << target.status();
  const cost::Roofline costs(r.model, r.hardware, target->activation, target->kv);
  Space space(r, costs);
  Coordinates at = space.origin();
  at.layers = away;
  at.embedding = embedding;
  const std::optional<Scored> scored = space.scored(at, space.candidate(at, target->kvBlocks));
  EXPECT_TRUE(scored.has_value());
  return scored ? (r.goal.outputLen ? scored->aimNs : static_cast<double>(scored->played.back().ns)) / 1e9 : 0;
}

double bytesOfLayers(const CompileRequest &r, int64_t layers) {
  return static_cast<double>(layers) * static_cast<double>(model::layoutWeights(r.model).layerBytes(0));
}

TEST(Published, AIsALinkOf21Gigabytes) {
  CompileRequest r = shipped("qwen2.5-7b", "rtx4090", 1, 256); // of the same shape
  EXPECT_NEAR(bytesOfLayers(r, 28), 28 * 0.466e9, 0.01e9 * 28);
  EXPECT_NEAR(predictedSeconds(r, 0), 1 / 56.87, 0.1 / 56.87); // the profile's memory, as it stands
  r.hardware = withLink(r.hardware, kLinkOfA);
  EXPECT_NEAR(predictedSeconds(r, 28), 1 / 1.65, 0.02 / 1.65);
}

// 17 x 0.466 GB / 21.5 GB/s = 368 ms, 2.71 tokens/s.
TEST(Published, BIsWithinFifteenPercent) {
  CompileRequest r = shipped("qwen2.5-7b", "rtx4090", 1, 256);
  r.hardware = withLink(r.hardware, kLinkOfA);
  EXPECT_NEAR(predictedSeconds(r, 17, /*embedding=*/true), 1 / 2.67, 0.15 / 2.67);
}

// 80 x 1.711 GB are 137 GB: 5.5 s at the profile's 25 GB/s, 6.4 s at A's link. Less than 5 s would take 27.4 GB/s.
TEST(Published, DTakesOverFiveSeconds) {
  CompileRequest r = shipped("llama-2-70b", "rtx4090", 1, 256);
  EXPECT_NEAR(bytesOfLayers(r, 80), 80 * 1.711e9, 0.01e9 * 80);
  EXPECT_GT(predictedSeconds(r, 80), 5);
  r.hardware = withLink(r.hardware, kLinkOfA);
  EXPECT_GT(predictedSeconds(r, 80), 5);
  r.hardware = withLink(r.hardware, 28e9);
  EXPECT_LT(predictedSeconds(r, 80), 5);
}

// NVIDIA T4 datasheet: 65 TFLOP/s of F16, 8.1 of F32, 320 GB/s, 16 GB, PCIe 3.0 x16. Half of the flops is assumed; the
// share of memory bandwidth is K's.
CompileRequest onT4(const std::string &model, int64_t batch, int64_t prompt, double link) {
  CompileRequest r = shipped(model, "a10", batch, prompt + 32);
  r.hardware.name = "t4";
  r.hardware.flopsF16 = 65e12;
  r.hardware.flopsF32 = 8.1e12;
  r.hardware.memoryBandwidth = 320e9;
  r.hardware.memoryBytes = 16'000'000'000;
  r.hardware.reserveBytes = 0;
  r.hardware.classes = {};
  r.hardware.flopsEfficiency = 0.5;
  r.hardware.memoryEfficiency = 0.66;
  r.hardware = withLink(r.hardware, link);
  r.goal.inputLen = prompt;
  r.goal.outputLen = 31; // behind the prompt's
  return r;
}
double tokensPerSecond(const CompileRequest &r, int64_t away) {
  return static_cast<double>(*r.goal.batch * 32) / predictedSeconds(r, away);
}

TEST(Published, KIsAShareOfTheMemorysBandwidth) {
  EXPECT_NEAR(tokensPerSecond(onT4("opt-6.7b", 2, 512, 12e9), 0), 25.26, 0.04 * 25.26);
  EXPECT_NEAR(tokensPerSecond(onT4("opt-6.7b", 4, 256, 12e9), 0), 53.29, 0.04 * 53.29);
}

// 48 layers of 1.233 GB, 32 times: pinned copies reach some 12 GB/s of PCIe 3.0 x16, pageable ones about half. A link
// of 9.0 GB/s would give what was measured: that system's copies are neither.
TEST(Published, GLiesBetweenPinnedAndPageableCopies) {
  const double pinned = tokensPerSecond(onT4("opt-30b", 4, 512, 12e9), 48),
               pageable = tokensPerSecond(onT4("opt-30b", 4, 512, 6e9), 48);
  EXPECT_NEAR(pinned, 0.81, 0.01);
  EXPECT_NEAR(pageable, 0.405, 0.01);
  EXPECT_LT(pageable, 0.60);
  EXPECT_GT(pinned, 0.60);
  EXPECT_NEAR(tokensPerSecond(onT4("opt-30b", 4, 512, 9.0e9), 48), 0.60, 0.02);
}

} // namespace
} // namespace headrace::compiler
