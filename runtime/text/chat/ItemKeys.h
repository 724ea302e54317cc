// SPDX-License-Identifier: Apache-2.0
//
// What a filter looks at of an item: the item itself, or an attribute of it ("function.name", 0, "age,name").
#pragma once

#include <vector>

#include "runtime/text/chat/Value.h"

namespace headrace::text::jinja {

class Machine;

class ItemKey {
public:
  enum class Case : bool { Kept, Ignored };

  // `attribute` not given or None: the item. `missing`, where it is given and not None, stands for what is undefined.
  ItemKey(Machine &machine, const Value &attribute, Case letters = Case::Kept, Value missing = Value());

  Value of(const Value &item) const;
  Value sortKey(const Value &item) const; // of several attributes with commas between them: all

private:
  Value along(const std::vector<Value> &path, Value item) const;

  Machine &machine_;
  Case letters_;
  Value missing_;
  std::vector<Value> path_;
  std::vector<std::vector<Value>> paths_;
};

} // namespace headrace::text::jinja
