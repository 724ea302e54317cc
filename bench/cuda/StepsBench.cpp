// SPDX-License-Identifier: Apache-2.0
//
// Steps of an iteration that no cell tells apart: norms, rotation and append, sampling; with AttentionSteps.cpp,
// ProductCandidates.cpp and ChainBench.cpp the part `steps`. Each beside the bytes and the arithmetic that it cannot do
// without.
#include "bench/cuda/MetaBuffer.h"
#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "bench/cuda/Steps.h"
#include "kernels/KvSegments.h"
#include "runtime/core/BindStep.h"

namespace headrace::bench {
namespace {

constexpr int64_t kBlockTokens = 16;

std::vector<BenchRows> prompt(int64_t rows) { return {{.tokens = rows, .context = rows}}; }

// Copies of what a node goes through, so that 256 MiB go by before one is read again, as many as nodes at most.
size_t copiesOf(size_t bytes) { return std::clamp<size_t>((rotatedBytes() + bytes - 1) / bytes, 1, inRow()); }

Json norm(const StepsOf &of, int64_t rows, bool layerNorm) {
  const auto width = static_cast<size_t>(of.spec.hidden), count = static_cast<size_t>(rows) * width;
  const size_t copies = copiesOf(count * 6);
  const MetaBuffer meta(prompt(rows), kBlockTokens);
  const DeviceBuffer x(copies * count * 4, DeviceBuffer::Holds::Random), y(copies * count * 2),
      weight(width * 4, DeviceBuffer::Holds::Random), bias(width * 4, DeviceBuffer::Holds::Random);
  kernels::NormArgs args{};
  args.count = &meta.get()->numTokens;
  args.weight = weight.as<float>();
  args.bias = layerNorm ? bias.as<float>() : nullptr;
  args.hidden = of.spec.hidden;
  args.eps = 1e-5f;
  args.activation = kernels::Elem::BF16;
  const double us = chainUs(of.timer, inRow(), [&](BenchGraph &graph, cudaGraphNode_t last, size_t i) {
    args.x = x.as<float>() + count * (i % copies);
    args.y = y.as() + count * 2 * (i % copies);
    return graph.kernel({last}, launchOf(kernels::Op::Norm, &args, {rows, 1, rows}), &args);
  });
  return besideBound(us, {.bytes = static_cast<double>(count * 6 + width * (layerNorm ? 8 : 4))}, of.peaks);
}

Json ropeAppend(const StepsOf &of, int64_t rows) {
  const model::ModelSpec &spec = of.spec;
  const int64_t planes = spec.heads + 2 * spec.kvHeads;
  const auto count = static_cast<size_t>(rows * planes * spec.headDim);
  const size_t copies = copiesOf(count * 2);
  const MetaBuffer meta(prompt(rows), kBlockTokens);
  const int64_t blockElements = kernels::kvBlockElements(spec.kvHeads, kBlockTokens, spec.headDim);
  const auto cacheBytes = static_cast<size_t>(meta.blocks() * blockElements * 2);
  const DeviceBuffer qkv(copies * count * 2, DeviceBuffer::Holds::Random), kv(copies * cacheBytes);
  const std::vector<float> made = core::inverseFrequencies(spec.rope, spec.headDim);
  const DeviceBuffer frequencies(made.size() * sizeof(float));
  must(cudaMemcpy(frequencies.as(), made.data(), made.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  kernels::RopeAppendArgs args{};
  args.meta = meta.get();
  args.inverseFrequencies = frequencies.as<float>();
  args.segments = kernels::oneRun(meta.blocks(), blockElements);
  args.heads = spec.heads;
  args.kvHeads = spec.kvHeads;
  args.headDim = spec.headDim;
  args.blockTokens = kBlockTokens;
  args.kvElem = args.activation = kernels::Elem::BF16;
  const double us = chainUs(of.timer, inRow(), [&](BenchGraph &graph, cudaGraphNode_t last, size_t i) {
    args.qkv = qkv.as() + count * 2 * (i % copies);
    args.kv = kv.as() + cacheBytes * (i % copies);
    return graph.kernel({last}, launchOf(kernels::Op::RopeAppend, &args, {rows, 1, rows}), &args);
  });
  // q and k read and written, v read; k and v written to the cache.
  const int64_t moved = 2 * (spec.heads + spec.kvHeads) + spec.kvHeads + 2 * spec.kvHeads;
  return besideBound(us, {.bytes = static_cast<double>(rows * moved * spec.headDim * 2)}, of.peaks);
}

// The logits are random numbers in +-1: at temperature 1 nearly all tokens have to be looked at for a top p of 0.9, at
// 0.05 few.
Json sample(const StepsOf &of, int64_t sequences, int64_t vocab, const BenchSampling &sampling) {
  const auto count = static_cast<size_t>(sequences * vocab);
  const size_t copies = copiesOf(count * 4);
  const std::vector<BenchRows> rows(static_cast<size_t>(sequences), {.tokens = 1, .context = kBlockTokens});
  const MetaBuffer meta(rows, kBlockTokens, sampling);
  const DeviceBuffer logits(copies * count * 4, DeviceBuffer::Holds::Random),
      tokens(static_cast<size_t>(sequences) * 2 * sizeof(int32_t)),
      workspace(kernels::sampleWorkspaceBytes(kernels::Backend::Cuda, sequences, vocab));
  kernels::SampleArgs args{};
  args.meta = meta.get();
  args.sampled = tokens.as<int32_t>();
  args.output = tokens.as<int32_t>() + sequences;
  args.workspace = workspace.as();
  args.vocab = vocab;
  args.blockTokens = kBlockTokens;
  const double us = chainUs(of.timer, inRow(), [&](BenchGraph &graph, cudaGraphNode_t last, size_t i) {
    args.logits = logits.as<float>() + count * (i % copies);
    return graph.kernel({last}, launchOf(kernels::Op::Sample, &args, {sequences, sequences, kBlockTokens}), &args);
  });
  std::vector<int32_t> taken(static_cast<size_t>(sequences));
  must(cudaMemcpy(taken.data(), args.output, taken.size() * sizeof(int32_t), cudaMemcpyDeviceToHost), "cudaMemcpy");
  for (const int32_t token : taken)
    if (token < 0 || token >= vocab)
      fail("token " + std::to_string(token) + " of a vocabulary of " + std::to_string(vocab));
  return besideBound(us, {.bytes = static_cast<double>(count * 4)}, of.peaks);
}

void addRowSteps(Tasks &tasks, const StepsOf &of) {
  const std::vector<int64_t> rows = within(of.spec.maxPositions, {1, 32, 128, 1024, 4096});
  for (const int64_t count : rows)
    tasks.push_back(
        {"rope_append, " + std::to_string(count) + " rows", 3, [&of, count] { return ropeAppend(of, count); }});
  for (const bool layerNorm : {false, true})
    for (const int64_t count : rows)
      tasks.push_back({std::string(layerNorm ? "layer norm, " : "rms norm, ") + std::to_string(count) + " rows", 3,
                       [&of, count, layerNorm] { return norm(of, count, layerNorm); }});
  struct How {
    const char *name;
    BenchSampling sampling;
  };
  constexpr How kHows[] = {{"greedy", {}},
                           {"top p 0.9 of all alike", {.temperature = 1, .topP = 0.9f}},
                           {"top p 0.9 of few", {.temperature = 0.05f, .topP = 0.9f}}};
  for (const int64_t vocab : {openShape("opt-6.7b").vocab, of.spec.vocab})
    for (const How &how : kHows)
      for (const int64_t sequences : within(of.spec.maxPositions, {32, 1, 128}))
        tasks.push_back(
            {"sample, " + std::string(how.name) + ", " + std::to_string(sequences) + " of " + std::to_string(vocab), 3,
             [&of, sequences, vocab, how] { return sample(of, sequences, vocab, how.sampling); }});
}

} // namespace

void measureSteps(const Context &context) {
  context.report.part(
      "steps",
      "graphs that are a chain of one step, median of 5 by events behind a spin kernel, a step's share; steps and "
      "products of Llama-3.1-8B's shape, 16-bit, operands random, so many of them that 256 MiB go by before one is "
      "read again (of small ones 32); bound: each byte once by the data sheet's bandwidth, or arithmetic by its peak, "
      "of the profile among the facts; share: bound / measured");
  Timer timer;
  const model::Hardware profile = openProfile(context.deviceName);
  const StepsOf of{timer,
                   {.bytesPerSecond = profile.memoryBandwidth, .flopsPerSecond = profile.flopsF16},
                   openShape("llama-3.1-8b")};
  Tasks tasks;
  addProductCandidates(tasks, of);
  addChains(tasks, of);
  addAttentionSteps(tasks, of);
  addRowSteps(tasks, of);
  std::erase_if(tasks, [&](const Report::Task &task) { return task.name.find(context.filter) == std::string::npos; });
  context.report.attempt(tasks);
}

} // namespace headrace::bench
