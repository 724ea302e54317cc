// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Vocabulary.h"

#include "runtime/text/tokenizer/HashBytes.h"

namespace headrace::text {

bool Vocabulary::add(std::string_view token, int32_t id) {
  if (find(token) || has(id))
    return false;
  const auto index = static_cast<size_t>(id);
  if (index >= lengths_.size()) {
    begins_.resize(index + 1);
    lengths_.resize(index + 1, -1);
  }
  begins_[index] = bytes_.size();
  lengths_[index] = static_cast<int32_t>(token.size());
  bytes_ += token;
  ++count_;
  if (static_cast<size_t>(count_) * 3 > slots_.size() * 2)
    grow();
  const uint64_t hash = hashBytes(token);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0)
    slot = (slot + 1) & mask;
  slots_[slot] = {static_cast<uint32_t>(hash >> 32), id};
  return true;
}

void Vocabulary::grow() {
  std::vector<Slot> slots(slots_.empty() ? 64 : slots_.size() * 2);
  const size_t mask = slots.size() - 1;
  for (const Slot &taken : slots_) {
    if (taken.id < 0)
      continue;
    size_t slot = hashBytes(token(taken.id)) & mask;
    while (slots[slot].id >= 0)
      slot = (slot + 1) & mask;
    slots[slot] = taken;
  }
  slots_ = std::move(slots);
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty())
    return std::nullopt;
  const uint64_t hash = hashBytes(token);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot].id >= 0; slot = (slot + 1) & mask)
    if (slots_[slot].hash == static_cast<uint32_t>(hash >> 32) && this->token(slots_[slot].id) == token)
      return slots_[slot].id;
  return std::nullopt;
}

std::string_view Vocabulary::token(int32_t id) const {
  if (!has(id))
    return {};
  const auto index = static_cast<size_t>(id);
  return std::string_view(bytes_).substr(begins_[index], static_cast<size_t>(lengths_[index]));
}

} // namespace headrace::text
