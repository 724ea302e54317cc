// SPDX-License-Identifier: Apache-2.0
//
// What each op means, as plain loops in double precision: the oracle of the kernels' tests. No vectors, no blocks, no
// shared code with the kernels; matrices are row-major std::vector<double>.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/Kernels.h"

namespace headrace::kernels::reference {

using Values = std::vector<double>;

inline double activation(Epilogue epilogue, double x) {
  switch (epilogue) {
  case Epilogue::None:
    return x;
  case Epilogue::Relu:
    return x > 0 ? x : 0;
  case Epilogue::Gelu:
    return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  case Epilogue::GeluTanh:
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return NAN;
}

// y[t, n] = epilogue(sum over k of x[t, k] w[n, k] + bias[n]) + residual[t, n]; bias and residual may be empty.
inline Values linear(const Values &x, const Values &w, const Values &bias, const Values &residual, Epilogue epilogue,
                     int64_t rows, int64_t n, int64_t k) {
  Values y(rows * n);
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += x[t * k + i] * w[c * k + i];
      sum = activation(epilogue, sum + (bias.empty() ? 0 : bias[c]));
      y[t * n + c] = sum + (residual.empty() ? 0 : residual[t * n + c]);
    }
  return y;
}

// One row. LayerNorm where bias is not empty, RMSNorm where it is.
inline Values norm(const Values &x, const Values &weight, const Values &bias, double eps) {
  const double n = static_cast<double>(x.size());
  double mean = 0, square = 0;
  if (!bias.empty())
    for (double v : x)
      mean += v / n;
  for (double v : x)
    square += (v - mean) * (v - mean) / n;
  Values y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - mean) / std::sqrt(square + eps) * weight[i] + (bias.empty() ? 0 : bias[i]);
  return y;
}

inline double silu(double x) { return x / (1 + std::exp(-x)); }

// Rotates one vector of headDim elements: pairs (j, j + headDim / 2) by the angle position * inverseFrequency[j]. The
// product is rounded to F32 first: Hugging Face's reference computes it so, and at large positions that shows.
inline Values rotate(const Values &x, const std::vector<float> &inverseFrequencies, int64_t position) {
  const size_t half = x.size() / 2;
  Values y(x.size());
  for (size_t j = 0; j < half; ++j) {
    const double angle = static_cast<float>(position) * inverseFrequencies[j];
    y[j] = x[j] * std::cos(angle) - x[j + half] * std::sin(angle);
    y[j + half] = x[j + half] * std::cos(angle) + x[j] * std::sin(angle);
  }
  return y;
}

// One query over `tokens` keys and values of q.size() elements each, one after the other.
inline Values attention(const Values &q, const Values &keys, const Values &values, int64_t tokens, double scale) {
  const size_t dim = q.size();
  Values score(tokens), out(dim);
  for (int64_t t = 0; t < tokens; ++t) {
    for (size_t d = 0; d < dim; ++d)
      score[t] += q[d] * keys[t * dim + d];
    score[t] *= scale;
  }
  const double largest = *std::max_element(score.begin(), score.end());
  double total = 0;
  for (double &s : score)
    total += s = std::exp(s - largest);
  for (int64_t t = 0; t < tokens; ++t)
    for (size_t d = 0; d < dim; ++d)
      out[d] += score[t] / total * values[t * dim + d];
  return out;
}

// The candidates of sampling, lowest id first: sort, leave out those of little weight and all but the first topK (0:
// all), take while of the rest the probability is not reached.
inline std::vector<int32_t> candidates(const std::vector<float> &logits, double temperature, double topP,
                                       size_t topK = 0, double minP = 0) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  double total = 0, sum = 0;
  auto weight = [&](int32_t id) { return std::exp((double{logits[id]} - double{logits[order[0]]}) / temperature); };
  const auto light = [&](int32_t id) { return weight(id) < minP; };
  order.erase(std::find_if(order.begin(), order.end(), light), order.end());
  if (topK > 0 && topK < order.size())
    order.resize(topK);
  for (int32_t id : order)
    total += weight(id);
  std::vector<int32_t> taken;
  for (int32_t id : order) {
    if (!taken.empty() && sum >= topP * total)
      break;
    taken.push_back(id);
    sum += weight(id);
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

} // namespace headrace::kernels::reference
