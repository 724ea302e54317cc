// SPDX-License-Identifier: Apache-2.0
//
// The structure of a plan: buffers, and where they have their homes.
#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/structure/StructureCheck.h"
#include "runtime/plan/value/BufferIndex.h"

namespace headrace::plan {

namespace {

// What Buffer::index may be at most.
uint32_t largestIndex(BufferKind kind, int64_t layers, uint32_t miniBatches) {
  switch (kind) {
  case BufferKind::Weight:
    return static_cast<uint32_t>(model::unitCount(layers) - 1);
  case BufferKind::Io:
    return model::enumCount<Io>() - 1;
  case BufferKind::Kv:
  case BufferKind::Activation:
  case BufferKind::Workspace:
  case BufferKind::Residual:
    return miniBatches - 1;
  case BufferKind::Act:
    return kMaxBuffers - 1;
  }
  return 0;
}

} // namespace

void StructureCheck::checkBuffers() {
  if (!ok())
    return;
  atMost(plan_.buffers.size(), kMaxBuffers, "the number of buffers");
  const int64_t layers = plan_.model->layers;
  std::map<std::tuple<BufferKind, int32_t, uint32_t>, size_t> seen;
  for (size_t i = 0; i < plan_.buffers.size() && ok(); ++i) {
    const Buffer &buffer = plan_.buffers[i];
    if (!text(buffer.name, model::kLongestName, false, "buffers[", i, "].name") ||
        !enumerator(buffer.kind, "buffers[", i, "].kind"))
      return;
    if (isTransient(buffer.kind))
      fail("buffers[", i, "].kind is ", value(buffer.kind), " (", bufferKindName(buffer.kind),
           "), which is a schedule's own");
    const bool ofLayer = buffer.kind == BufferKind::Kv || buffer.kind == BufferKind::Act;
    const bool ofNone = buffer.kind == BufferKind::Io || buffer.kind == BufferKind::Residual;
    within(buffer.layer, ofLayer ? 0 : -1, ofNone ? -1 : layers - 1, "buffers[", i, "].layer");
    atMost(buffer.index, largestIndex(buffer.kind, layers, plan_.miniBatches), "buffers[", i, "].index");
    if (buffer.bytes == 0)
      fail("buffers[", i, "].bytes is 0");
    aligned(buffer.bytes, "buffers[", i, "].bytes");
    atMost(buffer.bytes, kMaxBytes, "buffers[", i, "].bytes");
    // The index of a weight alone says which it is.
    const int32_t layer = buffer.kind == BufferKind::Weight ? -1 : buffer.layer;
    const auto [at, isNew] = seen.try_emplace({buffer.kind, layer, buffer.index}, i);
    if (!isNew)
      fail("buffers[", i, "] is ", bufferKindName(buffer.kind), " ", buffer.index,
           layer < 0 ? "" : absl::StrCat(" of layer ", layer), ", as buffers[", at->second, "] is");
  }
  if (!ok())
    return;
  // What every model needs. The layer of a weight is its unit's: checked with its size (VerifySizes.cpp).
  const BufferIndex index(plan_);
  checkWeights(index);
  for (int64_t layer = 0; layer < layers && ok(); ++layer)
    for (uint32_t miniBatch = 0; miniBatch < plan_.miniBatches && ok(); ++miniBatch)
      if (index.kv(layer, miniBatch) == kNone)
        fail("buffers has no kv of layer ", layer,
             plan_.miniBatches == 1 ? "" : absl::StrCat(" and mini-batch ", miniBatch));
  for (const Io io : {Io::Meta, Io::Sampled, Io::Output, Io::History})
    if (index.io(io) == kNone)
      fail("buffers has no io ", value(io));
  for (int64_t layer = 0; layer < layers && plan_.actBlocks > 0 && ok(); ++layer)
    for (uint32_t miniBatch = 0; miniBatch < plan_.miniBatches && ok(); ++miniBatch)
      if (index.act(layer, miniBatch) == kNone)
        fail("buffers has no act of layer ", layer,
             plan_.miniBatches == 1 ? "" : absl::StrCat(" and mini-batch ", miniBatch));
  checkResiduals(index);
}

// One a unit, but for the embedding or the head that other stages have.
void StructureCheck::checkWeights(const BufferIndex &index) {
  const int64_t layers = plan_.model->layers;
  const uint32_t head = largestIndex(BufferKind::Weight, layers, 1);
  for (uint32_t unit = 0; unit <= head && ok(); ++unit) {
    const uint32_t buffer = index.weight(unit);
    const bool elsewhere = (unit == 0 && plan_.receives()) || (unit == head && plan_.sends());
    if (buffer == kNone && !elsewhere)
      fail("buffers has no weight ", unit, ", a model of ", layers, " layers has ", head + 1);
    else if (buffer != kNone && elsewhere)
      fail("buffers[", buffer, "] is weight ", unit, ", the ", unit == 0 ? "embedding" : "head",
           ", which another stage of the model has");
  }
}

// A residual of each mini-batch; or of none, where no rows go from stage to stage.
void StructureCheck::checkResiduals(const BufferIndex &index) {
  uint32_t missing = kNone, residuals = 0;
  for (uint32_t miniBatch = 0; miniBatch < plan_.miniBatches; ++miniBatch)
    if (index.residual(miniBatch) == kNone)
      missing = miniBatch;
    else
      ++residuals;
  const bool stage = plan_.receives() || plan_.sends();
  if (ok() && missing != kNone && (residuals > 0 || stage))
    fail("buffers has no residual of mini-batch ", missing, residuals > 0 ? ", but of another" : ", a stage has one");
}

void StructureCheck::findSplit() {
  for (const Placement &placement : plan_.placements)
    for (const Extent &e : placement.extents)
      split_ |= (e.interleaved || e.space == Space::Host) && e.buffer < plan_.buffers.size() &&
                plan_.buffers[e.buffer].kind == BufferKind::Kv;
}

// The bytes of a buffer that a placement's extents tile: all; of a cache that is split, the placement's blocks.
uint64_t StructureCheck::bytesToTile(const Placement &placement, const Buffer &buffer, const std::string &path) {
  if (!splits(buffer))
    return buffer.bytes;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(placement.kvBlocks), plan_.kvBlockBytes(), &bytes) ||
      bytes > buffer.bytes)
    fail(path, ".kv_blocks is ", placement.kvBlocks, " of ", plan_.kvBlockBytes(), " bytes, ", buffer.name, " has ",
         buffer.bytes);
  return ok() ? bytes : buffer.bytes;
}

