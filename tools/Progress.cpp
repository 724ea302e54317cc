// SPDX-License-Identifier: Apache-2.0
#include "tools/Progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <unistd.h>

#include "absl/strings/str_format.h"
#include "tools/Format.h"

namespace headrace::tools {

std::string progressLine(const std::string &label, Amount amount, uint64_t done, uint64_t total,
                         double elapsedSeconds) {
  constexpr int kWidth = 24;
  const double share = total == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto filled = static_cast<size_t>(std::lround(share * kWidth));
  std::string line = absl::StrFormat("%s  [%s%s] %3.0f%%  ", label, std::string(filled, '#'),
                                     std::string(kWidth - filled, '.'), std::floor(share * 100));
  line += amount == Amount::Bytes ? absl::StrFormat("%s of %s", formatBytes(done), formatBytes(total))
                                  : absl::StrFormat("%d of %d", done, total);
  if (done > 0 && done < total) {
    const double left = elapsedSeconds * static_cast<double>(total - done) / static_cast<double>(done);
    line += left < 90 ? absl::StrFormat(", %.0f s left", std::ceil(left))
                      : absl::StrFormat(", %.0f min left", std::ceil(left / 60));
  }
  return line;
}

Progress::Progress(std::string label, Amount amount)
    : label_(std::move(label)), amount_(amount), terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()), last_(start_) {}

Progress::~Progress() {
  if (drawn_)
    std::fputs("\r\x1b[K", stderr);
}

void Progress::update(uint64_t done, uint64_t total) {
  if (!terminal_)
    return;
  const auto now = std::chrono::steady_clock::now();
  if (done < total && now - last_ < std::chrono::milliseconds(100))
    return;
  last_ = now;
  drawn_ = true;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  std::fputs(("\r" + progressLine(label_, amount_, done, total, elapsed) + "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
}

} // namespace headrace::tools
