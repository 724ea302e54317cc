// SPDX-License-Identifier: Apache-2.0
//
// Linear of real models' shapes: LLaMA-7B's gate or up (180 MB of F32 weights, 90 MB of BF16, larger than the caches),
// and those of small ones, each matrix so often that all of them are as large as a model. BM_LinearDecode: share of the
// read bandwidth, the bound being one read of the same weights. BM_LinearPrefill: share of sgemm on the same shape in
// F32, whatever the weights' type.
#include <map>
#include <memory>

#include "bench/kernels/Bounds.h"
#include "kernels/Kernels.h"

namespace headrace::bench {
namespace {

using kernels::Elem;

const char *const kElemNames[] = {"F32", "F16", "BF16"};

struct MatrixShape {
  const char *name;
  int64_t outputs, inputs;
};
constexpr MatrixShape kShapes[] = {
    {"7B gate", 11008, 4096},        {"135M q, k, v", 960, 576}, {"135M out", 576, 576},
    {"135M gate and up", 3072, 576}, {"135M down", 576, 1536},   {"135M head", 49152, 576},
    {"1.1B q, k, v", 2560, 2048},    {"1.1B out", 2048, 2048},   {"1.1B gate and up", 11264, 2048},
    {"1.1B down", 2048, 5632},       {"1.1B head", 32000, 2048}};

// Weights are kept from one benchmark to the next: filling them takes longer than measuring.
struct Operands {
  MatrixShape shape;
  Elem elem;
  int64_t copies;
  Buffer weights;
  Operands(const MatrixShape &s, Elem e)
      : shape(s), elem(e), copies((kBytes + bytes() - 1) / bytes()), weights(static_cast<uint64_t>(copies * bytes())) {
    const uint64_t elements = static_cast<uint64_t>(copies * shape.outputs * shape.inputs);
    if (elem == Elem::F32)
      fillFloats(weights.as<float>(), elements);
    else
      fillHalves(weights.as<uint16_t>(), elements, elem == Elem::BF16);
  }
  int64_t bytes() const { return shape.outputs * shape.inputs * (elem == Elem::F32 ? 4 : 2); } // of one
  const void *copy(int64_t i) const { return weights.as<char>() + i * bytes(); }
  static const Operands &of(int64_t shape, Elem elem) {
    static std::map<std::pair<int64_t, Elem>, std::unique_ptr<Operands>> all;
    std::unique_ptr<Operands> &one = all[{shape, elem}];
    if (one == nullptr)
      one = std::make_unique<Operands>(kShapes[shape], elem);
    return *one;
  }

private:
  static constexpr int64_t kBytes = int64_t{90} << 20;
};

// All copies, one behind the other.
struct Call {
  const Operands &operands;
  int32_t count;
  Buffer x, y, workspace;
  kernels::LinearArgs args{};

  Call(const Operands &of, int64_t rows)
      : operands(of), count(static_cast<int32_t>(rows)), x(rows * of.shape.inputs * 4), y(rows * of.shape.outputs * 4),
        workspace(kernels::linearWorkspaceBytes(kernels::Backend::Host, rows, of.shape.outputs, of.shape.inputs) + 1) {
    fillFloats(x.as<float>(), rows * of.shape.inputs);
    args.count = &count, args.x = x.as<float>();
    args.y = y.as<float>(), args.workspace = workspace.as<void>();
    args.n = of.shape.outputs, args.k = of.shape.inputs, args.capacity = rows;
    args.elem = of.elem, args.order = kernels::kHostOrder;
  }
  void run(int64_t copies) {
    for (int64_t i = 0; i < copies; ++i) {
      args.w = operands.copy(i);
      kernels::hostKernel(kernels::Op::Linear)(&args);
    }
  }
  double flops(int64_t copies) const {
    return 2.0 * static_cast<double>(copies * count * operands.shape.inputs * operands.shape.outputs);
  }
};

void describe(benchmark::State &state, const Call &call, int64_t copies) {
  state.SetLabel(std::string(kElemNames[static_cast<int>(call.operands.elem)]) + " " + call.operands.shape.name);
  state.counters["GFLOP/s"] = benchmark::Counter(static_cast<double>(state.iterations()) * 1e-9 * call.flops(copies),
                                                 benchmark::Counter::kIsRate);
}

void BM_LinearDecode(benchmark::State &state) {
  const Operands &operands = Operands::of(state.range(2), static_cast<Elem>(state.range(0)));
  Call call(operands, state.range(1));
  inTurns(
      state, [&] { readMemory(operands.weights.as<void>(), operands.weights.bytes()); },
      [&] { call.run(operands.copies); });
  describe(state, call, operands.copies);
  state.counters["read_GB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(operands.weights.bytes()) / 1e9,
                         benchmark::Counter::kIsRate);
}
BENCHMARK(BM_LinearDecode)
    ->ArgNames({"elem", "rows", "shape"})
    ->ArgsProduct({{0, 1, 2}, {1, 2, 3, 4, 8, 16}, {0}})
    ->ArgsProduct({{2}, {1}, benchmark::CreateDenseRange(1, 10, 1)})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.5);

void BM_LinearPrefill(benchmark::State &state) {
  const Operands &operands = Operands::of(state.range(2), static_cast<Elem>(state.range(0)));
  const Operands &bound = Operands::of(state.range(2), Elem::F32);
  Call call(operands, state.range(1));
  const int64_t rows = call.count, n = call.args.n, k = call.args.k;
  const Buffer out(rows * n * 4);
  inTurns(
      state, [&] { sgemm(call.x.as<float>(), static_cast<const float *>(bound.copy(0)), out.as<float>(), rows, n, k); },
      [&] { call.run(1); });
  describe(state, call, 1);
}
BENCHMARK(BM_LinearPrefill)
    ->ArgNames({"elem", "rows", "shape"})
    ->ArgsProduct({{0, 1, 2}, {32, 64, 128, 256, 512}, {0}})
    ->ArgsProduct({{2}, {512}, benchmark::CreateDenseRange(1, 10, 1)})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.5);

} // namespace
} // namespace headrace::bench
