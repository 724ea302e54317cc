// SPDX-License-Identifier: Apache-2.0
//
// Filters, tests, methods and functions by name. What is not in these tables is refused when a template is opened.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "runtime/text/chat/Value.h"

namespace headrace::text::jinja {

class Machine;

struct Arguments {
  std::vector<Value> values; // by position
  std::vector<std::pair<std::string_view, Value>> keywords;

  // Once bound to a Builtin's parameters; Absent where it was not given.
  const Value &operator[](size_t i) const { return values[i]; }
};

struct Builtin {
  using Run = Value (*)(Machine &machine, const Value &self, const Arguments &arguments);

  std::string_view name;
  std::string_view parameters; // their names with spaces between them, or "*": whatever is given, not bound
  size_t least;                // so many must be given
  Run run;

  bool takesAny() const { return parameters == "*"; }
  size_t most() const;
  size_t indexOf(std::string_view parameter) const; // most(): none
};

// Null where there is no such.
const Builtin *findFilter(std::string_view name);
const Builtin *findTest(std::string_view name);
const Builtin *findFunction(std::string_view name);
// Of a value of that kind; a name that changes the value has none, isMutator() tells.
const Builtin *findMethod(const Value &self, std::string_view name);
bool isMutator(const Value &self, std::string_view name);
bool isMethodName(std::string_view name); // of any kind of value

// The parts of the tables, each in a file of its own.
absl::Span<const Builtin> textFilters();                                            // TextFilters.cpp
absl::Span<const Builtin> sequenceFilters();                                        // SequenceFilters.cpp
absl::Span<const Builtin> selectFilters();                                          // SelectFilters.cpp
absl::Span<const Builtin> textMethods();                                            // TextMethods.cpp
Value jsonFilter(Machine &machine, const Value &self, const Arguments &arguments);  // TextFilters.cpp
Value strftimeNow(Machine &machine, const Value &self, const Arguments &arguments); // Strftime.cpp

// Operators.cpp. Failures are Python's TypeErrors.
Value arithmetic(Heap &heap, std::string_view op, const Value &a, const Value &b);
bool compares(Heap &heap, std::string_view op, const Value &a, const Value &b); // ==, <, in, ...
bool contains(Heap &heap, const Value &container, const Value &item);
Value slice(Heap &heap, const Value &of, const Value &start, const Value &stop, const Value &step);
Value attributeOf(Heap &heap, const Value &of, const Value &name);
Value elementOf(Heap &heap, const Value &of, const Value &key);
// What a loop over it sees, as a sequence; an iterator is empty afterwards.
Value iterated(Heap &heap, const Value &value);
int64_t lengthOf(const Value &value);
// An argument that has to be an integer, or `missing` where it was not given or None.
int64_t integerOr(const Value &argument, int64_t missing);
// The text of an argument; fails where it is no string.
const std::string &textOf(const Value &argument);

} // namespace headrace::text::jinja
