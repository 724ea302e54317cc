// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Aim.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kFirstContext = 256;
constexpr int64_t kDecodePoints = 8; // of an output

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
  // A chunk of one sequence's prompt that ends at a context.
  void chunk(int64_t tokens, int64_t context, double weight) {
    add({{plan::IterationClass::Mixed, bucketFor(target_.mixed, tokens, 1, context), context}, weight});
  }
  // A whole prompt, so many times.
  void prompt(int64_t length, double weight) {
    const int64_t most = Target::limits(target_.mixed).tokens;
    for (int64_t begin = 0; begin < length; begin += most) {
      const int64_t tokens = std::min(most, length - begin);
      chunk(tokens, begin + tokens, weight);
    }
  }
  std::vector<AimPoint> take() { return std::move(points_); }

private:
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

double Aim::of(const std::vector<Played> &played) const {
  double sum = 0;
  for (size_t i = 0; i < points.size(); ++i)
    sum += points[i].weight * static_cast<double>(played[i].ns);
  return sum;
}

std::vector<AimPoint> promptPoints(int64_t prompt, const Target &target) {
  Points points(target);
  points.prompt(prompt, 1);
  std::vector<AimPoint> of; // by bucket, of its chunks the one with the most in use
  for (const AimPoint &chunk : points.take())
    if (!of.empty() && of.back().at.bucket == chunk.at.bucket) {
      of.back().at.context = chunk.at.context;
      of.back().weight += chunk.weight;
    } else {
      of.push_back(chunk);
    }
  return of;
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
    if (!target.mixed.empty()) // each mini-batch has as many sequences, whose chunks run side by side
      points.prompt(prompt, static_cast<double>(target.batch));
    const int64_t count = std::min(kDecodePoints, output);
    for (int64_t i = 0; i < count; ++i)
      points.decode(prompt + (count == 1 ? 0 : i * (output - 1) / (count - 1)) + 1,
                    static_cast<double>(output) / static_cast<double>(count));
    aim.what = absl::StrCat("a batch of ", target.sequences(), " requests of ", prompt, " + ", output, " tokens");
  }
  aim.points = points.take();
  return aim;
}

} // namespace headrace::compiler
