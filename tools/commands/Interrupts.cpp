// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Interrupts.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include <fcntl.h>
#include <unistd.h>

namespace headrace::tools {
namespace {

volatile std::sig_atomic_t interrupted = 0;
// Whoever waits for a line waits for this pipe as well: an interrupt that comes just before it waits, or on another
// thread, would else be seen with the next line only.
std::array<int, 2> bell = {-1, -1};
struct sigaction before = {}; // what an interrupt did until it was caught

void interrupt(int) {
  const int had = errno;
  interrupted = 1;
  const char one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(bell[1], &one, 1); // full: it has been rung for long
  errno = had;
}

} // namespace

void catchInterrupts(bool ends) {
  if (std::array<int, 2> made; bell[0] < 0 && ::pipe2(made.data(), O_CLOEXEC | O_NONBLOCK) == 0)
    for (size_t i = 0; i < made.size(); ++i) { // not where standard input is, or would be
      bell[i] = ::fcntl(made[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      ::close(made[i]);
    }
  struct sigaction action = {};
  if (::sigaction(SIGINT, nullptr, &before) != 0 || (ends && before.sa_handler == SIG_IGN))
    return;
  action.sa_handler = interrupt;
  action.sa_flags = ends ? static_cast<int>(SA_RESETHAND) : 0;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

void letInterruptsBe() { ::sigaction(SIGINT, &before, nullptr); }

bool wasInterrupted() { return interrupted != 0; }

void lookAway() {
  interrupted = 0;
  for (char bytes[64]; ::read(bell[0], bytes, sizeof bytes) > 0;) {
  }
}

int interruptBell() { return bell[0]; }

void endByInterrupt() {
  std::fflush(stdout);
  ::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);
}

} // namespace headrace::tools
