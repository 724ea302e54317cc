// SPDX-License-Identifier: Apache-2.0
//
// Filters that call other filters and tests for each item, and the tests themselves.
#include <cmath>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Builtins.h"
#include "runtime/text/chat/Characters.h"
#include "runtime/text/chat/Evaluate.h"
#include "runtime/text/chat/ItemKeys.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {
namespace {

using model::cat;

const Builtin &named(const Value &name, const char *what, const Builtin *(*find)(std::string_view)) {
  const Builtin *found = name.isString() ? find(name.text()) : nullptr;
  if (!found)
    fail(cat("the ", what, " ", name.isString() ? reprOfText(printable(name.text(), 60)) : typeName(name),
             " is not supported"));
  return *found;
}

Value mapFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  std::vector<Value> mapped;
  if (arguments.values.empty()) {
    Value attribute, missing;
    for (const auto &[keyword, value] : arguments.keywords)
      if (keyword == "attribute")
        attribute = value;
      else if (keyword == "default")
        missing = value;
      else
        fail(cat("Unexpected keyword argument ", reprOfText(printable(keyword, 60))));
    if (!attribute.given())
      fail("map requires a filter argument");
    const ItemKey key(machine, attribute, ItemKey::Case::Kept, missing);
    for (const Value &item : iterated(machine.heap(), self).items())
      mapped.push_back(key.of(item));
  } else {
    const Builtin &filter = named(arguments.values[0], "filter", findFilter);
    Arguments rest = arguments;
    rest.values.erase(rest.values.begin());
    for (const Value &item : iterated(machine.heap(), self).items())
      mapped.push_back(machine.runBuiltin(filter, item, rest, "filter"));
  }
  return makeIterator(machine.heap(), std::move(mapped));
}

// select, reject, selectattr, rejectattr
template <bool keep, bool ofAttribute>
Value selectFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  if (ofAttribute && arguments.values.empty())
    fail("Missing parameter for attribute name");
  const ItemKey key(machine, ofAttribute ? arguments.values[0] : Value());
  const size_t testAt = ofAttribute;
  const Builtin *test = arguments.values.size() > testAt ? &named(arguments.values[testAt], "test", findTest) : nullptr;
  Arguments rest = arguments;
  rest.values.erase(rest.values.begin(), rest.values.begin() + static_cast<ptrdiff_t>(testAt + (test != nullptr)));
  std::vector<Value> kept;
  if (!truthy(self))
    return makeIterator(machine.heap(), {});
  for (const Value &item : iterated(machine.heap(), self).items()) {
    machine.heap().step();
    const Value looked = key.of(item);
    if (truthy(test ? machine.runBuiltin(*test, looked, rest, "test") : looked) == keep)
      kept.push_back(item);
  }
  return makeIterator(machine.heap(), std::move(kept));
}

constexpr Builtin kFilters[] = {
    {"map", "*", 0, mapFilter},
    {"reject", "*", 0, selectFilter<false, false>},
    {"rejectattr", "*", 0, selectFilter<false, true>},
    {"select", "*", 0, selectFilter<true, false>},
    {"selectattr", "*", 0, selectFilter<true, true>},
};

template <bool (*is)(const Value &)> Value test(Machine &, const Value &self, const Arguments &) {
  return Value::boolean(is(self));
}
template <bool value> bool isBoolean(const Value &self) {
  return self.is(Kind::Boolean) && (self.integer() != 0) == value;
}
template <Kind kind> bool isKind(const Value &self) { return self.is(kind); }
bool isDefined(const Value &self) { return !self.is(Kind::Undefined); }
bool isNumber(const Value &self) { return self.isNumber(); }
bool isCallable(const Value &self) { return self.is(Kind::Callable) || self.is(Kind::Undefined); }
bool isIterable(const Value &self) {
  return self.isString() || self.is(Kind::Sequence) || self.is(Kind::Dict) || self.is(Kind::Undefined) ||
         self.is(Kind::Loop);
}
bool isSequence(const Value &self) {
  return self.isString() || self.is(Flavor::List) || self.is(Flavor::Tuple) || self.is(Flavor::Range) ||
         self.is(Kind::Dict) || self.is(Kind::Undefined);
}

