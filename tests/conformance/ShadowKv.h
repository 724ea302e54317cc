// SPDX-License-Identifier: Apache-2.0
//
// A device that keeps a book of its own of who has written each row of the KV cache, of each mini-batch's own, from the
// iteration buffers alone: it knows nothing of whoever fills them. A sequence that begins at position 0 is a new
// writer; a later row continues the writer of the rows before it, and each of those must still be where the block table
// says. So a block with two owners, a row that was lost and a table in the wrong order are found at the next launch
// that reads them. So is a launch that is not told, or not exactly, which blocks its rows are written to.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/Device.h"

namespace headrace::core {

class ShadowKv final : public Device {
public:
  explicit ShadowKv(std::shared_ptr<Device> on) : on_(std::move(on)) {}

  const std::string &found() const { return found_; } // the first that was wrong, empty: nothing
  uint64_t rowsChecked() const { return rowsChecked_; }
  // Of mini-batches: launches in which one had no rows, and in which two were told of different blocks.
  uint64_t launchesWithEmpty() const { return withEmpty_; }
  uint64_t unevenLaunches() const { return uneven_; }

  std::string_view kind() const override { return on_->kind(); }
  kernels::Order matrixOrder() const override { return on_->matrixOrder(); }
  bool holdsData() const override { return on_->holdsData(); }
  absl::Status open(const plan::Plan &plan, const DeviceOptions &options) override {
    blockTokens_ = plan.blockTokens;
    const plan::Buffer &history = plan.buffers[plan.ioBuffer(plan::Io::History)];
    layout_ = plan.metaLayout;
    miniBatches_ = plan.miniBatches;
    cellsOfOne_ = plan.ioRangeBytes(history) / sizeof(int32_t);
    usersOfOne_ = static_cast<size_t>(plan.kvBlocks + plan.actBlocks);
    kvBlocks_ = plan.kvBlocks;
    cells_.assign(miniBatches_ * cellsOfOne_, {});
    users_.assign(miniBatches_ * usersOfOne_, 0);
    for (const plan::Extent &extent : plan.placements[0].extents) // as in all placements
      if (extent.buffer == plan.ioBuffer(plan::Io::History))
        ids_ = extent.address;
    return on_->open(plan, options);
  }
  absl::Span<std::byte> hostSlab() override { return on_->hostSlab(); }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
    if (const Cell *cells = cellsAt(address); cells != nullptr && bytes.size() == read_.size() * sizeof(int32_t))
      std::copy(read_.begin(), read_.end(), cells_.begin() + (cells - cells_.data()));
    return on_->writeDevice(address, bytes);
  }
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
    if (const Cell *cells = cellsAt(address); cells != nullptr)
      read_.assign(cells, cells + bytes.size() / sizeof(int32_t));
    return on_->readDevice(address, bytes);
  }
  absl::StatusOr<std::unique_ptr<Graph>> build(const GraphKey &key) override {
    absl::StatusOr<std::unique_ptr<Graph>> graph = on_->build(key);
    if (graph.ok() && key.transition)
      transitions_.insert(graph->get());
    return graph;
  }
  absl::Status upload(Graph &graph) override { return on_->upload(graph); }
  kernels::IterationMeta *meta() override { return on_->meta(); }
  absl::Status launch(Graph &graph, const LaunchInUse &inUse) override {
    if (transitions_.count(&graph) == 0)
      enter(inUse);
    return on_->launch(graph, inUse);
  }
  absl::StatusOr<absl::Span<const int32_t>> awaitTokens(uint64_t iteration) override {
    return on_->awaitTokens(iteration);
  }
  int64_t tokensVisibleNs(uint64_t iteration) const override { return on_->tokensVisibleNs(iteration); }
  absl::Status drain() override { return on_->drain(); }
  absl::Status reserveSwap(uint64_t bytes) override {
    away_.assign(bytes / sizeof(int32_t), {});
    return on_->reserveSwap(bytes);
  }
  absl::Span<std::byte> swapMemory() override { return on_->swapMemory(); }
  // A row goes where the id of its token goes.
  absl::StatusOr<uint64_t> copyBeside(absl::Span<const BlockCopy> copies) override {
    absl::StatusOr<uint64_t> ticket = on_->copyBeside(copies);
    for (const BlockCopy &copy : copies) {
      if (!ticket.ok() || copy.device < ids_ || copy.device >= ids_ + cells_.size() * sizeof(int32_t))
        continue;
      const size_t cell = (copy.device - ids_) / sizeof(int32_t), at = copy.swap / sizeof(int32_t);
      for (size_t i = 0; i < copy.bytes / sizeof(int32_t); ++i)
        (copy.toDevice ? cells_[cell + i] : away_[at + i]) = copy.toDevice ? away_[at + i] : cells_[cell + i];
    }
    return ticket;
  }
  absl::StatusOr<bool> copied(uint64_t ticket) override { return on_->copied(ticket); }
  absl::Status awaitCopied(uint64_t ticket) override { return on_->awaitCopied(ticket); }
  int64_t nowNs() const override { return on_->nowNs(); }
  absl::Status waitUntil(int64_t ns) override { return on_->waitUntil(ns); }
  DeviceCounters counters() const override { return on_->counters(); }
  absl::Span<const StepTime> lastTimes() const override { return on_->lastTimes(); }

