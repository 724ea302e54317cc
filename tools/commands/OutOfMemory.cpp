// SPDX-License-Identifier: Apache-2.0
//
// headrace is linked with --wrap of these: the archives that it is made of call the ones below. Libraries of the system
// call their own, and look at what they get.
#include "tools/commands/OutOfMemory.h"

#include <atomic>
#include <cstddef>
#include <new>
#include <string_view>

#include <unistd.h>

#include "runtime/base/ReplaceFile.h"
#include "tools/commands/ExitCode.h"

namespace headrace::tools {
namespace {

std::atomic<bool> asJson = false;

// Nothing here allocates.
[[noreturn]] void outOfMemory() {
#define HEADRACE_OUT_OF_MEMORY "out of memory: the system grants no more (ulimit -v, or what there is)"
  constexpr std::string_view kText = "headrace: error: " HEADRACE_OUT_OF_MEMORY "\n";
  constexpr std::string_view kJson =
      "{\n  \"error\": {\n    \"message\": \"" HEADRACE_OUT_OF_MEMORY "\",\n    \"exit_status\": 1\n  }\n}\n";
  model::removePartFile();
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
  if (asJson)
    written = ::write(STDOUT_FILENO, kJson.data(), kJson.size());
  ::_exit(kExitFailed);
}

} // namespace

void endWhereMemoryEnds(bool json) {
  asJson = json;
  std::set_new_handler(outOfMemory);
}

extern "C" {
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);

void *__wrap_malloc(size_t bytes) {
  void *memory = __real_malloc(bytes);
  if (memory == nullptr && bytes > 0)
    outOfMemory();
  return memory;
}
void *__wrap_calloc(size_t count, size_t bytes) {
  void *memory = __real_calloc(count, bytes);
  if (memory == nullptr && count > 0 && bytes > 0)
    outOfMemory();
  return memory;
}
void *__wrap_realloc(void *memory, size_t bytes) {
  void *grown = __real_realloc(memory, bytes);
  if (grown == nullptr && bytes > 0)
    outOfMemory();
  return grown;
}
}

} // namespace headrace::tools
