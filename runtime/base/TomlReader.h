// SPDX-License-Identifier: Apache-2.0
//
// Reading TOML that a person wrote (job, shape and hardware files): one table at a time, each key with its type and
// range; the first refusal is kept and names file, line, key, value and what was expected. Keys that nobody asked for
// are refused by finish().
//
//   absl::StatusOr<TomlValue> document = parseToml(text, "job.toml");
//   TomlReader goal(*document->find("goal"), "job.toml", "goal");
//   if (auto batch = goal.integer("batch", 1, 4096)) ...
//   if (absl::Status status = goal.finish(); !status.ok()) return status;
//
// A command line's values are read in the same way, once they are TomlValues: as if they stood in a file.
//
// For .cpp files of runtime/model, runtime/job, runtime/cost and tools/commands only. The parsed tree is our own:
// toml++ stays in one translation unit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headrace::model {

struct TomlValue {
  enum class Kind : uint8_t { String, Integer, Float, Boolean, Array, Table, Other };
  Kind kind = Kind::Table;
  uint32_t line = 0; // 1 is the first; 0: unknown
  std::string text;  // String; Other: how it is called
  int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  std::vector<std::string> keys; // Table: one for each item, ascending
  std::vector<TomlValue> items;  // Array and Table

  const TomlValue *find(std::string_view key) const;
  // An integer, a float that is one (1.0, 1e3), or a text such as "8k" (Units.h): the same wherever one is given.
  std::optional<int64_t> whole() const;
  std::string toString() const; // as it stood in the file, cut to a printable length
};

absl::StatusOr<TomlValue> parseToml(std::string_view text, std::string_view path);

class TomlReader {
public:
  // `table` must outlive the reader. `name` ("goal", or empty for the file itself) stands before keys in messages.
  TomlReader(const TomlValue &table, std::string_view path, std::string_view name);
  // Values that no file holds (a command line's): `place` gives what messages call a key.
  using Place = std::function<std::string(std::string_view key)>;
  TomlReader(const TomlValue &table, Place place);
  // The table that a key holds; there must be one.
  TomlReader nested(std::string_view key) const;

  bool has(std::string_view key) const { return table_.find(key) != nullptr; }
  // The value of a key, whatever it is; null if the file does not have it. Counts as asked for.
  const TomlValue *value(std::string_view key);

  // Nothing if the key is missing, or if it was refused.
  std::optional<int64_t> integer(std::string_view key, int64_t least, int64_t most);
  std::optional<double> number(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<std::vector<std::string>> texts(std::string_view key); // a list of them
  std::optional<std::vector<int64_t>> integers(std::string_view key, int64_t least, int64_t most);
  // Amounts, as strings with a unit (Units.h). A number of bytes, bytes/s, FLOP/s or seconds is refused unless
  // takeBareAmounts() was called, for files that programs wrote before units were asked for.
  std::optional<uint64_t> bytes(std::string_view key);
  std::optional<double> bandwidth(std::string_view key);
  std::optional<double> flops(std::string_view key);
  std::optional<double> seconds(std::string_view key);
  void takeBareAmounts() { bareAmounts_ = true; }
  // One of a set of names; `parse` answers nothing for another text, `expected` lists the names.
  template <class Parse>
  auto oneOf(std::string_view key, Parse parse, std::string_view expected) -> decltype(parse(std::string_view())) {
    const std::optional<std::string> name = text(key);
    if (!name)
      return std::nullopt;
    auto parsed = parse(std::string_view(*name));
    if (!parsed)
      refuse(key, expected);
    return parsed;
  }

  // Records "<path>:<line>: <table>.<key> = <value>: expected <expected>"; for a missing key, that it is missing.
  void refuse(std::string_view key, std::string_view expected);
  void refuseWith(const absl::Status &status);
  // "<path>:<line>: <table>.<key>", or what `place` says: for messages made elsewhere.
  std::string where(std::string_view key) const;

  bool ok() const { return status_.ok(); }
  // The first refusal; else, that the table has a key nobody asked for; else OK.
  absl::Status finish();
  // That the table has a key which is not one of `known`: to be said before one that is missing, which it may stand
  // for.
  absl::Status unknownKey(const std::vector<std::string> &known) const;

private:
  using Parser = absl::StatusOr<double> (*)(std::string_view, std::string_view);
  std::optional<double> amount(std::string_view key, Parser parse, std::string_view expected);

  const TomlValue &table_;
  std::string path_, name_;
  Place place_; // in place of both
  std::set<std::string, std::less<>> asked_;
  bool bareAmounts_ = false;
  absl::Status status_;
};

} // namespace headrace::model
