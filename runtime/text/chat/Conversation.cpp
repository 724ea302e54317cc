// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/Conversation.h"

#include "runtime/base/BoxedImpl.h"
#include "runtime/text/chat/ConversationData.h"

namespace headrace::model {
template class Boxed<text::ConversationData>;
} // namespace headrace::model

namespace headrace::text {

Conversation::Conversation() = default;

absl::StatusOr<Conversation> Conversation::parse(std::string_view, const std::string &where) {
  return absl::UnimplementedError(where);
}

void Conversation::add(std::string_view role, std::string_view content) {
  data_->messages.push_back({{"role", role}, {"content", content}});
}

void Conversation::addFirst(std::string_view role, std::string_view content) {
  data_->messages.insert(data_->messages.begin(), nlohmann::ordered_json{{"role", role}, {"content", content}});
}

absl::Status Conversation::setAll(std::string_view) { return absl::UnimplementedError(""); }

void Conversation::removeLast() { data_->messages.erase(data_->messages.size() - 1); }

absl::Status Conversation::set(std::string_view, std::string_view) { return absl::UnimplementedError(""); }

int64_t Conversation::messages() const { return static_cast<int64_t>(data_->messages.size()); }

std::string_view Conversation::role(int64_t message) const {
  return data_->messages[static_cast<size_t>(message)]["role"].get_ref<const std::string &>();
}

} // namespace headrace::text
