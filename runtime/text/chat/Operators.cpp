// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Builtins.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {
namespace {

using model::cat;

[[noreturn]] void overflow() { fail("an integer of more than 64 bits is not supported"); }
[[noreturn]] void unsupported(std::string_view op, const Value &a, const Value &b) {
  fail(cat("unsupported operand type(s) for ", op == "**" ? "** or pow()" : op, ": '", typeName(a), "' and '",
           typeName(b), "'"));
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent & 1)
      if (__builtin_mul_overflow(result, base, &result))
        overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
      overflow();
  }
  return result;
}

// Division towards minus infinity, as Python's.
Value divided(std::string_view op, int64_t a, int64_t b) {
  if (b == 0)
    fail(op == "/" ? "division by zero" : op == "%" ? "integer modulo by zero" : "integer division or modulo by zero");
  if (op == "/")
    return Value::real(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (op == "%")
      return Value::integer(0);
    int64_t negated = 0;
    if (__builtin_sub_overflow(int64_t{0}, a, &negated))
      overflow();
    return Value::integer(negated);
  }
  int64_t quotient = a / b, remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return Value::integer(op == "%" ? remainder : quotient);
}

Value ofIntegers(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result))
      overflow();
  } else if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result))
      overflow();
  } else if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result))
      overflow();
  } else if (op == "**") {
    if (b < 0)
      return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
    result = power(a, b);
  } else
    return divided(op, a, b);
  return Value::integer(result);
}

Value ofReals(std::string_view op, double a, double b) {
  if (op == "+")
    return Value::real(a + b);
  if (op == "-")
    return Value::real(a - b);
  if (op == "*")
    return Value::real(a * b);
  if (op == "**") {
    const double power = std::pow(a, b);
    if (std::isnan(power) && !std::isnan(a) && !std::isnan(b))
      fail("complex numbers are not supported");
    return Value::real(power);
  }
  if (b == 0)
    fail(op == "/" ? "float division by zero" : op == "%" ? "float modulo" : "float floor division by zero");
  if (op == "/")
    return Value::real(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0))
    remainder += b;
  return Value::real(op == "%" ? remainder : std::floor((a - remainder) / b + 0.5));
}

Value repeated(Heap &heap, const Value &what, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const int64_t size = what.isString() ? static_cast<int64_t>(what.text().size())
                                       : static_cast<int64_t>(what.items().size() * sizeof(Value));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(size, times, &bytes))
    overflow();
  heap.check(bytes);
  if (what.isString()) {
    std::string text;
    text.reserve(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < times && size > 0; ++i)
      text += what.text();
    return makeText(heap, std::move(text));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times && size > 0; ++i) {
    heap.visit(what.items().size() + 1);
    items.insert(items.end(), what.items().begin(), what.items().end());
  }
  return makeSequence(heap, std::move(items), what.as<SequenceObject>().flavor);
}

bool isArray(const Value &value) { return value.is(Flavor::List) || value.is(Flavor::Tuple); }

} // namespace

Value arithmetic(Heap &heap, std::string_view op, const Value &a, const Value &b) {
  if (a.is(Kind::Undefined) || b.is(Kind::Undefined))
    fail(undefinedMessage(a.is(Kind::Undefined) ? a : b));
  if (a.isNumber() && b.isNumber())
    return a.isInteger() && b.isInteger() ? ofIntegers(op, a.integer(), b.integer()) : ofReals(op, a.real(), b.real());
  if (op == "+" && a.isString()) {
    if (!b.isString())
      fail(cat("can only concatenate str (not \"", typeName(b), "\") to str"));
    heap.check(static_cast<int64_t>(a.text().size() + b.text().size()));
    return makeText(heap, a.text() + b.text());
  }
  if (op == "+" && isArray(a)) {
    const Flavor flavor = a.as<SequenceObject>().flavor;
    if (!b.is(flavor))
      fail(cat("can only concatenate ", typeName(a), " (not \"", typeName(b), "\") to ", typeName(a)));
    heap.check(static_cast<int64_t>((a.items().size() + b.items().size()) * sizeof(Value)));
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return makeSequence(heap, std::move(items), flavor);
  }
  if (op == "*") {
    if ((a.isString() || isArray(a)) && b.isInteger())
      return repeated(heap, a, b.integer());
    if (a.isInteger() && (b.isString() || isArray(b)))
      return repeated(heap, b, a.integer());
  }
  if (op == "%" && a.isString())
    fail("formatting with % is not supported");
  unsupported(op, a, b);
}

