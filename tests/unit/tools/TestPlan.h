// SPDX-License-Identifier: Apache-2.0
//
// A plan of two layers made by hand, the second offloaded, with round numbers; for what shows plans, not for what runs
// them.
//
//   ns        0         100       200       300        400
//   compute   embed 20 | L0 qkv 40 | L0 attention 40 | ..stall 50.. | L1 qkv 60 | head 40 | publish
//   h2d       L1 qkv 150                                          | L1 qkv (of the next iteration) 90
#pragma once

#include "kernels/Kernels.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

inline plan::Plan testPlan() {
  using namespace plan;
  Plan p;
  p.compilerVersion = "test";
  p.model->name = "two-layers";
  p.model->layers = 2;
  p.model->hidden = p.model->intermediate = 16;
  p.model->heads = p.model->kvHeads = 1;
  p.model->headDim = 16;
  p.model->vocab = 100;
  p.model->maxPositions = 64;
  p.modelHash = "00ff";
  p.modelPath = "models/two-layers";
  p.hardware.name = "round";
  p.hardware.memoryBytes = 100000;
  p.hardware.hostMemoryBytes = 100000;
  p.hardware.h2dBandwidth = p.hardware.d2hBandwidth = 1e9;
  p.hardware.duplexBandwidth = 2e9;
  p.hardware.flopsF32 = p.hardware.flopsF16 = p.hardware.memoryBandwidth = 1e9;
  p.hardware.flopsEfficiency = p.hardware.memoryEfficiency = 1;
  p.reason = "1 of 2 layers is the fewest that fits";
  p.limitingResource = "link h2d";
  p.blockTokens = 4;
  p.kvBlocks = 5;
  p.metaLayout = {8, 2, 4};
  p.maxContext = 16;
  p.deviceMemory = 8192;
  p.arenaBytes = 6144;
  p.hostBytes = 1024;

  const auto buffer = [&](const char *name, BufferKind kind, int32_t layer, uint64_t bytes) {
    const bool weight = kind == BufferKind::Weight;
    p.buffers.push_back({name, kind, layer, bytes, weight ? static_cast<uint32_t>(p.buffers.size()) : 0});
  };
  buffer("embedding", BufferKind::Weight, -1, 512);
  for (int layer = 0; layer < 2; ++layer)
    for (const char *unit : {"qkv", "out", "up", "down"})
      buffer(("layers." + std::to_string(layer) + "." + unit).c_str(), BufferKind::Weight, layer, 256);
  buffer("head", BufferKind::Weight, -1, 256);
  buffer("kv.0", BufferKind::Kv, 0, 1280); // 5 blocks of 256 bytes
  buffer("kv.1", BufferKind::Kv, 1, 1280);
  buffer("meta", BufferKind::Io, -1, 256);

  Placement placement;
  placement.name = "interval 2";
  placement.interval = 2;
  uint64_t address = 0;
  for (uint32_t b = 0; b < p.buffers.size(); ++b) {
    const bool offloaded = p.buffers[b].kind == BufferKind::Weight && p.buffers[b].layer == 1;
    placement.extents.push_back({b, offloaded ? Space::Host : Space::Device, false, 0, p.buffers[b].bytes,
                                 offloaded ? uint64_t{b} * 256 : address});
    address += offloaded ? 0 : p.buffers[b].bytes;
  }
  placement.slots.push_back({address, 256}); // [4608, 4864)
  p.placements.push_back(placement);
  p.states.emplace_back();

  Schedule s;
  s.name = "interval 2 decode";
  s.maxTokens = s.maxSequences = 2;
  s.maxContext = 16;
  std::vector<uint64_t> durations;
  const auto step = [&](StepKind kind, Lane lane, kernels::Op op, Part part, int32_t layer, uint64_t ns) -> Step & {
    Step one;
    one.kind = kind;
    one.lane = lane;
    one.op = op;
    one.part = part;
    one.layer = layer;
    one.firstOperand = static_cast<uint32_t>(s.operands.size());
    s.steps.push_back(one);
    durations.push_back(ns);
    return s.steps.back();
  };
  const auto operand = [&](uint32_t b, Arg arg) {
    s.operands.push_back({b, Space::Device, Access::Read, arg, 0, 256, 0});
    ++s.steps.back().operandCount;
  };
  constexpr uint32_t kQkv0 = 1, kQkv1 = 5, kHead = 9;
  step(StepKind::Copy, Lane::H2D, kernels::Op::Embed, Part::Movement, 1, 150).linkBytes = 150; // 0
  operand(kQkv1, Arg::Source);
  step(StepKind::Compute, Lane::Compute, kernels::Op::Embed, Part::Embedding, -1, 20);              // 1
  step(StepKind::Compute, Lane::Compute, kernels::Op::Linear, Part::Attention, 0, 40).flops = 1000; // 2
  operand(kQkv0, Arg::Weight);
  step(StepKind::Compute, Lane::Compute, kernels::Op::Attention, Part::Attention, 0, 40).deviceBytes = 2048; // 3
  step(StepKind::Compute, Lane::Compute, kernels::Op::Linear, Part::Attention, 1, 60);                       // 4
  operand(kQkv1, Arg::Weight);
  step(StepKind::Copy, Lane::H2D, kernels::Op::Embed, Part::Movement, 1, 90).linkBytes = 90; // 5
  operand(kQkv1, Arg::Source);
  step(StepKind::Compute, Lane::Compute, kernels::Op::Linear, Part::Head, -1, 40); // 6
  operand(kHead, Arg::Weight);
  step(StepKind::Publish, Lane::Compute, kernels::Op::Sample, Part::Head, -1, 0); // 7
  s.edges = {{0, 4, EdgeKind::Raw}, {4, 5, EdgeKind::War}};
  s.locals.push_back({{"x", BufferKind::Activation, -1, 512}, 4864});
  s.locals.push_back({{"scratch", BufferKind::Workspace, -1, 256}, 5376}); // ends at 5632
  p.schedules.push_back(s);

  Variant v;
  v.newTokens = v.sequences = 2;
  v.context = 16;
  v.durationsNs = durations;
  v.predictedNs = 300; // 150 + 60 + 90
  v.computeAloneNs = 200;
  v.linkAloneNs = 240;
  p.variants.push_back(v);
  return p;
}

} // namespace headrace::tools
