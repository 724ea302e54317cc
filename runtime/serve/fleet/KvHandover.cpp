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

// Of a block, of which tokens it holds.
uint64_t idsBytes(const plan::Plan &plan) { return static_cast<uint64_t>(plan.blockTokens) * sizeof(int32_t); }

uint64_t slotBytesOf(const plan::Plan &plan) {
  const uint64_t all = static_cast<uint64_t>(plan.kvBlocks) * (kvBlockBytesOfAllLayers(plan) + idsBytes(plan));
  return std::max(plan.kvBlockBytes() + idsBytes(plan), std::min(kMostSlotBytes, (all + kSlots - 1) / kSlots));
}

// Blocks on the device lie block by block, all layers of each together.
bool liesByBlock(const plan::Plan &plan) {
  for (const plan::Placement &placement : plan.placements)
    for (const plan::Extent &extent : placement.extents)
      if (plan.buffers[extent.buffer].kind == plan::BufferKind::Kv && extent.interleaved)
        return true;
  return false;
}

// At most: each is filled up to less than a block of a layer, but the last.
uint64_t handoverPortions(const plan::Plan &from, const plan::Plan &to, uint64_t bytes) {
  const uint64_t filled = handoverPortion(from, to, bytes) - from.kvBlockBytes();
  return std::max<uint64_t>(1, (bytes + filled - 1) / std::max<uint64_t>(filled, 1));
}

} // namespace

uint64_t kvBlockBytesOfAllLayers(const plan::Plan &plan) {
  return static_cast<uint64_t>(plan.model->layers) * plan.kvBlockBytes();
}

uint64_t handoverBlocks(const plan::Plan &plan, absl::Span<const int64_t> tokens) {
  uint64_t blocks = 0;
  for (int64_t t : tokens)
    blocks += static_cast<uint64_t>((t + plan.blockTokens - 1) / plan.blockTokens);
  return blocks;
}

uint64_t handoverBytes(const plan::Plan &plan, uint64_t blocks) {
  return blocks * (kvBlockBytesOfAllLayers(plan) + idsBytes(plan));
}

uint64_t handoverCopies(const plan::Plan &from, const plan::Plan &to, uint64_t blocks, uint64_t runs) {
  const auto layers = static_cast<uint64_t>(from.model->layers);
  const bool one = liesByBlock(from), other = liesByBlock(to);
  const uint64_t bytes = handoverBytes(from, blocks);
  const uint64_t portions = handoverPortions(from, to, bytes);
  return (one && other ? runs : one || other ? layers * blocks : layers * runs) + runs + 2 * portions;
}

