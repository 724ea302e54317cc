// SPDX-License-Identifier: Apache-2.0
#include "bench/prices/Fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace headrace::bench {
namespace {

struct Steps {
  double model::OpClasses::*field;
  double unit; // of the grid: 1 to `count` of them
  int count;
};

constexpr double kShare = 0.01;
double onGrid(const Steps &steps, int i) { return steps.unit == kShare ? i / 100.0 : i * steps.unit; }

double squares(const std::vector<const KernelFigure *> &figures, const model::Hardware &hardware) {
  double sum = 0;
  for (const KernelFigure *figure : figures) {
    const double one = std::log(1 + errorOf(*figure, hardware));
    sum += one * one;
  }
  return sum;
}

// The best of all values, or pairs of them; the first such.
void fit(const std::vector<KernelFigure> &all, OpClass of, const Steps &first, const std::optional<Steps> &second,
         model::Hardware &hardware) {
  std::vector<const KernelFigure *> figures;
  for (const KernelFigure &figure : all)
    if (figure.of == of && figure.fitted)
      figures.push_back(&figure);
  double least = std::numeric_limits<double>::infinity();
  model::OpClasses best = hardware.classes;
  for (int i = 1; i <= first.count; ++i)
    for (int j = 1; j <= (second ? second->count : 1); ++j) {
      hardware.classes.*first.field = onGrid(first, i);
      if (second)
        hardware.classes.*second->field = onGrid(*second, j);
      if (const double sum = squares(figures, hardware); sum < least) {
        least = sum;
        best = hardware.classes;
      }
    }
  hardware.classes = best;
}

} // namespace

model::OpClasses fittedClasses(const std::vector<KernelFigure> &figures, model::Hardware hardware) {
  using Classes = model::OpClasses;
  fit(figures, OpClass::Product, {&Classes::productFlopsEfficiency, kShare, 100},
      Steps{&Classes::productMemoryEfficiency, kShare, 100}, hardware);
  fit(figures, OpClass::DecodeAttention, {&Classes::decodeAttentionMemoryEfficiency, kShare, 100},
      Steps{&Classes::attentionOverhead, 0.5e-6, 60}, hardware);
  fit(figures, OpClass::PrefillAttention, {&Classes::prefillAttentionFlopsEfficiency, kShare, 100},
      Steps{&Classes::prefillAttentionRamp, 1e-6, 150}, hardware);
  fit(figures, OpClass::Row, {&Classes::rowMemoryEfficiency, kShare, 100}, std::nullopt, hardware);
  return hardware.classes;
}

double middle(std::vector<double> values) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

double medianError(const std::vector<KernelFigure> &figures, OpClass of, bool fitted, const model::Hardware &hardware) {
  std::vector<double> sizes;
  for (const KernelFigure &figure : figures)
    if (figure.of == of && figure.fitted == fitted)
      sizes.push_back(std::abs(errorOf(figure, hardware)));
  return middle(std::move(sizes));
}

double sumError(const std::vector<KernelFigure> &figures, OpClass of, bool fitted, const model::Hardware &hardware) {
  double measured = 0, priced = 0;
  for (const KernelFigure &figure : figures)
    if (figure.of == of && figure.fitted == fitted) {
      measured += figure.us;
      priced += pricedUs(figure, hardware);
    }
  return priced > 0 ? measured / priced - 1 : 0;
}

} // namespace headrace::bench
