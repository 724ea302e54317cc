// SPDX-License-Identifier: Apache-2.0
//
// Filters of sequences and dictionaries that call nothing.
#include <algorithm>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Builtins.h"
#include "runtime/text/chat/Characters.h"
#include "runtime/text/chat/Evaluate.h"
#include "runtime/text/chat/ItemKeys.h"
#include "runtime/text/chat/TextParts.h"

namespace headrace::text::jinja {
namespace {

using model::cat;

Value lengthFilter(Machine &, const Value &self, const Arguments &) { return Value::integer(lengthOf(self)); }

Value firstFilter(Machine &machine, const Value &self, const Arguments &) {
  const Value none = undefined(machine.text("No first item, sequence was empty."), Kind::Undefined);
  if (self.is(Flavor::Iterator)) {
    auto &iterator = self.as<SequenceObject>();
    return iterator.next < iterator.items.size() ? iterator.items[iterator.next++] : none;
  }
  if (self.isString())
    return self.text().empty() ? none : elementOf(machine.heap(), self, Value::integer(0));
  const Value items = iterated(machine.heap(), self);
  return items.items().empty() ? none : items.items().front();
}

void requireReversible(const Value &self) {
  if (self.is(Flavor::Iterator) || self.is(Kind::Undefined))
    fail(self.is(Kind::Undefined) ? undefinedMessage(self) : "'generator' object is not reversible");
}

Value lastFilter(Machine &machine, const Value &self, const Arguments &) {
  requireReversible(self);
  const Value none = undefined(machine.text("No last item, sequence was empty."), Kind::Undefined);
  if (self.isString())
    return self.text().empty() ? none : elementOf(machine.heap(), self, Value::integer(-1));
  const Value items = iterated(machine.heap(), self);
  return items.items().empty() ? none : items.items().back();
}

Value listFilter(Machine &machine, const Value &self, const Arguments &) {
  return makeSequence(machine.heap(), iterated(machine.heap(), self).items());
}

Value reverseFilter(Machine &machine, const Value &self, const Arguments &) {
  if (self.isString())
    return slice(machine.heap(), self, Value::none(), Value::none(), Value::integer(-1));
  std::vector<Value> items = iterated(machine.heap(), self).items();
  std::reverse(items.begin(), items.end());
  return makeIterator(machine.heap(), std::move(items));
}

Value joinFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  Heap &heap = machine.heap();
  const std::string between = arguments[0].given() ? toText(heap, arguments[0]) : "";
  const ItemKey key(machine, arguments[1]);
  const Value items = iterated(heap, self);
  std::string joined;
  for (size_t i = 0; i < items.items().size(); ++i) {
    if (i > 0)
      append(heap, joined, between);
    const Value item = key.of(items.items()[i]);
    append(heap, joined, item.isString() ? item.text() : toText(heap, item));
  }
  return machine.text(std::move(joined));
}

Value itemsFilter(Machine &machine, const Value &self, const Arguments &) {
  std::vector<Value> items;
  if (self.is(Kind::Undefined))
    return makeIterator(machine.heap(), {});
  if (!self.is(Kind::Dict))
    fail("Can only get item pairs from a mapping.");
  for (const auto &[key, value] : self.pairs())
    items.push_back(makeSequence(machine.heap(), {key, value}, Flavor::Tuple));
  return makeIterator(machine.heap(), std::move(items));
}

// A stable sort of items by their keys.
std::vector<Value> sorted(Heap &heap, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto &a, const auto &b) {
    return (reverse ? compare(heap, b.first, a.first, "<") : compare(heap, a.first, b.first, "<")) < 0;
  });
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (auto &[key, item] : keyed)
    items.push_back(std::move(item));
  return items;
}

Value sortFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  Heap &heap = machine.heap();
  const ItemKey key(machine, arguments[2], truthy(arguments[1]) ? ItemKey::Case::Kept : ItemKey::Case::Ignored);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value &item : iterated(heap, self).items())
    keyed.emplace_back(key.sortKey(item), item);
  return makeSequence(heap, sorted(heap, std::move(keyed), truthy(arguments[0])));
}

