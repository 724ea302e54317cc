// SPDX-License-Identifier: Apache-2.0
//
// chat: with a program that writes lines, and at a terminal; against what transformers answers.
#include <unistd.h>

#include <gmock/gmock.h>

#include "absl/strings/str_split.h"
#include "tests/support/Process.h"
#include "tests/support/PseudoTerminal.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr const char *kInterrupt = "\x03", *kEnd = "\x04"; // Ctrl-C, Ctrl-D

class Chat : public CommandLine {
protected:
  static std::string model(const std::string &name = "qwen3-chat") { return golden("text-models/" + name); }
  static Json referenceOf(const std::string &name) {
    return Json::parse(readFile(model(name) + "/reference-text.json"));
  }
  // A chat of these lines: its standard output's lines as objects.
  Outcome lines(const std::string &text, const std::string &flags, const std::string &name = "qwen3-chat") const {
    return linesTo(model(name) + " --hardware host", text, flags);
  }
  Outcome linesTo(const std::string &source, const std::string &text, const std::string &flags) const {
    writeText(path("lines"), text);
    return shell("$HEADRACE chat " + source + " --temperature 0 " + flags + " <" + path("lines"));
  }
  static std::vector<Json> objects(const std::string &text) {
    std::vector<Json> out;
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
      out.push_back(Json::parse(line));
    return out;
  }
};

// A model, and over how many stages.
class ChatModels : public Chat, public testing::WithParamInterface<std::pair<const char *, int>> {};

