// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/KvHandover.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::serve {
namespace {

using model::cat;

constexpr uint64_t kSlots = 8;
constexpr uint64_t kMostSlotBytes = uint64_t{32} << 20;

absl::Status checkBlocks(const core::Runtime &runtime, absl::Span<const int32_t> blocks) {
  const plan::Placement &placement = runtime.plan().placements[runtime.placement()];
  for (int32_t block : blocks)
    if (block < 1 || block >= placement.kvBlocks)
      return absl::InvalidArgumentError(cat("KV block ", block, ": expected 1 to ", placement.kvBlocks - 1,
                                            ", as placement '", placement.name, "' has"));
  return absl::OkStatus();
}

// Of a block in a layer, with the ids of its tokens.
uint64_t leastSlotBytes(const plan::Plan &plan) {
  return plan.kvBlockBytes() + plan::movedBlockBytes(plan) -
         static_cast<uint64_t>(plan.model->layers) * plan.kvBlockBytes();
}

uint64_t slotBytesOf(const plan::Plan &plan) {
  const uint64_t all = static_cast<uint64_t>(plan.kvBlocks) * plan::movedBlockBytes(plan);
  return std::max(leastSlotBytes(plan), std::min(kMostSlotBytes, (all + kSlots - 1) / kSlots));
}

// At most: each is filled up to less than a block of a layer, but the last.
uint64_t handoverPortions(const plan::Plan &from, const plan::Plan &to, uint64_t bytes) {
  const uint64_t filled = handoverPortion(from, to, bytes) - from.kvBlockBytes();
  return std::max<uint64_t>(1, (bytes + filled - 1) / std::max<uint64_t>(filled, 1));
}

} // namespace

uint64_t handoverBlocks(const plan::Plan &plan, absl::Span<const int64_t> tokens) {
  uint64_t blocks = 0;
  for (int64_t t : tokens)
    blocks += static_cast<uint64_t>((t + plan.blockTokens - 1) / plan.blockTokens);
  return blocks;
}

uint64_t handoverBytes(const plan::Plan &plan, uint64_t blocks) { return blocks * plan::movedBlockBytes(plan); }

uint64_t handoverCopies(const plan::Plan &from, const plan::Plan &to, uint64_t blocks, uint64_t runs) {
  const auto layers = static_cast<uint64_t>(from.model->layers);
  const bool one = plan::CacheMap(from, from.placements.front()).byNumber(),
             other = plan::CacheMap(to, to.placements.front()).byNumber();
  const uint64_t bytes = handoverBytes(from, blocks);
  const uint64_t portions = handoverPortions(from, to, bytes);
  return (one && other ? runs : one || other ? layers * blocks : layers * runs) + runs + 2 * portions;
}

uint64_t handoverPortion(const plan::Plan &from, const plan::Plan &to, uint64_t bytes) {
  const uint64_t slot = std::min(slotBytesOf(from), slotBytesOf(to));
  return std::min(slot, bytes / kSlots + leastSlotBytes(from));
}

uint64_t handoverRounds(const plan::Plan &from, const plan::Plan &to, uint64_t bytes) {
  return (handoverPortions(from, to, bytes) + kSlots - 1) / kSlots;
}

absl::Status checkHandover(const plan::Plan &from, const plan::Plan &to) {
  const auto same = [](const char *what, auto a, auto b) {
    return a == b ? absl::OkStatus() : absl::FailedPreconditionError(cat("KV hand-over: ", what, " ", a, " and ", b));
  };
  for (const absl::Status &status :
       {same("models", from.model->name, to.model->name), same("model hashes", from.modelHash, to.modelHash),
        same("layers", from.model->layers, to.model->layers), same("KV rows", from.model->kvRows(), to.model->kvRows()),
        same("tokens a block", from.blockTokens, to.blockTokens),
        same("encodings", model::encodingText(from.kvEncoding), model::encodingText(to.kvEncoding))})
    if (!status.ok())
      return status;
  return absl::OkStatus();
}

