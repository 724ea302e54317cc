// SPDX-License-Identifier: Apache-2.0
#include "bench/iterations/SameTokens.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Xxh64.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/engine/KeepLogits.h"

namespace headrace::bench {
namespace {

// Of the smallest bucket that holds the iteration; its cycle's first phase, where it has one.
absl::StatusOr<uint32_t> variantOf(const plan::Plan &plan, uint32_t placement, bool decode, const ReplyShape &shape) {
  const int64_t rows = shape.sequences * (decode ? 1 : shape.promptTokens);
  for (uint32_t v = 0; v < plan.variants.size(); ++v) { // ascending by size
    const plan::Variant &variant = plan.variants[v];
    if (variant.placement == placement && (variant.newTokens == variant.sequences) == decode &&
        variant.newTokens >= rows && variant.sequences >= shape.sequences &&
        variant.context >= shape.promptTokens + shape.newTokens)
      return v;
  }
  return absl::NotFoundError(absl::StrCat("placement ", placement, " has no variant for ",
                                          decode ? "decoding" : "prompts", " of ", shape.sequences, " sequences"));
}

class Replier {
public:
  Replier(core::Runtime &runtime, const ReplyShape &shape) : runtime_(runtime), shape_(shape) {}
  Replier(const Replier &) = delete;
  Replier &operator=(const Replier &) = delete;
  ~Replier() { runtime_.kvBlocks().release(blocks_); }

  absl::StatusOr<Replies> run(uint32_t placement) {
    const plan::Plan &plan = runtime_.plan();
    ASSIGN_OR_RETURN(prefill, variantOf(plan, placement, false, shape_));
    ASSIGN_OR_RETURN(decode, variantOf(plan, placement, true, shape_));
    RETURN_IF_ERROR(runtime_.device().drain());
    const uint64_t bytes = runtime_.device().counters().h2dBytes;
    RETURN_IF_ERROR(takeBlocks());
    for (int64_t i = 0; i < shape_.newTokens; ++i) {
      fillRows(i);
      RETURN_IF_ERROR(core::writeMeta(plan.metaLayout, plan.blockTokens, rows_, runtime_.device().meta()));
      RETURN_IF_ERROR(runtime_.launch(i == 0 ? prefill : decode));
      if (i > 0)
        RETURN_IF_ERROR(read()); // of the launch before, behind which this one is in flight
    }
    RETURN_IF_ERROR(read());
    RETURN_IF_ERROR(runtime_.device().drain());
    replies_.h2dBytes = runtime_.device().counters().h2dBytes - bytes;
    RETURN_IF_ERROR(hashLogits(decode));
    return std::move(replies_);
  }

private:
  absl::Status takeBlocks() {
    const int64_t block = runtime_.plan().blockTokens;
    blocksEach_ = (shape_.promptTokens + shape_.newTokens + block - 1) / block;
    return runtime_.kvBlocks().grow(blocks_, shape_.sequences * blocksEach_ * block);
  }

  // Iteration 0 brings the prompts, which differ; each other one what the one before sampled, which stays on the
  // device.
  void fillRows(int64_t iteration) {
    const int64_t each = iteration == 0 ? shape_.promptTokens : 1;
    tokens_.resize(static_cast<size_t>(shape_.sequences * each));
    rows_.clear();
    for (int64_t s = 0; s < shape_.sequences; ++s) {
      for (int64_t t = 0; t < each; ++t)
        tokens_[static_cast<size_t>(s * each + t)] =
            iteration == 0 ? static_cast<int32_t>((s * 1009 + t * 37 + 1) % runtime_.plan().model->vocab)
                           : static_cast<int32_t>(-1 - s);
      rows_.push_back(
          {.tokens = absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(s * each), static_cast<size_t>(each)),
           .firstPosition = iteration == 0 ? 0 : shape_.promptTokens + iteration - 1,
           .blocks = absl::MakeConstSpan(blocks_).subspan(static_cast<size_t>(s * blocksEach_),
                                                          static_cast<size_t>(blocksEach_)),
           .sample = true,
           .requestSlot = static_cast<int32_t>(s)});
    }
  }

  absl::Status read() {
    ASSIGN_OR_RETURN(tokens, runtime_.awaitTokens());
    replies_.tokens.insert(replies_.tokens.end(), tokens.begin(), tokens.end());
    return absl::OkStatus();
  }

  absl::Status hashLogits(uint32_t variant) {
    serve::KeptLogits kept;
    RETURN_IF_ERROR(kept.prepare(runtime_.plan(), runtime_.device()));
    std::vector<float> logits;
    for (int64_t s = 0; s < shape_.sequences; ++s)
      RETURN_IF_ERROR(kept.read(runtime_.plan(), runtime_.device(), variant, 0, static_cast<size_t>(s), logits));
    replies_.lastLogitsHash =
        model::xxh64({reinterpret_cast<const std::byte *>(logits.data()), logits.size() * sizeof(float)}, 0);
    return absl::OkStatus();
  }

  core::Runtime &runtime_;
  const ReplyShape shape_;
  int64_t blocksEach_ = 0;
  std::vector<int32_t> blocks_, tokens_;
  std::vector<core::SequenceRows> rows_;
  Replies replies_;
};

} // namespace

absl::StatusOr<Replies> repliesIn(core::Runtime &runtime, uint32_t placement, const ReplyShape &shape) {
  return Replier(runtime, shape).run(placement);
}

std::string difference(const Replies &expected, const Replies &found, const ReplyShape &shape) {
  const size_t same = static_cast<size_t>(
      std::mismatch(expected.tokens.begin(), expected.tokens.end(), found.tokens.begin(), found.tokens.end()).first -
      expected.tokens.begin());
  if (same < expected.tokens.size() || found.tokens.size() != expected.tokens.size())
    return absl::StrCat("new token ", same / static_cast<size_t>(shape.sequences), " of sequence ",
                        same % static_cast<size_t>(shape.sequences), ": ",
                        same < found.tokens.size() ? absl::StrCat(found.tokens[same]) : "none", " instead of ",
                        same < expected.tokens.size() ? absl::StrCat(expected.tokens[same]) : "none");
  if (found.lastLogitsHash != expected.lastLogitsHash)
    return absl::StrFormat("the same tokens; the last logits hash to %016x instead of %016x", found.lastLogitsHash,
                           expected.lastLogitsHash);
  return "";
}

} // namespace headrace::bench
