// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ServeTraffic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/serve/traffic/Arrivals.h"
#include "runtime/serve/traffic/TraceFile.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/RunSetup.h"

namespace headrace::tools {
namespace {

using model::cat;

constexpr int64_t kDefaultCount = 1000;
// Every gap between two tokens is kept, 8 bytes each.
constexpr int64_t kMostOutputTokens = int64_t{1} << 28;

bool hasDigit(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

absl::Status checkDataset(const TrafficFlags &flags) {
  const std::string name(datasetName(flags.dataset));
  if (flags.dataset == Dataset::Trace && flags.path.empty())
    return badUsage("--dataset-name trace: no --dataset-path: expected the trace's file");
  if (flags.dataset != Dataset::Trace && !flags.path.empty())
    return badFlag("--dataset-path", flags.path,
                   flags.dataset == Dataset::Random
                       ? "random lengths come from no file"
                       : cat(name, " lengths are drawn from a fit; the published file has text, which nothing here "
                                   "splits into tokens"),
                   "--dataset-name trace beside it, or no path");
  const auto ofRandom = [&](const char *flag, const absl::AlphaNum &value) {
    return badNumber(flag, value, cat("--dataset-name random beside it: ", name, " has lengths of its own"));
  };
  if (flags.dataset != Dataset::Random) {
    if (flags.inputLength)
      return ofRandom("--random-input-len", *flags.inputLength);
    if (flags.outputLength)
      return ofRandom("--random-output-len", *flags.outputLength);
    if (flags.rangeRatio)
      return ofRandom("--random-range-ratio", *flags.rangeRatio);
  }
  return absl::OkStatus();
}

} // namespace

std::string_view datasetName(Dataset dataset) {
  constexpr std::string_view kNames[] = {"random", "sharegpt", "alpaca", "trace"};
  return kNames[static_cast<size_t>(dataset)];
}

absl::StatusOr<ServeTraffic> ServeTraffic::open(const TrafficFlags &flags) {
  ServeTraffic traffic(flags);
  RETURN_IF_ERROR(checkDataset(flags));
  RETURN_IF_ERROR(traffic.readRates());
  RETURN_IF_ERROR(traffic.checkBurstiness());
  if (flags.dataset == Dataset::Trace)
    RETURN_IF_ERROR(traffic.readTraceFile());
  return traffic;
}

absl::Status ServeTraffic::readRates() {
  if (!flags_.rates) {
    rates_ = {flags_.dataset == Dataset::Trace ? 0 : std::numeric_limits<double>::infinity()};
    return absl::OkStatus();
  }
  for (const absl::string_view word : absl::StrSplit(*flags_.rates, ',')) {
    double rate = 0;
    // A number beyond a double's range reads as infinite, too.
    const bool number = absl::SimpleAtod(word, &rate) && rate > 0 && (!std::isinf(rate) || !hasDigit(word));
    if (!number || std::find(rates_.begin(), rates_.end(), rate) != rates_.end())
      return badFlag("--request-rate", *flags_.rates, "requests/s above 0, or inf, or several such as 1,2,4");
    rates_.push_back(rate);
  }
  std::sort(rates_.begin(), rates_.end());
  return absl::OkStatus();
}

absl::Status ServeTraffic::checkBurstiness() const {
  if (!flags_.burstiness || (rates_.front() > 0 && !std::isinf(rates_.front())))
    return absl::OkStatus();
  return badNumber("--burstiness", *flags_.burstiness,
                   cat("--request-rate beside it: ",
                       rates_.front() == 0 ? "a trace's requests come at its times" : "all requests come at once"));
}

absl::Status ServeTraffic::readTraceFile() {
  ASSIGN_OR_RETURN(trace, serve::readTrace(flags_.path, flags_.count.value_or(0)));
  for (const std::string &warning : trace.warnings)
    warnOnce(warning);
  if (const auto found = static_cast<int64_t>(trace.requests.size()); flags_.count && *flags_.count > found)
    warnOnce(cat(flags_.path, ": ", found, found == 1 ? " request" : " requests", ", --num-prompts asks for ",
                 *flags_.count, ": all of them are run"));
  requests_ = std::move(trace.requests);
  lines_ = std::move(trace.lines);
  traceClock_ = serve::traceClockText(trace.format);
  traceDropped_ = trace.dropped;
  traceBeginS_ = static_cast<double>(trace.beginNs) / 1e9;
  return absl::OkStatus();
}

absl::Status ServeTraffic::checkIds(int64_t vocab) const {
  for (size_t r = 0; r < lines_.size(); ++r)
    for (const int32_t id : requests_[r].prompt)
      if (id >= vocab)
        return absl::InvalidArgumentError(cat(flags_.path, ": line ", lines_[r], ": prompt_ids: ", id,
                                              ": expected token ids from 0 to ", vocab - 1,
                                              ", the model's vocabulary"));
  return absl::OkStatus();
}

absl::Status ServeTraffic::draw(const model::Goal &goal, int64_t context, int64_t vocab) {
  RETURN_IF_ERROR(checkIds(vocab));
  if (!flags_.inputLength)
    flags_.inputLength = goal.inputLen;
  if (!flags_.outputLength)
    flags_.outputLength = goal.outputLen;
  context_ = context;
  if (flags_.dataset != Dataset::Trace) {
    const int64_t count = flags_.count.value_or(kDefaultCount);
    const serve::RandomLengths random{.input = flags_.inputLength.value_or(serve::RandomLengths{}.input),
                                      .output = flags_.outputLength.value_or(serve::RandomLengths{}.output),
                                      .rangeRatio = flags_.rangeRatio.value_or(0)};
    const absl::StatusOr<std::vector<serve::RequestLengths>> lengths =
        flags_.dataset == Dataset::Random ? serve::randomLengths(random, context, count, flags_.seed)
                                          : serve::fittedLengths(*serve::findLengthFit(datasetName(flags_.dataset)),
                                                                 context, count, flags_.seed, &leftOut_);
    if (!lengths.ok())
      return absl::Status(lengths.status().code(),
                          cat(kCommandLine, ": ",
                              flags_.dataset == Dataset::Random ? "--random-input-len" : "--dataset-name", ": ",
                              lengths.status().message()));
    requests_ = serve::makeRequests(std::vector<int64_t>(lengths->size(), 0), *lengths);
  }
  for (const serve::TrafficRequest &request : requests_) {
    longest_ = std::max(longest_, request.tokensOfPrompt() + request.outputTokens);
    longestPrompt_ = std::max(longestPrompt_, request.tokensOfPrompt());
    outputTokens_ += std::min(request.outputTokens, context); // what is longer does not run
  }
  if (outputTokens_ > kMostOutputTokens)
    return badNumber("--num-prompts", count(),
                     cat("fewer: with ", outputTokens_, " output tokens in all; the time of each is kept, of at most ",
                         kMostOutputTokens));
  return absl::OkStatus();
}

serve::RequestLengths ServeTraffic::meanLengths(int64_t context) const {
  int64_t prompts = 0, outputs = 0, held = 0;
  for (const serve::TrafficRequest &request : requests_) {
    if (request.tokensOfPrompt() + request.outputTokens > context)
      continue;
    prompts += request.tokensOfPrompt();
    outputs += request.outputTokens;
    ++held;
  }
  const auto mean = [&](int64_t sum) { return std::max<int64_t>(1, held == 0 ? 0 : (sum + held / 2) / held); };
  const int64_t output = std::min(mean(outputs), std::max<int64_t>(1, context - 1));
  return {.prompt = std::max<int64_t>(1, std::min(mean(prompts), context - output)), .output = output};
}

std::string ServeTraffic::lengthsText() const {
  if (flags_.dataset == Dataset::Trace)
    return "lengths of " + flags_.path;
  if (flags_.dataset != Dataset::Random)
    return cat(datasetName(flags_.dataset), " lengths",
               leftOut_ == 0 ? ""
                             : cat(" within ", context_, " tokens (", count(), " of ", count() + leftOut_, " draws)"));
  const int64_t input = flags_.inputLength.value_or(serve::RandomLengths{}.input);
  std::string text = cat(input, input == 1 ? " token in, " : " tokens in, ",
                         flags_.outputLength.value_or(serve::RandomLengths{}.output), " out");
  if (flags_.rangeRatio.value_or(0) > 0)
    text += absl::StrFormat(" (+- %g%%)", 100 * *flags_.rangeRatio);
  return text;
}

absl::StatusOr<std::vector<serve::TrafficRequest>> ServeTraffic::at(double rate) const {
  std::vector<serve::TrafficRequest> requests = requests_;
  if (rate == 0)
    return requests;
  serve::ArrivalProcess process;
  process.requestRate = rate;
  process.burstiness = flags_.burstiness.value_or(process.burstiness);
  const absl::StatusOr<std::vector<int64_t>> times = serve::arrivalTimes(process, count(), flags_.seed);
  if (!times.ok())
    return absl::Status(times.status().code(), cat(kCommandLine, ": --request-rate: ", times.status().message()));
  for (size_t r = 0; r < requests.size(); ++r)
    requests[r].arrivalNs = (*times)[r];
  return requests;
}

} // namespace headrace::tools
