// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/Conversation.h"

#include <algorithm>
#include <utility>

#include "runtime/base/BoxedImpl.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/chat/ConversationData.h"

namespace headrace::model {
template class Boxed<text::ConversationData>;
} // namespace headrace::model

namespace headrace::text {
namespace {

using model::cat;
using nlohmann::ordered_json;

absl::Status refused(const std::string &where, std::string_view key, const ordered_json &value,
                     std::string_view expected) {
  return absl::InvalidArgumentError(cat(where, ": ", key, " = ", model::jsonText(value), ": expected ", expected));
}

// Of a role that people and models do not have: its content is what a program says.
bool isTools(std::string_view role) {
  return role != "system" && role != "developer" && role != "user" && role != "assistant";
}

absl::Status checkContent(const ordered_json &message, const std::string &at, const std::string &where) {
  const auto content = message.find("content");
  const auto calls = message.find("tool_calls");
  const bool hasCalls = calls != message.end() && !calls->is_null();
  if (hasCalls && !calls->is_array())
    return refused(where, at + ".tool_calls", *calls, "a list");
  if (content == message.end() || content->is_null())
    return hasCalls ? absl::OkStatus()
                    : absl::InvalidArgumentError(cat(where, ": ", at, ".content is ",
                                                     content == message.end() ? "missing" : "null",
                                                     ": expected a string or a list of parts"));
  if (content->is_string() || (content->is_object() && isTools(message["role"].get_ref<const std::string &>())))
    return absl::OkStatus();
  if (!content->is_array())
    return refused(where, at + ".content", *content, "a string or a list of parts");
  for (size_t i = 0; i < content->size(); ++i) {
    const ordered_json &part = (*content)[i];
    const std::string name = cat(at, ".content[", i, "]");
    if (!part.is_object())
      return refused(where, name, part, "an object of type text");
    const auto type = part.find("type"), text = part.find("text");
    if (type == part.end() || *type != "text")
      return refused(where, name + ".type", type == part.end() ? ordered_json() : *type,
                     "\"text\", the only type of part that is supported");
    if (text == part.end() || !text->is_string())
      return refused(where, name + ".text", text == part.end() ? ordered_json() : *text, "a string");
  }
  return absl::OkStatus();
}

absl::Status checkMessage(const ordered_json &message, size_t index, const std::string &where) {
  const std::string at = cat("messages[", index, "]");
  if (!message.is_object())
    return refused(where, at, message, "an object");
  const auto role = message.find("role");
  if (role == message.end())
    return absl::InvalidArgumentError(cat(where, ": ", at, ".role is missing"));
  if (!role->is_string()) // which there are the template knows
    return refused(where, at + ".role", *role, "a string");
  return checkContent(message, at, where);
}

absl::Status setVariable(ConversationData &data, std::string_view variable, ordered_json value) {
  for (const std::string_view own : {"messages", "tools", "add_generation_prompt"})
    if (variable == own)
      return absl::InvalidArgumentError(cat(own, " is a variable that the conversation itself sets"));
  data.variables[std::string(variable)] = std::move(value);
  return absl::OkStatus();
}

} // namespace

Conversation::Conversation() = default;

absl::StatusOr<Conversation> Conversation::parse(std::string_view json, const std::string &where) {
  ASSIGN_OR_RETURN(document, model::parseOrderedJson(json, where));
  Conversation made;
  ConversationData &data = *made.data_;
  if (document.is_object()) {
    for (const auto &[key, value] : document.items()) {
      if (key == "messages")
        continue;
      if (key == "tools") {
        if (!value.is_array() && !value.is_null())
          return refused(where, "tools", value, "a list");
        for (size_t i = 0; i < value.size(); ++i)
          if (!value[i].is_object())
            return refused(where, cat("tools[", i, "]"), value[i], "an object");
        data.tools = value;
      } else if (key == "chat_template_kwargs") {
        if (!value.is_object())
          return refused(where, key, value, "an object");
        for (const auto &[variable, set] : value.items())
          if (const absl::Status status = setVariable(data, variable, set); !status.ok())
            return absl::InvalidArgumentError(cat(where, ": chat_template_kwargs: ", status.message()));
      } else
        return absl::InvalidArgumentError(cat(where, ": \"", model::escaped(key, 60),
                                              "\" is no key of a conversation: expected messages, tools or "
                                              "chat_template_kwargs"));
    }
    const auto messages = document.find("messages");
    if (messages == document.end())
      return absl::InvalidArgumentError(cat(where, ": messages is missing"));
    data.messages = *messages;
  } else
    data.messages = std::move(document);
  if (!data.messages.is_array())
    return refused(where, "messages", data.messages, "a list");
  if (data.messages.empty())
    return absl::InvalidArgumentError(cat(where, ": messages is empty: expected at least one message"));
  for (size_t i = 0; i < data.messages.size(); ++i)
    RETURN_IF_ERROR(checkMessage(data.messages[i], i, where));
  return made;
}

void Conversation::add(std::string_view role, std::string_view content) {
  data_->messages.push_back({{"role", role}, {"content", content}});
}

void Conversation::addFirst(std::string_view role, std::string_view content) {
  data_->messages.insert(data_->messages.begin(), nlohmann::ordered_json{{"role", role}, {"content", content}});
}

absl::Status Conversation::set(std::string_view variable, std::string_view json) {
  ASSIGN_OR_RETURN(value, model::parseOrderedJson(json, model::escaped(variable, 60)));
  return setVariable(*data_, variable, std::move(value));
}

absl::Status Conversation::setAll(std::string_view json) {
  ASSIGN_OR_RETURN(variables, model::parseOrderedJson(json, "the template's variables"));
  if (!variables.is_object())
    return absl::InvalidArgumentError(
        cat("the template's variables = ", model::jsonText(variables), ": expected an object"));
  for (const auto &[variable, value] : variables.items())
    RETURN_IF_ERROR(setVariable(*data_, variable, value));
  return absl::OkStatus();
}

Conversation Conversation::joined() const {
  Conversation out = *this;
  for (nlohmann::ordered_json &message : out.data_->messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array())
      continue;
    std::string text;
    for (const nlohmann::ordered_json &part : *content)
      text += (&part == &content->front() ? "" : "\n") + part.at("text").get<std::string>();
    *content = std::move(text);
  }
  return out;
}

bool Conversation::hasParts() const {
  return std::any_of(data_->messages.begin(), data_->messages.end(), [](const nlohmann::ordered_json &message) {
    const auto content = message.find("content");
    return content != message.end() && content->is_array();
  });
}

int64_t Conversation::messages() const { return static_cast<int64_t>(data_->messages.size()); }

std::string_view Conversation::role(int64_t message) const {
  return data_->messages[static_cast<size_t>(message)]["role"].get_ref<const std::string &>();
}

} // namespace headrace::text
