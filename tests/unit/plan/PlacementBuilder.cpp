// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlacementBuilder.h"

#include <algorithm>
#include <set>

#include "kernels/Kernels.h"

namespace headrace::plan::test {

using model::alignUp;
using model::TensorRole;
using model::UnitRole;

// Items in order of use. Two that follow each other have different slots; with wrap-around so do the last and the
// first.
void PlacementBuilder::chooseItems() {
  const bool eager = options_.rule == model::StartRule::Eager;
  bool adjacent = eager;
  for (size_t i = 1; i < options_.layers.size(); ++i)
    adjacent |= options_.layers[i] == options_.layers[i - 1] + 1;
  const uint32_t turns = adjacent && options_.layers.size() > 1 ? 2 : 1;
  for (size_t i = 0; i < options_.layers.size(); ++i) {
    Item item;
    for (const UnitRole role : {UnitRole::Qkv, UnitRole::Out, UnitRole::Up, UnitRole::Down})
      item.units.push_back(unitOf(options_.layers[i], role));
    item.slot = static_cast<uint32_t>(i) % turns;
    if (eager && turns == 2 && options_.layers.size() % 2 == 1 && i + 1 == options_.layers.size())
      item.slot = 2; // of an odd number, the last would meet the first in slot 0
    slots_ = std::max(slots_, item.slot + 1);
    items_.push_back(item);
  }
  if (options_.offloadHead)
    items_.push_back({{static_cast<uint32_t>(layout_.headUnit())}, slots_++});
}

void PlacementBuilder::addPlacement() {
  chooseItems();
  chooseRounds();
  chooseVisits();
  if (homes_ == nullptr)
    place();
  else
    placeBesideCaches();
  rememberPlaces();
}

Placement PlacementBuilder::described() const {
  Placement p;
  p.kvBlocks = existing();
  p.name = options_.name;
  p.startRule = options_.rule;
  return p;
}
bool PlacementBuilder::offloads(uint32_t unit) const {
  return (unit == 0 && options_.offloadEmbedding) || std::any_of(items_.begin(), items_.end(), [&](const Item &item) {
           return std::find(item.units.begin(), item.units.end(), unit) != item.units.end();
         });
}

uint64_t keysAndValuesBytes(const Plan &plan) {
  const auto elements = static_cast<uint64_t>(2 * plan.model->kvHeads * plan.model->headDim);
  const model::Encoding &of = plan.kvEncoding;
  return of.packed() ? elements * of.codeBits / 8 + elements / static_cast<uint64_t>(of.group) * 4 : elements * 4;
}

// Homes and slots behind the transients.
void PlacementBuilder::place() {
  Placement p = described();
  uint64_t at = localsAt_ + localsBytes();
  for (uint32_t unit = 0; unit < layout_.units.size(); ++unit) {
    const uint64_t bytes = layout_.units[unit].bytes;
    Extent e{unit, Space::Device, false, 0, bytes, at};
    if (offloads(unit)) {
      e.space = Space::Host;
      e.direct = unit == 0 && options_.offloadEmbedding;
      e.address = hostAddress(unit);
      plan_.hostBytes = std::max(plan_.hostBytes, e.address + bytes);
    } else {
      at += bytes;
    }
    if (switches_) // every unit keeps its place free, at home or not
      at = localsAt_ + localsBytes() + hostAddress(unit) + bytes;
    p.extents.push_back(e);
  }
  uint64_t fixed = 0; // kv and io, from the arena's start
  for (uint32_t buffer = plan_.kvBuffer(0); buffer < plan_.buffers.size(); ++buffer) {
    if (plan_.buffers[buffer].kind == BufferKind::Residual) {
      p.extents.push_back(residualHome(buffer));
      plan_.hostBytes = std::max(plan_.hostBytes, p.extents.back().address + p.extents.back().bytes);
      continue;
    }
    if (actsOnHost(buffer)) {
      p.extents.push_back(actHome(buffer));
      plan_.hostBytes = std::max(plan_.hostBytes, p.extents.back().address + p.extents.back().bytes);
      continue;
    }
    p.extents.push_back({buffer, Space::Device, false, 0, plan_.buffers[buffer].bytes, fixed});
    fixed += plan_.buffers[buffer].bytes;
  }
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    const uint64_t bytes = slotBytes(slot);
    uint32_t first = kNone; // of the units that take turns
    for (const Item &item : items_)
      if (item.slot == slot)
        first = std::min(first, item.units.front());
    if (switches_) { // where the first of them has its home in other placements
      p.slots.push_back({localsAt_ + localsBytes() + hostAddress(first), bytes});
      continue;
    }
    p.slots.push_back({at, bytes});
    at += bytes;
  }
  for (uint32_t slot = 0; slot < actSlots() + residualSlots(); ++slot) {
    p.slots.push_back({at, slot < actSlots() ? actBytes() : residualBytes()});
    at += p.slots.back().bytes;
  }
  plan_.arenaBytes = std::max(plan_.arenaBytes, at);
  plan_.placements.push_back(std::move(p));
}

