// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Terminal.h"

#include <algorithm>

#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/report/Format.h"

namespace headrace::tools {

int terminalWidth() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::max<int>(size.ws_col, 60);
  return 0;
}

void show(std::string_view report, bool json) {
  print(wrapLines(report, json ? 0 : static_cast<size_t>(terminalWidth())));
}

void print(std::string_view text, std::FILE *to) { std::fwrite(text.data(), 1, text.size(), to); }

void say(std::string_view note) {
  print((::isatty(STDERR_FILENO) == 1 ? "\r\x1b[Kheadrace: " : "headrace: ") + oneLine(note) + "\n", stderr);
}

void say(absl::Span<const std::string> notes) {
  for (const std::string &note : notes)
    say(note);
}

} // namespace headrace::tools