Value dictsortFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  Heap &heap = machine.heap();
  const std::string by = arguments[1].given() ? textOf(arguments[1]) : "key";
  if (by != "key" && by != "value")
    fail("You can only sort by either \"key\" or \"value\"");
  if (!self.is(Kind::Dict))
    fail(self.is(Kind::Undefined) ? undefinedMessage(self)
                                  : cat("'", typeName(self), " object' has no attribute 'items'"));
  const ItemKey key(machine, Value(), truthy(arguments[0]) ? ItemKey::Case::Kept : ItemKey::Case::Ignored);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto &[name, value] : self.pairs())
    keyed.emplace_back(key.sortKey(by == "key" ? name : value), makeSequence(heap, {name, value}, Flavor::Tuple));
  return makeSequence(heap, sorted(heap, std::move(keyed), truthy(arguments[2])));
}

Value uniqueFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  Heap &heap = machine.heap();
  const ItemKey key(machine, arguments[1], truthy(arguments[0]) ? ItemKey::Case::Kept : ItemKey::Case::Ignored);
  Pairs seen;
  std::vector<Value> kept;
  for (const Value &item : iterated(heap, self).items()) {
    const size_t before = seen.size();
    setKey(heap, seen, key.of(item), Value());
    if (seen.size() > before)
      kept.push_back(item);
  }
  return makeIterator(heap, std::move(kept));
}

template <bool largest> Value extremeFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  Heap &heap = machine.heap();
  const ItemKey key(machine, arguments[1], truthy(arguments[0]) ? ItemKey::Case::Kept : ItemKey::Case::Ignored);
  Value best, bestKey;
  for (const Value &item : iterated(heap, self).items()) {
    Value itemKey = key.of(item);
    if (best.given() &&
        (largest ? compare(heap, itemKey, bestKey, ">") <= 0 : compare(heap, itemKey, bestKey, "<") >= 0))
      continue;
    best = item;
    bestKey = std::move(itemKey);
  }
  return best.given() ? best : undefined(machine.text("No aggregated item, sequence was empty."), Kind::Undefined);
}

Value sumFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  const ItemKey key(machine, arguments[0]);
  Value sum = arguments[1].given() ? arguments[1] : Value::integer(0);
  if (sum.isString())
    fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value &item : iterated(machine.heap(), self).items())
    sum = arithmetic(machine.heap(), "+", sum, key.of(item));
  return sum;
}

Value batchFilter(Machine &machine, const Value &self, const Arguments &arguments) {
  Heap &heap = machine.heap();
  const int64_t size = integerOr(arguments[0], 0);
  const Value items = iterated(heap, self);
  std::vector<Value> batches, batch;
  for (const Value &item : items.items()) {
    if (static_cast<int64_t>(batch.size()) == size)
      batches.push_back(makeSequence(heap, std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (arguments[1].given() && !arguments[1].isNone() && static_cast<int64_t>(batch.size()) < size) {
      heap.check(size > (int64_t{1} << 40) ? size : size * static_cast<int64_t>(sizeof(Value)));
      batch.resize(static_cast<size_t>(size), arguments[1]);
    }
    batches.push_back(makeSequence(heap, std::move(batch)));
  }
  return makeIterator(heap, std::move(batches));
}

constexpr Builtin kFilters[] = {
    {"batch", "linecount fill_with", 1, batchFilter},
    {"count", "", 0, lengthFilter},
    {"dictsort", "case_sensitive by reverse", 0, dictsortFilter},
    {"first", "", 0, firstFilter},
    {"items", "", 0, itemsFilter},
    {"join", "d attribute", 0, joinFilter},
    {"last", "", 0, lastFilter},
    {"length", "", 0, lengthFilter},
    {"list", "", 0, listFilter},
    {"max", "case_sensitive attribute", 0, extremeFilter<true>},
    {"min", "case_sensitive attribute", 0, extremeFilter<false>},
    {"reverse", "", 0, reverseFilter},
    {"sort", "reverse case_sensitive attribute", 0, sortFilter},
    {"sum", "attribute start", 0, sumFilter},
    {"unique", "case_sensitive attribute", 0, uniqueFilter},
};

} // namespace

absl::Span<const Builtin> sequenceFilters() { return kFilters; }

} // namespace headrace::text::jinja
