// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/DecoderStages.h"

#include <algorithm>

#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD"; // U+FFFD

std::string replaceAll(const DecoderStep &step, std::string_view token) {
  std::string out;
  MatchMemory memory;
  const absl::Status status = step.pattern->forEachPart(token, memory, [&](const TextPart &part) {
    out += part.match ? std::string_view(step.content) : token.substr(part.begin, part.end - part.begin);
    return absl::OkStatus();
  });
  return status.ok() ? out : std::string(token);
}

class PassingStage : public Stage {
public:
  explicit PassingStage(Stage &next) : next_(next) {}
  void data(std::string_view text) override { next_.data(text); }
  void endToken() override { next_.endToken(); }
  void finish() override { next_.finish(); }

protected:
  Stage &next_;
};

// All tokens' bytes are one text.
class ByteLevelStage : public PassingStage {
public:
  ByteLevelStage(Stage &next, bool readsBytes) : PassingStage(next), readsBytes_(readsBytes) {}
  void data(std::string_view text) override {
    if (readsBytes_)
      bytes(text);
    else
      token_ += text;
  }
  void endToken() override {
    if (readsBytes_)
      return;
    std::string decoded;
    bytes(appendBytesOfLetters(token_, decoded) ? decoded : token_);
    token_.clear();
  }
  void finish() override {
    text_.clear();
    appendLossy(open_, /*last=*/true, text_);
    open_.clear();
    next_.data(text_);
    next_.endToken();
    next_.finish();
  }

private:
  void bytes(std::string_view bytes) {
    if (open_.empty()) {
      const size_t good = utf8Prefix(bytes);
      next_.data(bytes.substr(0, good));
      bytes.remove_prefix(good);
    }
    if (bytes.empty())
      return;
    open_ += bytes;
    text_.clear();
    open_.erase(0, appendLossy(open_, /*last=*/false, text_));
    next_.data(text_);
  }

  const bool readsBytes_;
  std::string token_; // what of the token came
  std::string open_;  // the beginning of a character
  std::string text_;
};

// A run of <0x..> tokens is one token of these bytes; if they are not UTF-8, of a U+FFFD for each.
class ByteFallbackStage : public PassingStage {
public:
  using PassingStage::PassingStage;
  void data(std::string_view text) override {
    if (!passing_ && token_.size() + text.size() > kByteToken) {
      flush();
      next_.data(token_);
      token_.clear();
      passing_ = true;
    }
    if (passing_)
      next_.data(text);
    else
      token_ += text;
  }
  void endToken() override {
    const int byte = passing_ ? -1 : byteOfToken(token_);
    if (byte >= 0) {
      run_.push_back(static_cast<char>(byte));
    } else {
      if (!passing_) {
        flush();
        next_.data(token_);
      }
      next_.endToken();
    }
    token_.clear();
    passing_ = false;
  }
  void finish() override {
    flush();
    next_.finish();
  }

private:
  static constexpr size_t kByteToken = 6; // bytes
  void flush() {
    if (run_.empty())
      return;
    if (utf8Prefix(run_) == run_.size()) {
      next_.data(run_);
      next_.endToken();
    } else {
      for (size_t i = 0; i < run_.size(); ++i) {
        next_.data(kReplacement);
        next_.endToken();
      }
    }
    run_.clear();
  }

  std::string token_; // what of the token came, while it may be a byte
  bool passing_ = false;
  std::string run_;
};

class FuseStage : public PassingStage {
public:
  using PassingStage::PassingStage;
  void endToken() override {}
  void finish() override {
    next_.endToken();
    next_.finish();
  }
};

class StripStage : public PassingStage {
public:
  StripStage(Stage &next, const DecoderStep &step) : PassingStage(next), step_(step), left_(step.start) {}
  void data(std::string_view text) override {
    while (left_ > 0 && !text.empty()) {
      if (text.substr(0, step_.content.size()) == step_.content) {
        text.remove_prefix(step_.content.size());
        --left_;
      } else {
        left_ = 0;
      }
    }
    next_.data(text);
  }
  void endToken() override {
    left_ = step_.start;
    next_.endToken();
  }

private:
  const DecoderStep &step_;
  int64_t left_;
};

class ReplaceStage : public PassingStage {
public:
  ReplaceStage(Stage &next, const DecoderStep &step) : PassingStage(next), step_(step) {}
  void data(std::string_view text) override {
    held_ += text;
    if (step_.literal.empty()) // a regular expression sees the whole token
      return;
    size_t done = 0;
    for (size_t found; (found = held_.find(step_.literal, done)) != std::string::npos;) {
      next_.data(std::string_view(held_).substr(done, found - done));
      next_.data(step_.content);
      done = found + step_.literal.size();
    }
    const std::string_view rest = std::string_view(held_).substr(done);
    size_t begun = std::min(rest.size(), step_.literal.size() - 1); // of a match that the next piece may end
    while (rest.substr(rest.size() - begun) != std::string_view(step_.literal).substr(0, begun))
      --begun;
    next_.data(rest.substr(0, rest.size() - begun));
    held_.erase(0, held_.size() - begun);
  }
  void endToken() override {
    next_.data(step_.literal.empty() ? replaceAll(step_, held_) : held_);
    held_.clear();
    next_.endToken();
  }

private:
  const DecoderStep &step_;
  std::string held_;
};

