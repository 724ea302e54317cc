// SPDX-License-Identifier: Apache-2.0
//
// The lines of a chat, from a person at a terminal or from a program.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace headrace::tools {

enum class Got : uint8_t { Line, Interrupt, End };

class ChatLines {
public:
  // A person's line that ends in \ goes on in the next one.
  explicit ChatLines(bool person) : person_(person) {}

  // The next line, without its newline; an interrupt (Interrupts.h) in its place, whenever since lookAway() it came.
  // InvalidArgument: standard input cannot be read, or a terminal has cut the line.
  absl::StatusOr<Got> next(std::string &line);

private:
  absl::StatusOr<Got> nextOne(std::string &line);

  const bool person_;
  std::string rest_;
};

} // namespace headrace::tools
