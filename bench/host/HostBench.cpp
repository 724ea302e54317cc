// SPDX-License-Identifier: Apache-2.0
#include "bench/host/HostBench.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace headrace::host {
namespace {

nlohmann::json figures = nlohmann::json::array();

} // namespace

const nlohmann::json &results() { return figures; }

double quantile(std::vector<int64_t> &values, double q) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  return static_cast<double>(values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))]) * 1e-3;
}

void report(const char *name, const char *what, std::vector<int64_t> values, double targetUs) {
  const double p50 = quantile(values, 0.5), p99 = quantile(values, 0.99);
  std::printf("%-62s p50 %9.3f us  p99 %9.3f us", what, p50, p99);
  if (targetUs != 0)
    std::printf("  target %g us: %s", targetUs, p50 <= targetUs ? "met" : "MISSED");
  std::printf("\n");
  figures.push_back({{"name", name}, {"what", what}, {"p50_us", p50}, {"p99_us", p99}, {"count", values.size()}});
  if (targetUs != 0)
    figures.back()["target_p50_us"] = targetUs;
}
void reportShare(const char *name, const char *what, double share, double target) {
  std::printf("%-62s %13.3f %%  target %g %%: %s\n", what, 100 * share, 100 * target,
              share <= target ? "met" : "MISSED");
  figures.push_back({{"name", name}, {"what", what}, {"share", share}, {"target_share", target}});
}

void check(const absl::Status &status) {
  if (status.ok())
    return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

} // namespace headrace::host
