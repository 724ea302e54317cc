// SPDX-License-Identifier: Apache-2.0
//
// The files that a command writes, checked together before its work starts: nothing of the user's is destroyed.
//
//   Outputs outputs(options.overwrite);
//   outputs.add("--output", options.output, OutputKind::Plan);
//   outputs.addInput(job.files);                            what the command reads
//   if (absl::Status status = outputs.check(); !status.ok()) return status;
//   ... hours of work ...
//   return outputs.write(options.output, content);
//
// An output may be a new file, an empty one, or replace one of its own kind, which the file itself shows (kindOf). Any
// other file that is there takes --overwrite. Refused even then: a file that the command reads, whatever name, link or
// hard link leads to it; a file that belongs to a model's folder; two outputs that are one file; where standard output
// or standard error goes; a new .safetensors in a model's folder, where it would be weights; what is no regular file;
// "-".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace headrace::tools {

enum class OutputKind : uint8_t { Plan, Record, Timeline, Logits, Bench, Ir, Algorithms, Stages };
std::string_view kindName(OutputKind kind); // "plan", "record", ... as messages call it
// By what stands in a file's first kHeadBytes; none for a file that Headrace did not write.
std::optional<OutputKind> kindOf(std::string_view head);
inline constexpr size_t kHeadBytes = 4096;
bool holdsKind(const std::string &path, OutputKind kind);

// What marks those files that have no room for a format of their own: their first line.
inline constexpr std::string_view kIrMark = "// headrace IR\n";

class Outputs {
public:
  explicit Outputs(bool overwrite) : overwrite_(overwrite) {}

  void add(std::string_view flag, const std::string &path, OutputKind kind); // an empty path: no such output
  // A folder of files named *.mlir, made by prepareFolders().
  void addFolder(std::string_view flag, const std::string &path);
  // A file, or a model's folder: all of it but what Headrace wrote there. A path that is not there is no input.
  void addInput(const std::string &path);
  void addInputs(absl::Span<const std::string> paths);

  absl::Status check() const;
  absl::Status prepareFolders() const;
  // Checks again, then replaces the file in one step. `path` is one that was added.
  absl::Status write(const std::string &path, std::string_view content) const;

private:
  struct Output {
    std::string flag, path;
    OutputKind kind;
    bool folder = false;
  };
  struct Input {
    std::string file, path; // fileOf() and how to call it
    bool ofModel;           // in a model's folder: not opened unless an output is that file
  };

  absl::Status checkOne(const Output &output) const;
  absl::Status checkFolder(const Output &output) const;
  absl::Status checkThere(const Output &output, const std::string &path, const std::string &file) const;

  bool overwrite_;
  std::vector<Output> outputs_;
  std::vector<Input> inputs_;
  std::vector<std::string> inputFolders_; // fileOf()
};

// A process that a signal ends (interrupt, terminate, hang-up, quit, broken pipe, no more CPU time) leaves no half
// written file behind; it ends by that signal, as it would without. A file that grows too large is a write that fails,
// not a signal.
void removePartFilesOnSignals();

} // namespace headrace::tools
