// SPDX-License-Identifier: Apache-2.0
//
// chat: a line is a message, and is answered. Replies go to standard output as they are made, all else to standard
// error. Ctrl-C ends a reply; where nothing is being made, twice in a row it ends the chat, as Ctrl-D does.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "tools/commands/ChatModel.h"
#include "tools/commands/Commands.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {
namespace {

using model::cat;

volatile std::sig_atomic_t interrupted = 0;

void interrupt(int) { interrupted = 1; }

// Without SA_RESTART: a read that waits for a line ends, too.
void catchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = interrupt;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

bool wasInterrupted() { return interrupted != 0; }

constexpr const char *kHelp = "A line is a message. Ctrl-C ends a reply, Ctrl-D the chat.\n"
                              "  /clear  forget all that was said, but the system message\n"
                              "  /quit   leave\n"
                              "  /help   this\n";

enum class Got : uint8_t { Line, Interrupt, End };

// Lines of standard input, without their newlines.
class Lines {
public:
  Got next(std::string &line) {
    for (;;) {
      if (const size_t end = rest_.find('\n'); end != std::string::npos) {
        line = rest_.substr(0, end);
        rest_.erase(0, end + 1);
        return Got::Line;
      }
      char bytes[4096];
      const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (n < 0 && errno == EINTR)
        return Got::Interrupt;
      if (n <= 0) {
        line = std::exchange(rest_, "");
        return line.empty() ? Got::End : Got::Line;
      }
      rest_.append(bytes, static_cast<size_t>(n));
    }
  }

private:
  std::string rest_;
};

const char *endName(serve::EndReason end) {
  return end == serve::EndReason::Cancelled ? "cancelled" : end == serve::EndReason::Stop ? "stop" : "length";
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
    Lines lines;
    std::string line;
    for (int alone = 0;;) { // interrupts in a row, with nothing being made
      interrupted = 0;
      if (person_)
        std::fputs("> ", stderr);
      const Got got = lines.next(line);
      if (got == Got::Interrupt) {
        std::fputs(++alone == 1 ? "\n(Ctrl-C once more, or Ctrl-D, leaves)\n" : "\n", stderr);
        if (alone == 1)
          continue;
      }
      if (got != Got::Line || line == "/quit" || line == "/exit" || line == "/bye")
        break;
      alone = 0;
      if (line == "/help")
        std::fputs(kHelp, stderr);
      else if (line == "/clear")
        conversation_ = fresh;
      else if (!line.empty())
        RETURN_IF_ERROR(take(line));
    }
    tell();
    return absl::OkStatus();
  }

private:
  // A turn that cannot be is said, and is as if it had not been; a program that asks learns of it at once.
  absl::Status take(const std::string &line) {
    text::Conversation before = conversation_;
    ++turns_;
    const absl::Status status = turn(line);
    if (status.ok())
      return status;
    conversation_ = std::move(before);
    const absl::Status named(status.code(), cat("turn ", turns_, ": ", status.message()));
    if (!person_)
      return named;
    reportError(named, options_.json);
    return absl::OkStatus();
  }

  absl::Status turn(const std::string &line) {
    ASSIGN_OR_RETURN(message, model_->text().checked(line, "the message"));
    conversation_.add("user", message);
    ASSIGN_OR_RETURN(prompt, model_->text().prompt(conversation_));
    const auto show = [&](std::string_view text) {
      if (options_.json)
        return;
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
    ASSIGN_OR_RETURN(reply, model_->reply(prompt, show, wasInterrupted));
    show("\n");
    if (options_.json)
      tellJson(reply);
    else if (reply.end == serve::EndReason::Length)
      std::fprintf(stderr, "(cut after %zu tokens: %s)\n", reply.tokens.size(),
                   options_.maxNewTokens && static_cast<int64_t>(reply.tokens.size()) == *options_.maxNewTokens
                       ? "--max-new-tokens"
                       : "the context is full");
    conversation_.add("assistant", reply.text);
    count(reply);
    return absl::OkStatus();
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
    std::puts(json.dump().c_str());
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
    if (options_.json || replies_ == 0)
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
