// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Interrupts.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace headrace::tools {
namespace {

volatile std::sig_atomic_t interrupted = 0;
// Whoever waits for a line waits for this pipe as well: an interrupt that comes just before it waits, or on another
// thread, would else be seen with the next line only.
std::array<int, 2> bell = {-1, -1};
struct sigaction before = {};                                         // what an interrupt did until it was caught
const char *volatile atFirst = nullptr, *volatile atSecond = nullptr; // written where it comes, once each

void tellOnce(const char *volatile &notice) {
  const char *text = notice;
  notice = nullptr;
  if (text != nullptr) [[maybe_unused]]
    const ssize_t wrote = ::write(STDERR_FILENO, text, std::strlen(text));
}

void interrupt(int) {
  const int had = errno;
  tellOnce(atFirst);
  if (interrupted != 0 && atSecond != nullptr) {
    tellOnce(atSecond);
    ::signal(SIGINT, SIG_DFL);
  }
  interrupted = 1;
  const char one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(bell[1], &one, 1); // full: it has been rung for long
  errno = had;
}

void handle(int flags) {
  struct sigaction action = {};
  action.sa_handler = interrupt;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

} // namespace

void catchInterrupts(const char *notice) {
  if (std::array<int, 2> made; bell[0] < 0 && ::pipe2(made.data(), O_CLOEXEC | O_NONBLOCK) == 0)
    for (size_t i = 0; i < made.size(); ++i) { // not where standard input is, or would be
      bell[i] = ::fcntl(made[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      ::close(made[i]);
    }
  if (::sigaction(SIGINT, nullptr, &before) != 0 || (notice != nullptr && before.sa_handler == SIG_IGN))
    return;
  atFirst = notice;
  handle(notice != nullptr ? static_cast<int>(SA_RESETHAND) : 0);
}

void letInterruptsBe() { ::sigaction(SIGINT, &before, nullptr); }

void whileBusy(const char *notice) {
  atSecond = notice;
  if (notice == nullptr)
    handle(0); // where a second one came, and the end before a third
}

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
