// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ChatLines.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::tools {
namespace {

using model::cat;

// What Linux's terminals keep of a line that is being typed (N_TTY_BUF_SIZE, less the newline); the rest is lost.
constexpr size_t kTerminalLine = 4095;

volatile std::sig_atomic_t interrupted = 0;

void interrupt(int) { interrupted = 1; }

} // namespace

// Without SA_RESTART: a read that waits for a line ends, too.
void catchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = interrupt;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

bool wasInterrupted() { return interrupted != 0; }
void lookAway() { interrupted = 0; }

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
    char bytes[4096];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
      return Got::Interrupt;
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
