// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/Value.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/Text.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {

using model::cat;

void fail(std::string message) { throw TemplateError{std::move(message)}; }

void Heap::tooManySteps() const { fail(cat("the template takes more than ", limits_.steps, " steps")); }
void Heap::tooManyBytes() const {
  fail(cat("the template's text and values take more than ", limits_.bytes, " bytes"));
}
void Heap::tooDeep() const { fail(cat("the template nests deeper than ", limits_.depth)); }

Value Value::boolean(bool value) {
  Value made(Kind::Boolean, nullptr);
  made.integer_ = value;
  return made;
}
Value Value::integer(int64_t value) {
  Value made(Kind::Integer, nullptr);
  made.integer_ = value;
  return made;
}
Value Value::real(double value) {
  Value made(Kind::Float, nullptr);
  made.real_ = value;
  return made;
}
Value Value::constant(std::string text) {
  auto object = std::make_shared<StringObject>();
  object->codePoints = countCodePoints(text);
  object->text = std::move(text);
  return {Kind::String, std::move(object)};
}

bool Value::is(Flavor flavor) const { return kind_ == Kind::Sequence && as<SequenceObject>().flavor == flavor; }
const std::string &Value::text() const & { return as<StringObject>().text; }
int64_t Value::codePoints() const { return as<StringObject>().codePoints; }
const std::vector<Value> &Value::items() const & { return as<SequenceObject>().items; }
const Pairs &Value::pairs() const { return as<DictObject>().pairs; }

void adopt(Heap &heap, Object &object, int64_t bytes) {
  heap.hold(bytes);
  object.heap = &heap;
  object.bytes = bytes;
}

void holdWithin(Heap &heap, Object &object, const Value &held) {
  if (!held.object())
    return;
  if (held.object()->depth >= object.depth) {
    object.depth = held.object()->depth + 1;
    heap.checkDepth(object.depth);
  }
  object.holdsNamespace = object.holdsNamespace || held.object()->holdsNamespace;
}

Value makeText(Heap &heap, std::string text) {
  heap.read(text.size());
  auto object = std::make_shared<StringObject>();
  adopt(heap, *object, static_cast<int64_t>(sizeof(StringObject) + text.size()));
  object->codePoints = countCodePoints(text);
  object->text = std::move(text);
  return {Kind::String, std::move(object)};
}

Value makeSequence(Heap &heap, std::vector<Value> items, Flavor flavor) {
  heap.visit(items.size());
  auto object = std::make_shared<SequenceObject>();
  adopt(heap, *object, static_cast<int64_t>(sizeof(SequenceObject) + items.size() * sizeof(Value)));
  for (const Value &item : items)
    holdWithin(heap, *object, item);
  object->flavor = flavor;
  object->items = std::move(items);
  return {Kind::Sequence, std::move(object)};
}

Value makeDict(Heap &heap, Pairs pairs) {
  heap.visit(pairs.size());
  auto object = std::make_shared<DictObject>();
  adopt(heap, *object, static_cast<int64_t>(sizeof(DictObject) + pairs.size() * 2 * sizeof(Value)));
  for (const auto &[key, value] : pairs) {
    holdWithin(heap, *object, key);
    holdWithin(heap, *object, value);
  }
  object->pairs = std::move(pairs);
  return {Kind::Dict, std::move(object)};
}

Value makeNamespace(Heap &heap) {
  auto object = std::make_shared<NamespaceObject>();
  adopt(heap, *object, sizeof(NamespaceObject));
  object->holdsNamespace = true;
  return {Kind::Namespace, std::move(object)};
}

Value undefined(Value name, Kind from) {
  Value made(Kind::Undefined, name.object());
  made.setMissingFrom(from);
  return made;
}

Value undefinedElement(Heap &heap, const Value &of, const Value &key) {
  if (key.isString())
    return undefined(key, of.kind());
  // The whole message is the hint.
  std::string type = of.isNone() ? "None" : typeName(of) + " object";
  return undefined(makeText(heap, type + " has no element " + toRepr(heap, key)), Kind::Undefined);
}

std::string undefinedMessage(const Value &value) {
  std::string name = value.object() ? value.as<StringObject>().text : "";
  switch (value.missingFrom()) {
  case Kind::Absent:
    return reprOfText(name) + " is undefined";
  case Kind::Undefined:
    return name;
  case Kind::None:
    return "'None' has no attribute " + reprOfText(name);
  default: {
    Value of(value.missingFrom(), nullptr);
    const std::string type = of.is(Kind::Sequence) ? "list" : typeName(of);
    return cat("'", type, " object' has no attribute ", reprOfText(name));
  }
  }
}

