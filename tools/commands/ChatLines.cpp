// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ChatLines.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::tools {
namespace {

using model::cat;

// What Linux's terminals keep of a line that is being typed (N_TTY_BUF_SIZE, less the newline); the rest is lost.
constexpr size_t kTerminalLine = 4095;

volatile std::sig_atomic_t interrupted = 0;
// Whoever waits for a line waits for this pipe as well: an interrupt that comes just before it waits, or on another
// thread, would else be seen with the next line only.
std::array<int, 2> bell = {-1, -1};

void interrupt(int) {
  const int before = errno;
  interrupted = 1;
  const char one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(bell[1], &one, 1); // full: it has been rung for long
  errno = before;
}

} // namespace

void catchInterrupts() {
  if (std::array<int, 2> ends; bell[0] < 0 && ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0)
    for (size_t i = 0; i < ends.size(); ++i) { // not where standard input is, or would be
      bell[i] = ::fcntl(ends[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      ::close(ends[i]);
    }
  struct sigaction action = {};
  action.sa_handler = interrupt;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

bool wasInterrupted() { return interrupted != 0; }
void lookAway() {
  interrupted = 0;
  for (char bytes[64]; ::read(bell[0], bytes, sizeof bytes) > 0;) {
  }
}

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
    std::array<pollfd, 2> waited = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{bell[0], POLLIN, 0}};
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
