// SPDX-License-Identifier: Apache-2.0
//
// A loaded model that answers one prompt after the other. What a prompt has in common with the prompt and the reply
// before it is in the KV cache, and is not computed again.
//
//   ASSIGN_OR_RETURN(model, ChatModel::open(options));          flags, files: all that can be refused before work
//   starts RETURN_IF_ERROR(model->load());                             compiles, loads ASSIGN_OR_RETURN(reply,
//   model->reply(ids, onText, isInterrupted));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/Runtime.h"
#include "runtime/model/WeightSource.h"
#include "runtime/serve/engine/Engine.h"
#include "runtime/serve/engine/Executor.h"
#include "tools/commands/Commands.h"
#include "tools/commands/LoadedStages.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/ReplyTexts.h"
#include "tools/commands/RunSource.h"
#include "tools/commands/TextModel.h"

namespace headrace::tools {

struct ChatReply {
  std::vector<int32_t> tokens;
  std::string text; // without what ended it
  serve::EndReason end = serve::EndReason::Length;
  int64_t promptTokens = 0, cachedTokens = 0; // of those
  int64_t firstTokenNs = 0, lastTokenNs = 0;  // since it was asked for; 0: there was none
};

class ChatModel {
public:
  static absl::StatusOr<std::unique_ptr<ChatModel>> open(const ChatOptions &options);
  ~ChatModel();

  absl::Status load();

  TextModel &text() { return *text_; }
  // Tokens of a conversation with the next reply, at most. Once it is loaded.
  int64_t context() const { return plan().maxContext; }

  // `onText` gets what may be shown as it comes. The reply ends, as it is by then, when `isInterrupted` says yes, which
  // is asked before each iteration. OutOfRange: the prompt leaves no room in the context.
  absl::StatusOr<ChatReply> reply(const std::vector<int32_t> &prompt,
                                  const std::function<void(std::string_view)> &onText,
                                  const std::function<bool()> &isInterrupted);

private:
  explicit ChatModel(const ChatOptions &options) : options_(options) {}
  absl::Status openSource();
  absl::Status openStages(Outputs &outputs);
  absl::Status openText(const std::string &modelFolder, const model::ModelSpec &spec);
  const plan::Plan &plan() const { return stages_ ? stages_->plan() : plan_; }
  serve::Executor on() const { return stages_ ? serve::Executor(stages_->stages()) : serve::Executor(*runtime_); }
  absl::Status makeEngine();
  uint32_t placementOf(const plan::IterationSize &size) const;
  void take(const serve::EngineToken &token);
  void take(const serve::EngineEnd &end);

  // The reply that is being made.
  struct Making {
    Making(const text::Tokenizer &tokenizer, const TextFlags &flags,
           const std::function<void(std::string_view)> &onPiece, int64_t nowNs)
        : text(tokenizer, flags), onText(onPiece), askedNs(nowNs) {}
    void show(const std::string &piece);

    ChatReply reply;
    ReplyText text;
    const std::function<void(std::string_view)> &onText;
    int64_t askedNs;
    bool over = false;
    absl::Status failed;
  };

  const ChatOptions &options_;
  std::unique_ptr<LoadedStages> stages_; // in place of one plan and device
  std::unique_ptr<core::Device> device_;
  std::optional<RunSource> source_; // until the plan is made
  std::unique_ptr<model::WeightSource> weights_;
  std::optional<TextModel> text_;
  serve::Sampling sampling_;
  std::vector<int32_t> stopIds_;
  plan::Plan plan_;
  std::unique_ptr<core::Runtime> runtime_;
  std::unique_ptr<serve::Engine> engine_;
  uint64_t last_ = 0; // request whose KV blocks are there
  Making *making_ = nullptr;
};

} // namespace headrace::tools
