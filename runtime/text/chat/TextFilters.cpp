// SPDX-License-Identifier: Apache-2.0
//
// Filters of texts and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Builtins.h"
#include "runtime/text/chat/Characters.h"
#include "runtime/text/chat/Evaluate.h"
#include "runtime/text/chat/PyText.h"
#include "runtime/text/chat/TextParts.h"

namespace headrace::text::jinja {
namespace {

using model::cat;

std::string asText(Machine &machine, const Value &value) { return toText(machine.heap(), value); }

template <std::string (*change)(std::string_view)>
Value changed(Machine &machine, const Value &self, const Arguments &) {
  const std::string text = asText(machine, self);
  machine.heap().examine(text.size());
  return machine.text(change(text));
}

// Every word's first letter upper, where words begin behind spaces and opening brackets.
std::string titleFilter(std::string_view text) {
  std::string made;
  const auto isBreak = [](char32_t c) {
    return isSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (size_t at = 0; at < text.size();) {
    size_t begin = at;
    size_t end = at;
    while (end < text.size() && isBreak(nextCodePoint(text, end)))
      at = end;
    made += text.substr(begin, at - begin);
    if (at >= text.size())
      break;
    begin = at;
    nextCodePoint(text, at);
    made += upper(text.substr(begin, at - begin));
    begin = end = at;
    while (end < text.size() && !isBreak(nextCodePoint(text, end)))
      at = end;
    made += lower(text.substr(begin, at - begin));
  }
  return made;
}

Value trimFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  const std::string text = asText(machine, self);
  const bool spaces = !arguments[0].given() || arguments[0].isNone();
  return machine.text(
      std::string(stripped(machine.heap(), text, spaces ? nullptr : &textOf(arguments[0]), true, true)));
}

Value stringFilter(Machine &machine, const Value &self, const Arguments &) {
  return self.isString() ? self : machine.text(asText(machine, self));
}

Value escapeFilter(Machine &machine, const Value &self, const Arguments &) {
  std::string made;
  for (const char c : asText(machine, self))
    append(machine.heap(), made,
           c == '&'    ? std::string_view("&amp;")
           : c == '<'  ? std::string_view("&lt;")
           : c == '>'  ? std::string_view("&gt;")
           : c == '\'' ? std::string_view("&#39;")
           : c == '"'  ? std::string_view("&#34;")
                       : std::string_view(&c, 1));
  return machine.text(std::move(made));
}

Value replaceFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  const std::string what = asText(machine, arguments[0]), by = asText(machine, arguments[1]);
  return machine.text(replaced(machine.heap(), asText(machine, self), what, by, integerOr(arguments[2], -1)));
}

Value indentFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  Heap &heap = machine.heap();
  const int64_t width = arguments[0].isString() ? 0 : std::max<int64_t>(integerOr(arguments[0], 4), 0);
  heap.check(width);
  const std::string indent =
      arguments[0].isString() ? arguments[0].text() : std::string(static_cast<size_t>(width), ' ');
  const bool first = truthy(arguments[1]), blank = truthy(arguments[2]);
  const std::string text = textOf(self) + "\n";
  std::string made;
  bool isFirst = true;
  for (const std::string_view line : splitLines(text, false)) {
    if (!isFirst)
      append(heap, made, "\n");
    if (isFirst ? first : blank || !line.empty())
      append(heap, made, indent);
    isFirst = false;
    append(heap, made, line);
  }
  return machine.text(std::move(made));
}

Value defaultFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  if (self.is(Kind::Undefined) || (truthy(arguments[1]) && !truthy(self)))
    return arguments[0].given() ? arguments[0] : machine.text("");
  return self;
}

Value safeFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  return stringFilter(machine, self, arguments);
}

// Digits may have single underscores between them, as in Python.
std::optional<std::string> plainNumber(std::string_view text) {
  text = strip(text);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto isDigit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (text[i] != '_')
      plain += text[i];
    else if (i == 0 || !isDigit(i - 1) || !isDigit(i + 1))
      return std::nullopt;
  }
  if (!plain.empty() && plain[0] == '+')
    plain.erase(0, 1);
  return plain.empty() || plain[0] == '+' ? std::nullopt : std::optional(plain);
}

// All of `text` as a number of a type; the error of std::from_chars otherwise.
template <class Number, class... Format>
std::errc readNumber(const std::string &text, Number &value, Format... format) {
  const char *end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value, format...);
  return read.ptr != end ? std::errc::invalid_argument : read.ec;
}

std::optional<double> parsedReal(std::string_view text) {
  const auto plain = plainNumber(text);
  double value = 0;
  if (!plain || plain->find('(') != std::string::npos) // nan(...)
    return std::nullopt;
  const std::errc error = readNumber(*plain, value);
  if (error == std::errc::invalid_argument)
    return std::nullopt;
  return error == std::errc() ? value : std::strtod(plain->c_str(), nullptr); // too large, or too small
}

