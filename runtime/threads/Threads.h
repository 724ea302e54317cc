// SPDX-License-Identifier: Apache-2.0
//
// Starting and placing threads.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"

namespace headrace::threads {

// ResourceExhausted for a thread that the system does not grant.
absl::Status noThread(std::string_view which, const std::error_code &why);

// Starts `body` as `thread`. `which` names it in what noThread() says.
template <typename Body> absl::Status startThread(std::thread &thread, std::string_view which, Body &&body) {
  try {
    thread = std::thread(std::forward<Body>(body));
  } catch (const std::system_error &error) {
    return noThread(which, error.code());
  }
  return absl::OkStatus();
}

// On that core alone; -1: the scheduler's choice. InvalidArgument naming the thread and the core.
absl::Status pinThread(std::thread &thread, int core, std::string_view which);

} // namespace headrace::threads