// Of a cache that is split: its first blocks, if there are any, on the device, interleaved, as many as of every other;
// then all others on the host, in one run.
bool StructureCheck::checkCacheExtent(const Extent &extent, uint64_t end, std::optional<uint64_t> &resident,
                                      const std::string &at) {
  const bool onHost = extent.space == Space::Host;
  if ((extent.bufferOffset > 0 || onHost) &&
      (!onHost || extent.interleaved || !extent.direct || extent.bytes != end - extent.bufferOffset))
    return fail(at, " has bytes [", extent.bufferOffset, ", ", extent.bufferOffset + extent.bytes,
                ") of a cache that is split, expected all up to ", end, " on the host, direct and not interleaved");
  if (extent.bufferOffset > 0)
    return true;
  if (!onHost && (extent.space != Space::Device || !extent.interleaved))
    return fail(at, " begins a cache, expected it to be interleaved on the device, or on the host");
  const uint64_t block = plan_.kvBlockBytes(), here = onHost ? 0 : extent.bytes;
  if (here % block != 0)
    return fail(at, ".bytes is ", here, ", expected a multiple of a block's ", block);
  if (!resident)
    resident = here;
  if (here != *resident)
    return fail(at, ".bytes is ", extent.bytes, onHost ? " on the host" : "", ", another cache of the placement has ",
                *resident, " on the device");
  uint64_t all = 0; // of all caches
  if (__builtin_mul_overflow(here, plan_.kvCaches(), &all) || all > kMaxBytes)
    return fail(at, ".bytes is ", here, ", too much for ", plan_.kvCaches(), " caches");
  return true;
}