absl::Status KvHandover::reserve(core::Runtime &runtime) {
  return runtime.device().reserveSwap(kSlots * slotBytesOf(runtime.plan()));
}

bool KvHandover::data() const { return from_->device().holdsData() && to_->device().holdsData(); }

uint64_t KvHandover::slotOf(const Portion &portion) const {
  return static_cast<uint64_t>(&portion - portions_.data()) % kSlots * slotBytes_;
}

// Ids come first: they are on the device, so that the first portion has something to wait for the sender's launches by.
plan::BlockPart KvHandover::part(uint64_t number) const {
  const int64_t layers = from_->caches().layers();
  const size_t blocks = fromBlocks_.size();
  const uint64_t ofLayers = static_cast<uint64_t>(layers) * blocks;
  return plan::blockPart(number < blocks ? ofLayers + number : number - blocks, layers, blocks, byNumber_);
}

uint64_t KvHandover::bytesOf(const plan::BlockPart &part) const {
  return from_->caches().bytesOf(part.layer, fromBlocks_[part.index]);
}
plan::BlockPlace KvHandover::source(const plan::BlockPart &part) const {
  return from_->caches().of(part.layer, fromBlocks_[part.index]);
}
plan::BlockPlace KvHandover::target(const plan::BlockPart &part) const {
  return to_->caches().of(part.layer, toBlocks_[part.index]);
}

absl::Status KvHandover::begin(core::Runtime &from, absl::Span<const int32_t> fromBlocks, core::Runtime &to,
                               absl::Span<const int32_t> toBlocks) {
  if (active())
    return absl::FailedPreconditionError("KV hand-over: one is under way");
  if (fromBlocks.size() != toBlocks.size())
    return absl::InvalidArgumentError(
        cat("KV hand-over of ", fromBlocks.size(), " blocks into ", toBlocks.size(), " blocks"));
  for (const absl::Status &status :
       {checkHandover(from.plan(), to.plan()), checkBlocks(from, fromBlocks), checkBlocks(to, toBlocks)})
    if (!status.ok())
      return status;
  failed_ = nullptr;
  RETURN_IF_ERROR(done(from, from.flushKv()));
  from_ = &from;
  to_ = &to;
  fromBlocks_.assign(fromBlocks.begin(), fromBlocks.end());
  toBlocks_.assign(toBlocks.begin(), toBlocks.end());
  slotBytes_ = handoverPortion(from.plan(), to.plan(), handoverBytes(from.plan(), fromBlocks.size()));
  byNumber_ = from.caches().byNumber() && to.caches().byNumber();
  sent_ = brought_ = ended_ = 0;
  tails_.clear();
  homes_.clear();
  portions_.clear();
  const uint64_t parts = fromBlocks_.size() * (static_cast<uint64_t>(from.caches().layers()) + 1);
  for (uint64_t first = 0, end = 0; first < parts; first = end) {
    uint64_t bytes = 0;
    for (end = first; end < parts && bytes + bytesOf(part(end)) <= slotBytes_; ++end)
      bytes += bytesOf(part(end));
    portions_.push_back({first, end});
  }
  return absl::OkStatus();
}

absl::Status KvHandover::sendOut(Portion &portion) {
  uint64_t at = slotOf(portion);
  for (uint64_t p = portion.first; p < portion.end; ++p) {
    const plan::BlockPart one = part(p);
    RETURN_IF_ERROR(done(*from_, from_->mover().add(/*toDevice=*/false, source(one), at, bytesOf(one))));
    at += bytesOf(one);
  }
  const absl::StatusOr<uint64_t> ticket = from_->mover().ask();
  RETURN_IF_ERROR(done(*from_, ticket.status()));
  portion.out = *ticket;
  return absl::OkStatus();
}