bool contains(Heap &heap, const Value &container, const Value &item) {
  switch (container.kind()) {
  case Kind::String:
    if (!item.isString())
      fail(item.is(Kind::Undefined) ? undefinedMessage(item)
                                    : cat("'in <string>' requires string as left operand, not ", typeName(item)));
    heap.read(container.text().size());
    return findText(container.text(), item.text()) != std::string_view::npos;
  case Kind::Dict:
    if (item.is(Kind::Dict) || item.is(Flavor::List))
      fail(cat("unhashable type: '", typeName(item), "'"));
    return findKey(heap, container.pairs(), item) != nullptr;
  case Kind::Sequence: {
    const Value items = iterated(heap, container);
    return std::any_of(items.items().begin(), items.items().end(),
                       [&](const Value &have) { return equal(heap, have, item); });
  }
  case Kind::Undefined:
    return false;
  default:
    fail(cat("argument of type '", typeName(container), "' is not iterable"));
  }
}

bool compares(Heap &heap, std::string_view op, const Value &a, const Value &b) {
  if (op == "==")
    return equal(heap, a, b);
  if (op == "!=")
    return !equal(heap, a, b);
  if (op == "in" || op == "not in")
    return contains(heap, b, a) == (op == "in");
  if (a.isNumber() && b.isNumber() && (std::isnan(a.real()) || std::isnan(b.real())))
    return false;
  const int order = compare(heap, a, b, op);
  return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
}

int64_t integerOr(const Value &argument, int64_t missing) {
  if (!argument.given() || argument.isNone())
    return missing;
  if (argument.is(Kind::Undefined))
    fail(undefinedMessage(argument));
  if (!argument.isInteger())
    fail(cat("'", typeName(argument), "' object cannot be interpreted as an integer"));
  return argument.integer();
}

const std::string &textOf(const Value &argument) {
  if (argument.is(Kind::Undefined))
    fail(undefinedMessage(argument));
  if (!argument.isString())
    fail(cat("expected a str, not ", typeName(argument)));
  return argument.text();
}

Value slice(Heap &heap, const Value &of, const Value &start, const Value &stop, const Value &step) {
  if (of.is(Kind::Undefined))
    fail(undefinedMessage(of));
  if (of.is(Kind::Dict))
    fail("unhashable type: 'slice'");
  const bool sliceable = of.isString() || isArray(of) || of.is(Flavor::Range);
  if (!sliceable)
    fail(cat("'", typeName(of), "' object is not subscriptable"));
  for (const Value *bound : {&start, &stop, &step})
    if (!bound->isNone() && !bound->isInteger())
      fail(bound->is(Kind::Undefined) ? undefinedMessage(*bound)
                                      : "slice indices must be integers or None or have an __index__ method");
  const int64_t length = lengthOf(of), by = integerOr(step, 1);
  if (by == 0)
    fail("slice step cannot be zero");
  const auto bound = [&](const Value &given, int64_t missing) {
    if (given.isNone())
      return missing;
    int64_t at = given.integer();
    if (at < 0)
      at += length;
    return std::clamp<int64_t>(at, by < 0 ? -1 : 0, by < 0 ? length - 1 : length);
  };
  const int64_t first = bound(start, by < 0 ? length - 1 : 0), last = bound(stop, by < 0 ? -1 : length);
  if (of.isString() && by == 1) {
    const std::string &text = of.text();
    if (first >= last)
      return makeText(heap, "");
    if (of.codePoints() == static_cast<int64_t>(text.size()))
      return makeText(heap, text.substr(static_cast<size_t>(first), static_cast<size_t>(last - first)));
    heap.read(text.size());
    const size_t begin = offsetOf(text, first);
    const std::string_view rest = std::string_view(text).substr(begin);
    return makeText(heap, std::string(rest.substr(0, offsetOf(rest, last - first))));
  }
  const Value items = of.isString() ? iterated(heap, of) : of;
  std::vector<Value> kept;
  for (int64_t at = first; by > 0 ? at < last : at > last;) {
    kept.push_back(items.items()[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, by, &at))
      break;
  }
  if (!of.isString())
    return makeSequence(heap, std::move(kept), of.as<SequenceObject>().flavor);
  std::string text;
  for (const Value &character : kept)
    text += character.text();
  return makeText(heap, std::move(text));
}

