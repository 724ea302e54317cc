// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/Choice.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "passes/algorithms/ParseNumber.h"
#include "runtime/job/Capabilities.h"
#include "runtime/model/KvEncoding.h"

namespace headrace::compiler {
namespace {

constexpr std::string_view kMiniBatches = "mini-batches", kActRatio = "act-ratio", kKvBlocks = "kv-blocks",
                           kNewTokens = "new-tokens", kSequences = "sequences", kContexts = "contexts",
                           kChunk = "largest-chunk", kAttention = "attention", kWeightEncoding = "weight-encoding",
                           kKvDtype = "kv-dtype";

bool parseSizes(std::string_view text, std::vector<int64_t> &sizes) {
  for (const absl::string_view part : absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    int64_t size = 0;
    if (!algorithms::parseNumber(std::string_view(part.data(), part.size()), size) || size < 1 ||
        (!sizes.empty() && size <= sizes.back()))
      return false;
    sizes.push_back(size);
  }
  return true;
}

// Whether the entry is one of a choice's own and is good; none: it is of the residency.
std::optional<bool> parseOwn(std::string_view key, std::string_view value, Choice &choice) {
  if (key == kMiniBatches)
    return algorithms::parseNumber(value, choice.miniBatches) && choice.miniBatches > 0;
  if (key == kAttention) {
    choice.attendsOnCpu = value == "cpu";
    return choice.attendsOnCpu;
  }
  if (key == kActRatio) {
    const std::optional<model::ActRatio> share = model::actRatioFromText(value);
    choice.actRatio = share.value_or(model::ActRatio());
    return share && share->any();
  }
  if (key == kKvBlocks)
    return algorithms::parseNumber(value, choice.kvBlocks) && choice.kvBlocks > 0;
  if (key == kNewTokens)
    return parseSizes(value, choice.buckets.newTokens);
  if (key == kSequences)
    return parseSizes(value, choice.buckets.sequences);
  if (key == kContexts)
    return parseSizes(value, choice.buckets.contexts);
  if (key == kChunk)
    return algorithms::parseNumber(value, choice.largestChunk) && choice.largestChunk > 0;
  if (key == kWeightEncoding) {
    std::string expected;
    const std::optional<model::WeightEncodings> weights = model::weightEncodingsFromText(value, expected);
    choice.encodings.weights = weights.value_or(model::WeightEncodings());
    return weights.has_value();
  }
  if (key == kKvDtype) {
    choice.encodings.kv = model::kvEncodingFromText(value);
    return choice.encodings.kv.has_value();
  }
  return std::nullopt;
}

} // namespace

std::string toText(const Choice &choice) {
  std::vector<std::string> entries;
  const auto add = [&](std::string_view key, const absl::AlphaNum &value) {
    entries.push_back(absl::StrCat(absl::string_view(key.data(), key.size()), "=", value));
  };
  if (choice.miniBatches != 1)
    add(kMiniBatches, choice.miniBatches);
  if (choice.attendsOnCpu)
    add(kAttention, "cpu");
  if (choice.actRatio.any())
    add(kActRatio, model::actRatioText(choice.actRatio));
  if (choice.kvBlocks != 0)
    add(kKvBlocks, choice.kvBlocks);
  for (const auto &[key, sizes] : {std::pair(kNewTokens, &choice.buckets.newTokens),
                                   {kSequences, &choice.buckets.sequences},
                                   {kContexts, &choice.buckets.contexts}})
    if (!sizes->empty())
      add(key, absl::StrJoin(*sizes, ","));
  if (choice.largestChunk != kLargestChunk)
    add(kChunk, choice.largestChunk);
  if (choice.encodings.weights.any())
    add(kWeightEncoding, model::weightEncodingText(choice.encodings.weights));
  if (choice.encodings.kv)
    add(kKvDtype, model::kvEncodingText(*choice.encodings.kv));
  entries.push_back(algorithms::toText(choice.residency));
  return absl::StrJoin(entries, " ");
}

std::optional<Choice> choiceFromText(std::string_view text, std::string &error) {
  Choice choice;
  std::set<std::string> seen;
  std::vector<std::string> residency;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ' ', absl::SkipEmpty())) {
    const std::string entry(part), key = entry.substr(0, entry.find('='));
    const std::string_view value = entry.size() > key.size() ? std::string_view(entry).substr(key.size() + 1) : "";
    const bool twice = seen.contains(key);
    const std::optional<bool> own = twice ? std::optional(false) : parseOwn(key, value, choice);
    if (!own) {
      residency.push_back(entry);
      continue;
    }
    seen.insert(key);
    if (*own)
      continue;
    error = twice ? absl::StrCat("says '", key, "' twice")
                  : absl::StrCat("has '", entry,
                                 "', expected mini-batches=N, attention=cpu, act-ratio=A/B above 0, kv-blocks=N, "
                                 "largest-chunk=N, weight-encoding=q4 or q8, kv-dtype=f32, f16, bf16, q8 or q4, or "
                                 "new-tokens=, sequences= or contexts= with ascending sizes (1,8)");
    return std::nullopt;
  }
  std::optional<algorithms::Residency> parsed = algorithms::residencyFromText(absl::StrJoin(residency, " "), error);
  if (!parsed)
    return std::nullopt;
  choice.residency = *std::move(parsed);
  return choice;
}

std::string contradictionIn(const Choice &choice) {
  if (choice.miniBatches < 1)
    return absl::StrCat("has at least one mini-batch, got ", choice.miniBatches);
  if (choice.largestChunk < 1)
    return absl::StrCat("has a largest chunk of at least one token, got ", choice.largestChunk);
  const std::optional<int64_t> away = choice.residency.firstKvBlockAway();
  if (choice.attendsOnCpu && away != std::optional<int64_t>(0))
    return "attends on the CPU to caches that are wholly at home on the host, got attention=cpu with blocks of them on "
           "the device";
  for (const auto &[mechanism, has] : {std::pair(model::Mechanism::ActBlocks, choice.actRatio.any()),
                                       {model::Mechanism::KvPlaces, choice.residency.cycles()},
                                       {model::Mechanism::ResidualsOnHost, choice.residency.residualsLeave()}})
    if (choice.attendsOnCpu && has)
      return absl::StrCat("attends on the CPU beside ", std::string(model::mechanismName(mechanism)), ": ",
                          std::string(model::whyNotBeside(model::Mechanism::AttentionOnCpu, mechanism)));
  if (choice.kvBlocks < 0 || (choice.kvBlocks > 0 && away >= choice.kvBlocks))
    return absl::StrCat("has more blocks of a cache than are away from one on, got ", choice.kvBlocks, " and block ",
                        away.value_or(0));
  if (choice.actRatio.any() && choice.residency.cycles())
    return absl::StrCat("has activation blocks or places for tails of caches, got act-ratio=",
                        model::actRatioText(choice.actRatio), " and kv-places=", choice.residency.kv().places(), ": ",
                        std::string(model::whyNotBeside(model::Mechanism::ActBlocks, model::Mechanism::KvPlaces)));
  return algorithms::contradictionIn(choice.residency);
}

} // namespace headrace::compiler
