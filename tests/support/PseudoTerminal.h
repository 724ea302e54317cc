// SPDX-License-Identifier: Apache-2.0
//
// The headrace binary with a person before it: a terminal is its standard input, output and error, and what is typed
// there comes to it as a terminal has it, signals included. It echoes what is typed.
//
//   PseudoTerminal terminal({"chat", model});
//   terminal.waitFor("\n> ");
//   terminal.type("Hello\n");
//   terminal.type("\x03");               Ctrl-C
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace headrace::tools {

class PseudoTerminal {
public:
  explicit PseudoTerminal(const std::vector<std::string> &arguments);
  ~PseudoTerminal(); // ends it where it has not ended

  void type(const std::string &keys);
  // Reads until what was shown since the last wait ends with `end`, or `enough` says yes of it; gives that, with lines
  // that end in \n. A test failure, and what there is, where nothing comes for a minute or all is over.
  std::string waitFor(const std::string &end);
  std::string waitUntil(const std::function<bool(const std::string &)> &enough);
  int status(); // waits for its exit status; 128 + the signal's number if one ended it

private:
  pid_t child_ = -1;
  int terminal_ = -1;
};

} // namespace headrace::tools