private:
  struct Cell {
    uint64_t writer = 0; // from 1
    int64_t position = 0;
  };

  // Of an id that a row goes with, here and where ids are read and then written: as a block is moved.
  const Cell *cellsAt(uint64_t address) const {
    const bool one = address >= ids_ && address < ids_ + cells_.size() * sizeof(int32_t);
    return one ? cells_.data() + (address - ids_) / sizeof(int32_t) : nullptr;
  }

  void enter(const LaunchInUse &inUse) {
    const kernels::IterationMeta *const first = on_->meta();
    bool empty = false, uneven = false;
    uint32_t sampled = 0;
    for (uint32_t i = 0; i < miniBatches_; ++i) {
      const kernels::IterationMeta &meta = *kernels::metaOf(layout_, first, i);
      if (meta.firstOutput != sampled)
        wrong(absl::StrCat("mini-batch ", i, " publishes from ", meta.firstOutput, " on"));
      sampled += static_cast<uint32_t>(meta.numSampled);
      empty |= meta.numTokens == 0;
      uneven |= inUse.of(i).kvBlocks != inUse.of(0).kvBlocks;
      enter(meta, i, inUse.of(i));
    }
    withEmpty_ += empty;
    uneven_ += uneven;
  }

  void enter(const kernels::IterationMeta &meta, uint32_t miniBatch, const InUse &inUse) {
    for (int32_t s = 0; s < meta.numSequences; ++s)
      enter(meta, miniBatch, s, inUse);
    checkWritten(meta, inUse);
    stamp_ += static_cast<uint64_t>(meta.numSequences);
  }

  // Whether a block is one of those that the launch may use. Activation blocks are numbered behind the others.
  bool mayUse(int64_t block, const InUse &inUse) const {
    return block < kvBlocks_ ? block >= 1 && block < inUse.kvBlocks : block - kvBlocks_ < inUse.actBlocks;
  }

  const int32_t *tableOf(const kernels::IterationMeta &meta, int32_t s) const {
    return meta.array<int32_t>(meta.blockTable) + int64_t{s} * meta.tableStride;
  }
  void enter(const kernels::IterationMeta &meta, uint32_t miniBatch, int32_t s, const InUse &inUse) {
    Cell *const cells = cells_.data() + miniBatch * cellsOfOne_;
    uint64_t *const users = users_.data() + miniBatch * usersOfOne_;
    const int32_t *queryStart = meta.array<int32_t>(meta.queryStart);
    const int64_t context = meta.array<int32_t>(meta.contextLength)[s];
    const int64_t first = context - (queryStart[s + 1] - queryStart[s]);
    const int32_t *table = tableOf(meta, s);
    const uint64_t user = stamp_ + static_cast<uint64_t>(s) + 1;
    for (int64_t b = 0; b * blockTokens_ < context; ++b) {
      if (!mayUse(table[b], inUse))
        return wrong(
            absl::StrCat("block ", table[b], " of ", inUse.kvBlocks, ", behind ", kvBlocks_, " of ", inUse.actBlocks));
      uint64_t &lastUser = users[table[b]];
      if (lastUser > stamp_ && lastUser != user)
        return wrong(absl::StrCat("block ", table[b], " has two owners in one iteration"));
      lastUser = user;
    }
    const auto slot = [&](int64_t p) { return table[p / blockTokens_] * blockTokens_ + p % blockTokens_; };
    const uint64_t writer = first == 0 ? ++writers_ : cells[slot(0)].writer;
    for (int64_t p = 0; p < context; ++p, ++rowsChecked_) {
      Cell &cell = cells[slot(p)];
      if (p >= first) {
        const int64_t row = queryStart[s] + p - first;
        if (meta.array<int32_t>(meta.kvSlot)[row] != slot(p) || meta.array<int32_t>(meta.positions)[row] != p)
          return wrong(absl::StrCat("row ", row, " is not written at position ", p));
        cell = {writer, p};
      } else if (cell.writer != writer || cell.position != p) {
        return wrong(absl::StrCat("position ", p, " of ", context, " in block ", table[p / blockTokens_],
                                  " is another's, or lost"));
      }
    }
  }

  void checkWritten(const kernels::IterationMeta &meta, const InUse &inUse) {
    std::set<int64_t> blocks;
    for (int32_t row = 0; row < meta.numTokens; ++row)
      blocks.insert(meta.array<int32_t>(meta.kvSlot)[row] / blockTokens_);
    blocks.erase(0);
    blocks.erase(blocks.lower_bound(kvBlocks_), blocks.end());                      // of KV blocks
    const bool none = blocks.empty(), all = inUse.writtenEnd == InUse{}.writtenEnd; // it is not told
    if (none ? !all && inUse.writtenBegin < inUse.writtenEnd
             : inUse.writtenBegin > *blocks.begin() || inUse.writtenEnd <= *blocks.rbegin() ||
                   (!all && (inUse.writtenBegin != *blocks.begin() || inUse.writtenEnd != *blocks.rbegin() + 1)))
      wrong(absl::StrCat("told that blocks [", inUse.writtenBegin, ", ", inUse.writtenEnd, ") are written"));
  }

  void wrong(const std::string &what) {
    if (found_.empty())
      found_ = what;
  }

  const std::shared_ptr<Device> on_;
  std::set<const Graph *> transitions_;
  int64_t blockTokens_ = 1;
  kernels::MetaLayout layout_;
  uint32_t miniBatches_ = 1;
  size_t cellsOfOne_ = 0, usersOfOne_ = 0; // of a mini-batch
  int64_t kvBlocks_ = 0;
  std::vector<Cell> cells_;     // mini-batch by mini-batch: block * blockTokens + row, as their ids lie
  std::vector<Cell> away_;      // in swap memory, where their ids are
  std::vector<Cell> read_;      // last, by readDevice()
  uint64_t ids_ = 0;            // of row 0, on the device
  std::vector<uint64_t> users_; // of each mini-batch's block, the last
  uint64_t writers_ = 0, stamp_ = 0, rowsChecked_ = 0, withEmpty_ = 0, uneven_ = 0;
  std::string found_;
};

} // namespace headrace::core
