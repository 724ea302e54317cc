// SPDX-License-Identifier: Apache-2.0
//
// chat: a line is a message, and is answered. Replies go to standard output as they are made, all else to standard
// error. Ctrl-C ends a reply; where nothing is being made, twice in a row it ends the chat, as Ctrl-D does.
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "tools/commands/ChatLines.h"
#include "tools/commands/ChatModel.h"
#include "tools/commands/Commands.h"
#include "tools/commands/ExitCode.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Interrupts.h"
#include "tools/commands/Terminal.h"

namespace headrace::tools {
namespace {

using model::cat;

constexpr const char *kHelp =
    "A line is a message; with \\ at its end it goes on in the next. Ctrl-C ends a reply, Ctrl-D "
    "the chat.\n"
    "  /clear  forget all that was said, but the system message\n"
    "  /quit   leave\n"
    "  /help   this\n";

const char *endName(serve::EndReason end) {
  return end == serve::EndReason::Cancelled ? "cancelled" : end == serve::EndReason::Stop ? "stop" : "length";
}

bool looksLikeCommand(const std::string &word) {
  return word.size() > 1 && word[0] == '/' &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 1) == std::string::npos;
}
absl::Status noCommand(const std::string &word) {
  return absl::InvalidArgumentError(cat("\"", word,
                                        "\" is no command: expected /clear, /quit or /help, or a message "
                                        "(one that begins like a command has a blank before it)"));
}

class Chat {
public:
  explicit Chat(const ChatOptions &options) : options_(options), person_(::isatty(STDIN_FILENO) == 1) {}

  absl::Status run() {
    ASSIGN_OR_RETURN(model, ChatModel::open(options_));
    model_ = std::move(model);
    ASSIGN_OR_RETURN(fresh, model_->text().conversation(nullptr, ""));
    conversation_ = fresh;
    RETURN_IF_ERROR(model_->load());
    catchInterrupts();
    if (person_)
      std::fputs(kHelp, stderr);
    ChatLines lines(person_);
    std::string line;
    for (int alone = 0;;) { // interrupts in a row, with nothing being made
      lookAway();
      const absl::StatusOr<Got> got = lines.next(line);
      if (!got.ok()) {
        RETURN_IF_ERROR(refuse(got.status()));
        continue;
      }
      if (*got == Got::Interrupt) {
        std::fputs(++alone == 1 ? "\n(Ctrl-C once more, or Ctrl-D, leaves)\n" : "\n", stderr);
        if (alone == 1)
          continue;
      }
      if (*got != Got::Line)
        break;
      alone = 0;
      ASSIGN_OR_RETURN(goesOn, follow(line, fresh));
      if (!goesOn)
        break;
    }
    tell();
    return absl::OkStatus();
  }

private:
  // A command, or a message. No: it was the last line.
  absl::StatusOr<bool> follow(const std::string &line, const text::Conversation &fresh) {
    const size_t end = line.find_last_not_of(" \t\r");
    if (end == std::string::npos)
      return true;
    const std::string word = line.substr(0, end + 1);
    if (word == "/quit" || word == "/exit" || word == "/bye")
      return false;
    if (word == "/help")
      std::fputs(kHelp, stderr);
    else if (word == "/clear")
      conversation_ = fresh;
    else if (const absl::Status status = looksLikeCommand(word) ? refuse(noCommand(word)) : take(line); !status.ok())
      return status;
    return true;
  }

