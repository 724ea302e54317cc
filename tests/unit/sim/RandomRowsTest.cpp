// SPDX-License-Identifier: Apache-2.0
//
// Whole iterations under core::Pricing::Rows against a reference that prices every step by itself, counts pairs one by
// one, and plays the Simulator: random models, placements, hardware, prices and iterations.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/SimDevice.h"
#include "runtime/sim/Simulator.h"
#include "tests/support/TinyPlan.h"

namespace headrace::sim {
namespace {

using kernels::Op;
using model::UnitRole;

int64_t upTo(int64_t most) { return *rc::gen::inRange<int64_t>(1, most + 1); }
bool oneOf(int64_t n) { return upTo(n) == 1; }
double drawn(double low, double high) { return low + (high - low) * static_cast<double>(upTo(1000)) / 1000; }

// Sequences that bring rows, of this iteration.
struct Running {
  struct One {
    int64_t first = 0, rows = 1; // position of the first row
    std::vector<int32_t> blocks;
    bool sample = true;
  };
  std::vector<One> all;
};

// What each step takes, found for that step alone.
class Reference {
public:
  Reference(const plan::Plan &plan, double linkBandwidth) : plan_(plan), link_(linkBandwidth) {}

  // Of all of the variant's bucket, by the roofline.
  uint64_t bucketNs(const plan::Variant &variant, const plan::Schedule &schedule, const plan::Step &step) const {
    const model::Hardware &h = plan_.hardware;
    return nsOf(step, secondsOf(siteOf(schedule, step), cost::rowsOf(bucketOf(variant)), step.direct, h.h2dBandwidth,
                                h.d2hBandwidth, h.linkEfficiency));
  }

  uint64_t stepNs(const plan::Variant &variant, const plan::Schedule &schedule, const plan::Step &step,
                  uint64_t pricedNs, const Running &running) const {
    const model::Hardware &h = plan_.hardware;
    const double launchNs = launchOf(step) * 1e9;
    const cost::OpSite site = siteOf(schedule, step);
    const bool padded = h.kind == model::DeviceKind::Cuda && site.op == Op::Linear;
    if (step.kind != plan::StepKind::Compute || padded || static_cast<double>(pricedNs) <= launchNs)
      return pricedNs;
    const double h2d = link_ > 0 ? link_ : h.h2dBandwidth, d2h = link_ > 0 ? link_ : h.d2hBandwidth;
    const double efficiency = link_ > 0 ? 1 : h.linkEfficiency;
    const auto seconds = [&](const cost::Rows &rows) {
      return secondsOf(site, rows, step.direct, h2d, d2h, efficiency);
    };
    const double whole = seconds(cost::rowsOf(bucketOf(variant))), part = seconds(rowsOf(running, schedule, step));
    const double over = static_cast<double>(pricedNs) - static_cast<double>(nsOf(step, whole));
    return cost::wholeNs((part + launchOf(step)) * 1e9 + over * (part / whole));
  }

private:
  static cost::Bucket bucketOf(const plan::Variant &variant) {
    return {variant.newTokens, variant.sequences, variant.context};
  }
  double launchOf(const plan::Step &step) const {
    const double own = plan_.hardware.classes.attentionOverhead;
    return step.op == Op::Attention && own > 0 ? own : plan_.hardware.launchOverhead;
  }
  uint64_t nsOf(const plan::Step &step, double seconds) const {
    return cost::wholeNs((seconds + launchOf(step)) * 1e9);
  }

  // By the name of what it reads: "layers.3.up".
  cost::OpSite siteOf(const plan::Schedule &schedule, const plan::Step &step) const {
    for (uint32_t i = 0; i < step.operandCount; ++i) {
      const plan::Operand &operand = schedule.operands[step.firstOperand + i];
      if (operand.arg != plan::Arg::Weight && operand.arg != plan::Arg::NormWeights)
        continue;
      const std::string &name = plan_.buffers[operand.buffer].name;
      for (const auto &[end, unit] : {std::pair(".qkv", UnitRole::Qkv), std::pair(".out", UnitRole::Out),
                                      std::pair(".up", UnitRole::Up), std::pair(".down", UnitRole::Down)})
        if (name.ends_with(end))
          return {step.op, unit};
      return {step.op, UnitRole::Head}; // or the embedding, which only a tied head multiplies by
    }
    return {step.op, UnitRole::Qkv};
  }

