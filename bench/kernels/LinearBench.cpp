// SPDX-License-Identifier: Apache-2.0
//
// Linear at 4096 inputs and 11008 outputs (LLaMA-7B's gate or up): 180 MB of F32 weights, 90 MB of BF16, larger than
// the caches. BM_LinearDecode: share of the read bandwidth, the bound being one read of the same weights.
// BM_LinearPrefill: share of sgemm on the same shape in F32, whatever the weights' type.
#include "bench/kernels/Bounds.h"
#include "kernels/Kernels.h"

namespace headrace::bench {
namespace {

using kernels::Elem;

constexpr int64_t kInputs = 4096, kOutputs = 11008;
const char *const kElemNames[] = {"F32", "F16", "BF16"};

// Weights are kept from one benchmark to the next; filling them takes longer than measuring.
struct Operands {
  Elem elem;
  Buffer weights;
  explicit Operands(Elem e) : elem(e), weights(kInputs * kOutputs * (e == Elem::F32 ? 4 : 2)) {
    if (elem == Elem::F32)
      fillFloats(weights.as<float>(), kInputs * kOutputs);
    else
      fillHalves(weights.as<uint16_t>(), kInputs * kOutputs, elem == Elem::BF16);
  }
  static const Operands &of(Elem elem) {
    static const Operands all[] = {Operands(Elem::F32), Operands(Elem::F16), Operands(Elem::BF16)};
    return all[static_cast<int>(elem)];
  }
};

struct Call {
  int32_t count;
  Buffer x, y, workspace;
  kernels::LinearArgs args{};

  Call(Elem elem, int64_t rows)
      : count(static_cast<int32_t>(rows)), x(rows * kInputs * 4), y(rows * kOutputs * 4),
        workspace(kernels::linearWorkspaceBytes(kernels::Backend::Host, rows, kOutputs, kInputs) + 1) {
    fillFloats(x.as<float>(), rows * kInputs);
    args.count = &count, args.x = x.as<float>(), args.w = Operands::of(elem).weights.as<void>();
    args.y = y.as<float>(), args.workspace = workspace.as<void>();
    args.n = kOutputs, args.k = kInputs, args.capacity = rows;
    args.elem = elem, args.order = kernels::kHostOrder;
  }
  void run() const { kernels::hostKernel(kernels::Op::Linear)(&args); }
};

void BM_LinearDecode(benchmark::State &state) {
  const Elem elem = static_cast<Elem>(state.range(0));
  const int64_t rows = state.range(1);
  const Buffer &weights = Operands::of(elem).weights;
  const Call call(elem, rows);
  inTurns(
      state, [&] { readMemory(weights.as<void>(), weights.bytes()); }, [&] { call.run(); });
  state.SetLabel(kElemNames[state.range(0)]);
  const double reads = static_cast<double>(state.iterations());
  state.counters["read_GB/s"] =
      benchmark::Counter(reads * static_cast<double>(weights.bytes()) / 1e9, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] =
      benchmark::Counter(reads * 2e-9 * static_cast<double>(rows * kInputs * kOutputs), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_LinearDecode)
    ->ArgNames({"elem", "rows"})
    ->ArgsProduct({{0, 1, 2}, {1, 2, 3, 4, 8, 16}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.5);

void BM_LinearPrefill(benchmark::State &state) {
  const Elem elem = static_cast<Elem>(state.range(0));
  const int64_t rows = state.range(1);
  const Call call(elem, rows);
  const Buffer out(rows * kOutputs * 4);
  const float *weights = Operands::of(Elem::F32).weights.as<float>();
  inTurns(
      state, [&] { sgemm(call.x.as<float>(), weights, out.as<float>(), rows, kOutputs, kInputs); },
      [&] { call.run(); });
  state.SetLabel(kElemNames[state.range(0)]);
  state.counters["GFLOP/s"] = benchmark::Counter(static_cast<double>(state.iterations()) * 2e-9 *
                                                     static_cast<double>(rows * kInputs * kOutputs),
                                                 benchmark::Counter::kIsRate);
}
BENCHMARK(BM_LinearPrefill)
    ->ArgNames({"elem", "rows"})
    ->ArgsProduct({{0, 1, 2}, {32, 64, 128, 256, 512}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.5);

} // namespace
} // namespace headrace::bench