// The caches share out one range of the device: their blocks of a number lie side by side, in any order, but in the
// same place in all placements that have some there.
//
//   base   | 0 of kv.1 | 0 of kv.0 | 0 of kv.2 | 1 of kv.1 | 1 of kv.0 | ...
void StructureCheck::checkRegion(const Placement &placement, const std::string &path) {
  const uint64_t block = plan_.kvBlockBytes();
  const uint64_t caches = plan_.kvCaches();
  uint64_t base = UINT64_MAX;
  for (const Extent &e : placement.extents)
    if (e.interleaved)
      base = std::min(base, e.address);
  aligned(base, path, ": the first address of a cache");
  const bool first = cacheAddress_.empty(); // of these placements
  cacheAddress_.resize(caches);
  std::vector<uint32_t> there(caches, kNone); // the cache, by place
  for (size_t i = 0; i < placement.extents.size() && ok(); ++i) {
    const Extent &e = placement.extents[i];
    if (!e.interleaved)
      continue;
    const std::string at = absl::StrCat(path, ".extents[", i, "].address of ", plan_.buffers[e.buffer].name);
    uint64_t &address = cacheAddress_[plan_.cacheNumber(plan_.buffers[e.buffer])];
    const uint64_t place = (e.address - base) / block;
    if ((e.address - base) % block != 0 || place >= caches) {
      fail(at, " is ", e.address, ", expected one of ", caches, " places, every ", block, " bytes from ", base, " on");
      return;
    }
    if (there[place] != kNone)
      fail(at, " is ", e.address, ", as that of ", plan_.buffers[there[place]].name, " is");
    else if (!first && e.address != address)
      fail(at, " is ", e.address, ", expected ", address, " as in the first placement");
    there[place] = e.buffer;
    address = e.address;
  }
}

// A cache has one home in the host slab, of which the tails of all placements are parts.
void StructureCheck::checkTails() {
  if (!ok() || !split_)
    return;
  struct Tail {
    uint64_t offset = UINT64_MAX, address = 0; // the first byte of any placement's
  };
  std::vector<Tail> tails(plan_.buffers.size());
  for (size_t p = 0; p < plan_.placements.size(); ++p)
    for (const Extent &e : plan_.placements[p].extents) {
      if (!splits(plan_.buffers[e.buffer]) || e.space != Space::Host)
        continue;
      Tail &tail = tails[e.buffer];
      if (tail.offset != UINT64_MAX && e.address - e.bufferOffset != tail.address - tail.offset)
        fail("placements[", p, "] has ", plan_.buffers[e.buffer].name, " from byte ", e.bufferOffset, " on at ",
             e.address, " in the host slab, expected ", tail.address - tail.offset + e.bufferOffset,
             " as in another placement");
      if (e.bufferOffset < tail.offset)
        tail = {e.bufferOffset, e.address};
    }
  for (size_t i = 0; i < tails.size() && ok(); ++i)
    aligned(tails[i].address, "the first address of ", plan_.buffers[i].name, " in the host slab");
}

// A residual has one home, in the host slab, in all placements.
bool StructureCheck::checkResidualExtent(const Extent &extent, const std::string &at) {
  const Buffer &buffer = plan_.buffers[extent.buffer];
  if (extent.space != Space::Host || extent.direct)
    return fail(at, " has ", buffer.name, " in space ", value(extent.space), extent.direct ? ", direct" : "",
                ", expected it on the host, not direct");
  const uint64_t address = residualAddress_.try_emplace(extent.buffer, extent.address).first->second;
  return extent.address == address || fail(at, ".address of ", buffer.name, " is ", extent.address, ", expected ",
                                           address, " as in the first placement");
}

constexpr int64_t kMostStartItems = int64_t{1} << 20;