uint64_t handoverPortion(const plan::Plan &from, const plan::Plan &to, uint64_t bytes) {
  const uint64_t slot = std::min(slotBytesOf(from), slotBytesOf(to));
  return std::min(slot, bytes / kSlots + from.kvBlockBytes() + idsBytes(from));
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
KvHandover::Unit KvHandover::unit(uint64_t number) const {
  const uint64_t blocks = fromBlocks_.size();
  const auto layers = static_cast<uint64_t>(from_->plan().model->layers);
  if (number < blocks)
    return {static_cast<int64_t>(layers), number, idsBytes(from_->plan())};
  number -= blocks;
  const uint64_t layer = byBlock_ ? number % layers : number / blocks;
  const uint64_t index = byBlock_ ? number / layers : number % blocks;
  return {static_cast<int64_t>(layer), index, from_->plan().kvBlockBytes()};
}

core::KvPlaces KvHandover::placeOf(const core::KvLayout &layout, const Unit &unit, int32_t block) {
  if (unit.layer == layout.layers())
    return {plan::Space::Device, layout.ids(block), false, 0};
  return layout.of(unit.layer, block);
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
  source_.make(from.plan());
  target_.make(to.plan());
  slotBytes_ = handoverPortion(from.plan(), to.plan(), handoverBytes(from.plan(), fromBlocks.size()));
  byBlock_ = liesByBlock(from.plan()) && liesByBlock(to.plan());
  sent_ = brought_ = ended_ = 0;
  tails_.clear();
  homes_.clear();
  portions_.clear();
  const uint64_t units = fromBlocks_.size() * (static_cast<uint64_t>(from.plan().model->layers) + 1);
  for (uint64_t first = 0, end = 0; first < units; first = end) {
    uint64_t bytes = 0;
    for (end = first; end < units && bytes + unit(end).bytes <= slotBytes_; ++end)
      bytes += unit(end).bytes;
    portions_.push_back({first, end});
  }
  for (const Portion &portion : portions_)
    copies_.reserve(portion.end - portion.first);
  return absl::OkStatus();
}

void KvHandover::Layouts::make(const plan::Plan &made) {
  if (plan == &made)
    return;
  plan = &made;
  of.clear();
  for (uint32_t p = 0; p < made.placements.size(); ++p)
    of.emplace_back(made, p);
}

// Joins the copy before it where they follow each other on both sides.
void KvHandover::addCopy(bool toDevice, uint64_t device, uint64_t swap, uint64_t bytes) {
  if (!copies_.empty()) {
    core::BlockCopy &last = copies_.back();
    if (last.device + last.bytes == device && last.swap + last.bytes == swap) {
      last.bytes += bytes;
      return;
    }
  }
  copies_.push_back({toDevice, device, swap, bytes});
}

absl::Status KvHandover::sendOut(Portion &portion) {
  copies_.clear();
  uint64_t at = slotOf(portion);
  const core::KvLayout &from = source_.of[from_->placement()];
  for (uint64_t u = portion.first; u < portion.end; ++u) {
    const Unit one = unit(u);
    const core::KvPlaces place = placeOf(from, one, fromBlocks_[one.index]);
    if (place.space == plan::Space::Device)
      addCopy(false, place.address, at, one.bytes);
    at += one.bytes;
  }
  if (copies_.empty())
    return absl::OkStatus();
  const absl::StatusOr<uint64_t> ticket = from_->device().copyBeside(copies_);
  RETURN_IF_ERROR(done(*from_, ticket.status()));
  portion.out = *ticket;
  return absl::OkStatus();
}

absl::Status KvHandover::bringIn(Portion &portion) {
  const core::KvLayout &from = source_.of[from_->placement()], &to = target_.of[to_->placement()];
  copies_.clear();
  uint64_t at = slotOf(portion);
  for (uint64_t u = portion.first; u < portion.end; ++u) {
    const Unit one = unit(u);
    const core::KvPlaces source = placeOf(from, one, fromBlocks_[one.index]);
    const core::KvPlaces target = placeOf(to, one, toBlocks_[one.index]);
    const bool onDevice = target.space == plan::Space::Device;
    if (onDevice)
      addCopy(true, target.address, at, one.bytes);
    if (data()) {
      const absl::Span<const std::byte> bytes =
          (source.space == plan::Space::Device ? from_->device().swapMemory().subspan(at, one.bytes)
                                               : from_->device().hostSlab().subspan(source.address, one.bytes));
      if (onDevice)
        std::copy(bytes.begin(), bytes.end(), to_->device().swapMemory().subspan(at, one.bytes).begin());
      if (!onDevice || target.mirrored) {
        tails_.insert(tails_.end(), bytes.begin(), bytes.end());
        homes_.push_back({onDevice ? target.mirror : target.address, one.bytes});
      }
    }
    at += one.bytes;
  }
  if (copies_.empty())
    return absl::OkStatus();
  const absl::StatusOr<uint64_t> ticket = to_->device().copyBeside(copies_);
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
    const auto bytes = absl::MakeConstSpan(tails_).subspan(at, home.bytes);
    std::copy(bytes.begin(), bytes.end(), to.device().hostSlab().subspan(home.address, home.bytes).begin());
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
