// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/FaultIn.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace headrace::cuda {
namespace {

uint64_t pageBytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

} // namespace

int populate(std::byte *data, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(data, bytes, MADV_POPULATE_WRITE) == 0)
    return 0;
  if (errno != EINVAL) // a kernel before 5.14 does not know it
    return errno;
#endif
  for (uint64_t at = 0; at < bytes; at += pageBytes())
    *reinterpret_cast<volatile char *>(data + at) = 0;
  return 0;
}

absl::Status faultIn(std::byte *data, uint64_t bytes, uint64_t chunkBytes, int threads,
                     const std::function<void(uint64_t, uint64_t)> &progress,
                     absl::FunctionRef<int(std::byte *, uint64_t)> populate) {
  std::atomic<uint64_t> next{0}, done{0};
  std::atomic<int> error{0};
  const auto work = [&](bool tells) {
    for (uint64_t begin; error == 0 && (begin = next.fetch_add(chunkBytes)) < bytes;) {
      const uint64_t chunk = std::min(chunkBytes, bytes - begin);
      if (const int failed = populate(data + begin, chunk); failed != 0)
        error = failed;
      else
        done += chunk;
      if (tells && progress)
        progress(done, bytes);
    }
  };
  const auto chunks = static_cast<int64_t>((bytes + chunkBytes - 1) / chunkBytes);
  std::vector<std::thread> others;
  for (int64_t i = 1; i < std::min<int64_t>(threads, chunks); ++i)
    others.emplace_back(work, false);
  work(true);
  for (std::thread &other : others)
    other.join();
  if (progress)
    progress(bytes, bytes);
  if (error != 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("after ", done.load(), " of ", bytes, " bytes: ", std::strerror(error)));
  return absl::OkStatus();
}

std::optional<uint64_t> bytesElsewhere(std::byte *data, uint64_t bytes, int numaNode) {
  constexpr uint64_t kMost = 4096;
  const uint64_t pages = (bytes + pageBytes() - 1) / pageBytes(), looked = std::min(pages, kMost);
  if (looked == 0)
    return 0;
  std::vector<void *> addresses;
  for (uint64_t i = 0; i < looked; ++i)
    addresses.push_back(data + i * pages / looked * pageBytes());
  std::vector<int> nodes(looked, -1);
  if (::syscall(SYS_move_pages, 0, looked, addresses.data(), nullptr, nodes.data(), 0) != 0)
    return std::nullopt;
  uint64_t elsewhere = 0;
  for (int node : nodes)
    elsewhere += node >= 0 && node != numaNode ? 1 : 0;
  // Of many bytes in 128 bits: their product with a count of pages may pass 64.
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bytes) * elsewhere / looked);
}

std::string elsewhereNotice(uint64_t elsewhere, uint64_t bytes, int numaNode) {
  if (elsewhere == 0)
    return "";
  return absl::StrCat(
      "host slab: about ", elsewhere, " of ", bytes, " bytes are not on NUMA node ", numaNode,
      ", which is the GPU's: copies of them take a longer way. Free memory of that node (`numastat -m`) "
      "and start again, or keep less in host memory");
}

} // namespace headrace::cuda
