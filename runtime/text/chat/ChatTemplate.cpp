// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/ChatTemplate.h"

#include <utility>

namespace headrace::text {

struct ChatTemplate::Parsed {};

ChatTemplate::ChatTemplate(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
ChatTemplate::ChatTemplate(ChatTemplate &&) noexcept = default;
ChatTemplate &ChatTemplate::operator=(ChatTemplate &&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::open(const std::string &folder) { return absl::UnimplementedError(folder); }

absl::StatusOr<ChatTemplate> ChatTemplate::open(const std::string &, const std::string &file) {
  return absl::UnimplementedError(file);
}

absl::StatusOr<ChatTemplate> ChatTemplate::parse(std::string_view, const std::string &path, std::string_view) {
  return absl::UnimplementedError(path);
}

absl::StatusOr<std::string> ChatTemplate::render(const Conversation &, const RenderOptions &,
                                                 const TemplateLimits &) const {
  return absl::UnimplementedError("");
}

} // namespace headrace::text
