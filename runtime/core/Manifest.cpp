// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_format.h"
#include "runtime/core/Runtime.h"

namespace headrace::core {

std::string Manifest::toString() const {
  std::string out = absl::StrFormat("%-14s %18s %18s\n", "weights by home", "planned bytes", "loaded bytes");
  const auto row = [&](const char *home, uint64_t plannedBytes, uint64_t loadedBytes) {
    absl::StrAppendFormat(&out, "  %-13s %18d %18d\n", home, plannedBytes, loadedBytes);
  };
  row("device", planned.device, loaded.device);
  row("host", planned.host, loaded.host);
  if (kv.host > 0)
    absl::StrAppendFormat(&out, "KV by home\n  %-13s %18d\n  %-13s %18d\n", "device", kv.device, "host", kv.host);
  absl::StrAppendFormat(&out, "device arena %d bytes, host slab %d bytes\n", deviceArenaBytes, hostSlabBytes);
  return out;
}

} // namespace headrace::core
