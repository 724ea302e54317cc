// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Aim.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kFirstContext = 256;
constexpr int64_t kSamples = 8;    // of many iterations alike
constexpr size_t kMostChunks = 64; // of one prompt that are played

// The smallest bucket that holds so much; the largest where none does.
const cost::Bucket &bucketFor(const std::vector<cost::Bucket> &buckets, int64_t tokens, int64_t sequences,
                              int64_t context) {
  const cost::Bucket *best = nullptr;
  const auto key = [](const cost::Bucket &of) { return std::tuple(of.context, of.tokens, of.sequences); };
  for (const cost::Bucket &of : buckets)
    if (of.tokens >= tokens && of.sequences >= sequences && of.context >= context &&
        (best == nullptr || key(of) < key(*best)))
      best = &of;
  return best != nullptr ? *best : buckets.back();
}

class Points {
public:
  explicit Points(const Target &target) : target_(target) {}

  void decode(int64_t context, double weight) {
    add({{plan::IterationClass::Decode, bucketFor(target_.decode, target_.batch, target_.batch, context), context},
         weight});
  }
  // A row of every sequence at a time, from a context on.
  void decodes(int64_t context, int64_t iterations) {
    sampled(iterations, [&](int64_t i, double weight) { decode(context + i, weight); });
  }
  // All sequences' prompts of so many tokens.
  void prompts(int64_t prompt) {
    const int64_t most = target_.mostPromptRows(), all = target_.batch * prompt;
    if (most == 0) // the engine brings them as it decodes
      return decodes(1, prompt);
    sampled(all / most, [&](int64_t i, double weight) { chunk(i * most, most, prompt, weight); });
    if (const int64_t rest = all % most; rest > 0)
      chunk(all - rest, rest, prompt, 1);
  }
  // One sequence's prompt.
  void prompt(int64_t length) {
    const int64_t most = Target::limits(target_.mixed).tokens;
    for (int64_t begin = 0; begin < length; begin += most) {
      const int64_t tokens = std::min(most, length - begin), context = begin + tokens;
      cost::Bucket bucket = bucketFor(target_.mixed, tokens, 1, context);
      bucket.context = context; // of one sequence no more is computed than what runs
      add({{plan::IterationClass::Mixed, bucket, context}, 1});
    }
  }
  std::vector<AimPoint> take() { return std::move(points_); }

private:
  // Rows of prompts that lie one behind the other, from such a row on.
  void chunk(int64_t begin, int64_t rows, int64_t prompt, double weight) {
    const int64_t end = begin + rows, sequences = (end - 1) / prompt - begin / prompt + 1;
    const int64_t context = sequences > 1 || end % prompt == 0 ? prompt : end % prompt;
    const auto blocks = [&](int64_t before) {
      const auto of = [&](int64_t tokens) { return (tokens + target_.blockTokens - 1) / target_.blockTokens; };
      return before / prompt * of(prompt) + of(before % prompt);
    };
    const int64_t has = blocks(end), full = blocks(begin);
    add({{.iterationClass = plan::IterationClass::Mixed,
          .bucket = bucketFor(target_.mixed, rows, sequences, context),
          .context = context,
          .sequences = sequences,
          .blocks = has,
          .written = has - full + (begin % prompt % target_.blockTokens == 0 ? 0 : 1)},
         weight});
  }
  // Each of them, or some, evenly spread, that stand for all.
  template <class At> void sampled(int64_t count, At &&at) {
    const int64_t samples = std::min(kSamples, count);
    for (int64_t i = 0; i < samples; ++i)
      at(samples == 1 ? 0 : i * (count - 1) / (samples - 1), static_cast<double>(count) / static_cast<double>(samples));
  }
  void add(const AimPoint &point) {
    const auto same =
        std::find_if(points_.begin(), points_.end(), [&](const AimPoint &of) { return of.at == point.at; });
    if (same != points_.end())
      same->weight += point.weight;
    else
      points_.push_back(point);
  }

  const Target &target_;
  std::vector<AimPoint> points_;
};

} // namespace

std::vector<PlayPoint> Aim::at() const {
  std::vector<PlayPoint> at;
  for (const AimPoint &point : points)
    at.push_back(point.at);
  return at;
}

double Aim::of(const std::vector<Played> &played) const {
  double sum = 0;
  for (size_t i = 0; i < points.size(); ++i)
    sum += points[i].weight * static_cast<double>(played[i].ns);
  return sum;
}

std::vector<AimPoint> promptPoints(int64_t prompt, const Target &target) {
  Points points(target);
  points.prompt(prompt);
  const std::vector<AimPoint> chunks = points.take();
  const auto together = static_cast<double>((chunks.size() + kMostChunks - 1) / kMostChunks);
  std::vector<AimPoint> of; // of neighbours that are taken together the one with the most in use
  for (const AimPoint &chunk : chunks)
    if (!of.empty() && of.back().at.bucket.tokens == chunk.at.bucket.tokens && of.back().weight < together) {
      of.back().at = chunk.at;
      of.back().weight += chunk.weight;
    } else {
      of.push_back(chunk);
    }
  return of;
}

double Aim::compared(const std::vector<Played> &played) const {
  double sum = of(played);
  for (size_t i = 0; i < points.size() && chunkHandicap > 0; ++i)
    if (points[i].at.iterationClass == plan::IterationClass::Mixed)
      sum += chunkHandicap * points[i].weight * static_cast<double>(played[i].ns);
  return sum;
}

Aim aimInOrder(const Target &target) {
  constexpr double kAmongEquals = 1e-6;
  const cost::Bucket &decode = target.decode.back();
  Aim aim;
  aim.points = {{{plan::IterationClass::Decode, decode, decode.context}, 1}};
  if (!target.mixed.empty())
    aim.points.push_back(
        {{plan::IterationClass::Mixed, target.mixed.back(), target.mixed.back().context}, kAmongEquals});
  aim.what = absl::StrCat("decode of ", target.sequences(), " at a context of ", decode.context, " tokens");
  return aim;
}

Aim aimOf(const model::Goal &goal, const Target &target) {
  Points points(target);
  Aim aim;
  if (!goal.inputLen && !goal.outputLen) {
    std::vector<int64_t> contexts;
    for (int64_t context = std::min(kFirstContext, target.context); context < target.context; context *= 2)
      contexts.push_back(context);
    contexts.push_back(target.context);
    for (const int64_t context : contexts)
      points.decode(context, 1 / static_cast<double>(contexts.size()));
    aim.what = contexts.size() == 1
                   ? absl::StrCat("decode of ", target.sequences(), " at a context of ", contexts.front(), " tokens")
                   : absl::StrCat("decode of ", target.sequences(), " at contexts of ", contexts.front(), " to ",
                                  contexts.back(), " tokens, evenly by octave");
  } else {
    const int64_t output = goal.outputLen.value_or(1), prompt = goal.promptLength(target.context);
    points.prompts(prompt); // each mini-batch has as many sequences, whose chunks run side by side
    points.decodes(prompt + 1, output);
    aim.what = absl::StrCat("a batch of ", target.sequences(), " requests of ", prompt, " + ", output, " tokens");
    if (const int64_t most = target.mostPromptRows(); most > 0)
      absl::StrAppend(&aim.what, ", up to ", most, " of prompts at a time");
  }
  aim.points = points.take();
  if (target.choice.largestChunk > kLargestChunk)
    aim.chunkHandicap = std::pow(1 + kChunkIsWorth, std::log2(static_cast<double>(target.choice.largestChunk) /
                                                              static_cast<double>(kLargestChunk))) -
                        1;
  return aim;
}

} // namespace headrace::compiler
