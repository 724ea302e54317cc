// SPDX-License-Identifier: Apache-2.0
//
// The headrace binary as a user meets it: arguments in; exit status, standard output and standard error out.
#pragma once

#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace headrace::tools {

struct Outcome {
  int status = -1; // exit status; 128 + the signal's number if one ended it
  std::string out, err;
};
Outcome headrace(const std::vector<std::string> &arguments);
// The same with a terminal of 120 columns as standard error.
Outcome headraceOnTerminal(const std::vector<std::string> &arguments);
// The same, ended by a signal as soon as `when` says so; asked every millisecond.
Outcome headraceKilled(const std::vector<std::string> &arguments, const std::function<bool()> &when,
                       int signal = SIGKILL);
// /bin/sh -c, with $HEADRACE the binary.
Outcome shell(const std::string &command);

std::string readFile(const std::string &path);
void writeText(const std::string &path, const std::string &text);

// A folder of its own for each test, gone afterwards, and a copy of a golden model to damage.
class CommandLine : public testing::Test {
protected:
  CommandLine();
  ~CommandLine() override;
  std::string path(const std::string &name) const { return folder + "/" + name; }
  static std::string golden(const std::string &model);       // a folder under tests/golden
  static nlohmann::json reference(const std::string &model); // its reference.json
  std::string copyModel(const std::string &model) const;     // a copy in this test's folder
  // Edits copy/config.json.
  static void editConfig(const std::string &copy, const nlohmann::json &patch);
  std::vector<std::string> files() const; // names in this test's folder, ascending

  // Runs, expects success, and gives standard output as JSON.
  static nlohmann::json json(std::vector<std::string> arguments);
  // What a file holds, by its name, for every file in this test's folder.
  std::map<std::string, std::string> contents() const;

  // Runs and expects this exit status, this text in the message, nothing on standard output, and every file in this
  // test's folder as it was.
  void refused(const std::vector<std::string> &arguments, int status, const std::string &message) const;

  std::string folder;
};

} // namespace headrace::tools
