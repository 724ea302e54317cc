// SPDX-License-Identifier: Apache-2.0
//
// Messages of a chat, as a template gets them: role, content, and whatever else a message file says of each (tool
// calls, names), untouched and in its order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/Boxed.h"

namespace headrace::text {

struct ConversationData; // nlohmann's; ConversationData.h, for .cpp files only

class Conversation {
public:
  // A JSON array of messages, or an object with "messages" and, where there are, "tools" and further variables of the
  // template ("chat_template_kwargs"). A message is an object with a role, whatever the template knows, and
  // a content: a string, null beside tool calls, a list of parts of type text or, of a tool's role (any but system,
  // developer, user, assistant), an object. InvalidArgument begins with `where` and names the message and the key.
  static absl::StatusOr<Conversation> parse(std::string_view json, const std::string &where);

  Conversation();
  void add(std::string_view role, std::string_view content);
  void addFirst(std::string_view role, std::string_view content);
  // A variable of the template, as JSON ("true", "\"low\""): over those of the file. InvalidArgument: no JSON.
  absl::Status set(std::string_view variable, std::string_view json);
  absl::Status setAll(std::string_view json); // of an object of them

  // With the texts of each content that is a list of parts as one text, a line each.
  Conversation joined() const;
  bool hasParts() const; // such a content

  int64_t messages() const;
  std::string_view role(int64_t message) const;

  const ConversationData &data() const { return *data_; }

private:
  model::Boxed<ConversationData> data_;
};

} // namespace headrace::text
