// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "runtime/base/Text.h"
#include "runtime/text/chat/PyText.h"
#include "runtime/text/chat/Value.h"

namespace headrace::text::jinja {
namespace {

using model::cat;

// Appends to one text, which is counted as it grows.
class Printer {
public:
  explicit Printer(Heap &heap) : heap_(heap) {}

  void repr(const Value &value, int64_t depth);
  void json(const Value &value, const JsonStyle &style, int64_t depth);
  std::string take() { return std::move(text_); }

private:
  void add(std::string_view piece) {
    heap_.step();
    heap_.read(piece.size());
    heap_.check(static_cast<int64_t>(text_.size() + piece.size()));
    text_ += piece;
  }
  void reprItems(const std::vector<Value> &items, int64_t depth);
  void jsonText(const Value &value, bool ensureAscii);
  void jsonLine(const JsonStyle &style, int64_t depth);
  void jsonDict(const Value &value, const JsonStyle &style, int64_t depth);

  Heap &heap_;
  std::string text_;
};

void Printer::reprItems(const std::vector<Value> &items, int64_t depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0)
      add(", ");
    repr(items[i], depth + 1);
  }
}

void Printer::repr(const Value &value, int64_t depth) {
  heap_.checkDepth(depth);
  switch (value.kind()) {
  case Kind::Absent:
  case Kind::Undefined:
    return add("Undefined");
  case Kind::None:
    return add("None");
  case Kind::Boolean:
    return add(value.integer() ? "True" : "False");
  case Kind::Integer:
    return add(std::to_string(value.integer()));
  case Kind::Float:
    return add(reprOfFloat(value.real()));
  case Kind::String:
    heap_.check(static_cast<int64_t>(4 * value.text().size()));
    return add(reprOfText(value.text()));
  case Kind::Dict: {
    add("{");
    bool first = true;
    for (const auto &[key, item] : value.pairs()) {
      if (!first)
        add(", ");
      first = false;
      repr(key, depth + 1);
      add(": ");
      repr(item, depth + 1);
    }
    return add("}");
  }
  case Kind::Sequence:
    break;
  default:
    fail(cat("a ", typeName(value), " cannot be printed"));
  }
  const auto &sequence = value.as<SequenceObject>();
  switch (sequence.flavor) {
  case Flavor::List:
    add("[");
    reprItems(sequence.items, depth);
    return add("]");
  case Flavor::Tuple:
    add("(");
    reprItems(sequence.items, depth);
    return add(sequence.items.size() == 1 ? ",)" : ")");
  case Flavor::Keys:
  case Flavor::Values:
  case Flavor::Items:
    add(typeName(value));
    add("([");
    reprItems(sequence.items, depth);
    return add("])");
  case Flavor::Range:
  case Flavor::Iterator:
    fail(cat("a ", typeName(value), " cannot be printed: expected a list of it (the filter 'list')"));
  }
}

void Printer::jsonText(const Value &value, bool ensureAscii) {
  constexpr char kHex[] = "0123456789abcdef";
  const std::string &text = value.text();
  heap_.check(static_cast<int64_t>(6 * text.size()));
  std::string quoted = "\"";
  const auto escape = [&](char32_t unit) {
    quoted += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4)
      quoted += kHex[unit >> shift & 15];
  };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = nextCodePoint(text, at);
    if (c == '"' || c == '\\')
      (quoted += '\\') += static_cast<char>(c);
    else if (c == '\n')
      quoted += "\\n";
    else if (c == '\r')
      quoted += "\\r";
    else if (c == '\t')
      quoted += "\\t";
    else if (c == '\b')
      quoted += "\\b";
    else if (c == '\f')
      quoted += "\\f";
    else if (c < 0x20 || (ensureAscii && c >= 0x7F && c < 0x10000))
      escape(c);
    else if (ensureAscii && c >= 0x10000) {
      escape(0xD800 + ((c - 0x10000) >> 10));
      escape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else
      quoted.append(text, begin, at - begin);
  }
  add(quoted += '"');
}

void Printer::jsonLine(const JsonStyle &style, int64_t depth) {
  if (!style.indented)
    return;
  add("\n");
  for (int64_t i = 0; i < depth; ++i)
    add(style.indent);
}

std::string jsonNumber(double value) {
  if (std::isnan(value))
    return "NaN";
  return std::isinf(value) ? (value < 0 ? "-Infinity" : "Infinity") : reprOfFloat(value);
}

// What json.dumps makes of a key.
Value jsonKey(Heap &heap, const Value &key) {
  switch (key.kind()) {
  case Kind::String:
    return key;
  case Kind::None:
    return makeText(heap, "null");
  case Kind::Boolean:
    return makeText(heap, key.integer() ? "true" : "false");
  case Kind::Integer:
    return makeText(heap, std::to_string(key.integer()));
  case Kind::Float:
    return makeText(heap, jsonNumber(key.real()));
  default:
    fail(cat("keys must be str, int, float, bool or None, not ", typeName(key)));
  }
}

void Printer::jsonDict(const Value &value, const JsonStyle &style, int64_t depth) {
  if (value.pairs().empty())
    return add("{}");
  std::vector<const std::pair<Value, Value> *> order;
  for (const auto &pair : value.pairs())
    order.push_back(&pair);
  if (style.sortKeys)
    std::stable_sort(order.begin(), order.end(),
                     [&](const auto *a, const auto *b) { return compare(heap_, a->first, b->first, "<") < 0; });
  add("{");
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0)
      add(style.item);
    jsonLine(style, depth + 1);
    jsonText(jsonKey(heap_, order[i]->first), style.ensureAscii);
    add(style.key);
    json(order[i]->second, style, depth + 1);
  }
  jsonLine(style, depth);
  add("}");
}

void Printer::json(const Value &value, const JsonStyle &style, int64_t depth) {
  heap_.checkDepth(depth);
  switch (value.kind()) {
  case Kind::None:
    return add("null");
  case Kind::Boolean:
    return add(value.integer() ? "true" : "false");
  case Kind::Integer:
    return add(std::to_string(value.integer()));
  case Kind::Float:
    return add(jsonNumber(value.real()));
  case Kind::String:
    return jsonText(value, style.ensureAscii);
  case Kind::Dict:
    return jsonDict(value, style, depth);
  default:
    break;
  }
  if (!value.is(Flavor::List) && !value.is(Flavor::Tuple))
    fail(cat("Object of type ", typeName(value), " is not JSON serializable"));
  if (value.items().empty())
    return add("[]");
  add("[");
  for (size_t i = 0; i < value.items().size(); ++i) {
    if (i > 0)
      add(style.item);
    jsonLine(style, depth + 1);
    json(value.items()[i], style, depth + 1);
  }
  jsonLine(style, depth);
  add("]");
}

} // namespace

std::string toText(Heap &heap, const Value &value) {
  if (value.isString())
    return value.text();
  if (value.is(Kind::Undefined))
    return "";
  return toRepr(heap, value);
}

std::string toRepr(Heap &heap, const Value &value) {
  Printer printer(heap);
  printer.repr(value, 1);
  return printer.take();
}

std::string toJson(Heap &heap, const Value &value, const JsonStyle &style) {
  Printer printer(heap);
  printer.json(value, style, 0);
  return printer.take();
}

} // namespace headrace::text::jinja
