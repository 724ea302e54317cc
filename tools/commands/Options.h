// SPDX-License-Identifier: Apache-2.0
//
// CLI11's options with values that are read strictly and refused in the form of InputErrors.h, and its own errors in
// that form. For main.cpp only.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/Units.h"

namespace headrace::tools {

// An integer from `least` to `most`: "8", a number that is one, such as 1e3, or a count such as 8k (Units.h), which is
// said on standard error with what it was taken for. The target is a number or an optional.
template <std::integral Number, class Target>
CLI::Option *addInteger(CLI::App &app, const std::string &flags, Target &target, const std::string &help, Number least,
                        Number most = std::numeric_limits<Number>::max());
// A finite number; `expected` says which, `holds` whether this is one.
CLI::Option *addNumber(CLI::App &app, const std::string &flags, double &target, const std::string &help,
                       const std::string &expected, bool (*holds)(double));
CLI::Option *addNumber(CLI::App &app, const std::string &flags, std::optional<double> &target, const std::string &help,
                       const std::string &expected, bool (*holds)(double));
// Amounts with their unit (runtime/base/Units.h).
CLI::Option *addBytes(CLI::App &app, const std::string &flags, std::optional<uint64_t> &target,
                      const std::string &help);
CLI::Option *addBandwidth(CLI::App &app, const std::string &flags, double &target, const std::string &help);
// One of a few words, each with the value that it stands for; the target's own is the default.
template <class Value>
CLI::Option *addChoice(CLI::App &app, const std::string &flags, Value &target, const std::string &help,
                       const std::vector<std::pair<std::string, Value>> &words);

// What a command line was refused for; `command` is the subcommand as it is called, "headrace run", `app` its own.
absl::Status usageError(const CLI::ParseError &error, const std::string &command, const CLI::App &app);
// "--max-new-tokens", as messages call it, of any name that an option has.
std::string firstName(const CLI::Option &option);

// --- how they are done -----------------------------------------------------------------------------------------------

namespace detail {
std::string firstFlag(const std::string &flags); // "--seed" of "-s,--seed": the first long one
std::optional<int64_t> wholeNumber(const std::string &text);
std::optional<uint64_t> wholePositive(const std::string &text);
[[noreturn]] void refuseValue(const std::string &flag, const std::string &value, const std::string &expected);
std::string oneOf(const std::vector<std::string> &words); // "auto, cupti or stamps"
// Where the value has a suffix that is read differently elsewhere: what it was taken for.
void sayMeaning(const std::string &flag, const std::string &text, const std::string &meaning);
} // namespace detail

template <std::integral Number, class Target>
CLI::Option *addInteger(CLI::App &app, const std::string &flags, Target &target, const std::string &help, Number least,
                        Number most) {
  const std::string expected = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  return app
      .add_option_function<std::string>(
          flags,
          [&target, flag = detail::firstFlag(flags), least, most, expected](const std::string &text) {
            const auto value = [&] {
              if constexpr (std::is_signed_v<Number>)
                return detail::wholeNumber(text);
              else
                return detail::wholePositive(text);
            }();
            if (!value || *value < least || *value > most)
              detail::refuseValue(flag, text, expected);
            target = static_cast<Number>(*value);
            if (model::parseCount(text))
              detail::sayMeaning(flag, text, std::to_string(*value));
          },
          help)
      ->type_name("INT");
}

template <class Value>
CLI::Option *addChoice(CLI::App &app, const std::string &flags, Value &target, const std::string &help,
                       const std::vector<std::pair<std::string, Value>> &words) {
  std::string byDefault;
  for (const auto &[word, value] : words)
    if (value == target)
      byDefault = word;
  return app
      .add_option_function<std::string>(
          flags,
          [&target, flag = detail::firstFlag(flags), words](const std::string &text) {
            std::vector<std::string> names;
            for (const auto &[word, value] : words) {
              if (word == text) {
                target = value;
                return;
              }
              names.push_back(word);
            }
            detail::refuseValue(flag, text, detail::oneOf(names) + model::didYouMean(text, names));
          },
          help)
      ->type_name("TEXT")
      ->default_str(byDefault);
}

} // namespace headrace::tools