// op: remainder that makes the test true.
template <int64_t wanted> Value parityTest(Machine &machine, const Value &self, const Arguments &) {
  const Value remainder = arithmetic(machine.heap(), "%", self, Value::integer(2));
  return Value::boolean(equal(machine.heap(), remainder, Value::integer(wanted)));
}

Value divisibleTest(Machine &machine, const Value &self, const Arguments &arguments) {
  const Value remainder = arithmetic(machine.heap(), "%", self, arguments[0]);
  return Value::boolean(equal(machine.heap(), remainder, Value::integer(0)));
}

enum class Op { Equal, NotEqual, Less, AtMost, Greater, AtLeast };
template <Op op> Value comparisonTest(Machine &machine, const Value &self, const Arguments &arguments) {
  constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
  return Value::boolean(compares(machine.heap(), kOps[static_cast<size_t>(op)], self, arguments[0]));
}

Value inTest(Machine &machine, const Value &self, const Arguments &arguments) {
  return Value::boolean(contains(machine.heap(), arguments[0], self));
}

Value sameTest(Machine &machine, const Value &self, const Arguments &arguments) {
  const Value &other = arguments[0];
  return Value::boolean(self.kind() == other.kind() &&
                        (self.object() ? self.object() == other.object() : equal(machine.heap(), self, other)));
}

template <bool (*is)(std::string_view)> Value letterTest(Machine &machine, const Value &self, const Arguments &) {
  const std::string text = toText(machine.heap(), self);
  machine.heap().examine(text.size());
  return Value::boolean(is(text));
}

template <const Builtin *(*find)(std::string_view)> Value knownTest(Machine &, const Value &self, const Arguments &) {
  return Value::boolean(self.isString() && find(self.text()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"boolean", "", 0, test<isKind<Kind::Boolean>>},
    {"callable", "", 0, test<isCallable>},
    {"defined", "", 0, test<isDefined>},
    {"divisibleby", "num", 1, divisibleTest},
    {"eq", "b", 1, comparisonTest<Op::Equal>},
    {"equalto", "b", 1, comparisonTest<Op::Equal>},
    {"==", "b", 1, comparisonTest<Op::Equal>},
    {"even", "", 0, parityTest<0>},
    {"false", "", 0, test<isBoolean<false>>},
    {"filter", "", 0, knownTest<findFilter>},
    {"float", "", 0, test<isKind<Kind::Float>>},
    {"ge", "b", 1, comparisonTest<Op::AtLeast>},
    {">=", "b", 1, comparisonTest<Op::AtLeast>},
    {"greaterthan", "b", 1, comparisonTest<Op::Greater>},
    {"gt", "b", 1, comparisonTest<Op::Greater>},
    {">", "b", 1, comparisonTest<Op::Greater>},
    {"in", "seq", 1, inTest},
    {"integer", "", 0, test<isKind<Kind::Integer>>},
    {"iterable", "", 0, test<isIterable>},
    {"le", "b", 1, comparisonTest<Op::AtMost>},
    {"<=", "b", 1, comparisonTest<Op::AtMost>},
    {"lessthan", "b", 1, comparisonTest<Op::Less>},
    {"lower", "", 0, letterTest<isLower>},
    {"lt", "b", 1, comparisonTest<Op::Less>},
    {"<", "b", 1, comparisonTest<Op::Less>},
    {"mapping", "", 0, test<isKind<Kind::Dict>>},
    {"ne", "b", 1, comparisonTest<Op::NotEqual>},
    {"!=", "b", 1, comparisonTest<Op::NotEqual>},
    {"none", "", 0, test<isKind<Kind::None>>},
    {"number", "", 0, test<isNumber>},
    {"odd", "", 0, parityTest<1>},
    {"sameas", "other", 1, sameTest},
    {"sequence", "", 0, test<isSequence>},
    {"string", "", 0, test<isKind<Kind::String>>},
    {"test", "", 0, knownTest<findTest>},
    {"true", "", 0, test<isBoolean<true>>},
    {"undefined", "", 0, test<isKind<Kind::Undefined>>},
    {"upper", "", 0, letterTest<isUpper>},
};

} // namespace

absl::Span<const Builtin> selectFilters() { return kFilters; }

const Builtin *findTest(std::string_view name) {
  for (const Builtin &test : kTests)
    if (test.name == name)
      return &test;
  return nullptr;
}

} // namespace headrace::text::jinja
