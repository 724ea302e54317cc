// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Outputs.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/FileIo.h"
#include "runtime/base/ReplaceFile.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/plan/StagesFile.h"
#include "tools/commands/InputErrors.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

using model::cat;
namespace fs = std::filesystem;

std::string identity(const struct stat &info) { return cat(info.st_dev, ":", info.st_ino); }

// The file that a path leads to, the same for each of its names: its number, or for one that is not there its folder's
// and its name. Empty, with errno, where there cannot be one.
std::string fileOf(const std::string &path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0)
    return identity(info);
  if (errno != ENOENT)
    return "";
  const std::string folder = model::folderOf(path);
  if (::stat(folder.empty() ? "." : folder.c_str(), &info) != 0)
    return "";
  return cat(identity(info), "/", model::baseName(path));
}

std::string headOf(const std::string &path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return "unreadable";
  std::string head(kHeadBytes, '\0');
  ssize_t got = 0;
  do
    got = ::read(fd, head.data(), head.size());
  while (got < 0 && errno == EINTR);
  ::close(fd);
  head.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return head;
}

bool has(std::string_view head, std::string_view mark) { return head.find(mark) != std::string_view::npos; }

} // namespace

std::string_view kindName(OutputKind kind) {
  constexpr std::string_view kNames[] = {"plan",  "record", "timeline",           "file of logits",
                                         "bench", "IR",     "list of algorithms", "list of stages"};
  return kNames[static_cast<size_t>(kind)];
}

std::optional<OutputKind> kindOf(std::string_view head) {
  if (head.size() >= 8 && head.substr(4, 4) == "HRPL")
    return OutputKind::Plan;
  if (head.starts_with(plan::kStagesMark))
    return OutputKind::Stages;
  if (has(head, "\nformat = \"headrace performance record\"\n"))
    return OutputKind::Record;
  if (head.starts_with(kTimelineTextMark) ||
      (head.starts_with("{") && has(head, "{\"format\":\"headrace-timeline\"")) ||
      (head.starts_with("<svg ") && has(head, " data-headrace=\"timeline\"")))
    return OutputKind::Timeline;
  if (head.size() > 8 && head.substr(8).starts_with("{\"__metadata__\":{\"format\":\"headrace-logits\"}"))
    return OutputKind::Logits;
  if ((head.starts_with("{") && has(head, "\"format\": \"headrace-bench\"")) ||
      (head.starts_with("<svg ") && has(head, " data-headrace=\"bench\"")))
    return OutputKind::Bench;
  if (head.starts_with(kIrMark))
    return OutputKind::Ir;
  if (head.starts_with("cublasLt "))
    return OutputKind::Algorithms;
  return std::nullopt;
}

bool holdsKind(const std::string &path, OutputKind kind) { return kindOf(headOf(path)) == kind; }

void Outputs::add(std::string_view flag, const std::string &path, OutputKind kind) {
  if (!path.empty())
    outputs_.push_back({std::string(flag), path, kind});
}

void Outputs::addFolder(std::string_view flag, const std::string &path) {
  if (!path.empty())
    outputs_.push_back({std::string(flag), path, OutputKind::Ir, /*folder=*/true});
}

void Outputs::addInputs(absl::Span<const std::string> paths) {
  for (const std::string &path : paths)
    addInput(path);
}

void Outputs::addInput(const std::string &path) {
  if (model::isRegularFile(path)) {
    inputs_.push_back({fileOf(path), path, /*ofModel=*/false});
  } else if (model::isDirectory(path)) {
    inputFolders_.push_back(fileOf(path));
    std::error_code error;
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      if (const std::string file = at->path().string(); model::isRegularFile(file))
        inputs_.push_back({fileOf(file), file, /*ofModel=*/true});
  }
}

// What is there, for an output that would replace it.
absl::Status Outputs::checkThere(const Output &output, const std::string &path, const std::string &file) const {
  const auto refuse = [&](std::string_view found, std::string_view expected) {
    return badFlag(output.flag, path, found, expected);
  };
  constexpr std::string_view kAnother = "another name";
  for (const auto &[fd, name] : {std::pair(STDOUT_FILENO, "standard output"), {STDERR_FILENO, "standard error"}})
    if (struct stat info = {}; ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && identity(info) == file)
      return refuse(cat("it is where ", name, " goes"), kAnother);
  for (const Input &input : inputs_)
    if (input.file == file && !(input.ofModel && kindOf(headOf(input.path))))
      return refuse(
          cat("it is ", input.path, input.ofModel ? ", a file of the model's folder" : ", which this command reads"),
          kAnother);
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    if (::lstat(path.c_str(), &info) == 0)
      return refuse("a link to a file that is not there", kAnother);
    return absl::OkStatus();
  }
  if (!S_ISREG(info.st_mode))
    return refuse(model::fileTypeAt(path), "a file's name");
  if (::access(path.c_str(), W_OK) != 0)
    return refuse(cat("cannot write: ", std::strerror(errno)), "a file that can be written");
  if (info.st_size > 0 && !overwrite_ && !holdsKind(path, output.kind))
    return refuse(cat("a file is there, and it is no ", kindName(output.kind), " of headrace"),
                  "another name, or --overwrite");
  return absl::OkStatus();
}

