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
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"

namespace headrace::tools {

// An integer from `least` to `most`: "8", or a number that is one, such as 1e3. The target is a number or an optional.
template <std::integral Number, class Target>
CLI::Option *addInteger(CLI::App &app, const std::string &flags, Target &target, const std::string &help, Number least,
                        Number most = std::numeric_limits<Number>::max());
// A finite number; `expected` says which, `holds` whether this is one.
CLI::Option *addNumber(CLI::App &app, const std::string &flags, double &target, const std::string &help,
                       const std::string &expected, bool (*holds)(double));
CLI::Option *addNumber(CLI::App &app, const std::string &flags, std::optional<double> &target, const std::string &help,
                       const std::string &expected, bool (*holds)(double));
// One of a few words.
CLI::Option *addChoice(CLI::App &app, const std::string &flags, std::string &target, const std::string &help,
                       const std::vector<std::string> &words);

// What a command line was refused for; `command` is the subcommand as it is called, "headrace run".
absl::Status usageError(const CLI::ParseError &error, const std::string &command);

// --- how they are done -----------------------------------------------------------------------------------------------

namespace detail {
std::string firstFlag(const std::string &flags); // "--seed" of "-s,--seed": the first long one
std::optional<int64_t> wholeNumber(const std::string &text);
std::optional<uint64_t> wholePositive(const std::string &text);
[[noreturn]] void refuseValue(const std::string &flag, const std::string &value, const std::string &expected);
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
          },
          help)
      ->type_name("INT");
}

} // namespace headrace::tools