void StructureCheck::checkPlacement(const Placement &placement, const std::string &path) {
  text(placement.name, model::kLongestName, false, path, ".name");
  enumerator(placement.startRule, path, ".start_rule");
  within(placement.startItems, 0, placement.startRule == model::StartRule::Ahead ? kMostStartItems : 0, path,
         ".start_items");
  within(placement.kvBlocks, split_ ? 1 : plan_.kvBlocks, plan_.kvBlocks, path, ".kv_blocks");
  uint64_t buffer = 0, offset = 0;  // where the next extent must begin
  std::optional<uint64_t> resident; // bytes of each split cache on the device, once known
  for (size_t i = 0; i < placement.extents.size() && ok(); ++i) {
    const Extent &extent = placement.extents[i];
    const std::string at = absl::StrCat(path, ".extents[", i, "]");
    if (!enumerator(extent.space, at, ".space") || !index(extent.buffer, plan_.buffers.size(), at, ".buffer"))
      return;
    if (extent.buffer != buffer || extent.bufferOffset != offset) {
      fail(at, " begins at byte ", extent.bufferOffset, " of buffer ", extent.buffer, ", expected byte ", offset,
           " of buffer ", buffer);
      return;
    }
    const bool split = splits(plan_.buffers[buffer]);
    const uint64_t size = bytesToTile(placement, plan_.buffers[buffer], path);
    if (!range(extent.bufferOffset, extent.bytes, size, extent.address, split, at) ||
        (split && !checkCacheExtent(extent, size, resident, at)))
      return;
    if (!split && extent.bytes != size) {
      fail(at, ".bytes is ", extent.bytes, ", expected all ", size, " of ", plan_.buffers[buffer].name);
      return;
    }
    if (extent.interleaved && !split)
      fail(at, ".interleaved is set, but buffer ", buffer, " is a ", bufferKindName(plan_.buffers[buffer].kind));
    if (extent.direct && extent.space != Space::Host)
      fail(at, ".direct is set, but its home is not the host");
    if (ok() && plan_.buffers[buffer].kind == BufferKind::Residual && !checkResidualExtent(extent, at))
      return;
    offset += extent.bytes;
    if (offset == size) {
      ++buffer;
      offset = 0;
    }
  }
  if (ok() && buffer != plan_.buffers.size())
    fail(path, ".extents end at byte ", offset, " of buffer ", buffer, ", expected the end of buffer ",
         plan_.buffers.size() - 1);
  if (ok() && split_) {
    resident_.push_back(resident.value_or(0));
    if (resident_.back() > 0)
      checkRegion(placement, path);
  }
  for (size_t i = 0; i < placement.slots.size() && ok(); ++i) {
    const Slot &slot = placement.slots[i];
    if (slot.bytes == 0)
      fail(path, ".slots[", i, "].bytes is 0");
    aligned(slot.address, path, ".slots[", i, "].address");
    aligned(slot.bytes, path, ".slots[", i, "].bytes");
    atMost(slot.address, kMaxBytes, path, ".slots[", i, "].address");
    atMost(slot.bytes, kMaxBytes, path, ".slots[", i, "].bytes");
  }
}

void StructureCheck::checkState(const State &state, const std::string &path) {
  index(state.placement, plan_.placements.size(), path, ".placement");
  if (&state == &plan_.states.front() && !state.contents.empty())
    fail(path, " has ", state.contents.size(), " contents, expected the empty state");
  uint64_t end = 0;
  for (size_t i = 0; i < state.contents.size() && ok(); ++i) {
    const Content &content = state.contents[i];
    if (!index(content.buffer, plan_.buffers.size(), path, ".contents[", i, "].buffer") ||
        !range(content.bufferOffset, content.bytes, plan_.buffers[content.buffer].bytes, content.address,
               splits(plan_.buffers[content.buffer]), path, ".contents[", i, "]"))
      return;
    if (content.address < end)
      fail(path, ".contents[", i, "].address is ", content.address, ", expected at least ", end,
           ", the end of the content before it");
    end = content.address + content.bytes;
  }
}

} // namespace headrace::plan
