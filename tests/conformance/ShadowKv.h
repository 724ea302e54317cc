// SPDX-License-Identifier: Apache-2.0
//
// A device that keeps a book of its own of who has written each row of the KV cache, from the iteration buffer alone:
// it knows nothing of whoever fills that. A sequence that begins at position 0 is a new writer; a later row continues
// the writer of the rows before it, and each of those must still be where the block table says. So a block with two
// owners, a row that was lost and a table in the wrong order are found at the next launch that reads them. So is a
// launch that is not told, or not exactly, which blocks its rows are written to.
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

  std::string_view kind() const override { return on_->kind(); }
  kernels::Order matrixOrder() const override { return on_->matrixOrder(); }
  bool holdsData() const override { return on_->holdsData(); }
  absl::Status open(const plan::Plan &plan, const DeviceOptions &options) override {
    blockTokens_ = plan.blockTokens;
    cells_.assign(static_cast<size_t>(plan.kvBlocks * plan.blockTokens), {});
    users_.assign(static_cast<size_t>(plan.kvBlocks), 0);
    for (const plan::Extent &extent : plan.placements[0].extents) // as in all placements
      if (extent.buffer == plan.ioBuffer(plan::Io::History))
        ids_ = extent.address;
    return on_->open(plan, options);
  }
  absl::Span<std::byte> hostSlab() override { return on_->hostSlab(); }
  absl::Status writeDevice(uint64_t address, absl::Span<const std::byte> bytes) override {
    return on_->writeDevice(address, bytes);
  }
  absl::Status readDevice(uint64_t address, absl::Span<std::byte> bytes) override {
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
      enter(*on_->meta(), inUse.of(0));
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

  void enter(const kernels::IterationMeta &meta, const InUse &inUse) {
    for (int32_t s = 0; s < meta.numSequences; ++s)
      enter(meta, s, inUse.kvBlocks);
    checkWritten(meta, inUse);
    stamp_ += static_cast<uint64_t>(meta.numSequences);
  }

  void enter(const kernels::IterationMeta &meta, int32_t s, int64_t blocks) {
    const int32_t *queryStart = meta.array<int32_t>(meta.queryStart);
    const int64_t context = meta.array<int32_t>(meta.contextLength)[s];
    const int64_t first = context - (queryStart[s + 1] - queryStart[s]);
    const int32_t *table = meta.array<int32_t>(meta.blockTable) + int64_t{s} * meta.maxBlocksPerSequence;
    const uint64_t user = stamp_ + static_cast<uint64_t>(s) + 1;
    for (int64_t b = 0; b * blockTokens_ < context; ++b) {
      if (table[b] < 1 || table[b] >= blocks)
        return wrong(absl::StrCat("block ", table[b], " of ", blocks));
      uint64_t &lastUser = users_[static_cast<size_t>(table[b])];
      if (lastUser > stamp_)
        return wrong(absl::StrCat("block ", table[b], " has two owners in one iteration"));
      lastUser = user;
    }
    const auto slot = [&](int64_t p) { return table[p / blockTokens_] * blockTokens_ + p % blockTokens_; };
    const uint64_t writer = first == 0 ? ++writers_ : cells_[static_cast<size_t>(slot(0))].writer;
    for (int64_t p = 0; p < context; ++p, ++rowsChecked_) {
      Cell &cell = cells_[static_cast<size_t>(slot(p))];
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
  std::vector<Cell> cells_;     // block * blockTokens + row
  std::vector<Cell> away_;      // in swap memory, where their ids are
  uint64_t ids_ = 0;            // of row 0, on the device
  std::vector<uint64_t> users_; // of each block, the last
  uint64_t writers_ = 0, stamp_ = 0, rowsChecked_ = 0;
  std::string found_;
};

} // namespace headrace::core
