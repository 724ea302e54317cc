// SPDX-License-Identifier: Apache-2.0
//
// Linear with packed weights beside BF16 ones, in the shapes of TinyLlama-1.1B, one thread: a pass over BF16, one over
// q8, one over q4, and so on, so that a neighbour on the machine meets all of them. Of each the shortest pass counts:
//
//   q8_x, q4_x          as many times as fast as BF16
//   q8_share, q4_share  of its own bound: one read of its bytes (up to 8 rows), sgemm of the same shape (more)
#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "bench/kernels/Bounds.h"
#include "kernels/Kernels.h"

namespace headrace::bench {
namespace {

struct PackedShape {
  const char *name;
  int64_t outputs, inputs;
};
constexpr PackedShape kPackedShapes[] = {{"1.1B q, k, v", 2560, 2048},
                                         {"1.1B out", 2048, 2048},
                                         {"1.1B gate and up", 11264, 2048},
                                         {"1.1B down", 2048, 5632},
                                         {"1.1B head", 32000, 2048}};
constexpr int32_t kGroup = 64;

// As many copies of a matrix as take half a gigabyte in BF16; bits: 16, or of codes.
class Copies {
public:
  Copies(const PackedShape &shape, int bits, int64_t copies)
      : bytes_(bits == 16 ? shape.outputs * shape.inputs * 2
                          : shape.outputs * shape.inputs / kGroup * (4 + kGroup * bits / 8)),
        memory_(static_cast<uint64_t>(copies * bytes_)) {
    if (bits == 16)
      fillHalves(memory_.as<uint16_t>(), memory_.bytes() / 2, /*bfloat=*/true);
    else
      fillGroups(16 * (4 + kGroup * bits / 8), copies * bytes_);
  }
  const void *copy(int64_t i) const { return memory_.as<char>() + i * bytes_; }
  const Buffer &memory() const { return memory_; }

private:
  // Of 16 rows, so many bytes each: as many scales of 2^-8, minima of -1, then any codes.
  void fillGroups(int64_t group, int64_t all) {
    auto *out = memory_.as<uint8_t>();
    for (int64_t at = 0; at < all; at += group) {
      for (int i = 0; i < 32; ++i) {
        const uint16_t half = i < 16 ? 0x1c00 : 0xbc00;
        std::copy_n(reinterpret_cast<const uint8_t *>(&half), 2, out + at + 2 * i);
      }
      for (int64_t i = at + 64; i < at + group; ++i)
        out[i] = static_cast<uint8_t>(static_cast<uint64_t>(i) * 2654435761u >> 13);
    }
  }

  int64_t bytes_;
  Buffer memory_;
};

void BM_LinearPacked(benchmark::State &state) {
  const auto rows = static_cast<int32_t>(state.range(0));
  const PackedShape &shape = kPackedShapes[state.range(1)];
  const bool many = rows > 8;
  const int64_t copies = many ? 1 : std::max<int64_t>(1, (int64_t{512} << 20) / (shape.outputs * shape.inputs * 2));
  constexpr std::array kBits = {16, 8, 4};
  std::array<std::unique_ptr<Copies>, 3> weights;
  for (size_t i = 0; i < kBits.size(); ++i)
    weights[i] = std::make_unique<Copies>(shape, kBits[i], copies);
  const Buffer x(static_cast<uint64_t>(rows * shape.inputs * 4)), y(static_cast<uint64_t>(rows * shape.outputs * 4));
  const Buffer workspace(kernels::linearWorkspaceBytes(kernels::Backend::Host, rows, shape.outputs, shape.inputs) + 1);
  fillFloats(x.as<float>(), static_cast<uint64_t>(rows * shape.inputs));
  const auto run = [&](size_t kind) {
    kernels::LinearArgs args{};
    args.count = &rows, args.x = x.as<float>(), args.y = y.as<float>(), args.workspace = workspace.as<void>();
    args.n = shape.outputs, args.k = shape.inputs, args.capacity = rows;
    args.elem = kernels::Elem::BF16, args.order = kernels::kHostOrder;
    if (kBits[kind] < 16)
      args.packing = {static_cast<uint8_t>(kBits[kind]), kGroup};
    for (int64_t i = 0; i < copies; ++i) {
      args.w = weights[kind]->copy(i);
      kernels::hostKernel(kernels::Op::Linear)(&args);
    }
  };
  std::unique_ptr<Buffer> f32; // sgemm's
  if (many) {
    f32 = std::make_unique<Buffer>(static_cast<uint64_t>(shape.outputs * shape.inputs * 4));
    fillFloats(f32->as<float>(), f32->bytes() / 4);
  }
  std::array<double, 3> least, bound;
  least.fill(std::numeric_limits<double>::infinity());
  bound = least;
  for (size_t i = 0; i < kBits.size(); ++i)
    run(i);
  for (auto _ : state) {
    double all = 0;
    for (size_t i = 0; i < kBits.size(); ++i) {
      const double limit = timeOf([&] {
        many ? sgemm(x.as<float>(), f32->as<float>(), y.as<float>(), rows, shape.outputs, shape.inputs)
             : readMemory(weights[i]->memory().as<void>(), weights[i]->memory().bytes());
      });
      const double time = timeOf([&] { run(i); });
      least[i] = std::min(least[i], time);
      bound[i] = std::min(bound[i], limit);
      all += time;
    }
    state.SetIterationTime(all);
  }
  state.SetLabel(shape.name);
  state.counters["bf16_ms"] = least[0] * 1e3;
  state.counters["q8_x"] = least[0] / least[1];
  state.counters["q4_x"] = least[0] / least[2];
  state.counters["bf16_share"] = bound[0] / least[0];
  state.counters["q8_share"] = bound[1] / least[1];
  state.counters["q4_share"] = bound[2] / least[2];
}
BENCHMARK(BM_LinearPacked)
    ->ArgNames({"rows", "shape"})
    ->ArgsProduct({{1}, {0, 1, 2, 3, 4}})
    ->ArgsProduct({{2, 3, 4, 6, 8}, {2}})
    ->ArgsProduct({{32, 128, 512}, {2, 3}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(15);

} // namespace
} // namespace headrace::bench
