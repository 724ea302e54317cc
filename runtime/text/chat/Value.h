// SPDX-License-Identifier: Apache-2.0
//
// A value of a template, as Python has it: a string is UTF-8 counted by code points, a dictionary keeps its order.
// Immutable but for namespaces, iterators and loops; what a value holds is counted in a Heap, which outlives it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/Heap.h"

namespace headrace::text::jinja {

enum class Kind : uint8_t {
  Absent, // no value at all: an argument that was not given
  Undefined,
  None,
  Boolean,
  Integer,
  Float,
  String,
  Sequence,
  Dict,
  Namespace,
  Callable,
  Loop,
};

// What kind of sequence: they print, index and compare differently. An iterator is empty once it was read.
enum class Flavor : uint8_t { List, Tuple, Range, Keys, Values, Items, Iterator };

struct Object {
  Object() = default;
  Object(const Object &) = delete;
  Object &operator=(const Object &) = delete;
  virtual ~Object() {
    if (heap)
      heap->release(bytes);
  }
  Heap *heap = nullptr; // null: a constant of the template
  int64_t bytes = 0;
  int64_t depth = 1;
  bool holdsNamespace = false;
};

class Value;
using Pairs = std::vector<std::pair<Value, Value>>;

class Value {
public:
  Value() = default; // Absent
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  static Value none() { return Value(Kind::None, nullptr); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value constant(std::string text); // a string outside every heap

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is(Flavor flavor) const;
  bool given() const { return kind_ != Kind::Absent; }
  bool isNone() const { return kind_ == Kind::None; }
  bool isString() const { return kind_ == Kind::String; }
  bool isInteger() const { return kind_ == Kind::Integer || kind_ == Kind::Boolean; } // a Boolean is one, as in Python
  bool isNumber() const { return isInteger() || kind_ == Kind::Float; }

  int64_t integer() const { return integer_; }                                    // of an integer or a Boolean
  double real() const { return kind_ == Kind::Float ? real_ : double(integer_); } // of any number
  // Of a value that goes away they are copies.
  const std::string &text() const &; // of a String
  std::string text() const && { return static_cast<const Value &>(*this).text(); }
  const std::vector<Value> &items() const &; // of a Sequence
  std::vector<Value> items() const && { return static_cast<const Value &>(*this).items(); }
  const Pairs &pairs() const; // of a Dict
  int64_t codePoints() const; // of a String
  template <class T> T &as() const { return static_cast<T &>(*object_); }
  const std::shared_ptr<Object> &object() const { return object_; }

  // Of an Undefined: of what it is a missing attribute or element; see undefined().
  Kind missingFrom() const { return static_cast<Kind>(integer_); }
  void setMissingFrom(Kind kind) { integer_ = static_cast<int64_t>(kind); }

private:
  Kind kind_ = Kind::Absent;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  std::string text;
  int64_t codePoints = 0;
};
struct SequenceObject : Object {
  Flavor flavor = Flavor::List;
  std::vector<Value> items;
  size_t next = 0; // of an iterator
};
struct DictObject : Object {
  Pairs pairs;
};
struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;
};
struct LoopObject : Object {
  Value items;
  int64_t index = 0, length = 0; // index from 0
  std::vector<Value> lastChanged;
  bool changedBefore = false;
};

Value makeText(Heap &heap, std::string text);
Value makeSequence(Heap &heap, std::vector<Value> items, Flavor flavor = Flavor::List);
inline Value makeIterator(Heap &heap, std::vector<Value> items) {
  return makeSequence(heap, std::move(items), Flavor::Iterator);
}
Value makeDict(Heap &heap, Pairs pairs); // keys are already unique
Value makeNamespace(Heap &heap);
// For other objects: counts `bytes`, and the depth of what they hold.
void adopt(Heap &heap, Object &object, int64_t bytes);
void holdWithin(Heap &heap, Object &object, const Value &held);

// A name that nothing has (`from` Absent), a missing attribute or element `name` of a value of that kind, or, with
// `from` Undefined, a hint that is the whole message.
Value undefined(Value name, Kind from);
Value undefinedElement(Heap &heap, const Value &of, const Value &key);
std::string undefinedMessage(const Value &value);

bool truthy(const Value &value);
// As Python names types: "str", "int", "NoneType".
std::string typeName(const Value &value);

// ==; numbers of all kinds compare by value. compare(): as <; below 0, 0, above 0; fails where Python does, naming
// `op`.
bool equal(Heap &heap, const Value &a, const Value &b);
int compare(Heap &heap, const Value &a, const Value &b, std::string_view op);
const Value *findKey(Heap &heap, const Pairs &pairs, const Value &key);
void setKey(Heap &heap, Pairs &pairs, Value key, Value value); // fails where the key is not hashable

// str() and repr(). PrintValue.cpp.
std::string toText(Heap &heap, const Value &value);
std::string toRepr(Heap &heap, const Value &value);

struct JsonStyle {
  bool ensureAscii = false, sortKeys = false, indented = false;
  std::string indent, item = ", ", key = ": ";
};
std::string toJson(Heap &heap, const Value &value, const JsonStyle &style);

} // namespace headrace::text::jinja