  cost::Rows rowsOf(const Running &running, const plan::Schedule &schedule, const plan::Step &step) const {
    uint64_t firstHome = 0;
    for (uint32_t i = 0; i < step.operandCount; ++i)
      if (const plan::Operand &operand = schedule.operands[step.firstOperand + i]; operand.arg == plan::Arg::KvHome)
        firstHome = operand.bufferOffset / plan_.kvBlockBytes();
    cost::Rows rows;
    for (const Running::One &one : running.all) {
      rows.sampled += one.sample;
      rows.contexts += static_cast<uint64_t>(one.first + one.rows);
      for (int64_t row = 0; row < one.rows; ++row) {
        ++rows.tokens;
        const int64_t position = one.first + row;
        const auto block = static_cast<uint64_t>(one.blocks[static_cast<size_t>(position / plan_.blockTokens)]);
        rows.homeRows += block >= firstHome;
        for (int64_t attendsTo = 0; attendsTo <= position; ++attendsTo)
          ++rows.pairs;
      }
    }
    return rows;
  }

  double secondsOf(const cost::OpSite &site, const cost::Rows &rows, bool direct, double h2d, double d2h,
                   double linkEfficiency) const {
    const model::Hardware &h = plan_.hardware;
    const cost::Work work = cost::workOf(plan_.model, site, rows, plan_.activationDtype, plan_.kvEncoding, direct);
    double peak = plan_.activationDtype == model::DType::F32 ? h.flopsF32 : h.flopsF16, ramp = 0;
    double flops = h.flopsEfficiency, memory = h.memoryEfficiency, read = 0; // seconds that reading K and V takes
    const auto own = [](double &figure, double ofClass) { figure = ofClass > 0 ? ofClass : figure; };
    if (site.op == Op::Linear) {
      own(flops, h.classes.productFlopsEfficiency);
      own(memory, h.classes.productMemoryEfficiency);
    } else if (site.op == Op::Attention) {
      own(flops, h.classes.prefillAttentionFlopsEfficiency);
      own(memory, h.classes.decodeAttentionMemoryEfficiency);
      const double values = static_cast<double>(rows.contexts) * 2 * static_cast<double>(plan_.model->kvRows());
      if (const double share = h.classes.readKvFlopsEfficiency; share > 0)
        read = 2 * values / (peak * share);
      if (rows.pairs > rows.contexts)
        ramp = h.classes.prefillAttentionRamp;
      if (const double plain = h.classes.plainAttentionFlopsEfficiency; plain > 0) { // heads of 16 here
        peak = h.flopsF32;
        flops = plain;
        ramp = 0;
      }
    } else {
      own(memory, h.classes.rowMemoryEfficiency);
    }
    const double arithmetic = static_cast<double>(work.flops) / (peak * flops);
    return std::max({arithmetic + std::sqrt(arithmetic * ramp) + read,
                     static_cast<double>(work.deviceBytes) / (h.memoryBandwidth * memory),
                     static_cast<double>(work.linkBytes) / ((work.toHost ? d2h : h2d) * linkEfficiency)});
  }

