// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/PreTokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/PreTokenizerRun.h"
#include "runtime/text/tokenizer/Section.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

// One of `names`, whose position is the value.
template <class Value, size_t count>
Value readName(Section &section, std::string_view key, const std::string_view (&names)[count],
               std::optional<Value> missing) {
  if (missing && section.reader.raw(key) == nullptr)
    return *missing;
  const std::string name = section.reader.text(key, std::nullopt);
  const auto *found = std::find(std::begin(names), std::end(names), name);
  if (found != std::end(names))
    return static_cast<Value>(found - std::begin(names));
  std::string all;
  for (const std::string_view each : names)
    all += model::cat(all.empty() ? "" : ", ", each);
  section.reader.refuse(key, model::cat("one of ", all));
  return Value{};
}

constexpr std::string_view kBehaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
constexpr std::string_view kPrefixes[] = {"always", "first", "never"};

} // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::parse(const nlohmann::json &value, std::string_view path) {
  PreTokenizer preTokenizer;
  if (!value.is_null())
    RETURN_IF_ERROR(parseInto(value, path, "pre_tokenizer", preTokenizer.steps_));
  return preTokenizer;
}

PreTokenizer PreTokenizer::byteLevel(bool addPrefixSpace) {
  PreTokenizer preTokenizer;
  Step step;
  step.kind = Kind::ByteLevel;
  step.pattern = *SplitPattern::regex(kGpt2Pattern);
  step.prefix = addPrefixSpace ? Prefix::Always : Prefix::Never;
  preTokenizer.steps_.push_back(std::move(step));
  return preTokenizer;
}

absl::Status PreTokenizer::parseInto(const nlohmann::json &value, std::string_view path, std::string_view key,
                                     std::vector<Step> &steps) {
  Section section(value, path, key);
  model::JsonReader &reader = section.reader;
  const std::string type = section.type();
  RETURN_IF_ERROR(reader.status());
  if (type == "Sequence") {
    RETURN_IF_ERROR(section.only({"type", "pretokenizers"}));
    return section.eachOf("pretokenizers", [&](const nlohmann::json &member, const std::string &memberKey) {
      return parseInto(member, path, memberKey, steps);
    });
  }
  if (steps.size() == kMostSteps)
    return section.unsupportedType(model::cat("at most ", kMostSteps, " steps"));
  Step step;
  if (type == "ByteLevel") {
    step.kind = Kind::ByteLevel;
    step.prefix = reader.boolean("add_prefix_space", true) ? Prefix::Always : Prefix::Never;
    if (reader.boolean("use_regex", true))
      step.pattern = *SplitPattern::regex(kGpt2Pattern);
    reader.boolean("trim_offsets", true); // of what is not answered here
    RETURN_IF_ERROR(section.only({"type", "add_prefix_space", "use_regex", "trim_offsets"}));
  } else if (type == "Split") {
    step.kind = Kind::Split;
    ASSIGN_OR_RETURN(pattern, section.pattern("pattern"));
    step.pattern = std::move(pattern);
    step.behavior = readName<Behavior>(section, "behavior", kBehaviors, std::nullopt);
    step.invert = reader.boolean("invert", false);
    RETURN_IF_ERROR(section.only({"type", "pattern", "behavior", "invert"}));
  } else if (type == "Metaspace") {
    step.kind = Kind::Metaspace;
    appendUtf8(section.character("replacement"), step.replacement);
    step.prefix = readName<Prefix>(section, "prepend_scheme", kPrefixes, Prefix::Always);
    if (!reader.boolean("add_prefix_space", true)) { // older files'
      if (reader.raw("prepend_scheme") != nullptr && step.prefix != Prefix::Never)
        reader.refuse("add_prefix_space", "true beside this prepend_scheme");
      step.prefix = Prefix::Never;
    }
    step.split = reader.boolean("split", true);
    step.pattern = SplitPattern::string(step.replacement);
    RETURN_IF_ERROR(section.only({"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"}));
  } else if (type == "Digits") {
    step.kind = Kind::Digits;
    step.behavior = reader.boolean("individual_digits", false) ? Behavior::Isolated : Behavior::Contiguous;
    RETURN_IF_ERROR(section.only({"type", "individual_digits"}));
  } else if (type == "Punctuation") {
    step.kind = Kind::Punctuation;
    step.behavior = readName<Behavior>(section, "behavior", kBehaviors, Behavior::Isolated);
    RETURN_IF_ERROR(section.only({"type", "behavior"}));
  } else if (type == "Whitespace" || type == "WhitespaceSplit") {
    step.kind = type == "Whitespace" ? Kind::Whitespace : Kind::WhitespaceSplit;
    RETURN_IF_ERROR(section.only({"type"}));
  } else {
    return section.unsupportedType(
        "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit or Sequence");
  }
  steps.push_back(std::move(step));
  return absl::OkStatus();
}

bool PreTokenizer::emitsBytes() const { return !steps_.empty() && steps_.back().kind == Kind::ByteLevel; }

absl::Status PreTokenizer::apply(Piece piece, PreTokenizerMemory &memory, MatchMemory &matching, Sink word) const {
  memory.texts.resize(std::max(memory.texts.size(), steps_.size()));
  memory.letters.resize(std::max(memory.letters.size(), steps_.size()));
  return Run{steps_, memory, matching, word}.step(0, piece);
}

} // namespace headrace::text
