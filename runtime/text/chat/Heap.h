// SPDX-License-Identifier: Apache-2.0
//
// What a render may take: steps, bytes of everything that is alive at once, and depth. Exceeding one ends the render by
// a TemplateError, as every other fault of a template does; ChatTemplate turns it into a status.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/text/chat/ChatTemplate.h"

namespace headrace::text::jinja {

struct TemplateError {
  std::string message;
};
[[noreturn]] void fail(std::string message);

class Heap {
public:
  explicit Heap(const TemplateLimits &limits) : limits_(limits) {}
  Heap(const Heap &) = delete;
  Heap &operator=(const Heap &) = delete;

  void step(int64_t steps = 1) {
    if ((steps_ += steps) > limits_.steps)
      tooManySteps();
  }
  // Reading or writing so much text, or so many values.
  void read(size_t bytes) { step(static_cast<int64_t>(bytes / 64)); }
  void examine(size_t bytes) { step(static_cast<int64_t>(bytes)); } // character by character
  void visit(size_t values) { step(static_cast<int64_t>(values / 2)); }

  // Before so many bytes are allocated; what is held is released again.
  void hold(int64_t bytes) {
    step();
    check(bytes);
    live_ += bytes;
  }
  void release(int64_t bytes) { live_ -= bytes; }
  void check(int64_t bytes) const {
    if (bytes > limits_.bytes - live_)
      tooManyBytes();
  }
  void checkDepth(int64_t depth) const {
    if (depth > limits_.depth)
      tooDeep();
  }

private:
  [[noreturn]] void tooManySteps() const;
  [[noreturn]] void tooManyBytes() const;
  [[noreturn]] void tooDeep() const;

  TemplateLimits limits_;
  int64_t steps_ = 0, live_ = 0;
};

} // namespace headrace::text::jinja
