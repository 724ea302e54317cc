// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/PackMiniBatches.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::cost {
namespace {

constexpr int64_t kMostRequestBlocks = int64_t{1} << 26;
constexpr size_t kMostRequests = size_t{1} << 16;

// A mini-batch being formed.
struct Bin {
  std::vector<size_t> requests;
  HybridBlocks blocks;

  void add(size_t request, const HybridBlocks &its) {
    requests.push_back(request);
    blocks += its;
  }
};

HybridBlocks sum(HybridBlocks a, const HybridBlocks &b) { return a += b; }

absl::Status tooLarge(size_t request, int64_t count, int64_t bytes, std::string_view what, int64_t slots) {
  int64_t all = 0;
  const bool counted = bytes > 0 && !__builtin_mul_overflow(count, bytes, &all);
  const std::string size = counted ? model::cat(" of ", bytes, " bytes, ", all, " in all") : "";
  return absl::ResourceExhaustedError(model::cat("request ", request, ": ", count, " ", what, size,
                                                 ": expected at most the ", slots, " that a mini-batch has room for"));
}

absl::Status checkRequests(const HybridTimes &times, absl::Span<const HybridBlocks> requests,
                           const MiniBatchSlots &slots) {
  RETURN_IF_ERROR(checkTimes(times));
  if (slots.kv < 0 || slots.act < 0 || slots.generated < 0)
    return absl::InvalidArgumentError(model::cat("slots of ", slots.kv, " KV, ", slots.act, " ACT and ",
                                                 slots.generated, " generated blocks: expected at least 0"));
  if (requests.size() > kMostRequests)
    return absl::InvalidArgumentError(model::cat(requests.size(), " requests: expected at most ", kMostRequests));
  for (size_t r = 0; r < requests.size(); ++r) {
    const HybridBlocks &b = requests[r];
    for (int64_t count : {b.kvHost, b.actHost, b.actDevice, b.kvDevice}) {
      if (count < 0 || count > kMostRequestBlocks)
        return absl::InvalidArgumentError(
            model::cat("request ", r, ": ", count, " blocks: expected 0 to ", kMostRequestBlocks));
    }
    if (b.kvHost > slots.kv)
      return tooLarge(r, b.kvHost, slots.block.kv, "KV blocks in host memory", slots.kv);
    if (b.actHost > slots.act)
      return tooLarge(r, b.actHost, slots.block.act, "ACT blocks in host memory", slots.act);
    if (b.act() > slots.generated)
      return tooLarge(r, b.act(), slots.block.kv, "KV blocks computed from ACT blocks", slots.generated);
  }
  return absl::OkStatus();
}

// First-fit decreasing by the largest part of any slot that a request takes.
std::vector<Bin> firstFit(absl::Span<const HybridBlocks> requests, const MiniBatchSlots &slots) {
  const auto part = [](int64_t count, int64_t of) {
    return of > 0 ? static_cast<double>(count) / static_cast<double>(of) : 0; // 0 of 0
  };
  std::vector<double> size;
  for (const HybridBlocks &b : requests)
    size.push_back(std::max({part(b.kvHost, slots.kv), part(b.actHost, slots.act), part(b.act(), slots.generated)}));
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return size[a] > size[b]; });
  std::vector<Bin> bins;
  for (size_t r : order) {
    auto bin =
        std::find_if(bins.begin(), bins.end(), [&](const Bin &b) { return slots.hold(sum(b.blocks, requests[r])); });
    if (bin == bins.end())
      bin = bins.insert(bin, Bin{});
    bin->add(r, requests[r]);
  }
  return bins;
}

Packing packed(const HybridTimes &times, std::vector<Bin> bins) {
  Packing packing;
  const HybridTimes one = oneMiniBatch(times, std::max<int64_t>(1, static_cast<int64_t>(bins.size())));
  for (Bin &bin : bins) {
    std::sort(bin.requests.begin(), bin.requests.end());
    packing.layerNs += correctedLanes(one, bin.blocks).layerNs();
    packing.miniBatches.push_back(std::move(bin.requests));
  }
  std::sort(packing.miniBatches.begin(), packing.miniBatches.end()); // no two have the same first request
  return packing;
}

class Balancer {
public:
  Balancer(const HybridTimes &shared, absl::Span<const HybridBlocks> requests, const MiniBatchSlots &slots)
      : times(shared), requests(requests), slots(slots) {}

