// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Xxh64.h"

#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

// The reference implementation's sanity buffer: bytes of a generator that starts at 2654435761.
std::string sanityBytes(size_t count) {
  std::string bytes;
  for (uint64_t generator = 2654435761u; bytes.size() < count; generator *= 11400714785074694797u)
    bytes += static_cast<char>(generator >> 56);
  return bytes;
}

// Known answers of the reference implementation (xxHash 0.8, cli/xsum_sanity_check.c).
TEST(Xxh64, IsTheReferences) {
  constexpr uint64_t kSeed = 0x9E3779B1u;
  const struct {
    size_t bytes;
    uint64_t seed, hash;
  } cases[] = {
      {0, 0, 0xEF46DB3751D8E999u},      {0, kSeed, 0xAC75FDA2929B17EFu}, {1, 0, 0xE934A84ADB052768u},
      {1, kSeed, 0x5014607643A9B4C3u},  {4, 0, 0x9136A0DCA57457EEu},     {14, 0, 0x8282DCC4994E35C8u},
      {14, kSeed, 0xC3BD6BF63DEB6DF0u}, {222, 0, 0xB641AE8CB691C174u},   {222, kSeed, 0x20CB8AB7AE10C14Au},
  };
  for (const auto &c : cases)
    EXPECT_EQ(xxh64(asBytes(sanityBytes(c.bytes)), c.seed), c.hash) << c.bytes << " bytes, seed " << c.seed;
  EXPECT_EQ(xxh64(asBytes("abc"), 0), 0x44BC2CF5AD770999u);
}

// However the bytes come.
TEST(Xxh64, OfPiecesIsThatOfTheWhole) {
  const std::string bytes = sanityBytes(222);
  for (size_t first = 0; first <= bytes.size(); ++first)
    for (size_t second : {size_t{0}, size_t{1}, size_t{31}, size_t{32}, size_t{33}}) {
      Xxh64 hash(7);
      const absl::Span<const std::byte> rest = asBytes(bytes).subspan(first);
      hash.add(asBytes(bytes).first(first));
      hash.add(rest.first(std::min(second, rest.size())));
      hash.add(rest.subspan(std::min(second, rest.size())));
      EXPECT_EQ(hash.value(), xxh64(asBytes(bytes), 7)) << first << " and " << second;
    }
}

// Each byte counts, in every length around the blocks of 4, 8 and 32.
TEST(Xxh64, ChangesWithEveryByte) {
  for (size_t length = 1; length < 80; ++length) {
    std::string bytes = sanityBytes(length);
    const uint64_t hash = xxh64(asBytes(bytes), 0);
    for (size_t i = 0; i < length; ++i) {
      bytes[i] ^= 1;
      EXPECT_NE(xxh64(asBytes(bytes), 0), hash) << i << " of " << length;
      bytes[i] ^= 1;
    }
  }
}

} // namespace
} // namespace headrace::model