bool truthy(const Value &value) {
  switch (value.kind()) {
  case Kind::Absent:
  case Kind::Undefined:
  case Kind::None:
    return false;
  case Kind::Boolean:
  case Kind::Integer:
    return value.integer() != 0;
  case Kind::Float:
    return value.real() != 0;
  case Kind::String:
    return !value.text().empty();
  case Kind::Sequence:
    return value.is(Flavor::Iterator) || !value.items().empty();
  case Kind::Dict:
    return !value.pairs().empty();
  default:
    return true;
  }
}

std::string typeName(const Value &value) {
  switch (value.kind()) {
  case Kind::Absent:
  case Kind::Undefined:
    return "Undefined";
  case Kind::None:
    return "NoneType";
  case Kind::Boolean:
    return "bool";
  case Kind::Integer:
    return "int";
  case Kind::Float:
    return "float";
  case Kind::String:
    return "str";
  case Kind::Dict:
    return "dict";
  case Kind::Namespace:
    return "Namespace";
  case Kind::Callable:
    return "function";
  case Kind::Loop:
    return "LoopContext";
  case Kind::Sequence:
    break;
  }
  switch (value.as<SequenceObject>().flavor) {
  case Flavor::List:
    return "list";
  case Flavor::Tuple:
    return "tuple";
  case Flavor::Range:
    return "range";
  case Flavor::Keys:
    return "dict_keys";
  case Flavor::Values:
    return "dict_values";
  case Flavor::Items:
    return "dict_items";
  case Flavor::Iterator:
    return "generator";
  }
  return "list";
}

bool equal(Heap &heap, const Value &a, const Value &b) {
  heap.step();
  if (a.isNumber() && b.isNumber())
    return a.isInteger() && b.isInteger() ? a.integer() == b.integer() : a.real() == b.real();
  if (a.kind() != b.kind())
    return false;
  switch (a.kind()) {
  case Kind::Absent:
  case Kind::Undefined:
  case Kind::None:
    return true;
  case Kind::String:
    heap.read(std::min(a.text().size(), b.text().size()));
    return a.text() == b.text();
  case Kind::Sequence: {
    if (a.object() == b.object())
      return true;
    const auto &x = a.as<SequenceObject>(), &y = b.as<SequenceObject>();
    if (x.flavor != y.flavor || x.items.size() != y.items.size() || x.flavor == Flavor::Iterator ||
        x.flavor == Flavor::Values)
      return false;
    for (size_t i = 0; i < x.items.size(); ++i)
      if (!equal(heap, x.items[i], y.items[i]))
        return false;
    return true;
  }
  case Kind::Dict: {
    if (a.pairs().size() != b.pairs().size())
      return false;
    for (const auto &[key, value] : a.pairs()) {
      const Value *other = findKey(heap, b.pairs(), key);
      if (!other || !equal(heap, value, *other))
        return false;
    }
    return true;
  }
  default:
    return a.object() == b.object();
  }
}

int compare(Heap &heap, const Value &a, const Value &b, std::string_view op) {
  heap.step();
  if (a.isNumber() && b.isNumber()) {
    if (a.isInteger() && b.isInteger())
      return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
    return a.real() < b.real() ? -1 : a.real() > b.real();
  }
  if (a.isString() && b.isString()) {
    heap.read(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text());
  }
  if ((a.is(Flavor::List) && b.is(Flavor::List)) || (a.is(Flavor::Tuple) && b.is(Flavor::Tuple))) {
    const auto &x = a.items(), &y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(heap, x[i], y[i]))
        return compare(heap, x[i], y[i], op);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  if (a.is(Kind::Undefined) || b.is(Kind::Undefined))
    fail(undefinedMessage(a.is(Kind::Undefined) ? a : b));
  fail(cat("'", op, "' not supported between instances of '", typeName(a), "' and '", typeName(b), "'"));
}

const Value *findKey(Heap &heap, const Pairs &pairs, const Value &key) {
  size_t looked = 0;
  for (const auto &[have, value] : pairs) {
    ++looked;
    const bool same = key.isString() ? have.isString() && have.text() == key.text() : equal(heap, have, key);
    if (same) {
      heap.visit(looked / 4);
      return &value;
    }
  }
  heap.visit(looked / 4);
  return nullptr;
}

void setKey(Heap &heap, Pairs &pairs, Value key, Value value) {
  if (key.is(Kind::Dict) || key.is(Flavor::List))
    fail(cat("unhashable type: '", typeName(key), "'"));
  if (const Value *have = findKey(heap, pairs, key))
    *const_cast<Value *>(have) = std::move(value);
  else
    pairs.emplace_back(std::move(key), std::move(value));
}

} // namespace headrace::text::jinja
