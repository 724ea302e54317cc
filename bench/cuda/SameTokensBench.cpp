// SPDX-License-Identifier: Apache-2.0
//
// Whether replies of large models are the same wherever weights live and however graphs were built: one plan with
// everything resident, interval 4 and interval 1, its graphs made node by node and by capture.
//
//   explicit   resident   interval 4   interval 1   resident again  \  tokens of every iteration, and
//   capture    resident   interval 4   interval 1   resident again  /  a hash of the last logits: all the same
//
// Every layer has weights of its own here, unlike where times are measured: those of another layer would show.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/str_format.h"
#include "bench/cuda/Parts.h"
#include "bench/cuda/Session.h"
#include "bench/iterations/SameTokens.h"

namespace headrace::bench {
namespace {

constexpr uint64_t kBesidesPlan = 5 * kGiB; // graphs, libraries
constexpr ReplyShape kLongReplies{.sequences = 4, .promptTokens = 600, .newTokens = 16};

// All units, made once by a thread a core, from where both loads copy them.
class AllWeights final : public model::WeightSource {
public:
  explicit AllWeights(const model::ModelSpec &spec) : layout_(model::layoutWeights(spec)) {
    units_.resize(layout_.units.size());
    const auto source = model::syntheticWeights(1);
    std::vector<absl::Status> made(layout_.units.size());
    std::vector<std::thread> threads;
    std::atomic<size_t> next{0};
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
      threads.emplace_back([&] {
        for (size_t u; (u = next++) < layout_.units.size();) {
          units_[u] = std::make_unique_for_overwrite<std::byte[]>(layout_.units[u].bytes);
          made[u] = source->fill(layout_.units[u], model::MatrixOrder::RowMajor, bytesOf(u));
        }
      });
    for (std::thread &thread : threads)
      thread.join();
    for (const absl::Status &status : made)
      check(status);
  }
  absl::Span<const std::byte> held(const model::Unit &unit, model::MatrixOrder order) const override {
    for (size_t u = 0; u < layout_.units.size(); ++u)
      if (order == model::MatrixOrder::RowMajor && layout_.units[u].name == unit.name)
        return bytesOf(u);
    return {};
  }
  absl::Status fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const override {
    const absl::Span<const std::byte> bytes = held(unit, order);
    if (bytes.size() != out.size())
      return absl::InvalidArgumentError("unit " + unit.name + " is not one of the layout");
    copyByThreads(out.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }

private:
  absl::Span<std::byte> bytesOf(size_t u) const { return {units_[u].get(), layout_.units[u].bytes}; }
  const model::WeightLayout layout_;
  std::vector<std::unique_ptr<std::byte[]>> units_;
};

Json compareReplies(const Context &context, const std::string &model) {
  const model::ModelSpec spec = openShape(model);
  ReplyShape shape = kLongReplies; // shorter where the model has fewer positions
  shape.newTokens = std::min(shape.newTokens, spec.maxPositions / 4);
  shape.promptTokens = std::min(shape.promptTokens, spec.maxPositions - shape.newTokens);
  if (shape.newTokens < 2)
    fail(model + ": " + std::to_string(spec.maxPositions) + " positions: expected at least 8");
  const int64_t length = shape.promptTokens + shape.newTokens;
  const std::vector<int64_t> intervals = {0, 4, 1};
  const plan::Plan plan = take(planRound(
      {.spec = spec,
       .hardware = openProfile(context.deviceName),
       .deviceMemory = freeDeviceMemory() - std::min<uint64_t>(freeDeviceMemory(), kBesidesPlan),
       .cells = {{.name = "prompts", .sequences = shape.sequences, .tokens = shape.promptTokens, .context = length},
                 {.name = "replies", .sequences = shape.sequences, .tokens = 1, .context = length}},
       .intervals = intervals}));
  const AllWeights weights(spec);
  std::optional<Replies> expected;
  Json fields = {
      {"sequences", shape.sequences}, {"prompt tokens", shape.promptTokens}, {"new tokens", shape.newTokens}};
  int compared = 0;
  for (const bool capture : {false, true}) {
    Session session(plan, weights, {.cuda = {.index = context.device, .capture = capture, .compare = true}});
    for (const uint32_t run : {0u, 1u, 2u, 3u}) {
      const uint32_t placement = run % 3;
      const std::string which =
          placementName(intervals[placement]) + (run == 3 ? " again" : "") + (capture ? ", capture" : ", explicit");
      const Replies replies = take(repliesIn(session.runtime(), placement, shape));
      if (placement != 0 && replies.h2dBytes == 0)
        fail(which + ": no byte was copied, nothing is compared");
      if (!expected)
        expected = replies;
      if (const std::string what = difference(*expected, replies, shape); !what.empty())
        fail(which + ": not the replies of resident, explicit: " + what);
      ++compared;
      fields[which + ", h2d bytes"] = replies.h2dBytes;
    }
    std::string attention;
    for (const std::string &kernel : session.costs().kernels)
      if (kernel.starts_with("attention_"))
        attention += (attention.empty() ? "" : ", ") + kernel;
    if (attention.find("attention_any") != std::string::npos)
      fail("attention by " + attention + ": expected kernels for tensor cores");
    fields["attention"] = attention;
  }
  fields["runs that are the same"] = compared;
  fields["distinct tokens"] = std::set<int32_t>(expected->tokens.begin(), expected->tokens.end()).size();
  fields["hash of the last logits"] = absl::StrFormat("%016x", expected->lastLogitsHash);
  return fields;
}

} // namespace

void measureSameTokens(const Context &context) {
  context.report.part(
      "same-tokens", "replies to four prompts, greedy, two iterations in flight, of one plan with everything resident, "
                     "interval 4, interval 1 and resident again, graphs node by node and by capture: all tokens and "
                     "the last logits are the same, or the figure failed");
  context.report.attempt({{"tinyllama-1.1b", 20, [&] { return compareReplies(context, "tinyllama-1.1b"); }},
                          {"llama-3.1-8b", 75, [&] { return compareReplies(context, "llama-3.1-8b"); }}});
}

} // namespace headrace::bench
