// SPDX-License-Identifier: Apache-2.0
//
// For .cpp files only: nlohmann-json is no part of the contracts.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/text/chat/Conversation.h"

namespace headrace::text {

struct ConversationData {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools; // null: none
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
};

} // namespace headrace::text
