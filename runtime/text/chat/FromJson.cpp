// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/FromJson.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/base/Utf8.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {

using model::cat;
using nlohmann::ordered_json;

namespace {

Value textFromJson(Heap &heap, const std::string &text, const std::string &name) {
  if (const size_t offset = model::invalidUtf8(text); offset != std::string::npos)
    fail(cat(printable(name, 100), " is not UTF-8 at byte ", offset));
  return makeText(heap, text);
}

void setText(Pairs &pairs, Heap &heap, const char *key, const Value &value) {
  setKey(heap, pairs, makeText(heap, key), value);
}

} // namespace

Value fromJson(Heap &heap, const ordered_json &json, const std::string &name) {
  switch (json.type()) {
  case ordered_json::value_t::boolean:
    return Value::boolean(json.get<bool>());
  case ordered_json::value_t::number_unsigned:
    if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail(cat(printable(name, 100), ": an integer of more than 64 bits is not supported"));
    [[fallthrough]];
  case ordered_json::value_t::number_integer:
    return Value::integer(json.get<int64_t>());
  case ordered_json::value_t::number_float:
    return Value::real(json.get<double>());
  case ordered_json::value_t::string:
    return textFromJson(heap, json.get_ref<const std::string &>(), name);
  case ordered_json::value_t::array: {
    std::vector<Value> items;
    for (const ordered_json &item : json)
      items.push_back(fromJson(heap, item, name));
    return makeSequence(heap, std::move(items));
  }
  case ordered_json::value_t::object: {
    Pairs pairs;
    for (const auto &[key, value] : json.items())
      pairs.emplace_back(textFromJson(heap, key, name), fromJson(heap, value, cat(name, ".", key)));
    return makeDict(heap, std::move(pairs));
  }
  default:
    return Value::none();
  }
}

Value messagesFromJson(Heap &heap, const ordered_json &messages) {
  std::vector<Value> made;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ordered_json &message = messages[i];
    const ordered_json *reasoning = nullptr;
    for (const char *key : {"reasoning_content", "thinking", "reasoning"})
      if (const auto found = message.find(key); !reasoning && found != message.end() && !found->is_null())
        reasoning = &*found;
    const std::string name = cat("messages[", i, "]");
    const Value reasoned = reasoning ? fromJson(heap, *reasoning, name) : Value();
    Pairs pairs;
    if (reasoning)
      setText(pairs, heap, "thinking", reasoned);
    for (const auto &[key, value] : message.items())
      if (!value.is_null())
        setKey(heap, pairs, textFromJson(heap, key, name), fromJson(heap, value, cat(name, ".", key)));
    if (reasoning)
      setText(pairs, heap, "reasoning_content", reasoned);
    made.push_back(makeDict(heap, std::move(pairs)));
  }
  return makeSequence(heap, std::move(made));
}

} // namespace headrace::text::jinja
