// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Xxh64.h"

#include <algorithm>
#include <bit>

namespace headrace::model {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u, kPrime2 = 0xC2B2AE3D27D4EB4Fu, kPrime3 = 0x165667B19E3779F9u,
                   kPrime4 = 0x85EBCA77C2B2AE63u, kPrime5 = 0x27D4EB2F165667C5u;

// Little endian, on every machine.
template <int kBytes> uint64_t read(const std::byte *p) {
  uint64_t value = 0;
  for (int i = 0; i < kBytes; ++i)
    value |= static_cast<uint64_t>(p[i]) << (8 * i);
  return value;
}

uint64_t round(uint64_t lane, uint64_t input) { return std::rotl(lane + input * kPrime2, 31) * kPrime1; }
uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ round(0, lane)) * kPrime1 + kPrime4; }

} // namespace

Xxh64::Xxh64(uint64_t seed)
    : seed_(seed), lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1}, rest_{} {}

void Xxh64::add(absl::Span<const std::byte> bytes) {
  const auto block = [&](const std::byte *p) {
    for (size_t i = 0; i < lanes_.size(); ++i)
      lanes_[i] = round(lanes_[i], read<8>(p + 8 * i));
  };
  const size_t kept = total_ % rest_.size();
  total_ += bytes.size();
  if (kept > 0) {
    const size_t more = std::min(rest_.size() - kept, bytes.size());
    std::copy_n(bytes.begin(), more, rest_.begin() + static_cast<ptrdiff_t>(kept));
    bytes.remove_prefix(more);
    if (kept + more < rest_.size())
      return;
    block(rest_.data());
  }
  for (; bytes.size() >= rest_.size(); bytes.remove_prefix(rest_.size()))
    block(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

uint64_t Xxh64::value() const {
  uint64_t hash = seed_ + kPrime5;
  if (total_ >= rest_.size()) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_)
      hash = merge(hash, lane);
  }
  hash += total_;
  const std::byte *p = rest_.data(), *const end = p + total_ % rest_.size();
  for (; end - p >= 8; p += 8)
    hash = std::rotl(hash ^ round(0, read<8>(p)), 27) * kPrime1 + kPrime4;
  if (end - p >= 4) {
    hash = std::rotl(hash ^ read<4>(p) * kPrime1, 23) * kPrime2 + kPrime3;
    p += 4;
  }
  for (; p < end; ++p)
    hash = std::rotl(hash ^ read<1>(p) * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

uint64_t xxh64(absl::Span<const std::byte> bytes, uint64_t seed) {
  Xxh64 hash(seed);
  hash.add(bytes);
  return hash.value();
}

} // namespace headrace::model
