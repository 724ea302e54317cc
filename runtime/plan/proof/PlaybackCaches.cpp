// SPDX-License-Identifier: Apache-2.0
//
// Of Playback, caches that are split, residuals that leave and rows that the cpu lane works on: which of several copies
// of the same bytes is current.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/plan/proof/Playback.h"

namespace headrace::plan {
namespace {

std::string since(int32_t stale) { // for messages
  return stale == kOnEntry ? ", which is behind what was in a slot on entry"
                           : absl::StrCat(", which step ", stale, " has since written elsewhere");
}

} // namespace

bool Playback::isResidual(uint32_t buffer) const {
  return buffer < plan_.buffers.size() && plan_.buffers[buffer].kind == BufferKind::Residual;
}

bool Playback::isReceived(uint32_t buffer) const {
  return plan_.receives() && isResidual(buffer) && schedule_.iterationClass != IterationClass::Transition;
}

bool Playback::isActOnHost(uint32_t buffer) const {
  return plan_.actBlocks > 0 && buffer < plan_.buffers.size() && plan_.buffers[buffer].kind == BufferKind::Act &&
         extents_.first(buffer).space == Space::Host;
}

// Of buffers that steps write, those that may be in several places.
bool Playback::movesWritten(uint32_t buffer) const {
  if (buffer >= plan_.buffers.size())
    return schedule_.locals[buffer - plan_.buffers.size()].staged();
  return isResidual(buffer) || isActOnHost(buffer) || (caches_.split() && plan_.buffers[buffer].kind == BufferKind::Kv);
}

// Device memory, and of the host's what is written.
bool Playback::isTracked(const Operand &operand) const {
  if (operand.space == Space::Device || operand.buffer >= plan_.buffers.size())
    return true;
  const Buffer &buffer = plan_.buffers[operand.buffer];
  return movesWritten(operand.buffer) || (buffer.kind == BufferKind::Io && static_cast<Io>(buffer.index) == Io::Meta);
}

void Playback::addPlace(uint32_t buffer, uint64_t base) {
  if (movesWritten(buffer))
    places_[buffer].insert(base);
}

// What exists of the mirrored bytes is in the slab, and current.
void Playback::enterMirrors() {
  const uint32_t before = schedule_.fromPlacement != kNone ? schedule_.fromPlacement : schedule_.placement;
  if (!caches_.mirrors() || caches_.bytes(before) <= caches_.mirrorBegin())
    return;
  Clock noReader;
  noReader.fill(-1);
  for (uint32_t buffer = 0; buffer < plan_.buffers.size(); ++buffer) {
    if (plan_.buffers[buffer].kind != BufferKind::Kv)
      continue;
    const uint64_t base = slabBase(buffer);
    addPlace(buffer, base);
    memory_.assign(base + caches_.mirrorBegin(), {base + caches_.bytes(before), buffer, base, -1, -1, kNone, noReader});
  }
}

uint64_t Playback::slabBase(uint32_t buffer) const {
  return trackedBase(buffer, Space::Host, 0, caches_.slabBase(buffer), false);
}

// The home of what the entry state has may have been left behind.
void Playback::enterBehind(const Content &content) {
  if (!caches_.mirrors() || plan_.buffers[content.buffer].kind != BufferKind::Kv)
    return;
  const uint64_t base = slabBase(content.buffer), at = base + content.bufferOffset;
  memory_.visitContent(at, at + content.bytes, content.buffer, base,
                       [](uint64_t, uint64_t, HeldRange &node) { node.stale = kOnEntry; });
}

// What a copy of the launch's own rows leaves of the home: what was behind on entry is.
void Playback::writeRun(const Operand &destination, uint64_t base, const HeldRange &node) {
  std::vector<std::pair<uint64_t, uint64_t>> behind;
  const uint64_t at = base + destination.bufferOffset;
  memory_.visitContent(at, node.end, destination.buffer, base, [&](uint64_t begin, uint64_t end, const HeldRange &was) {
    if (was.stale == kOnEntry)
      behind.emplace_back(begin, end);
  });
  memory_.assign(at, node);
  for (const auto &[begin, end] : behind)
    memory_.visitContent(begin, end, destination.buffer, base,
                         [](uint64_t, uint64_t, HeldRange &still) { still.stale = kOnEntry; });
}

// Rows of a tail, or a sum to the residual that is in the very range that it goes to.
bool Playback::updates(uint32_t step, const Operand &operand) const {
  if (operand.arg == Arg::KvTail)
    return true;
  if (operand.arg != Arg::Y || !isResidual(operand.buffer))
    return false;
  const Step &s = schedule_.steps[step];
  const auto begin = schedule_.operands.begin() + s.firstOperand;
  return std::any_of(begin, begin + s.operandCount, [&](const Operand &o) {
    return o.arg == Arg::Residual && o.buffer == operand.buffer && o.space == operand.space &&
           o.address == operand.address;
  });
}

// What is added to what a slot holds leaves it the content that it is.
void Playback::update(uint32_t step, const Operand &operand) {
  const uint64_t base = trackedBase(operand), at = base + operand.bufferOffset;
  addPlace(operand.buffer, base);
  std::vector<std::pair<uint64_t, HeldRange>> parts;
  const auto part = [&](uint64_t begin, uint64_t end, uint32_t life) {
    HeldRange node{end, operand.buffer, base, static_cast<int32_t>(step), -1, life, {}};
    node.readers.fill(-1);
    parts.emplace_back(begin, node);
  };
  memory_.visit(at, at + operand.bytes, [&](uint64_t begin, uint64_t end, const HeldRange *node) {
    const uint32_t life = node && node->holds(operand.buffer, base) ? node->life : kNone;
    if (!parts.empty() && parts.back().second.life == life)
      parts.back().second.end = end;
    else
      part(begin, end, life);
  });
  for (const auto &[begin, node] : parts)
    memory_.assign(begin, node);
}

// What the step has written of caches and residuals, it has not written elsewhere.
void Playback::spoilCopies(uint32_t step) {
  if (places_.empty())
    return;
  const Step &s = schedule_.steps[step];
  for (uint32_t i = s.firstOperand; i < s.firstOperand + s.operandCount; ++i) {
    const Operand &operand = schedule_.operands[i];
    if (operand.access == Access::Read || operand.buffer >= places_.size())
      continue;
    for (const uint64_t base : places_[operand.buffer]) {
      const uint64_t at = base + operand.bufferOffset;
      memory_.visitContent(at, at + operand.bytes, operand.buffer, base, [&](uint64_t, uint64_t, HeldRange &node) {
        if (node.writer != static_cast<int32_t>(step) && node.stale != kOnEntry)
          node.stale = static_cast<int32_t>(step);
      });
    }
  }
}

// A copy of what is stale is stale.
void Playback::spoilCopy(const Operand &destination) {
  const uint64_t base = trackedBase(destination);
  for (const StaleBytes &read : staleRead_)
    memory_.visit(base + read.offset, base + read.offset + read.bytes, [&](uint64_t, uint64_t, HeldRange *node) {
      if (node)
        node->stale = read.since;
    });
}

void Playback::readStale(uint32_t step, const Operand &operand, uint64_t begin, uint64_t end, const HeldRange &node) {
  const uint64_t offset = begin - node.base;
  if (report_ && staleRead_.empty())
    report_->add(Rule::StaleCopy, index_, step,
                 absl::StrCat("reads ", describe(plan_, schedule_, operand.buffer, offset, end - begin), " ",
                              placeOf(begin), since(node.stale)));
  staleRead_.push_back({offset, end - begin, node.stale});
}

void Playback::leaveStale(const std::string &what, uint64_t begin, uint64_t end, const HeldRange &node) {
  report_->add(Rule::StaleCopy, index_, kNone,
               absl::StrCat(what, describe(plan_, schedule_, node.buffer, begin - node.base, end - begin), " ",
                            placeOf(begin), since(node.stale)));
}

// The mirrored bytes are current in the slab, but for those of which the exit state says that they may be behind.
void Playback::leaveCaches() {
  if (!report_ || !caches_.mirrors())
    return;
  for (const Content &content : plan_.states[schedule_.exitState].contents) {
    if (!content.dirty || plan_.buffers[content.buffer].kind != BufferKind::Kv)
      continue;
    const uint64_t base = slabBase(content.buffer), at = base + content.bufferOffset;
    memory_.visitContent(at, at + content.bytes, content.buffer, base,
                         [](uint64_t, uint64_t, HeldRange &node) { node.stale = -1; });
  }
  for (uint32_t buffer = 0; buffer < plan_.buffers.size() && !report_->full(); ++buffer) {
    if (plan_.buffers[buffer].kind != BufferKind::Kv)
      continue;
    const uint64_t base = slabBase(buffer);
    bool reported = false;
    memory_.visitContent(base + caches_.mirrorBegin(), base + caches_.mirrorEnd(), buffer, base,
                         [&](uint64_t begin, uint64_t end, const HeldRange &node) {
                           if (node.stale >= 0 && !std::exchange(reported, true))
                             leaveStale("leaves ", begin, end, node);
                         });
  }
}

} // namespace headrace::plan
