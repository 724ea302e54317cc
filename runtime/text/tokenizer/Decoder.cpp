// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Decoder.h"

#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Section.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

constexpr size_t kLongestLiteral = 256; // bytes of a string that Replace looks for in a stream

using Kind = DecoderStep::Kind;

} // namespace

absl::StatusOr<Decoder> Decoder::parse(const nlohmann::json &value, std::string_view path) {
  Decoder decoder;
  decoder.joins_ = value.is_null();
  if (!value.is_null())
    RETURN_IF_ERROR(parseInto(value, path, "decoder", decoder.steps_));
  return decoder;
}

Decoder Decoder::byteLevel() {
  Decoder decoder;
  decoder.steps_.emplace_back().kind = Kind::ByteLevel;
  return decoder;
}

Decoder Decoder::sentencePiece(bool dropsFirstSpace) {
  Decoder decoder;
  DecoderStep &step = decoder.steps_.emplace_back();
  step.kind = Kind::SentencePiece;
  step.content = "\xE2\x96\x81"; // U+2581
  step.dropsFirst = dropsFirstSpace;
  return decoder;
}

absl::Status Decoder::parseInto(const nlohmann::json &value, std::string_view path, std::string_view key,
                                std::vector<DecoderStep> &steps) {
  Section section(value, path, key);
  model::JsonReader &reader = section.reader;
  const std::string type = section.type();
  RETURN_IF_ERROR(reader.status());
  if (type == "Sequence") {
    RETURN_IF_ERROR(section.only({"type", "decoders"}));
    return section.eachOf("decoders", [&](const nlohmann::json &member, const std::string &memberKey) {
      return parseInto(member, path, memberKey, steps);
    });
  }
  if (steps.size() == kMostSteps)
    return section.unsupportedType(model::cat("at most ", kMostSteps, " steps"));
  DecoderStep step;
  if (type == "ByteLevel") {
    step.kind = Kind::ByteLevel;
    RETURN_IF_ERROR(section.only({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  } else if (type == "ByteFallback" || type == "Fuse") {
    step.kind = type == "Fuse" ? Kind::Fuse : Kind::ByteFallback;
    RETURN_IF_ERROR(section.only({"type"}));
  } else if (type == "Strip") {
    step.kind = Kind::Strip;
    appendUtf8(section.character("content"), step.content);
    step.start = reader.integer("start", std::nullopt, 0, 1 << 20);
    reader.integer("stop", std::nullopt, 0, 0);
    RETURN_IF_ERROR(section.only({"type", "content", "start", "stop"}));
  } else if (type == "Replace") {
    step.kind = Kind::Replace;
    ASSIGN_OR_RETURN(pattern, section.pattern("pattern"));
    step.pattern = std::move(pattern);
    if (const auto literal = reader.find("pattern")->find("String"); literal != reader.find("pattern")->end()) {
      step.literal = literal->get<std::string>();
      if (step.literal.size() > kLongestLiteral)
        reader.refuse("pattern", model::cat("a string of at most ", kLongestLiteral, " bytes"));
    }
    step.content = reader.text("content", std::nullopt);
    RETURN_IF_ERROR(section.only({"type", "pattern", "content"}));
  } else if (type == "Metaspace") {
    step.kind = Kind::Metaspace;
    appendUtf8(section.character("replacement"), step.content);
    const std::string scheme = reader.text("prepend_scheme", "always");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      reader.refuse("prepend_scheme", "always, first or never");
    const bool prefix = reader.boolean("add_prefix_space", true);
    if (!prefix && reader.raw("prepend_scheme") != nullptr && scheme != "never")
      reader.refuse("add_prefix_space", "true beside this prepend_scheme");
    step.dropsFirst = scheme != "never" && prefix;
    reader.boolean("split", true);
    RETURN_IF_ERROR(section.only({"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"}));
  } else {
    return section.unsupportedType("ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace or Sequence");
  }
  steps.push_back(std::move(step));
  return absl::OkStatus();
}

void Decoder::prepare(int64_t size, absl::FunctionRef<std::optional<std::string_view>(int32_t id)> tokens) {
  done_ = 0;
  while (done_ < steps_.size() && (steps_[done_].kind == Kind::Replace || steps_[done_].kind == Kind::Strip))
    ++done_;
  readsBytes_ = done_ < steps_.size() && steps_[done_].kind == Kind::ByteLevel;
  prepared_ = PreparedTokens();
  std::string text, bytes;
  for (int32_t id = 0; id < size; ++id) {
    const std::optional<std::string_view> token = tokens(id);
    if (!token)
      continue;
    text = *token;
    for (size_t i = 0; i < done_; ++i)
      text = applyToToken(steps_[i], text);
    if (const auto said = said_.find(id); said != said_.end())
      text = said->second;
    bytes.clear();
    prepared_.set(id, readsBytes_ && appendBytesOfLetters(text, bytes) ? bytes : text);
  }
}

std::unique_ptr<DecoderStages> Decoder::start() const {
  return std::make_unique<DecoderStages>(steps_, done_, readsBytes_, joins_);
}

} // namespace headrace::text
