// SPDX-License-Identifier: Apache-2.0
//
// Figures of a program that measures, written as they come: a run that is cut off leaves what it measured, and the next
// one goes on from there.
//
//   {"facts": {"device": ...}, "parts": {"link": {"method": ..., "figures": [{"name": ..., fields}], "tries": {name:
//   n}}}}
//
//   attempt(name)   measured before?            -> not again
//                   no time left for it?        -> Incomplete
//                   tries[name] + 1, on disk, then measured, on disk; or failed, with why, and the next one's turn
//
// Who has several to measure goes by inOrder(): what was tried before and has no result comes last, so that a figure
// that fails, or takes the program with it, hides no other.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace headrace::bench {

using Json = nlohmann::ordered_json;

// Why one figure could not be measured.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void fail(const std::string &message);

// The device cannot be used by this process any more.
struct DeviceLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

double nowSeconds();

// Of the whole program.
struct Budget {
  double seconds = 0, startedAt = 0;
  std::function<double()> now = nowSeconds;
  double left() const { return seconds - (now() - startedAt); }
};

class Report {
public:
  // `file` may be empty: then figures are only printed. Throws Failure where the file holds something else.
  Report(std::string file, Budget budget);

  // Starts a part: `method` says how its figures are measured. Those that an earlier run measured in this way are kept,
  // others go.
  void part(std::string_view name, std::string_view method);
  // One figure of the part with its fields, and one line on standard output; in place of one of that name.
  void figure(std::string_view name, Json fields);
  // What holds for the whole run: the device, driver, clocks.
  void fact(std::string_view name, Json value);
  // The same, but Failure where the file's figures are of another one.
  void sameFact(std::string_view name, const Json &value);
  // Throws DeviceLost if the device cannot be used; asked after every failure.
  std::function<void()> checkDevice;

  enum class Outcome { Measured, Settled, NoTime, Failed };
  // Measures a figure that is not there yet, if there are `seconds` left for it: `measure` returns its fields, or
  // throws Failure.
  Outcome attempt(const std::string &name, double seconds, const std::function<Json()> &measure);
  struct Task {
    std::string name;
    double seconds = 0;
    std::function<Json()> measure;
  };
  // The same of several, by inOrder().
  void attempt(const std::vector<Task> &tasks);
  // Names by how often they were tried without a result, the least first; else as they were.
  std::vector<std::string> inOrder(std::vector<std::string> names) const;
  // A figure that needs no further measuring: it has a result, or was left out with the reason. Not one that failed, or
  // has a field "unavailable": what it needs is not there.
  bool settled(std::string_view name) const;
  void forget(std::string_view name);
  // Of the part's figures, null where there is none of that name.
  const Json *find(std::string_view name) const;
  const Json &figures() const { return at("figures"); }
  // Of another part, measured by this run or an earlier one; none where it was not.
  Json figuresOf(std::string_view part) const;
  // A figure's number; Failure, saying so, where it was not measured.
  double number(std::string_view name, const char *field) const;
  // What a caller could not start for lack of time.
  void incomplete() { incomplete_ = true; }
  void lost(const std::string &why); // ends the program's measuring

  const Budget &budget() const { return budget_; }
  // 0: all measured; 75: call again; 1: what is missing failed; 77: what is missing needs what is not there.
  int exitStatus() const;

  // What the file holds as tables in Markdown, a part each; a column for each field that any of its figures has.
  static std::string table(const std::string &file);

private:
  const Json &at(const char *key) const { return all_.at("parts").at(part_).at(key); }
  int tries(const std::string &name) const;
  void write() const;

  std::string file_;
  Budget budget_;
  std::string part_, trying_;
  Json all_;
  bool incomplete_ = false, failed_ = false, unavailable_ = false;
};

double quantile(std::vector<double> values, double q); // nearest rank; 0 of none
double median(std::vector<double> values);

} // namespace headrace::bench
