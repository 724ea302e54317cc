// SPDX-License-Identifier: Apache-2.0
//
// Whether the algorithm that cublasLt's heuristic puts first is the fastest of the up to eight that it names: every
// product of a model's layer and its head, at four numbers of rows.
#include <limits>

#include "absl/strings/str_format.h"
#include "bench/cuda/Gemm.h"
#include "bench/cuda/Steps.h"

namespace headrace::bench {
namespace {

struct Operand {
  const char *name;
  int64_t n, k;
  kernels::Elem result;
  bool residual;
};

// What the heuristic names the library may refuse all the same; plans run the first, which must not be.
double usOrNever(ProductCase &one, Timer &timer) {
  try {
    return one.ms(timer) * 1e3;
  } catch (const Failure &) {
    return std::numeric_limits<double>::infinity();
  }
}

Json candidates(const StepsOf &of, const Operand &operand, int64_t rows) {
  cuda::MatMulShape shape = bf16Shape(rows, operand.n, operand.k);
  shape.result = operand.result;
  shape.residual = operand.residual;
  ProductCase one(shape);
  const std::vector<std::string> all = one.candidates();
  if (all.empty())
    return {{"left out", "the library names no algorithms"}};
  std::vector<double> us;
  std::string times;
  for (size_t i = 0; i < all.size(); ++i) {
    one.take(i);
    us.push_back(i == 0 ? one.ms(of.timer) * 1e3 : usOrNever(one, of.timer));
    times += absl::StrFormat("%s%.4g", i == 0 ? "" : " ", us.back());
  }
  one.take(0); // the library is open as long as the program runs
  const auto best = static_cast<size_t>(std::min_element(us.begin(), us.end()) - us.begin());
  Json fields = besideBound(us.front(), one.work(), of.peaks);
  fields["candidates"] = all.size();
  fields["the fastest"] = best;
  fields["its us"] = us[best];
  fields["fastest / first"] = us[best] / us.front();
  fields["all us"] = times;
  fields["first"] = all.front();
  fields["fastest"] = all[best];
  return fields;
}

} // namespace

void addProductCandidates(Tasks &tasks, const StepsOf &of) {
  using kernels::Elem;
  const model::ModelSpec &spec = of.spec;
  const int64_t heads = spec.heads * spec.headDim;
  const Operand operands[] = {
      {"gate and up", 2 * spec.intermediate, spec.hidden, Elem::BF16, false},
      {"down", spec.hidden, spec.intermediate, Elem::F32, true},
      {"qkv", heads + 2 * spec.kvHeads * spec.headDim, spec.hidden, Elem::BF16, false},
      {"out", spec.hidden, heads, Elem::F32, true},
      {"head", spec.vocab, spec.hidden, Elem::F32, false},
  };
  for (const int64_t rows : within(spec.maxPositions, {32, 1, 1024, 128}))
    for (const Operand &operand : operands)
      tasks.push_back({absl::StrFormat("%s, %d x %d, %d rows", operand.name, operand.n, operand.k, rows), 5,
                       [&of, operand, rows] { return candidates(of, operand, rows); }});
}

} // namespace headrace::bench