// Homes of weights behind the caches, where every unit keeps its place; slots wherever this placement leaves room.
void PlacementBuilder::placeBesideCaches() {
  Placement p = described();
  const uint64_t caches = localsAt_ + localsBytes();
  const uint64_t weights = caches + static_cast<uint64_t>(homes_->weightsFrom) * plan_.kvStride();
  uint64_t io = 0; // from the arena's start
  for (uint32_t buffer = 0; buffer < plan_.buffers.size(); ++buffer) {
    if (isCache(buffer)) {
      placeCache(p, buffer - plan_.kvBuffer(0));
      continue;
    }
    if (plan_.buffers[buffer].kind == BufferKind::Residual) {
      p.extents.push_back(residualHome(buffer));
      continue;
    }
    if (actsOnHost(buffer)) {
      p.extents.push_back(actHome(buffer));
      continue;
    }
    Extent e{buffer, Space::Device, false, 0, plan_.buffers[buffer].bytes, io};
    if (plan_.buffers[buffer].kind != BufferKind::Weight) {
      io += e.bytes;
    } else if (offloads(buffer)) {
      e.space = Space::Host;
      e.direct = buffer == 0 && options_.offloadEmbedding;
      e.address = hostAddress(buffer);
    } else {
      e.address = weights + homes_->unitAt[buffer];
    }
    p.extents.push_back(e);
  }
  std::map<uint64_t, uint64_t> taken = {{caches, alignUp(static_cast<uint64_t>(resident()) * plan_.kvStride())}};
  for (const Extent &e : p.extents)
    if (e.space == Space::Host)
      plan_.hostBytes = std::max(plan_.hostBytes, e.address + e.bytes);
    else if (e.address >= weights && !e.interleaved)
      taken[e.address] = e.bytes;
  for (int64_t layer = 0; layer < cacheCount() && homes_->mirrored; ++layer)
    plan_.hostBytes = std::max(plan_.hostBytes,
                               hostAddress(bufferOf(layer)) + static_cast<uint64_t>(existing()) * plan_.kvBlockBytes());
  const uint64_t tail = alignUp(static_cast<uint64_t>(existing() - resident()) * plan_.kvBlockBytes());
  const uint32_t ring = hasTail() ? static_cast<uint32_t>(options_.ringSlots) : 0;
  for (uint32_t slot = 0; slot < slots_ + ring + actSlots() + residualSlots(); ++slot) {
    const uint64_t bytes = slot < slots_                       ? slotBytes(slot)
                           : slot < slots_ + ring              ? tail
                           : slot < slots_ + ring + actSlots() ? actBytes()
                                                               : residualBytes();
    uint64_t at = caches;
    for (const auto &[address, size] : taken)
      if (address < at + bytes && at < address + size)
        at = address + size;
    taken[at] = bytes;
    p.slots.push_back({at, bytes});
  }
  plan_.arenaBytes = std::max(plan_.arenaBytes, taken.rbegin()->first + taken.rbegin()->second);
  plan_.placements.push_back(std::move(p));
}

