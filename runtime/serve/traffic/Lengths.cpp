// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/Lengths.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/Text.h"
#include "runtime/serve/traffic/Random.h"

namespace headrace::serve {
namespace {

absl::Status refuse(const std::string &message) { return absl::InvalidArgumentError(message); }

// Means: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention" (SOSP 2023),
// section 6.1. Limits of what is kept: vLLM's for ShareGPT. Spread of ShareGPT: sigma is that of a log-normal
// distribution with the deviation / mean of Zhu et al., "NanoFlow" (2024), 547 / 246 tokens of prompts and 244 / 322 of
// outputs; of Alpaca none is published: 0.7 and 1.0 are taken. Mu is what gives those kept the means.
constexpr std::array<LengthFit, 2> kFits{{
    {.name = "sharegpt",
     .prompt = {4.54297, 1.33508},
     .output = {5.60956, 0.67361},
     .leastTokens = 4,
     .mostPrompt = 1024,
     .mostTotal = 2048,
     .meanPrompt = 161.31,
     .meanOutput = 337.99},
    {.name = "alpaca",
     .prompt = {2.76124, 0.63149},
     .output = {3.72166, 0.83255},
     .leastTokens = 1,
     .mostPrompt = 1024,
     .mostTotal = 2048,
     .meanPrompt = 19.31,
     .meanOutput = 58.45},
}};

// Of a length around which lengths are uniform.
struct Range {
  int64_t least = 1, most = 1;
  static Range around(int64_t length, double ratio) {
    const auto n = static_cast<double>(length);
    return {std::max<int64_t>(1, static_cast<int64_t>(std::floor(n * (1 - ratio)))),
            std::max<int64_t>(1, static_cast<int64_t>(std::ceil(n * (1 + ratio))))};
  }
};

absl::Status checkCount(int64_t count) {
  return count < 1 ? refuse(absl::StrCat("number of requests = ", count, ", expected at least 1")) : absl::OkStatus();
}

} // namespace

absl::StatusOr<std::vector<RequestLengths>> randomLengths(const RandomLengths &lengths, int64_t context, int64_t count,
                                                          uint64_t seed) {
  constexpr int64_t kMost = int64_t{1} << 40; // sums and roundings are exact
  if (absl::Status status = checkCount(count); !status.ok())
    return status;
  if (lengths.input < 1 || lengths.input > kMost)
    return refuse(absl::StrCat("random input length = ", lengths.input, ", expected 1 to ", kMost, " tokens"));
  if (lengths.output < 1 || lengths.output > kMost)
    return refuse(absl::StrCat("random output length = ", lengths.output, ", expected 1 to ", kMost, " tokens"));
  if (!(lengths.rangeRatio >= 0 && lengths.rangeRatio < 1))
    return refuse(absl::StrCat("random range ratio = ", lengths.rangeRatio, ", expected 0 or more and less than 1"));
  const Range input = Range::around(lengths.input, lengths.rangeRatio),
              output = Range::around(lengths.output, lengths.rangeRatio);
  if (input.most + output.most > context)
    return refuse(absl::StrCat("random lengths: prompts of up to ", input.most, " tokens with up to ", output.most,
                               " new ones are more than the context of ", context));
  Random inputs(seed, Stream::PromptLengths), outputs(seed, Stream::OutputLengths);
  std::vector<RequestLengths> out(static_cast<size_t>(count));
  for (RequestLengths &one : out)
    one = {inputs.between(input.least, input.most), outputs.between(output.least, output.most)};
  return out;
}

const LengthFit *findLengthFit(std::string_view name) {
  const auto *const found =
      std::find_if(kFits.begin(), kFits.end(), [&](const LengthFit &fit) { return fit.name == name; });
  return found == kFits.end() ? nullptr : &*found;
}

absl::StatusOr<std::vector<RequestLengths>> fittedLengths(const LengthFit &fit, int64_t context, int64_t count,
                                                          uint64_t seed, int64_t *leftOut) {
  constexpr int kDraws = 5000;
  if (absl::Status status = checkCount(count); !status.ok())
    return status;
  Random prompts(seed, Stream::PromptLengths), outputs(seed, Stream::OutputLengths);
  const auto draw = [](Random &random, const LogNormal &of) {
    const double tokens = portableExp(of.mu + of.sigma * random.normal());
    return std::max<int64_t>(1, std::llround(std::min(tokens, 1e12)));
  };
  const int64_t most = std::min(fit.mostTotal, context);
  std::vector<RequestLengths> out(static_cast<size_t>(count));
  for (RequestLengths &one : out) {
    for (int draws = 0;; ++draws) {
      if (draws == kDraws)
        return refuse(model::cat("of ", fit.name, "'s lengths none of ", kDraws, " with its output is from ",
                                 2 * fit.leastTokens, " to ", most, " tokens, the context is ", context));
      one = {draw(prompts, fit.prompt), draw(outputs, fit.output)};
      const bool ofFit = one.prompt >= fit.leastTokens && one.output >= fit.leastTokens &&
                         one.prompt <= fit.mostPrompt && one.prompt + one.output <= fit.mostTotal;
      if (ofFit && one.prompt + one.output <= context)
        break;
      if (ofFit && leftOut != nullptr)
        ++*leftOut;
    }
  }
  return out;
}

std::vector<TrafficRequest> makeRequests(absl::Span<const int64_t> arrivalsNs,
                                         absl::Span<const RequestLengths> lengths) {
  std::vector<TrafficRequest> requests(std::min(arrivalsNs.size(), lengths.size()));
  for (size_t r = 0; r < requests.size(); ++r)
    requests[r] = {.arrivalNs = arrivalsNs[r], .promptTokens = lengths[r].prompt, .outputTokens = lengths[r].output};
  return requests;
}

} // namespace headrace::serve