absl::Status Outputs::checkOne(const Output &output) const {
  if (output.path == "-")
    return badFlag(output.flag, output.path, "standard output is for the report",
                   "a file's name (./- is one of that name)");
  const bool trace = output.flag == "--trace";
  const bool drawn = output.flag == "--svg" || (output.kind == OutputKind::Timeline && !trace);
  for (const char *other : {".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".svg"})
    if (output.path.ends_with(other) && !(drawn && output.path.ends_with(".svg"))) {
      if (drawn)
        return badFlag(output.flag, output.path, "what is drawn is SVG", "a name such as picture.svg");
      if (trace)
        return badFlag(output.flag, output.path, "what is written is JSON", "a name such as trace.json, or --timeline");
      return badFlag(output.flag, output.path,
                     output.kind == OutputKind::Bench ? std::string("what is written is JSON")
                                                      : cat("what is written is a ", kindName(output.kind)),
                     "another name");
    }
  const std::string folder = model::folderOf(output.path);
  if (struct stat info = {}; !folder.empty() && ::stat(folder.c_str(), &info) == 0 && !S_ISDIR(info.st_mode))
    return badFlag(output.flag, output.path, cat(folder, " is ", model::fileTypeAt(folder)),
                   "a file in a folder that is there and can be written to");
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
    return badFlag(output.flag, output.path, cat("cannot write: ", std::strerror(errno)),
                   "a file in a folder that is there and can be written to");
  const std::string file = fileOf(output.path);
  if (file.empty())
    return badFlag(output.flag, output.path, cat("cannot write: ", std::strerror(errno)), "a file's name");
  RETURN_IF_ERROR(checkThere(output, output.path, file));
  if (output.path.ends_with(".safetensors") && std::find(inputFolders_.begin(), inputFolders_.end(),
                                                         fileOf(folder.empty() ? "." : folder)) != inputFolders_.end())
    return badFlag(output.flag, output.path, "in the model's folder it would be weights", "a file in another folder");
  return absl::OkStatus();
}

absl::Status Outputs::checkFolder(const Output &output) const {
  constexpr std::string_view kExpected = "a folder, or one that can be made in an existing folder";
  struct stat info = {};
  if (::stat(output.path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode))
    return badFlag(output.flag, output.path, "a file", kExpected);
  if (std::find(inputFolders_.begin(), inputFolders_.end(), fileOf(output.path)) != inputFolders_.end())
    return badFlag(output.flag, output.path, "it is the model's folder", "another one");
  const bool there = model::isDirectory(output.path);
  const std::string parent = model::folderOf(output.path);
  const std::string &written = there ? output.path : parent;
  if (::access(written.empty() ? "." : written.c_str(), W_OK | X_OK) != 0)
    return badFlag(output.flag, output.path, cat("cannot write: ", std::strerror(errno)), kExpected);
  std::error_code error;
  for (fs::directory_iterator at(output.path, error), end; !error && at != end; at.increment(error))
    if (const std::string file = at->path().string(); file.ends_with(".mlir"))
      RETURN_IF_ERROR(checkThere(output, file, fileOf(file)));
  return absl::OkStatus();
}

absl::Status Outputs::check() const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output &one = outputs_[i];
    RETURN_IF_ERROR(one.folder ? checkFolder(one) : checkOne(one));
    for (size_t j = 0; j < outputs_.size(); ++j) {
      const Output &other = outputs_[j];
      const std::string folder = model::folderOf(one.path);
      const bool inFolder =
          other.folder && one.path.ends_with(".mlir") && fileOf(folder.empty() ? "." : folder) == fileOf(other.path);
      if (inFolder || (j < i && fileOf(one.path) == fileOf(other.path)))
        return badFlag(one.flag, one.path, cat(inFolder ? "one of the files of " : "the same file as ", other.flag),
                       "another name");
    }
  }
  return absl::OkStatus();
}

absl::Status Outputs::prepareFolders() const {
  for (const Output &output : outputs_)
    if (output.folder && !model::isDirectory(output.path) && ::mkdir(output.path.c_str(), 0777) != 0)
      return badFlag(output.flag, output.path, std::strerror(errno),
                     "a folder, or one that can be made in an existing folder");
  return absl::OkStatus();
}

absl::Status Outputs::write(const std::string &path, std::string_view content) const {
  RETURN_IF_ERROR(check());
  return model::replaceFile(path, content);
}

namespace {

extern "C" void endBySignal(int signal) {
  model::removePartFile();
  ::signal(signal, SIG_DFL);
  ::raise(signal); // blocked until this returns
}

} // namespace

void removePartFilesOnSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU}) {
    struct sigaction old = {}, handler = {};
    handler.sa_handler = endBySignal;
    sigemptyset(&handler.sa_mask);
    if (::sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_DFL) // what was to be ignored stays ignored
      ::sigaction(signal, &handler, nullptr);
  }
  ::signal(SIGXFSZ, SIG_IGN); // write() says EFBIG
}

} // namespace headrace::tools
