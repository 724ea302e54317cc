// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/ItemKeys.h"

#include <algorithm>
#include <utility>

#include "runtime/text/chat/Characters.h"
#include "runtime/text/chat/Evaluate.h"

namespace headrace::text::jinja {
namespace {

constexpr size_t kMostParts = 64;

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
    if (parts.size() > kMostParts)
      fail("an attribute of too many parts");
  }
  return parts;
}

// Integer parts are looked up as integers.
std::vector<Value> pathOf(Machine &machine, std::string_view attribute) {
  std::vector<Value> path;
  for (std::string &part : split(attribute, '.')) {
    const bool isNumber =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string::npos;
    path.push_back(isNumber ? Value::integer(std::stoll(part)) : machine.text(std::move(part)));
  }
  return path;
}

} // namespace

ItemKey::ItemKey(Machine &machine, const Value &attribute, Case letters, Value missing)
    : machine_(machine), letters_(letters), missing_(std::move(missing)) {
  if (!attribute.given() || attribute.isNone()) {
    paths_ = {{}};
  } else if (attribute.isString()) {
    path_ = pathOf(machine, attribute.text());
    for (const std::string &one : split(attribute.text(), ','))
      paths_.push_back(pathOf(machine, one));
  } else {
    path_ = {attribute};
    paths_ = {path_};
  }
}

Value ItemKey::along(const std::vector<Value> &path, Value item) const {
  for (const Value &part : path) {
    machine_.heap().step();
    item = machine_.element(item, part);
    if (item.is(Kind::Undefined) && missing_.given() && !missing_.isNone())
      item = missing_;
  }
  if (letters_ == Case::Kept || !item.isString())
    return item;
  machine_.heap().examine(item.text().size());
  return machine_.text(lower(item.text()));
}

Value ItemKey::of(const Value &item) const { return along(path_, item); }

Value ItemKey::sortKey(const Value &item) const {
  if (paths_.size() == 1)
    return along(paths_[0], item);
  std::vector<Value> keys;
  for (const auto &path : paths_)
    keys.push_back(along(path, item));
  return makeSequence(machine_.heap(), std::move(keys));
}

} // namespace headrace::text::jinja