void PlacementBuilder::placeCache(Placement &p, int64_t layer) const {
  const uint32_t buffer = bufferOf(layer);
  const uint64_t block = plan_.kvBlockBytes(), onDevice = static_cast<uint64_t>(resident()) * block;
  const uint64_t address = localsAt_ + localsBytes() + homes_->position[static_cast<size_t>(layer)] * block;
  if (onDevice > 0)
    p.extents.push_back({buffer, Space::Device, false, 0, onDevice, address, true});
  if (hasTail())
    p.extents.push_back({buffer, Space::Host, true, onDevice, static_cast<uint64_t>(existing()) * block - onDevice,
                         hostAddress(buffer) + onDevice});
}

// Where in the slots what takes turns in them lies.
void PlacementBuilder::rememberPlaces() {
  for (const Item &item : items_) {
    uint64_t address = placement().slots[item.slot].address;
    for (const uint32_t unit : item.units) {
      slotAddress_[unit] = address;
      address += layout_.units[unit].bytes;
    }
  }
  rememberActs();
}

uint64_t PlacementBuilder::tailAddress(uint32_t phase, int64_t layer) const {
  uint64_t slot = (phase * plan_.kvCaches() + static_cast<uint64_t>(layer)) % static_cast<uint64_t>(options_.ringSlots);
  if (options_.cycles)
    slot = rounds_[phase].slotOf[static_cast<size_t>(layer)];
  return placement().slots[slots_ + slot].address - static_cast<uint64_t>(resident()) * plan_.kvBlockBytes();
}

// Where byte 0 of a buffer is in the slab, or would be: of a cache, only the mirrored blocks are there. The slab has
// every unit that some placement offloads; here all of them, so that the address is the same in each.
uint64_t PlacementBuilder::hostAddress(uint32_t buffer) const {
  if (plan_.buffers[buffer].kind == BufferKind::Weight)
    return test::hostAddress(plan_, buffer);
  const uint64_t caches = test::hostAddress(plan_, plan_.kvBuffer(0));
  const bool mirrored = homes_ != nullptr && homes_->mirrored;
  const uint64_t before = mirrored ? static_cast<uint64_t>(homes_->mirroredFrom) * plan_.kvBlockBytes() : 0;
  const uint64_t home = alignUp(static_cast<uint64_t>(plan_.kvBlocks) * plan_.kvBlockBytes() - before);
  if (isCache(buffer))
    return caches + (buffer - plan_.kvBuffer(0)) * home - before;
  const uint64_t residuals = caches + (mirrored ? plan_.kvCaches() * home : 0);
  if (plan_.buffers[buffer].kind == BufferKind::Act)
    return residuals + plan_.miniBatches * residualBytes() + plan_.cacheNumber(plan_.buffers[buffer]) * actBytes();
  return residuals + plan_.buffers[buffer].index * residualBytes();
}
Extent PlacementBuilder::residualHome(uint32_t buffer) const {
  return {buffer, Space::Host, false, 0, residualBytes(), hostAddress(buffer)};
}
uint64_t PlacementBuilder::itemBytes(const Item &item) const {
  uint64_t bytes = 0;
  for (const uint32_t unit : item.units)
    bytes += layout_.units[unit].bytes;
  return bytes;
}
uint64_t PlacementBuilder::slotBytes(uint32_t slot) const {
  uint64_t bytes = 0;
  for (const Item &item : items_)
    if (item.slot == slot)
      bytes = std::max(bytes, itemBytes(item));
  return bytes;
}
int64_t PlacementBuilder::existing() const { return options_.kvBlocks; }
int64_t PlacementBuilder::resident() const {
  return options_.allBlocksAway ? 0 : options_.blocksOnDevice > 0 ? options_.blocksOnDevice : existing();
}