  // Step 1.
  std::vector<Bin> form() const {
    std::vector<Bin> bins;
    std::vector<size_t> left(requests.size());
    std::iota(left.begin(), left.end(), size_t{0});
    while (!left.empty()) {
      Bin bin;
      for (auto next = left.begin(); next != left.end(); next = joins(bin, left)) {
        bin.add(*next, requests[*next]);
        left.erase(next);
      }
      bins.push_back(std::move(bin));
    }
    return bins;
  }

  // Step 2.
  void merge(std::vector<Bin> &bins) const {
    for (bool fewer = true; fewer;) {
      fewer = false;
      std::stable_sort(bins.begin(), bins.end(),
                       [](const Bin &a, const Bin &b) { return a.requests.size() < b.requests.size(); });
      for (size_t b = 0; b < bins.size() && !fewer; ++b) {
        if (Bin *into = lowest(bins, bins[b].blocks, b)) {
          for (size_t r : bins[b].requests)
            into->add(r, requests[r]);
          bins.erase(bins.begin() + static_cast<std::ptrdiff_t>(b));
          fewer = true;
        }
      }
    }
  }

private:
  double imbalanceOf(const HybridBlocks &blocks) const { return imbalance(correctedBalance(times, blocks)); }

  std::vector<size_t>::iterator joins(const Bin &bin, std::vector<size_t> &left) const {
    auto best = left.end();
    double most = imbalanceOf(bin.blocks) * kJoinRise;
    for (auto r = left.begin(); r != left.end(); ++r) {
      const HybridBlocks both = sum(bin.blocks, requests[*r]);
      if (!slots.hold(both))
        continue;
      const double with = imbalanceOf(both);
      if (with < most || (best == left.end() && with == most)) {
        best = r;
        most = with;
      }
    }
    return best;
  }

  // The bin, but for `except`, that holds these too with the lowest F_b; null where none does.
  Bin *lowest(std::vector<Bin> &bins, const HybridBlocks &blocks, size_t except) const {
    Bin *best = nullptr;
    double least = 0;
    for (size_t b = 0; b < bins.size(); ++b) {
      const HybridBlocks both = sum(bins[b].blocks, blocks);
      if (b == except || !slots.hold(both))
        continue;
      const double with = imbalanceOf(both);
      if (best == nullptr || with < least) {
        best = &bins[b];
        least = with;
      }
    }
    return best;
  }

  const HybridTimes times; // of one mini-batch
  absl::Span<const HybridBlocks> requests;
  const MiniBatchSlots &slots;
};

} // namespace

absl::StatusOr<Packing> packPrinted(const HybridTimes &times, absl::Span<const HybridBlocks> requests,
                                    const MiniBatchSlots &slots) {
  RETURN_IF_ERROR(checkRequests(times, requests, slots));
  const auto imbalanceOf = [&](const HybridBlocks &blocks) { return imbalance(printedBalance(times, blocks)); };
  std::vector<Bin> bins;
  std::vector<size_t> left(requests.size());
  std::iota(left.begin(), left.end(), size_t{0});
  while (!left.empty()) {
    Bin bin;
    bin.add(left.front(), requests[left.front()]);
    left.erase(left.begin());
    for (bool joined = true; joined;) {
      joined = false;
      for (auto r = left.begin(); r != left.end();) {
        const HybridBlocks both = sum(bin.blocks, requests[*r]);
        if (slots.hold(both) && imbalanceOf(both) < imbalanceOf(bin.blocks) * (1 - 1e-9)) {
          bin.add(*r, requests[*r]);
          r = left.erase(r);
          joined = true;
        } else {
          ++r;
        }
      }
    }
    bins.push_back(std::move(bin));
  }
  return packed(times, std::move(bins));
}

absl::StatusOr<Packing> packMiniBatches(const HybridTimes &times, absl::Span<const HybridBlocks> requests,
                                        const MiniBatchSlots &slots) {
  RETURN_IF_ERROR(checkRequests(times, requests, slots));
  std::vector<Bin> decreasing = firstFit(requests, slots);
  const int64_t share = std::max<int64_t>(1, static_cast<int64_t>(decreasing.size()));
  const Balancer balancer(oneMiniBatch(times, share), requests, slots);
  std::vector<Bin> bins = balancer.form();
  balancer.merge(bins);
  Packing balanced = packed(times, std::move(bins)), fewest = packed(times, std::move(decreasing));
  const size_t count = balanced.miniBatches.size(), least = fewest.miniBatches.size();
  return least < count || (least == count && fewest.layerNs < balanced.layerNs) ? fewest : balanced;
}

} // namespace headrace::cost
