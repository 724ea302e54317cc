// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/Units.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {

using model::cat;

namespace {

// A message that has the form already.
class BadValue : public CLI::ParseError {
public:
  explicit BadValue(const absl::Status &status)
      : CLI::ParseError("BadValue", std::string(status.message()), CLI::ExitCodes::ValidationError) {}
};

template <class Target>
CLI::Option *addNumberTo(CLI::App &app, const std::string &flags, Target &target, const std::string &help,
                         const std::string &expected, bool (*holds)(double)) {
  return app
      .add_option_function<std::string>(
          flags,
          [&target, flag = detail::firstFlag(flags), expected, holds](const std::string &text) {
            double value = 0;
            if (!absl::SimpleAtod(text, &value) || !std::isfinite(value) || !holds(value))
              detail::refuseValue(flag, text, expected);
            target = value;
          },
          help)
      ->type_name("NUMBER");
}

template <class Target, class Parse>
CLI::Option *addAmount(CLI::App &app, const std::string &flags, Target &target, const std::string &help, Parse parse) {
  return app
      .add_option_function<std::string>(
          flags,
          [&target, where = cat(kCommandLine, ": ", detail::firstFlag(flags)), parse](const std::string &text) {
            const auto value = parse(text, where);
            if (!value.ok())
              throw BadValue(value.status());
            target = *value;
          },
          help)
      ->type_name("TEXT");
}

} // namespace

namespace detail {

std::string firstFlag(const std::string &flags) {
  const size_t at = flags.find("--");
  return at == std::string::npos ? flags : flags.substr(at, flags.find(',', at) - at);
}

std::optional<int64_t> wholeNumber(const std::string &text) {
  constexpr double kExact = 9007199254740992; // 2^53
  int64_t whole = 0;
  double real = 0;
  if (absl::SimpleAtoi(text, &whole))
    return whole;
  if (absl::SimpleAtod(text, &real) && std::abs(real) <= kExact && std::trunc(real) == real)
    return static_cast<int64_t>(real);
  return model::parseCount(text);
}

std::optional<uint64_t> wholePositive(const std::string &text) {
  uint64_t whole = 0;
  if (absl::SimpleAtoi(text, &whole)) // up to 2^64 - 1
    return whole;
  const std::optional<int64_t> other = wholeNumber(text);
  return other && *other >= 0 ? std::optional(static_cast<uint64_t>(*other)) : std::nullopt;
}

void refuseValue(const std::string &flag, const std::string &value, const std::string &expected) {
  throw BadValue(badFlag(flag, value, expected));
}

std::string oneOf(const std::vector<std::string> &words) {
  return cat(absl::StrJoin(words.begin(), words.end() - 1, ", "), " or ", words.back());
}

void sayMeaning(const std::string &flag, const std::string &text, const std::string &meaning) {
  std::fprintf(stderr, "headrace: %s %s means %s\n", flag.c_str(), text.c_str(), meaning.c_str());
}

} // namespace detail

CLI::Option *addNumber(CLI::App &app, const std::string &flags, double &target, const std::string &help,
                       const std::string &expected, bool (*holds)(double)) {
  return addNumberTo(app, flags, target, help, expected, holds)->default_str(cat(target));
}

CLI::Option *addNumber(CLI::App &app, const std::string &flags, std::optional<double> &target, const std::string &help,
                       const std::string &expected, bool (*holds)(double)) {
  return addNumberTo(app, flags, target, help, expected, holds);
}

CLI::Option *addBytes(CLI::App &app, const std::string &flags, std::optional<uint64_t> &target,
                      const std::string &help) {
  return addAmount(app, flags, target, help, model::parseBytes);
}

CLI::Option *addBandwidth(CLI::App &app, const std::string &flags, double &target, const std::string &help) {
  return addAmount(app, flags, target, help, model::parseBandwidth);
}

std::string firstName(const CLI::Option &option) {
  return option.get_lnames().empty() ? option.get_name() : "--" + option.get_lnames().front();
}

namespace {
// "bench sreve llama": the word in the model's place may have been meant as a command.
std::string meantCommand(const CLI::App &app) {
  std::vector<std::string> names;
  for (const CLI::App *one : app.get_subcommands([](const CLI::App *) { return true; }))
    names.push_back(one->get_name());
  for (const CLI::Option *option : app.get_options())
    if (option->get_positional() && option->count() > 0)
      return model::didYouMean(option->results().front(), names);
  return "";
}
} // namespace

absl::Status usageError(const CLI::ParseError &error, const std::string &command, const CLI::App &app) {
  const std::string text = error.what();
  const std::string more = cat(" (", command, " --help)");
  if (dynamic_cast<const BadValue *>(&error) != nullptr)
    return absl::InvalidArgumentError(text);
  if (dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr) {
    // CLI11 names them last first.
    std::vector<std::string> words = absl::StrSplit(text.substr(text.find(':') + 1), ' ', absl::SkipEmpty());
    std::reverse(words.begin(), words.end());
    const std::string what = absl::StrJoin(words, " ");
    std::vector<std::string> names;
    for (const CLI::Option *option : app.get_options())
      for (const std::string &name : option->get_lnames())
        names.push_back("--" + name);
    const std::string flag = words.empty() ? std::string() : words.front().substr(0, words.front().find('='));
    const bool known = std::find(names.begin(), names.end(), flag) != names.end();
    return badUsage(cat(what, ": expected a flag or an argument of ", command, more,
                        known                    ? "; behind -- no flag is one"
                        : flag.starts_with("--") ? model::didYouMean(flag, names)
                                                 : meantCommand(app)));
  }
  constexpr std::string_view kExcludes = " excludes ";
  if (const size_t at = text.find(kExcludes);
      dynamic_cast<const CLI::ExcludesError *>(&error) != nullptr && at != std::string::npos)
    return badUsage(
        cat(text.substr(at + kExcludes.size()), " before ", text.substr(0, at), ": expected it behind", more));
  const std::string name = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ArgumentMismatch *>(&error) != nullptr)
    return badUsage(text.find("received") != std::string::npos && text.find("At Most") != std::string::npos
                        ? cat(name, ": given more than once: expected it once")
                        : cat(name, ": no value: expected one behind it", more));
  if (dynamic_cast<const CLI::RequiredError *>(&error) != nullptr)
    return badUsage(text.find("subcommand") != std::string::npos
                        ? cat("no subcommand: expected one", more)
                        : cat("no ", text.substr(0, text.find(" is required")), ": expected one", more));
  return badUsage(cat(text, more));
}

} // namespace headrace::tools