absl::Status KvHandover::bringIn(Portion &portion) {
  uint64_t at = slotOf(portion);
  for (uint64_t p = portion.first; p < portion.end; ++p) {
    const plan::BlockPart one = part(p);
    const uint64_t bytes = bytesOf(one);
    const plan::BlockPlace from = source(one), to = target(one);
    RETURN_IF_ERROR(done(*to_, to_->mover().add(/*toDevice=*/true, to, at, bytes)));
    if (data()) {
      const absl::Span<const std::byte> held = from.device ? from_->device().swapMemory().subspan(at, bytes)
                                                           : from_->device().hostSlab().subspan(*from.host, bytes);
      if (to.device)
        std::copy(held.begin(), held.end(), to_->device().swapMemory().subspan(at, bytes).begin());
      if (to.host) {
        tails_.insert(tails_.end(), held.begin(), held.end());
        homes_.push_back({to, bytes});
      }
    }
    at += bytes;
  }
  const absl::StatusOr<uint64_t> ticket = to_->mover().ask();
  RETURN_IF_ERROR(done(*to_, ticket.status()));
  portion.in = *ticket;
  return absl::OkStatus();
}

absl::StatusOr<bool> KvHandover::ended(core::Runtime &of, uint64_t ticket) {
  if (ticket == 0)
    return true;
  const absl::StatusOr<bool> ended = of.device().copied(ticket);
  RETURN_IF_ERROR(done(of, ended.status()));
  return *ended;
}

absl::Status KvHandover::done(const core::Runtime &of, const absl::Status &status) {
  if (!status.ok())
    failed_ = &of;
  return status;
}

absl::StatusOr<bool> KvHandover::advance(bool bring) {
  if (!active())
    return absl::FailedPreconditionError("KV hand-over: none is under way");
  for (bool moved = true; moved;) {
    moved = false;
    for (; ended_ < brought_; ++ended_, moved = true) {
      ASSIGN_OR_RETURN(there, ended(*to_, portions_[ended_].in));
      if (!there)
        break;
    }
    for (; sent_ < portions_.size() && sent_ - ended_ < kSlots; ++sent_, moved = true)
      RETURN_IF_ERROR(sendOut(portions_[sent_]));
    for (; bring && brought_ < sent_; ++brought_, moved = true) {
      ASSIGN_OR_RETURN(out, ended(*from_, portions_[brought_].out));
      if (!out)
        break;
      RETURN_IF_ERROR(bringIn(portions_[brought_]));
    }
  }
  return ended_ == portions_.size();
}

absl::Status KvHandover::finish() {
  ASSIGN_OR_RETURN(there, advance());
  if (!there)
    return absl::FailedPreconditionError("KV hand-over: it is still under way");
  core::Runtime &to = *to_;
  from_ = to_ = nullptr;
  RETURN_IF_ERROR(done(to, to.flushKv()));
  if (!homes_.empty())
    RETURN_IF_ERROR(done(to, to.device().drain()));
  uint64_t at = 0;
  for (const HomeRun &home : homes_) {
    to.mover().onHost(home.place, /*toBlock=*/true, absl::MakeSpan(tails_).subspan(at, home.bytes));
    at += home.bytes;
  }
  to.kvWritten();
  return absl::OkStatus();
}

void KvHandover::abandon() {
  if (!active())
    return;
  // Of a device that fails there is nothing to wait for.
  for (size_t p = ended_; p < sent_; ++p) {
    if (portions_[p].out != 0)
      (void)from_->device().awaitCopied(portions_[p].out);
    if (portions_[p].in != 0)
      (void)to_->device().awaitCopied(portions_[p].in);
  }
  from_ = to_ = nullptr;
}

absl::Status KvHandover::move(core::Runtime &from, absl::Span<const int32_t> fromBlocks, core::Runtime &to,
                              absl::Span<const int32_t> toBlocks) {
  RETURN_IF_ERROR(begin(from, fromBlocks, to, toBlocks));
  for (;;) {
    absl::StatusOr<bool> there = advance();
    if (!there.ok()) {
      abandon();
      return there.status();
    }
    if (*there)
      return finish();
    const Portion &next = portions_[ended_];
    absl::Status waited = ended_ < brought_ ? to.device().awaitCopied(next.in) : from.device().awaitCopied(next.out);
    if (!waited.ok()) {
      abandon();
      return waited;
    }
  }
}

} // namespace headrace::serve