PlacementBuilder::LocalSizes PlacementBuilder::sizes(const LimitOptions &limits) const {
  const model::ModelSpec &m = plan_.model;
  const auto of = [](int64_t rows, int64_t columns) { return alignUp(static_cast<uint64_t>(rows * columns) * 4); };
  uint64_t workspace = std::max(
      kernels::sampleWorkspaceBytes(kernels::Backend::Host, limits.sequences, m.vocab),
      kernels::attentionWorkspaceBytes(kernels::Backend::Host, limits.sequences, m.heads, m.headDim, limits.context));
  for (const model::Unit &unit : layout_.units)
    for (const model::Tensor &t : unit.tensors)
      if (t.linearOperand)
        workspace =
            std::max(workspace, kernels::linearWorkspaceBytes(kernels::Backend::Host, limits.tokens, t.rows, t.cols));
  if (plan_.actBlocks > 0)
    workspace =
        std::max(workspace, kernels::rebuildWorkspaceBytes(kernels::Backend::Host, plan_.actBlocks * plan_.blockTokens,
                                                           m.qkvRows(), m.hidden, 4));
  return {of(limits.tokens, m.hidden),
          of(limits.tokens, m.hidden),
          of(limits.tokens, m.qkvRows()),
          of(limits.tokens, m.qRows()),
          of(limits.tokens, m.upRows()),
          of(limits.tokens, m.intermediate),
          of(limits.sequences, m.hidden),
          of(limits.sequences, m.vocab),
          alignUp(workspace),
          alignUp(static_cast<uint64_t>(plan_.actBlocks) * plan_.kvBlockBytes())};
}

uint64_t PlacementBuilder::localsBytesOfOne() const {
  const LocalSizes s = sizes(largest_);
  return s.x + s.h + std::max(s.qkv + s.attn, s.up + s.act) + 2 * s.rows + s.logits + s.workspace +
         static_cast<uint64_t>(std::max(acts_.ranges, 1)) * s.rebuilt;
}

// A new buffer, which `local` then means.
void PlacementBuilder::fresh(Role role) {
  const LocalSizes s = sizes(*limits_), l = sizes(largest_);
  const uint64_t x = localsAt_ + miniBatch_ * localsBytesOfOne(), h = x + l.x, shared = h + l.h;
  const uint64_t rows = shared + std::max(l.qkv + l.attn, l.up + l.act), logits = rows + 2 * l.rows;
  const auto add = [&](const char *name, uint64_t bytes, uint64_t address, BufferKind kind = BufferKind::Activation) {
    current_[miniBatch_][role] = static_cast<uint32_t>(schedule_->locals.size());
    Local local{{name, kind, -1, bytes, miniBatch_}, address};
    if (onCpu() && (role == Qkv || role == Attn))
      local.hostAddress = onHost(role);
    schedule_->locals.push_back(std::move(local));
  };
  switch (role) {
  case X:
    return add("x", s.x, x);
  case H:
    return add("h", s.h, h);
  case Qkv:
    return add("qkv", s.qkv, shared);
  case Attn:
    return add("attn", s.attn, shared + l.qkv);
  case Up:
    return add("up", s.up, shared);
  case Act:
    return add("act", s.act, shared + l.up);
  case Rows:
    return add("rows", s.rows, rows);
  case RowsNormed:
    return add("rows normed", s.rows, rows + l.rows);
  case Logits: {
    const bool inSlot = options_.logitsInSlot && s.logits <= placement().slots.front().bytes;
    return add("logits", s.logits, inSlot ? placement().slots.front().address : logits);
  }
  case CpuWorkspace:
    add("cpu workspace", s.workspace, kNowhere, BufferKind::Workspace);
    schedule_->locals.back().hostAddress = onHost(role);
    return;
  case Workspace:
    return add("workspace", s.workspace, logits + l.logits, BufferKind::Workspace);
  case Rebuilt: {
    const auto turn = static_cast<uint64_t>(layer_ % std::max(acts_.ranges, 1));
    return add("rebuilt", s.rebuilt, logits + l.logits + l.workspace + turn * l.rebuilt);
  }
  }
}

} // namespace headrace::plan::test
