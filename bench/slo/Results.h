// SPDX-License-Identifier: Apache-2.0
//
// What bench_slo drew and what it has seen of it, kept in one JSON file: a row for each case that was tried, so that a
// run that was cut, or had to wait for a machine that is quiet, can be taken up again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/slo/Cases.h"

namespace headrace::bench {

// One model's.
struct Drawn {
  std::vector<double> links; // bytes/s
  std::vector<Case> cases;   // sorted by link
};

class Results {
public:
  // What a run is a run of: results of another machine, seed or number of cases are not taken up.
  struct Run {
    std::string machine; // the processor
    uint64_t seed = 1;
    size_t cases = 200;
    int iterations = 600;
  };

  // Kept in `file`, nowhere if that is empty. With `resume` what the file has is taken up; it must be of the same run.
  Results(Run run, std::string file, bool resume);

  // Null until `draw` has been called for this model, by this run or an earlier one.
  const Drawn *drawn(const std::string &model) const;
  void draw(const std::string &model, Drawn drawn);

  // A row has "number" and "outcome": held, missed, refused or unmeasured. It replaces the one before of its number.
  void put(nlohmann::json row);
  bool isDone(size_t number) const;  // tried, and not unmeasured
  int attempts(size_t number) const; // so far

  nlohmann::json summary() const;
  // No admitted case missed, at most 5% unmeasured, predictions within their targets, and each refusal names what would
  // do.
  bool targetsAreMet() const;
  void write() const;

  double seconds = 0; // that this run and those before it took

private:
  Run run_;
  std::string file_;
  std::map<std::string, Drawn> drawn_;
  std::map<size_t, nlohmann::json> rows_; // by number
};

} // namespace headrace::bench
