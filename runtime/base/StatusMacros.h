// SPDX-License-Identifier: Apache-2.0
//
// What passes a refusal on. For .cpp files.
#pragma once

#include <utility>

#include "absl/status/status.h"

// Returns the status of an expression that is one, unless it is OK.
#define RETURN_IF_ERROR(...)                                                                                           \
  if (absl::Status status_ = (__VA_ARGS__); !status_.ok())                                                             \
  return status_

// Declares `name` as the value of a StatusOr, or returns its status.
#define ASSIGN_OR_RETURN(name, ...)                                                                                    \
  auto name##Or = (__VA_ARGS__);                                                                                       \
  if (!name##Or.ok())                                                                                                  \
    return name##Or.status();                                                                                          \
  auto name = *std::move(name##Or)