Value attributeOf(Heap &heap, const Value &of, const Value &name) {
  switch (of.kind()) {
  case Kind::Undefined:
    fail(undefinedMessage(of));
  case Kind::Dict:
    if (isMutator(of, name.text()))
      break;
    if (const Value *found = findKey(heap, of.pairs(), name))
      return *found;
    return undefined(name, Kind::Dict);
  case Kind::Namespace:
    for (const auto &[have, value] : of.as<NamespaceObject>().attributes)
      if (have == name.text())
        return value;
    return undefined(name, Kind::Namespace);
  default:
    break;
  }
  if (isMutator(of, name.text()))
    return undefined(makeText(heap, cat("access to attribute ", reprOfText(name.text()), " of '", typeName(of),
                                        "' object is unsafe.")),
                     Kind::Undefined);
  if (of.is(Kind::Sequence) && !of.is(Flavor::List))
    return undefined(makeText(heap, cat("'", typeName(of), " object' has no attribute ", reprOfText(name.text()))),
                     Kind::Undefined);
  return undefined(name, of.kind());
}

// Absent where there is none.
Value elementOf(Heap &heap, const Value &of, const Value &key) {
  if (of.is(Kind::Undefined))
    fail(undefinedMessage(of));
  if (of.is(Kind::Dict)) {
    if (key.is(Kind::Dict) || key.is(Flavor::List))
      return Value();
    const Value *found = findKey(heap, of.pairs(), key);
    return found ? *found : Value();
  }
  if (!key.isInteger() || !(of.isString() || isArray(of) || of.is(Flavor::Range)))
    return Value();
  const int64_t length = lengthOf(of), at = key.integer() < 0 ? key.integer() + length : key.integer();
  if (at < 0 || at >= length)
    return Value();
  if (!of.isString())
    return of.items()[static_cast<size_t>(at)];
  const std::string &text = of.text();
  size_t begin = static_cast<size_t>(at);
  if (of.codePoints() != static_cast<int64_t>(text.size())) {
    heap.read(text.size());
    begin = offsetOf(text, at);
  }
  size_t end = begin;
  nextCodePoint(text, end);
  return makeText(heap, text.substr(begin, end - begin));
}

Value iterated(Heap &heap, const Value &value) {
  switch (value.kind()) {
  case Kind::Undefined:
    return makeSequence(heap, {});
  case Kind::String: {
    std::vector<Value> characters;
    const std::string &text = value.text();
    heap.check(value.codePoints() * static_cast<int64_t>(sizeof(Value) + sizeof(StringObject)));
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      nextCodePoint(text, at);
      heap.step();
      characters.push_back(makeText(heap, text.substr(begin, at - begin)));
    }
    return makeSequence(heap, std::move(characters));
  }
  case Kind::Dict: {
    std::vector<Value> keys;
    for (const auto &[key, item] : value.pairs())
      keys.push_back(key);
    return makeSequence(heap, std::move(keys));
  }
  case Kind::Sequence: {
    if (!value.is(Flavor::Iterator))
      return value;
    auto &iterator = value.as<SequenceObject>();
    std::vector<Value> rest(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next), iterator.items.end());
    iterator.next = iterator.items.size();
    return makeSequence(heap, std::move(rest));
  }
  default:
    fail(cat("'", typeName(value), "' object is not iterable"));
  }
}

int64_t lengthOf(const Value &value) {
  switch (value.kind()) {
  case Kind::Undefined:
    return 0;
  case Kind::String:
    return value.codePoints();
  case Kind::Dict:
    return static_cast<int64_t>(value.pairs().size());
  case Kind::Sequence:
    if (!value.is(Flavor::Iterator))
      return static_cast<int64_t>(value.items().size());
    [[fallthrough]];
  default:
    fail(cat("object of type '", typeName(value), "' has no len()"));
  }
}

} // namespace headrace::text::jinja