std::optional<int64_t> parsedInteger(std::string_view text, int base) {
  auto plain = plainNumber(text);
  if (!plain)
    return std::nullopt;
  std::string &digits = *plain;
  const size_t sign = digits[0] == '-';
  const char kind = digits.size() > sign + 2 && digits[sign] == '0' ? static_cast<char>(digits[sign + 1] | 32) : '\0';
  if ((base == 16 && kind == 'x') || (base == 8 && kind == 'o') || (base == 2 && kind == 'b'))
    digits.erase(sign, 2);
  int64_t value = 0;
  const std::errc error = readNumber(digits, value, base);
  if (error == std::errc::result_out_of_range)
    fail("an integer of more than 64 bits is not supported");
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

Value truncated(double value) {
  if (!(std::fabs(value) < 9.2e18))
    fail("an integer of more than 64 bits is not supported");
  return Value::integer(static_cast<int64_t>(value));
}

Value intFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  Value missing = arguments[0].given() ? arguments[0] : Value::integer(0);
  const int64_t base = integerOr(arguments[1], 10);
  if (self.is(Kind::Undefined))
    fail(undefinedMessage(self));
  if (self.isInteger())
    return Value::integer(self.integer());
  if (self.is(Kind::Float))
    return std::isfinite(self.real()) ? truncated(self.real()) : missing;
  if (!self.isString() || base < 2 || base > 36)
    return missing;
  machine.heap().examine(self.text().size());
  if (const auto value = parsedInteger(self.text(), static_cast<int>(base)))
    return Value::integer(*value);
  const auto real = parsedReal(self.text());
  return real && std::isfinite(*real) ? truncated(*real) : missing;
}

Value floatFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  if (self.is(Kind::Undefined))
    fail(undefinedMessage(self));
  if (self.isNumber())
    return Value::real(self.real());
  if (self.isString())
    machine.heap().examine(self.text().size());
  const auto value = self.isString() ? parsedReal(self.text()) : std::nullopt;
  return value ? Value::real(*value) : arguments[0].given() ? arguments[0] : Value::real(0);
}

Value absFilter(Machine &machine, const Value &self, const Arguments &) {
  if (self.is(Kind::Undefined))
    fail(undefinedMessage(self));
  if (!self.isNumber())
    fail(cat("bad operand type for abs(): '", typeName(self), "'"));
  if (self.is(Kind::Float))
    return Value::real(std::fabs(self.real()));
  return self.integer() < 0 ? arithmetic(machine.heap(), "-", Value::integer(0), self) : Value::integer(self.integer());
}

// To so many decimal digits, half to even on the exact decimal expansion, as Python's round().
double roundedTo(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 330)
    return value;
  if (digits >= 0) {
    char text[1024];
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, static_cast<int>(digits));
    double read = value;
    std::from_chars(text, end.ptr, read);
    return read;
  }
  const double scale = std::pow(10.0, static_cast<double>(std::min<int64_t>(-digits, 400)));
  return std::isinf(scale) ? 0.0 : std::nearbyint(value / scale) * scale;
}

Value roundFilter(Machine &, const Value &self, const Arguments &arguments) {
  const int64_t digits = integerOr(arguments[0], 0);
  const std::string method = arguments[1].given() ? textOf(arguments[1]) : "common";
  if (self.is(Kind::Undefined))
    fail(undefinedMessage(self));
  if (!self.isNumber())
    fail(cat("type ", typeName(self), " doesn't define __round__ method"));
  if (method == "common") {
    if (self.is(Kind::Float))
      return Value::real(roundedTo(self.real(), digits));
    if (digits >= 0)
      return Value::integer(self.integer());
    return truncated(roundedTo(self.real(), digits));
  }
  if (method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits)), scaled = self.real() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr Builtin kFilters[] = {
    {"abs", "", 0, absFilter},
    {"capitalize", "", 0, changed<capitalize>},
    {"d", "default_value boolean", 0, defaultFilter},
    {"default", "default_value boolean", 0, defaultFilter},
    {"e", "", 0, escapeFilter},
    {"escape", "", 0, escapeFilter},
    {"float", "default", 0, floatFilter},
    {"indent", "width first blank", 0, indentFilter},
    {"int", "default base", 0, intFilter},
    {"lower", "", 0, changed<lower>},
    {"replace", "old new count", 2, replaceFilter},
    {"round", "precision method", 0, roundFilter},
    {"safe", "", 0, safeFilter},
    {"string", "", 0, stringFilter},
    {"title", "", 0, changed<titleFilter>},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, jsonFilter},
    {"trim", "chars", 0, trimFilter},
    {"upper", "", 0, changed<upper>},
};

} // namespace

absl::Span<const Builtin> textFilters() { return kFilters; }

// As transformers' tojson: json.dumps, of which nothing is escaped for HTML.
Value jsonFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  JsonStyle style;
  style.ensureAscii = truthy(arguments[0]);
  style.sortKeys = truthy(arguments[3]);
  style.indented = arguments[1].given() && !arguments[1].isNone();
  if (style.indented) {
    const int64_t width = arguments[1].isString() ? 0 : std::max<int64_t>(integerOr(arguments[1], 0), 0);
    machine.heap().check(width);
    style.indent = arguments[1].isString() ? arguments[1].text() : std::string(static_cast<size_t>(width), ' ');
    style.item = ",";
  }
  if (arguments[2].given() && !arguments[2].isNone()) {
    const Value separators = iterated(machine.heap(), arguments[2]);
    if (separators.items().size() != 2)
      fail("expected two separators: between items, and behind keys");
    style.item = textOf(separators.items()[0]);
    style.key = textOf(separators.items()[1]);
  }
  return machine.text(toJson(machine.heap(), self, style));
}

} // namespace headrace::text::jinja
