// SPDX-License-Identifier: Apache-2.0
#include "bench/slo/Results.h"

#include <cmath>
#include <fstream>
#include <utility>

#include "bench/slo/Player.h"

namespace headrace::bench {
namespace {

using nlohmann::json;

constexpr double kMostUnmeasured = 0.05;                 // of the admitted cases
constexpr double kMedianError = 0.05, kTailError = 0.12; // targets of prediction

json toJson(const Drawn &drawn) {
  json cases = json::array();
  for (const Case &c : drawn.cases)
    cases.push_back({c.number, c.model, c.link, c.prefill, c.batch, c.context, c.factor, c.selectN});
  return {{"links", drawn.links}, {"cases", std::move(cases)}};
}

Drawn fromJson(const json &kept) {
  Drawn drawn{.links = kept.at("links").get<std::vector<double>>(), .cases = {}};
  for (const json &c : kept.at("cases"))
    drawn.cases.push_back({.number = c.at(0),
                           .model = c.at(1),
                           .link = c.at(2),
                           .prefill = c.at(3),
                           .batch = c.at(4),
                           .context = c.at(5),
                           .factor = c.at(6),
                           .selectN = c.at(7)});
  return drawn;
}

json toJson(const Results::Run &run) {
  return {{"machine", run.machine}, {"seed", run.seed}, {"cases", run.cases}, {"iterations", run.iterations}};
}

} // namespace

Results::Results(Run run, std::string file, bool resume) : run_(std::move(run)), file_(std::move(file)) {
  if (!resume)
    return;
  std::ifstream in(file_);
  const json kept = json::parse(in, nullptr, false);
  if (!kept.is_object() || !kept.contains("run") || !kept.contains("drawn"))
    fail(file_ + ": holds no run to take up");
  if (kept["run"] != toJson(run_))
    fail(file_ + ": is of another run: " + kept["run"].dump() + ", this one is " + toJson(run_).dump());
  try {
    for (const auto &[model, drawn] : kept["drawn"].items())
      drawn_.emplace(model, fromJson(drawn));
    for (const json &row : kept.at("cases"))
      rows_[row.at("number")] = row;
    seconds = kept.at("summary").at("seconds");
    (void)summary(); // reads what it needs of every row
  } catch (const json::exception &error) {
    fail(file_ + ": holds no run to take up: " + error.what());
  }
}

const Drawn *Results::drawn(const std::string &model) const {
  const auto found = drawn_.find(model);
  return found == drawn_.end() ? nullptr : &found->second;
}

void Results::draw(const std::string &model, Drawn drawn) { drawn_[model] = std::move(drawn); }

void Results::put(json row) {
  const size_t number = row.at("number");
  rows_[number] = std::move(row);
}

bool Results::isDone(size_t number) const {
  const auto row = rows_.find(number);
  return row != rows_.end() && row->second.at("outcome") != "unmeasured";
}

int Results::attempts(size_t number) const {
  const auto row = rows_.find(number);
  return row == rows_.end() ? 0 : row->second.at("attempts").get<int>();
}

json Results::summary() const {
  std::map<std::string, size_t> count;
  size_t offloading = 0, nameless = 0;
  std::vector<double> errors, residentErrors; // |predicted / measured - 1|
  const auto error = [](const json &row, const char *predicted, const char *measured) {
    return std::abs(row.at(predicted).get<double>() / row.at(measured).get<double>() - 1);
  };
  for (const auto &[number, row] : rows_) {
    const std::string outcome = row.at("outcome");
    ++count[outcome];
    nameless += outcome == "refused" && !row.at("names_minimum").get<bool>() ? 1 : 0;
    if (outcome != "held" && outcome != "missed")
      continue;
    offloading += row.at("h2d_bytes") > 0 ? 1 : 0;
    errors.push_back(error(row, "predicted_ns", "median_ns"));
    residentErrors.push_back(error(row, "resident_predicted_ns", "resident_median_ns"));
  }
  return {{"cases", rows_.size()},
          {"refused", count["refused"]},
          {"refused_without_minimum", nameless},
          {"admitted", rows_.size() - count["refused"]},
          {"offloading", offloading},
          {"held", count["held"]},
          {"missed", count["missed"]},
          {"unmeasured", count["unmeasured"]},
          {"error_median", quantile(errors, 0.5)},
          {"error_p95", quantile(errors, 0.95)},
          {"error_median_target", kMedianError},
          {"error_p95_target", kTailError},
          {"resident_error_median", quantile(residentErrors, 0.5)},
          {"resident_error_p95", quantile(residentErrors, 0.95)},
          {"seconds", seconds}};
}

bool Results::targetsAreMet() const {
  const json seen = summary();
  return seen["missed"] == 0 && seen["refused_without_minimum"] == 0 &&
         seen["unmeasured"].get<double>() <= kMostUnmeasured * seen["admitted"].get<double>() &&
         seen["error_median"] <= kMedianError && seen["error_p95"] <= kTailError;
}

void Results::write() const {
  if (file_.empty())
    return;
  json drawn = json::object(), cases = json::array();
  for (const auto &[model, of] : drawn_)
    drawn[model] = toJson(of);
  for (const auto &[number, row] : rows_)
    cases.push_back(row);
  std::ofstream out(file_);
  out << json{{"run", toJson(run_)}, {"summary", summary()}, {"cases", cases}, {"drawn", drawn}}.dump(1) << "\n";
  if (!out.flush())
    fail(file_ + ": cannot be written");
}

} // namespace headrace::bench
