// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ChatLines.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "tools/commands/Interrupts.h"

namespace headrace::tools {
namespace {

using model::cat;

// What Linux's terminals keep of a line that is being typed (N_TTY_BUF_SIZE, less the newline); the rest is lost.
constexpr size_t kTerminalLine = 4095;

} // namespace

absl::StatusOr<Got> ChatLines::nextOne(std::string &line) {
  for (;;) {
    if (const size_t end = rest_.find('\n'); end != std::string::npos) {
      line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      if (person_ && line.size() >= kTerminalLine)
        return absl::InvalidArgumentError(cat("a line of ", kTerminalLine,
                                              " bytes or more: the terminal cuts it "
                                              "there: expected a shorter one, or several, each but the last with \\ at "
                                              "its end"));
      return Got::Line;
    }
    std::array<pollfd, 2> waited = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{interruptBell(), POLLIN, 0}};
    while (::poll(waited.data(), waited.size(), -1) < 0 && errno == EINTR) {
    }
    if (wasInterrupted())
      return Got::Interrupt;
    char bytes[4096];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return absl::InvalidArgumentError(cat("standard input: cannot read: ", std::strerror(errno)));
    if (n == 0) {
      line = std::exchange(rest_, "");
      return line.empty() ? Got::End : Got::Line;
    }
    rest_.append(bytes, static_cast<size_t>(n));
  }
}

absl::StatusOr<Got> ChatLines::next(std::string &line) {
  std::string whole;
  for (;;) {
    if (person_)
      std::fputs(whole.empty() ? "> " : ". ", stderr);
    ASSIGN_OR_RETURN(got, nextOne(line));
    if (got != Got::Line)
      return got;
    whole += line;
    if (!person_ || !whole.ends_with('\\')) {
      line = std::move(whole);
      return got;
    }
    whole.back() = '\n';
  }
}

} // namespace headrace::tools
