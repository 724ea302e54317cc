// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/Builtins.h"

#include <algorithm>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Evaluate.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {
namespace {

using model::cat;

const Builtin *find(absl::Span<const Builtin> table, std::string_view name) {
  for (const Builtin &builtin : table)
    if (builtin.name == name)
      return &builtin;
  return nullptr;
}

// dict(mapping or pairs, name=value, ...)
Pairs pairsOf(Machine &machine, const Arguments &arguments) {
  Heap &heap = machine.heap();
  if (arguments.values.size() > 1)
    fail(cat("dict expected at most 1 argument, got ", arguments.values.size()));
  Pairs pairs;
  if (!arguments.values.empty()) {
    const Value &given = arguments.values[0];
    if (given.is(Kind::Dict)) {
      pairs = given.pairs();
    } else
      for (const Value &pair : iterated(heap, given).items()) {
        const Value two = iterated(heap, pair);
        if (two.items().size() != 2)
          fail("dictionary update sequence elements have to be pairs");
        setKey(heap, pairs, two.items()[0], two.items()[1]);
      }
  }
  for (const auto &[keyword, value] : arguments.keywords)
    setKey(heap, pairs, machine.text(std::string(keyword)), value);
  return pairs;
}

Value dictFunction(Machine &machine, const Value &, const Arguments &arguments) {
  return makeDict(machine.heap(), pairsOf(machine, arguments));
}

Value namespaceFunction(Machine &machine, const Value &, const Arguments &arguments) {
  Value made = makeNamespace(machine.heap());
  for (auto &[key, value] : pairsOf(machine, arguments)) {
    const std::string &name = textOf(key);
    if (!name.empty() && name[0] == '_')
      fail(cat("Chat templates cannot store underscore-prefixed attributes on a namespace, but got ",
               reprOfText(printable(name, 60)), ". Please rename the attribute."));
    if (value.object() && value.object()->holdsNamespace)
      fail("a namespace within a namespace is not supported");
    made.as<NamespaceObject>().attributes.emplace_back(name, value);
  }
  return made;
}

// jinja2's sandbox allows as many numbers.
constexpr int64_t kLongestRange = 100'000;

Value rangeFunction(Machine &machine, const Value &, const Arguments &arguments) {
  for (const Value &argument : arguments.values)
    if (argument.isNone())
      fail("'NoneType' object cannot be interpreted as an integer");
  const bool one = !arguments[1].given();
  const int64_t start = one ? 0 : integerOr(arguments[0], 0), stop = integerOr(arguments[one ? 0 : 1], 0);
  const int64_t step = integerOr(arguments[2], 1);
  if (step == 0)
    fail("range() arg 3 must not be zero");
  const __int128 distance = static_cast<__int128>(stop) - start;
  const __int128 count = step > 0 ? (distance + step - 1) / step : (distance + step + 1) / step;
  if (count > kLongestRange)
    fail(cat("Range too big. The sandbox blocks ranges larger than MAX_RANGE (", kLongestRange, ")."));
  std::vector<Value> numbers;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i)
    numbers.push_back(Value::integer(start + i * step));
  return makeSequence(machine.heap(), std::move(numbers), Flavor::Range);
}

Value raiseException(Machine &machine, const Value &, const Arguments &arguments) {
  fail(toText(machine.heap(), arguments[0]));
}

constexpr Builtin kFunctions[] = {
    {"dict", "*", 0, dictFunction},
    {"namespace", "*", 0, namespaceFunction},
    {"raise_exception", "message", 1, raiseException},
    {"range", "start stop step", 1, rangeFunction},
    {"strftime_now", "format", 1, strftimeNow},
};

Value itemsMethod(Machine &machine, const Value &self, const Arguments &) {
  std::vector<Value> items;
  for (const auto &[key, value] : self.pairs())
    items.push_back(makeSequence(machine.heap(), {key, value}, Flavor::Tuple));
  return makeSequence(machine.heap(), std::move(items), Flavor::Items);
}

Value keysMethod(Machine &machine, const Value &self, const Arguments &) {
  std::vector<Value> keys;
  for (const auto &[key, value] : self.pairs())
    keys.push_back(key);
  return makeSequence(machine.heap(), std::move(keys), Flavor::Keys);
}

Value valuesMethod(Machine &machine, const Value &self, const Arguments &) {
  std::vector<Value> values;
  for (const auto &[key, value] : self.pairs())
    values.push_back(value);
  return makeSequence(machine.heap(), std::move(values), Flavor::Values);
}