class MetaspaceStage : public PassingStage {
public:
  MetaspaceStage(Stage &next, const DecoderStep &step) : PassingStage(next), step_(step) {}
  void data(std::string_view text) override {
    for (size_t found; (found = text.find(step_.content)) != std::string_view::npos;) {
      next_.data(text.substr(0, found));
      if (!first_ || !step_.dropsFirst)
        next_.data(" ");
      text.remove_prefix(found + step_.content.size());
    }
    next_.data(text);
  }
  void endToken() override {
    first_ = false;
    next_.endToken();
  }
  void finish() override {
    first_ = true;
    next_.finish();
  }

private:
  const DecoderStep &step_;
  bool first_ = true;
};

// As sentencepiece puts pieces together: a run of <0x..> is the characters that these bytes are, and a U+FFFD for each
// byte that is of none; the space symbol is a space, but not where the text begins.
class SentencePieceStage : public PassingStage {
public:
  SentencePieceStage(Stage &next, const DecoderStep &step)
      : PassingStage(next), step_(step), atBegin_(step.dropsFirst) {}
  void data(std::string_view text) override { token_ += text; }
  void endToken() override {
    if (const int byte = byteOfToken(token_); byte >= 0) {
      run_.push_back(static_cast<char>(byte));
      putRun(/*last=*/false);
    } else {
      putRun(/*last=*/true);
      std::string_view text = token_;
      if (atBegin_ && text.substr(0, step_.content.size()) == step_.content) {
        text.remove_prefix(step_.content.size());
        atBegin_ = false;
      }
      for (size_t found; (found = text.find(step_.content)) != std::string_view::npos;) {
        put(text.substr(0, found));
        put(" ");
        text.remove_prefix(found + step_.content.size());
      }
      put(text);
    }
    token_.clear();
  }
  void finish() override {
    putRun(/*last=*/true);
    atBegin_ = step_.dropsFirst;
    next_.endToken();
    next_.finish();
  }

private:
  void put(std::string_view text) {
    atBegin_ = atBegin_ && text.empty();
    next_.data(text);
  }
  // What of the run is decided: characters, and bytes that begin none. `last`: it goes no further.
  void putRun(bool last) {
    size_t at = 0;
    while (at < run_.size()) {
      const std::string_view rest = std::string_view(run_).substr(at);
      text_.clear();
      if (const size_t good = utf8Prefix(rest); good > 0) {
        put(rest.substr(0, good));
        at += good;
      } else if (!last && appendLossy(rest, /*last=*/false, text_) == 0) {
        break; // the beginning of a character
      } else {
        put(kReplacement);
        ++at;
      }
    }
    run_.erase(0, at);
  }

  const DecoderStep &step_;
  bool atBegin_; // no text yet
  std::string token_, run_, text_;
};

} // namespace

std::string applyToToken(const DecoderStep &step, std::string_view token) {
  if (step.kind == DecoderStep::Kind::Replace)
    return replaceAll(step, token);
  for (int64_t i = 0; i < step.start && token.substr(0, step.content.size()) == step.content; ++i)
    token.remove_prefix(step.content.size());
  return std::string(token);
}

int byteOfToken(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>')
    return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  const int high = token[3] == '+' ? 0 : digit(token[3]), low = digit(token[4]); // Rust reads "+A" as a number too
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// The end of the chain: where the text goes.
struct DecoderStages::Output : Stage {
  explicit Output(bool joins) : joins_(joins) {}
  void data(std::string_view text) override { out->append(text); }
  void endToken() override {}
  void finish() override { any = false; }
  const bool joins_;
  bool any = false; // a token came
  std::string *out = nullptr;
};

DecoderStages::DecoderStages(const std::vector<DecoderStep> &steps, size_t first, bool readsBytes, bool joins)
    : output_(std::make_unique<Output>(joins)) {
  for (size_t i = steps.size(); i-- > first;) {
    Stage &next = stages_.empty() ? *output_ : *stages_.back();
    const DecoderStep &step = steps[i];
    switch (step.kind) {
    case DecoderStep::Kind::ByteLevel:
      stages_.push_back(std::make_unique<ByteLevelStage>(next, readsBytes && i == first));
      break;
    case DecoderStep::Kind::ByteFallback:
      stages_.push_back(std::make_unique<ByteFallbackStage>(next));
      break;
    case DecoderStep::Kind::Fuse:
      stages_.push_back(std::make_unique<FuseStage>(next));
      break;
    case DecoderStep::Kind::Strip:
      stages_.push_back(std::make_unique<StripStage>(next, step));
      break;
    case DecoderStep::Kind::Replace:
      stages_.push_back(std::make_unique<ReplaceStage>(next, step));
      break;
    case DecoderStep::Kind::Metaspace:
      stages_.push_back(std::make_unique<MetaspaceStage>(next, step));
      break;
    case DecoderStep::Kind::SentencePiece:
      stages_.push_back(std::make_unique<SentencePieceStage>(next, step));
      break;
    }
  }
}

DecoderStages::~DecoderStages() = default;

void DecoderStages::token(std::string_view text, std::string &out) {
  output_->out = &out;
  if (output_->joins_ && output_->any)
    out += ' ';
  output_->any = true;
  Stage &first = stages_.empty() ? static_cast<Stage &>(*output_) : *stages_.back();
  first.data(text);
  first.endToken();
}

void DecoderStages::finish(std::string &out) {
  output_->out = &out;
  (stages_.empty() ? static_cast<Stage &>(*output_) : *stages_.back()).finish();
}

void PreparedTokens::set(int32_t id, std::string_view text) {
  ends_.resize(static_cast<size_t>(id) + 1, bytes_.size());
  bytes_ += text;
  ends_.push_back(bytes_.size());
}

} // namespace headrace::text
