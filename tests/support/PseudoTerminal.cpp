// SPDX-License-Identifier: Apache-2.0
#include "tests/support/PseudoTerminal.h"

#include <csignal>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace headrace::tools {

PseudoTerminal::PseudoTerminal(const std::vector<std::string> &arguments) {
  std::vector<std::string> words = {HEADRACE_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char *> argv;
  for (std::string &word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  child_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
  if (child_ == 0) {
    ::execv(argv.front(), argv.data());
    ::_exit(127);
  }
  EXPECT_GT(child_, 0);
}

PseudoTerminal::~PseudoTerminal() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  ::close(terminal_);
}

void PseudoTerminal::type(const std::string &keys) {
  EXPECT_EQ(::write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

std::string PseudoTerminal::waitFor(const std::string &end) {
  return waitUntil([&](const std::string &shown) { return shown.ends_with(end); });
}

std::string PseudoTerminal::waitUntil(const std::function<bool(const std::string &)> &enough) {
  std::string shown;
  while (!enough(shown)) {
    pollfd waiting{terminal_, POLLIN, 0};
    char byte = 0; // one by one: what is behind the end is the next wait's
    if (::poll(&waiting, 1, 60'000) != 1 || ::read(terminal_, &byte, 1) != 1) {
      ADD_FAILURE() << "nothing more came behind:\n" << shown;
      return shown;
    }
    if (byte == '\n' && shown.ends_with('\r')) // as a terminal shows a line's end
      shown.pop_back();
    shown.push_back(byte);
  }
  return shown;
}

int PseudoTerminal::status() {
  int status = 0;
  const pid_t ended = ::waitpid(child_, &status, 0);
  EXPECT_EQ(ended, child_);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace headrace::tools
