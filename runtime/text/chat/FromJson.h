// SPDX-License-Identifier: Apache-2.0
//
// For .cpp files only: a conversation as a template's values.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "runtime/text/chat/Value.h"

namespace headrace::text::jinja {

// `name` begins messages about a string that is no UTF-8 ("messages[2].content").
Value fromJson(Heap &heap, const nlohmann::ordered_json &json, const std::string &name);

// As transformers passes messages on: keys of null are left out, and what a message reasoned is found under
// reasoning_content and thinking, whichever it came under.
Value messagesFromJson(Heap &heap, const nlohmann::ordered_json &messages);

} // namespace headrace::text::jinja