Value getMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  if (arguments[0].is(Kind::Dict) || arguments[0].is(Flavor::List))
    fail(cat("unhashable type: '", typeName(arguments[0]), "'"));
  const Value *found = findKey(machine.heap(), self.pairs(), arguments[0]);
  return found ? *found : arguments[1].given() ? arguments[1] : Value::none();
}

Value copyMethod(Machine &, const Value &self, const Arguments &) { return self; } // nothing changes it

constexpr Builtin kDictMethods[] = {
    {"copy", "", 0, copyMethod}, {"get", "key default", 1, getMethod}, {"items", "", 0, itemsMethod},
    {"keys", "", 0, keysMethod}, {"values", "", 0, valuesMethod},
};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

Value countItem(Machine &machine, const Value &self, const Arguments &arguments) {
  return Value::integer(std::count_if(self.items().begin(), self.items().end(),
                                      [&](const Value &item) { return equal(machine.heap(), item, arguments[0]); }));
}

Value indexOfItem(Machine &machine, const Value &self, const Arguments &arguments) {
  for (size_t i = 0; i < self.items().size(); ++i)
    if (equal(machine.heap(), self.items()[i], arguments[0]))
      return Value::integer(static_cast<int64_t>(i));
  fail(cat(toRepr(machine.heap(), arguments[0]), " is not in ", typeName(self)));
}

constexpr Builtin kListMethods[] = {
    {"copy", "", 0, copyMethod}, {"count", "value", 1, countItem}, {"index", "value", 1, indexOfItem}};
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};

Value cycleMethod(Machine &, const Value &self, const Arguments &arguments) {
  if (arguments.values.empty())
    fail("no items for cycling given");
  return arguments.values[static_cast<size_t>(self.as<LoopObject>().index) % arguments.values.size()];
}

Value changedMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  auto &loop = self.as<LoopObject>();
  bool same = loop.changedBefore && loop.lastChanged.size() == arguments.values.size();
  for (size_t i = 0; same && i < arguments.values.size(); ++i)
    same = equal(machine.heap(), loop.lastChanged[i], arguments.values[i]);
  for (const Value &value : arguments.values)
    if (value.is(Kind::Loop))
      fail("a loop cannot hold a loop");
  loop.changedBefore = true;
  loop.lastChanged = arguments.values;
  return Value::boolean(!same);
}

constexpr Builtin kLoopMethods[] = {{"changed", "*", 0, changedMethod}, {"cycle", "*", 0, cycleMethod}};

} // namespace

size_t Builtin::most() const {
  return parameters.empty() ? 0 : static_cast<size_t>(std::count(parameters.begin(), parameters.end(), ' ')) + 1;
}

size_t Builtin::indexOf(std::string_view parameter) const {
  size_t index = 0;
  for (size_t begin = 0; begin < parameters.size(); ++index) {
    const size_t end = std::min(parameters.find(' ', begin), parameters.size());
    if (parameters.substr(begin, end - begin) == parameter)
      return index;
    begin = end + 1;
  }
  return index;
}

const Builtin *findFilter(std::string_view name) {
  for (const auto table : {textFilters(), sequenceFilters(), selectFilters()})
    if (const Builtin *found = find(table, name))
      return found;
  return nullptr;
}

const Builtin *findFunction(std::string_view name) { return find(kFunctions, name); }

const Builtin *findMethod(const Value &self, std::string_view name) {
  if (self.isString())
    return find(textMethods(), name);
  if (self.is(Kind::Dict))
    return find(kDictMethods, name);
  if (self.is(Kind::Loop))
    return find(kLoopMethods, name);
  if (self.is(Flavor::List))
    return find(kListMethods, name);
  return self.is(Flavor::Tuple) && name != "copy" ? find(kListMethods, name) : nullptr;
}

bool isMutator(const Value &self, std::string_view name) {
  const auto has = [&](const auto &names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (self.is(Kind::Dict) && has(kDictMutators)) || (self.is(Flavor::List) && has(kListMutators));
}

bool isMethodName(std::string_view name) {
  const auto has = [&](const auto &names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return find(textMethods(), name) || find(kDictMethods, name) || find(kListMethods, name) ||
         find(kLoopMethods, name) || has(kDictMutators) || has(kListMutators);
}

} // namespace headrace::text::jinja