  // What cannot be is said, and is as if it had not been; a program that asks learns of it at once.
  absl::Status refuse(const absl::Status &status) const {
    if (options_.json) {
      using Json = nlohmann::ordered_json;
      const Json error = {{"error", {{"message", std::string(status.message())}, {"exit_status", exitCodeOf(status)}}}};
      print(error.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
      std::fflush(stdout);
    }
    if (!person_)
      return withReport(status);
    reportError(status, /*json=*/false);
    return absl::OkStatus();
  }

  absl::Status take(const std::string &line) {
    text::Conversation before = conversation_;
    const absl::StatusOr<bool> said = turn(line);
    if (said.ok() && *said)
      return absl::OkStatus();
    conversation_ = std::move(before);
    --turns_;
    return said.ok()
               ? absl::OkStatus()
               : refuse(absl::Status(said.status().code(), cat("turn ", turns_ + 1, ": ", said.status().message())));
  }

  // No: it was interrupted before anything was said.
  absl::StatusOr<bool> turn(const std::string &line) {
    ++turns_;
    ASSIGN_OR_RETURN(message, model_->text().checked(line, "the message"));
    conversation_.add("user", message);
    ASSIGN_OR_RETURN(prompt, model_->text().prompt(conversation_));
    const auto show = [&](std::string_view text) {
      if (options_.json)
        return;
      print(text);
      std::fflush(stdout);
    };
    whileBusy("\n(the reply ends with the iteration that runs; Ctrl-C once more ends the chat now)\n");
    const absl::StatusOr<ChatReply> made = model_->reply(prompt, show, wasInterrupted);
    whileBusy(nullptr);
    ASSIGN_OR_RETURN(reply, made);
    if (reply.tokens.empty() && reply.end == serve::EndReason::Cancelled) {
      std::fputs("\n(nothing was said)\n", stderr);
      return false;
    }
    show("\n");
    if (options_.json)
      tellJson(reply);
    else if (reply.end == serve::EndReason::Length)
      std::fprintf(stderr, "(cut after %zu tokens: %s)\n", reply.tokens.size(),
                   options_.maxNewTokens && static_cast<int64_t>(reply.tokens.size()) == *options_.maxNewTokens
                       ? "--max-new-tokens"
                       : "the context is full; /clear forgets the conversation");
    conversation_.add("assistant", reply.text);
    count(reply);
    return true;
  }

  void tellJson(const ChatReply &reply) const {
    const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
    const nlohmann::ordered_json json = {{"turn", turns_},
                                         {"prompt_tokens", reply.promptTokens},
                                         {"cached_tokens", reply.cachedTokens},
                                         {"tokens", reply.tokens},
                                         {"text", reply.text},
                                         {"finish_reason", endName(reply.end)},
                                         {"ttft_ms", ms(reply.firstTokenNs)},
                                         {"total_ms", ms(reply.lastTokenNs)}};
    print(json.dump() + "\n");
    std::fflush(stdout);
  }

  void count(const ChatReply &reply) {
    promptTokens_ += reply.promptTokens;
    cachedTokens_ += reply.cachedTokens;
    const auto tokens = static_cast<int64_t>(reply.tokens.size());
    newTokens_ += tokens;
    replies_ += tokens > 0;
    firstNs_ += reply.firstTokenNs;
    if (tokens > 1) {
      gapNs_ += reply.lastTokenNs - reply.firstTokenNs;
      gaps_ += tokens - 1;
    }
  }

  void tell() const {
    if (options_.json || options_.text.quiet || turns_ == 0)
      return;
    const auto meanMs = [](int64_t ns, int64_t n) {
      return n == 0 ? 0 : static_cast<double>(ns) * 1e-6 / static_cast<double>(n);
    };
    std::fprintf(
        stderr,
        "%ld turn%s: %ld tokens of prompts, %ld of them in the KV cache; %ld new ones; TTFT %.3f ms, TPOT %.3f ms\n",
        static_cast<long>(turns_), turns_ == 1 ? "" : "s", static_cast<long>(promptTokens_),
        static_cast<long>(cachedTokens_), static_cast<long>(newTokens_), meanMs(firstNs_, replies_),
        meanMs(gapNs_, gaps_));
  }

  const ChatOptions &options_;
  const bool person_; // who types
  std::unique_ptr<ChatModel> model_;
  text::Conversation conversation_;
  int64_t turns_ = 0, promptTokens_ = 0, cachedTokens_ = 0, newTokens_ = 0;
  int64_t replies_ = 0, gaps_ = 0, firstNs_ = 0, gapNs_ = 0;
};

} // namespace

absl::Status chatCommand(const ChatOptions &options) { return Chat(options).run(); }

} // namespace headrace::tools