  const plan::Plan &plan_;
  const double link_;
};

plan::Plan drawPlan() {
  core::TinyPlanOptions options;
  const int64_t layers = upTo(4);
  options.spec = oneOf(2) ? core::tinyLlama(layers) : core::tinyOpt(layers);
  for (int64_t layer = 0; layer < layers; ++layer)
    if (oneOf(3))
      options.offloaded.push_back(layer);
  options.offloadEmbedding = !options.spec.tiedEmbeddings && oneOf(2);
  options.wrap = oneOf(2);
  options.batch = upTo(6);
  options.promptTokens = options.batch + upTo(30);
  options.mirroredFrom = oneOf(3) ? upTo(10) : 0;
  options.kind = oneOf(2) ? model::DeviceKind::Cuda : model::DeviceKind::Host;
  plan::Plan plan = core::tinyPlan(options);
  plan.activationDtype = oneOf(2) ? model::DType::F16 : model::DType::F32;
  model::Hardware &h = plan.hardware;
  h.flopsF32 = drawn(1e9, 1e11);
  h.flopsF16 = drawn(1e10, 1e12);
  h.memoryBandwidth = drawn(1e9, 1e11);
  h.h2dBandwidth = drawn(1e8, 1e10);
  h.d2hBandwidth = drawn(1e8, 1e10);
  h.duplexBandwidth = (h.h2dBandwidth + h.d2hBandwidth) * drawn(0.5, 1);
  h.flopsEfficiency = drawn(0.1, 1);
  h.memoryEfficiency = drawn(0.1, 1);
  h.linkEfficiency = drawn(0.1, 1);
  h.launchOverhead = oneOf(4) ? 0 : drawn(0, 1e-5);
  for (const model::ClassKey &key : model::classKeys())
    if (oneOf(2))
      h.classes.*key.field = key.time ? drawn(1e-7, 1e-5) : drawn(0.1, 1);
  // Priced by the roofline, or as a record might have it, step by step.
  const bool measured = oneOf(2);
  const Reference reference(plan, 0);
  for (plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    for (size_t i = 0; i < schedule.steps.size(); ++i)
      if (const plan::Step &step = schedule.steps[i]; step.kind == plan::StepKind::Compute)
        variant.durationsNs[i] =
            reference.bucketNs(variant, schedule, step) * static_cast<uint64_t>(measured ? upTo(30) : 10) / 10;
  }
  return plan;
}

Running drawRunning(const plan::Plan &plan, const plan::Variant &variant) {
  Running running;
  const int64_t sequences = upTo(variant.sequences);
  int64_t left = variant.newTokens - sequences; // rows beyond the first of each
  for (int64_t s = 0; s < sequences; ++s) {
    Running::One one;
    one.rows = 1 + (left > 0 && oneOf(2) ? *rc::gen::inRange<int64_t>(0, std::min(left, variant.context - 1) + 1) : 0);
    left -= one.rows - 1;
    one.first = *rc::gen::inRange<int64_t>(0, variant.context - one.rows + 1);
    one.sample = !oneOf(3);
    for (int64_t block = 0; block * plan.blockTokens < one.first + one.rows; ++block)
      one.blocks.push_back(static_cast<int32_t>(upTo(plan.kvBlocks - 1)));
    running.all.push_back(one);
  }
  return running;
}

void write(const plan::Plan &plan, const Running &running, kernels::IterationMeta *meta) {
  std::vector<int32_t> ids(static_cast<size_t>(plan.metaLayout.maxTokens), 1);
  std::vector<core::SequenceRows> rows;
  for (const Running::One &one : running.all)
    rows.push_back({.tokens = absl::MakeConstSpan(ids).first(static_cast<size_t>(one.rows)),
                    .firstPosition = one.first,
                    .blocks = one.blocks,
                    .sample = one.sample});
  RC_ASSERT(core::writeMeta(plan.metaLayout, plan.blockTokens, rows, meta).ok());
}

RC_GTEST_PROP(RandomRows, AnIterationTakesWhatItsStepsTakeOneByOne, ()) {
  const plan::Plan plan = drawPlan();
  const core::DeviceOptions options{.linkBandwidth = oneOf(3) ? drawn(1e8, 1e10) : 0,
                                    .trace = oneOf(2),
                                    .pricing = oneOf(4) ? core::Pricing::Bucket : core::Pricing::Rows};
  const Reference reference(plan, options.linkBandwidth);
  const auto device = makeSimDevice();
  RC_ASSERT(device->open(plan, options).ok());
  std::vector<std::unique_ptr<core::Graph>> graphs;
  for (uint32_t i = 0; i < plan.variants.size(); ++i) {
    graphs.push_back(*device->build({.index = i}));
    RC_ASSERT(device->upload(*graphs.back()).ok());
  }
  int64_t start = 0, stallNs = 0;
  Running running;
  for (uint64_t iteration = 1; iteration <= 6; ++iteration) {
    const auto index = static_cast<size_t>(upTo(static_cast<int64_t>(plan.variants.size())) - 1);
    const plan::Variant &variant = plan.variants[index];
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    running = drawRunning(plan, variant);
    write(plan, running, device->meta());
    RC_ASSERT(device->launch(*graphs[index]).ok());

    std::vector<uint64_t> durations =
        pacedDurations(schedule, variant.durationsNs, plan.hardware, options.linkBandwidth);
    if (options.pricing == core::Pricing::Rows)
      for (size_t i = 0; i < durations.size(); ++i)
        durations[i] = reference.stepNs(variant, schedule, schedule.steps[i], durations[i], running);
    const Timeline expected = Simulator(schedule).run(
        durations, cost::Sharing(plan.hardware.duplexBandwidth /
                                 std::max(plan.hardware.h2dBandwidth, plan.hardware.d2hBandwidth)));
    RC_ASSERT(device->drain().ok());
    RC_ASSERT(device->tokensVisibleNs(iteration) == start + static_cast<int64_t>(expected.publishNs));
    RC_ASSERT(device->nowNs() == start + static_cast<int64_t>(expected.iterationNs));
    stallNs += static_cast<int64_t>(expected.stallNs);
    RC_ASSERT(device->counters().stallNs == stallNs);
    if (options.trace)
      for (size_t i = 0; i < durations.size(); ++i) {
        RC_ASSERT(device->lastTimes()[i].startNs == start + static_cast<int64_t>(expected.steps[i].startNs));
        RC_ASSERT(device->lastTimes()[i].endNs == start + static_cast<int64_t>(expected.steps[i].endNs));
      }
    start = device->nowNs();
  }
}

} // namespace
} // namespace headrace::sim
