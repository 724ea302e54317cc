// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Summary.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace headrace::bench {
namespace {

struct OfModel {
  std::vector<double> ratios, errors;
  int64_t within = 0;
};

bool complete(const Json &figure) {
  return figure.contains("model") && figure.contains("cell") && figure.contains("placement") && figure.contains("ms");
}

std::string cellOf(const Json &figure) {
  return figure["model"].get<std::string>() + ", " + figure["cell"].get<std::string>();
}

} // namespace

Bounded bounded(double ms, double aloneMs, double linkMs, double predictedMs) {
  const double bound = std::max(aloneMs, linkMs);
  return {.ratio = bound > 0 ? ms / bound : 0,
          .alone = aloneMs,
          .link = linkMs,
          .error = predictedMs > 0 ? ms / predictedMs - 1 : 0,
          .byLink = linkMs > aloneMs};
}

std::vector<std::pair<std::string, Json>> summarise(const Json &figures) {
  std::map<std::string, double> alone;
  for (const Json &figure : figures)
    if (complete(figure) && figure["placement"] == "resident")
      alone[cellOf(figure)] = figure["ms"].get<double>();
  std::vector<std::pair<std::string, Json>> lines;
  std::vector<std::string> models; // in the order of the figures
  std::map<std::string, OfModel> of;
  for (const Json &figure : figures) {
    if (!complete(figure) || !alone.contains(cellOf(figure)))
      continue;
    const double ms = figure["ms"].get<double>(), predicted = figure.value("predicted ms", 0.0);
    const Bounded b = bounded(ms, alone[cellOf(figure)], figure.value("link ms", 0.0), predicted);
    const std::string model = figure["model"].get<std::string>();
    if (!of.contains(model))
      models.push_back(model);
    OfModel &mine = of[model];
    mine.errors.push_back(std::abs(b.error));
    if (b.link > 0) {
      mine.ratios.push_back(b.ratio);
      mine.within += b.ratio <= kRatioTarget;
    }
    lines.push_back({figure.value("name", ""),
                     {{"ms", ms},
                      {"alone ms", b.alone},
                      {"link ms", b.link},
                      {"ratio", b.ratio},
                      {"bound by", b.byLink ? "link" : "compute"},
                      {"predicted ms", predicted},
                      {"prediction error", b.error}}});
  }
  for (const std::string &model : models) {
    const OfModel &mine = of[model];
    lines.push_back({model + ", all",
                     {{"iterations that move bytes", mine.ratios.size()},
                      {"ratio, median", median(mine.ratios)},
                      {"ratio, worst", quantile(mine.ratios, 1)},
                      {"within 1.03", mine.within},
                      {"|prediction error|, median", median(mine.errors)},
                      {"|prediction error|, worst", quantile(mine.errors, 1)}}});
  }
  return lines;
}

} // namespace headrace::bench
