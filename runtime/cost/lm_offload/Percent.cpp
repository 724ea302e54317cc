// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/Percent.h"

#include <charconv>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::cost {
namespace {

constexpr std::string_view kSix = "six numbers, wg wc cg cc hg hc, such as \"55 45 0 100 0 100\"";

absl::Status unfitPercent(std::string_view what, const std::string &message) {
  return absl::InvalidArgumentError(model::cat(what, ": ", message));
}

struct Pair {
  const char *device, *host;
  double Percent::*onDevice, Percent::*onHost;
};
constexpr Pair kPairs[] = {{"wg", "wc", &Percent::wg, &Percent::wc},
                           {"cg", "cc", &Percent::cg, &Percent::cc},
                           {"hg", "hc", &Percent::hg, &Percent::hc}};

} // namespace

absl::StatusOr<Percent> parsePercent(std::string_view text, std::string_view what) {
  std::vector<double> numbers;
  constexpr std::string_view kBetween = " ,\t";
  for (size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    double number = 0;
    const auto [read, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || read != word.data() + word.size() || !std::isfinite(number))
      return unfitPercent(what, model::cat("\"", model::escaped(word), "\": expected ", kSix));
    numbers.push_back(number);
    at = text.find_first_not_of(kBetween, end);
  }
  if (numbers.size() != 6)
    return unfitPercent(what, model::cat(numbers.size(), " numbers: expected ", kSix));
  const Percent percent{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
  RETURN_IF_ERROR(checkPercent(percent, what));
  return percent;
}

absl::Status checkPercent(const Percent &percent, std::string_view what) {
  for (const Pair &pair : kPairs) {
    const double device = percent.*pair.onDevice, host = percent.*pair.onHost;
    for (const auto &[name, share] : {std::pair{pair.device, device}, {pair.host, host}}) {
      if (!(share >= 0))
        return unfitPercent(what, model::cat(name, " = ", share, ": expected 0 to 100"));
    }
    if (!(std::abs(device + host - 100) <= 1e-6))
      return unfitPercent(what, model::cat(pair.device, " + ", pair.host, " = ", device + host,
                                           ": expected 100; nothing is kept on disk"));
  }
  if (percent.hg != 0 && percent.hg != 100)
    return unfitPercent(what, model::cat("hg = ", percent.hg, ": expected 0 or 100, hidden states are one buffer"));
  return absl::OkStatus();
}

std::string percentText(const Percent &p) {
  return model::cat(p.wg, " ", p.wc, " ", p.cg, " ", p.cc, " ", p.hg, " ", p.hc);
}

int64_t elementsByMidpoints(absl::Span<const int64_t> tensors, double onDevice) {
  const double all = static_cast<double>(std::accumulate(tensors.begin(), tensors.end(), int64_t{0}));
  int64_t before = 0, device = 0;
  for (const int64_t elements : tensors) {
    const double middle = static_cast<double>(before) + static_cast<double>(elements) / 2;
    if (middle / all * 100 >= 100 - onDevice)
      device += elements;
    before += elements;
  }
  return device;
}

double reachedWeights(const model::ModelSpec &spec, double wg) {
  const int64_t hidden = spec.hidden, up = spec.intermediate;
  std::vector<int64_t> attention, mlp;
  const auto add = [](std::vector<int64_t> &tensors, int64_t rows, int64_t columns, bool bias) {
    tensors.push_back(rows * columns);
    if (bias)
      tensors.push_back(rows);
  };
  add(attention, spec.qRows(), hidden, spec.qkvBias);
  add(attention, spec.kvRows(), hidden, spec.qkvBias);
  add(attention, spec.kvRows(), hidden, spec.qkvBias);
  add(attention, hidden, spec.qRows(), spec.outBias);
  if (spec.gated())
    add(mlp, up, hidden, spec.mlpBias);
  add(mlp, up, hidden, spec.mlpBias);
  add(mlp, hidden, up, spec.mlpBias);
  for (std::vector<int64_t> *tensors : {&attention, &mlp}) // norms stand last
    tensors->insert(tensors->end(), spec.norm == model::NormKind::LayerNorm ? 2 : 1, hidden);
  const int64_t device = elementsByMidpoints(attention, wg) + elementsByMidpoints(mlp, wg);
  const int64_t all = std::accumulate(attention.begin(), attention.end(), int64_t{0}) +
                      std::accumulate(mlp.begin(), mlp.end(), int64_t{0});
  return 100 * static_cast<double>(device) / static_cast<double>(all);
}

} // namespace headrace::cost