TEST_P(ChatModels, EachTurnIsTransformersAndOnlyWhatIsNewIsComputed) {
  const auto &[name, stages] = GetParam();
  const Json reference = referenceOf(name);
  std::string source = model(name) + " --hardware host";
  if (stages > 1) {
    ASSERT_EQ(headrace({"compile", model(name), "--hardware", "host", "--batch", "1", "--context", "512", "--stages",
                        std::to_string(stages), "-o", path("chat.stages")})
                  .status,
              0);
    source = path("chat.stages");
  }
  for (const Json &chat : reference["chats"]) {
    std::string text;
    for (const Json &turn : chat["turns"])
      text += turn["question"].get<std::string>() + "\n";
    std::string flags = "--json --max-new-tokens " + std::to_string(reference["new_tokens"].get<int>());
    if (chat["system"].is_string())
      flags += " --system '" + chat["system"].get<std::string>() + "'";
    const Outcome outcome = linesTo(source, text, flags);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const std::vector<Json> turns = objects(outcome.out);
    ASSERT_EQ(turns.size(), chat["turns"].size());
    for (size_t t = 0; t < turns.size(); ++t) {
      const Json &expected = chat["turns"][t];
      EXPECT_EQ(turns[t]["text"], expected["text"]);
      EXPECT_EQ(turns[t]["tokens"], expected["new_ids"]);
      EXPECT_EQ(turns[t]["prompt_tokens"], expected["ids"].size());
      EXPECT_EQ(turns[t]["finish_reason"], expected["ended"].get<bool>() ? "stop" : "length");
      // What the ids of this prompt have in common with those of the last one and its reply, whose very last token is
      // in the cache unless it was the last that was asked for, or stages made it, which run no iteration ahead.
      std::vector<int> before;
      if (t > 0) {
        before = chat["turns"][t - 1]["ids"].get<std::vector<int>>();
        const auto reply = chat["turns"][t - 1]["new_ids"].get<std::vector<int>>();
        before.insert(before.end(), reply.begin(), reply.end());
        if (stages > 1 || reply.size() == reference["new_tokens"])
          before.pop_back();
      }
      const auto now = expected["ids"].get<std::vector<int>>();
      const auto same = std::mismatch(before.begin(), before.end(), now.begin(), now.end()).first - before.begin();
      EXPECT_EQ(turns[t]["cached_tokens"], same);
      EXPECT_GE(same, t > 0 ? static_cast<int64_t>(chat["turns"][t - 1]["ids"].size()) : 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Chat, ChatModels,
                         testing::Values(std::pair("qwen3-chat", 1), std::pair("qwen3-chat", 2),
                                         std::pair("llama-byte-fallback", 1)),
                         [](const auto &info) {
                           std::string name =
                               info.param.first + std::string(info.param.second == 1 ? "" : "_over_stages");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Copies so slow that a token takes some 20 ms: Ctrl-C comes when a part of the reply is there.
TEST_F(Chat, ThreeTurnsAtATerminalWithAnInterruptInTheSecond) {
  const Json chat = referenceOf("qwen3-chat")["chats"][0];
  PseudoTerminal terminal(
      {"chat", model(), "--hardware", "host", "--temperature", "0", "--interval", "1", "--link-bandwidth", "8MB/s"});
  EXPECT_THAT(terminal.waitFor("\n> "), HasSubstr("Ctrl-C ends a reply"));
  const auto ask = [&](const std::string &question) {
    terminal.type(question + "\n");
    terminal.waitFor(question + "\n"); // the echo
  };
  const auto replyOf = [](std::string shown) { return shown.substr(0, shown.size() - std::string("\n> ").size()); };
  const std::string questions[] = {chat["turns"][0]["question"], chat["turns"][1]["question"],
                                   chat["turns"][2]["question"]};
  ask(questions[0]);
  const std::string first = replyOf(terminal.waitFor("\n> "));
  EXPECT_EQ(first, chat["turns"][0]["text"]);
  ask(questions[1]);
  const std::string whole = chat["turns"][1]["text"];
  std::string second = terminal.waitUntil([](const std::string &shown) { return shown.size() >= 10; });
  terminal.type(kInterrupt);
  second += terminal.waitFor("\n> ");
  if (const size_t echo = second.find("^C"); echo != std::string::npos) // where the terminal shows it
    second.erase(echo, 2);
  second = replyOf(second);
  ASSERT_LT(second.size(), whole.size());
  EXPECT_EQ(second, whole.substr(0, second.size()));
  ask(questions[2]);
  const std::string third = replyOf(terminal.waitFor("\n> "));
  terminal.type(kEnd);
  EXPECT_THAT(terminal.waitUntil([](const std::string &shown) { return shown.ends_with(" ms\n"); }),
              HasSubstr("3 turns: "));
  EXPECT_EQ(terminal.status(), 0);
  // The third turn is that of a conversation with what was said of the second.
  Json messages = Json::array();
  for (const auto &[role, content] : {std::pair("user", questions[0]),
                                      {"assistant", first},
                                      {"user", questions[1]},
                                      {"assistant", second},
                                      {"user", questions[2]}})
    messages.push_back({{"role", role}, {"content", content}});
  writeText(path("messages.json"), messages.dump());
  EXPECT_EQ(CommandLine::json({"run", model(), "--hardware", "host", "--messages", path("messages.json"),
                               "--temperature", "0", "--max-new-tokens", "200"})["texts"][0],
            third);
}

// Copies so slow that the first iteration takes minutes.
TEST_F(Chat, AReplyWhoseIterationDoesNotEndIsLeft) {
  PseudoTerminal terminal(
      {"chat", model(), "--hardware", "host", "--temperature", "0", "--interval", "1", "--link-bandwidth", "1KB/s"});
  terminal.waitFor("\n> ");
  terminal.type("Hello\n");
  terminal.waitFor("Hello\n"); // the echo
  ::usleep(300'000);           // the reply is being made
  terminal.type(kInterrupt);
  ::usleep(500'000); // two at once are one
  terminal.type(kInterrupt);
  terminal.waitFor("Ctrl-C once more ends the chat now)");
  terminal.type(kInterrupt);
  EXPECT_EQ(terminal.status(), 128 + SIGINT);
}

TEST_F(Chat, TwoInterrupsWithNothingBeingMadeLeave) {
  PseudoTerminal terminal({"chat", model(), "--hardware", "host", "--temperature", "0"});
  terminal.waitFor("\n> ");
  terminal.type(kInterrupt);
  EXPECT_THAT(terminal.waitFor("\n> "), HasSubstr("Ctrl-C once more, or Ctrl-D, leaves"));
  terminal.type("/help\n"); // it goes on
  terminal.waitFor("this\n> ");
  terminal.type(kInterrupt);
  terminal.waitFor("\n> ");
  terminal.type(kInterrupt);
  EXPECT_EQ(terminal.status(), 0);
}

TEST_F(Chat, ClearForgetsAllButTheSystemMessage) {
  const Json chat = referenceOf("qwen3-chat")["chats"][1]; // with a system message
  const std::string question = chat["turns"][0]["question"];
  const Outcome outcome = lines(question + "\nSay nothing.\n/clear\n" + question + "\n/quit\nnot read\n",
                                "--json --system '" + chat["system"].get<std::string>() + "'");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<Json> turns = objects(outcome.out);
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[2]["text"], chat["turns"][0]["text"]);
  EXPECT_EQ(turns[2]["prompt_tokens"], turns[0]["prompt_tokens"]);
  EXPECT_EQ(turns[2]["cached_tokens"], turns[0]["prompt_tokens"].get<int>() - 1);
}

// '... to the wheel. 🌊', whose last four tokens are bytes: with the reply's end it is known what they are.
TEST_F(Chat, AStopStringInTheLastTokensIsStop) {
  const Json turn = referenceOf("llama-byte-fallback")["chats"][0]["turns"][0];
  const Outcome outcome =
      lines(turn["question"].get<std::string>() + "\n", "--json --max-new-tokens 31 --stop 🌊", "llama-byte-fallback");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json reply = objects(outcome.out).at(0);
  EXPECT_EQ(reply["finish_reason"], "stop");
  EXPECT_EQ(reply["text"], "A headrace is the channel that brings water to the wheel. ");
}

TEST_F(Chat, RepliesAloneAreOnStandardOutput) {
  const Json chat = referenceOf("qwen3-chat")["chats"][2];
  const Outcome outcome = lines(chat["turns"][0]["question"].get<std::string>() + "\n", "");
  EXPECT_EQ(outcome.out, chat["turns"][0]["text"].get<std::string>() + "\n");
  EXPECT_THAT(outcome.err, HasSubstr("1 turn: 37 tokens of prompts, 0 of them in the KV cache"));
}

TEST_F(Chat, AConversationThatOutgrowsTheContextIsRefusedWithItsTurn) {
  const Json chat = referenceOf("qwen3-chat")["chats"][0];
  std::string text;
  for (const Json &turn : chat["turns"])
    text += turn["question"].get<std::string>() + "\n";
  const Outcome program = lines(text, "--context 100");
  EXPECT_EQ(program.status, 2);
  EXPECT_THAT(program.err, HasSubstr("headrace: error: turn 3: "));
  EXPECT_THAT(program.err,
              HasSubstr("tokens, and at least one of the reply: expected at most the context of 100 (--context); "
                        "/clear forgets the conversation"));
  EXPECT_THAT(
      program.err,
      HasSubstr("(cut after 13 tokens: the context is full; /clear forgets the conversation)")); // 87 of the second
                                                                                                 // turn's prompt
  // At a terminal it goes on as if nothing had been said.
  PseudoTerminal terminal({"chat", model(), "--hardware", "host", "--temperature", "0", "--context", "60"});
  terminal.waitFor("\n> ");
  terminal.type(std::string(100, 'x') + "\n");
  EXPECT_THAT(terminal.waitFor("\n> "), HasSubstr("turn 1: "));
  terminal.type(chat["turns"][0]["question"].get<std::string>() + "\n");
  EXPECT_THAT(terminal.waitFor("\n> "), HasSubstr(chat["turns"][0]["text"].get<std::string>()));
}

TEST_F(Chat, ALineThatEndsInABackslashGoesOn) {
  PseudoTerminal terminal({"chat", model(), "--hardware", "host", "--temperature", "0", "--max-new-tokens", "4"});
  terminal.waitFor("\n> ");
  terminal.type("What is\\\n");
  terminal.waitFor(". ");
  terminal.type("a headrace?\n");
  const std::string reply = terminal.waitFor("\n> ");
  terminal.type(kEnd);
  EXPECT_EQ(terminal.status(), 0);
  writeText(path("talk.json"), R"([{"role": "user", "content": "What is\na headrace?"}])");
  EXPECT_THAT(reply, HasSubstr(CommandLine::json({"run", model(), "--hardware", "host", "--messages", path("talk.json"),
                                                  "--temperature", "0", "--max-new-tokens", "4"})["texts"][0]
                                   .get<std::string>()));
}

// A terminal keeps 4,095 bytes of a line.
TEST_F(Chat, WhatATerminalCutsIsRefused) {
  PseudoTerminal terminal({"chat", model(), "--hardware", "host", "--temperature", "0"});
  terminal.waitFor("\n> ");
  terminal.type(std::string(5000, 'a'));
  terminal.type("\n");
  EXPECT_THAT(terminal.waitUntil([](const std::string &shown) { return shown.ends_with("at its end\n> "); }),
              HasSubstr("a line of 4095 bytes or more: the terminal cuts it there"));
}

TEST_F(Chat, ACommandThatIsNoneIsRefused) {
  PseudoTerminal terminal({"chat", model(), "--hardware", "host", "--temperature", "0"});
  terminal.waitFor("\n> ");
  terminal.type("/foo\n");
  EXPECT_THAT(terminal.waitFor("\n> "), HasSubstr("\"/foo\" is no command: expected /clear, /quit or /help"));
  terminal.type("/quit  \n");
  EXPECT_EQ(terminal.status(), 0);
}

TEST_F(Chat, WithJsonAnErrorIsALineToo) {
  const Outcome outcome = lines("Hello\n\xff\n", "--json --max-new-tokens 3");
  EXPECT_EQ(outcome.status, 2);
  const std::vector<Json> turns = objects(outcome.out);
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0]["turn"], 1);
  EXPECT_EQ(turns[1]["error"]["exit_status"], 2);
  EXPECT_THAT(turns[1]["error"]["message"].get<std::string>(), HasSubstr("turn 2: the message: byte 255"));
}

TEST_F(Chat, RefusesByName) {
  EXPECT_EQ(shell("$HEADRACE chat " + model() + " --hardware host <&-").status, 2);

  EXPECT_EQ(lines("\xff\n", "").status, 2);
  EXPECT_THAT(lines("\xff\n", "").err, HasSubstr("turn 1: the message: byte 255 at offset 0 is not UTF-8"));
  EXPECT_EQ(lines("a\xff\n", "--lossy").status, 0);
  refused({"chat", model(), "--hardware", "host", "--device", "sim"}, 1, "holds no data");
  refused({"chat", golden("qwen3-7-gqa-f32"), "--hardware", "host"}, 2, "tokenizer.json");
  std::filesystem::copy(model("llama-byte-fallback"), path("model"));
  std::filesystem::remove(path("model") + "/chat_template.jinja");
  refused({"chat", path("model"), "--hardware", "host"}, 2, "chat_template.jinja");
}

} // namespace
} // namespace headrace::tools
