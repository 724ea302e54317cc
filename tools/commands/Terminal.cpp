// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Terminal.h"

#include <algorithm>
#include <cstdio>
#include <string>

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
  std::fputs(wrapLines(report, json ? 0 : static_cast<size_t>(terminalWidth())).c_str(), stdout);
}

} // namespace headrace::tools
