// SPDX-License-Identifier: Apache-2.0
//
// run with texts and conversations against what transformers makes of them (tests/golden/text-models), tokenize and
// detokenize, and what each refuses.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string modelOf(const std::string &name) { return "text-models/" + name; }

class Text : public CommandLine {
protected:
  static Json referenceOf(const std::string &name) {
    return Json::parse(readFile(golden(modelOf(name)) + "/reference-text.json"));
  }
  static std::vector<std::string> run(const std::string &name, std::vector<std::string> more) {
    std::vector<std::string> all = {"run", golden(modelOf(name)), "--hardware", "host", "--temperature", "0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string newTokens(const Json &reference) { return std::to_string(reference["new_tokens"].get<int>()); }
  std::string copyOf(const std::string &name) const {
    std::filesystem::copy(golden(modelOf(name)), path(name));
    return path(name);
  }
  static void edit(const std::string &file, const Json &patch) {
    Json content = Json::parse(readFile(file));
    content.merge_patch(patch);
    writeText(file, content.dump(2));
  }
};

class TextModels : public Text, public testing::WithParamInterface<const char *> {};

TEST_P(TextModels, PromptsGiveTransformersText) {
  const Json reference = referenceOf(GetParam());
  std::vector<std::string> batch = {"--max-new-tokens", newTokens(reference)};
  for (const Json &one : reference["prompts"]) {
    const std::string prompt = one["prompt"];
    batch.insert(batch.end(), {"--prompt", prompt});
    const Json alone =
        CommandLine::json(run(GetParam(), {"--prompt", prompt, "--max-new-tokens", newTokens(reference)}));
    EXPECT_EQ(alone["texts"], Json::array({one["text"]}));
    EXPECT_EQ(alone["tokens"], Json::array({one["new_ids"]}));
    EXPECT_EQ(alone["prompt_tokens"], Json::array({one["ids"].size()}));
    EXPECT_EQ(alone["finish_reasons"], Json::array({one["ended"].get<bool>() ? "stop" : "length"}));
  }
  const Json together = CommandLine::json(run(GetParam(), batch));
  std::vector<std::string> offloaded = batch;
  offloaded.insert(offloaded.end(), {"--interval", "2", "--max-num-seqs", "2"}); // and three wait their turn
  const Json away = CommandLine::json(run(GetParam(), offloaded));
  for (size_t p = 0; p < reference["prompts"].size(); ++p) {
    EXPECT_EQ(together["texts"][p], reference["prompts"][p]["text"]);
    EXPECT_EQ(away["texts"][p], reference["prompts"][p]["text"]);
  }
  EXPECT_GT(away["h2d_bytes"], 0);
}

TEST_P(TextModels, ConversationsGiveTransformersText) {
  for (const Json &chat : referenceOf(GetParam())["chats"]) {
    Json messages = Json::array();
    for (const Json &turn : chat["turns"]) {
      messages.push_back({{"role", "user"}, {"content", turn["question"]}});
      writeText(path("messages.json"), messages.dump());
      std::vector<std::string> more = {"--messages", path("messages.json"), "--max-new-tokens",
                                       newTokens(referenceOf(GetParam()))};
      if (chat["system"].is_string())
        more.insert(more.end(), {"--system", chat["system"]});
      const Json made = CommandLine::json(run(GetParam(), more));
      EXPECT_EQ(made["texts"], Json::array({turn["text"]}));
      EXPECT_EQ(made["finish_reasons"], Json::array({turn["ended"].get<bool>() ? "stop" : "length"}));
      more.emplace_back("--special");
      EXPECT_EQ(CommandLine::json(run(GetParam(), more))["texts"], Json::array({turn["text_with_special"]}));
      messages.push_back({{"role", "assistant"}, {"content", turn["text"]}});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Text, TextModels, testing::Values("qwen3-chat", "llama-byte-fallback"), [](const auto &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_F(Text, StandardOutputIsTheTextsAlone) {
  const Json reference = referenceOf("qwen3-chat");
  const std::string first = reference["prompts"][0]["prompt"], second = reference["prompts"][1]["prompt"];
  const Outcome one = headrace(run("qwen3-chat", {"--prompt", first, "--max-new-tokens", newTokens(reference)}));
  EXPECT_EQ(one.status, 0);
  EXPECT_EQ(one.out, reference["prompts"][0]["text"].get<std::string>() + "\n");
  EXPECT_THAT(one.err, HasSubstr("headrace: a reply ends at 422 <|im_end|>"));
  EXPECT_THAT(one.err, HasSubstr("weights by home"));
  EXPECT_THAT(one.err, HasSubstr("6 tokens, 64 new ones, ended by --max-new-tokens"));
  const Outcome two =
      headrace(run("qwen3-chat", {"--prompt", first, "--prompt", second, "--max-new-tokens", newTokens(reference)}));
  EXPECT_EQ(two.out, "== prompt 0 ==\n" + reference["prompts"][0]["text"].get<std::string>() + "\n\n== prompt 1 ==\n" +
                         reference["prompts"][1]["text"].get<std::string>() + "\n");
}

TEST_F(Text, AFileIsAPromptWithoutItsLastNewline) {
  const Json reference = referenceOf("qwen3-chat")["prompts"][0];
  writeText(path("prompt.txt"), reference["prompt"].get<std::string>() + "\n");
  EXPECT_EQ(
      CommandLine::json(run("qwen3-chat", {"--prompt-file", path("prompt.txt"), "--max-new-tokens", "64"}))["texts"],
      Json::array({reference["text"]}));
}

// ' through the channel and turns the wheel — día y noche, 昼も夜も, day and night. ...'
TEST_F(Text, AStopStringEndsAReplyAndIsNotShown) {
  const std::string prompt = referenceOf("qwen3-chat")["prompts"][0]["prompt"];
  const auto stopped = [&](std::vector<std::string> stops) {
    std::vector<std::string> more = {"--prompt", prompt, "--max-new-tokens", "64"};
    for (const std::string &stop : stops)
      more.insert(more.end(), {"--stop", stop});
    return CommandLine::json(run("qwen3-chat", more));
  };
  const Json one = stopped({"turns the"}); // several tokens, and a part of one
  EXPECT_EQ(one["texts"][0], " through the channel and ");
  EXPECT_EQ(one["finish_reasons"][0], "stop");
  EXPECT_LT(one["tokens"][0].size(), 30u);
  EXPECT_EQ(stopped({"night", "も夜", "wheel!"})["texts"][0],
            " through the channel and turns the wheel — día y noche, 昼");
  EXPECT_EQ(stopped({"no such"})["finish_reasons"][0], "length");
}

// 'through the channel and turns the wheel —', whose last three tokens are bytes: only with the token behind them, or
// the reply's end, is it known what they are.
TEST_F(Text, AStopStringInTheLastTokensIsStopWhateverTheyAre) {
  const std::string prompt = referenceOf("llama-byte-fallback")["prompts"][0]["prompt"];
  const Json made =
      CommandLine::json(run("llama-byte-fallback", {"--prompt", prompt, "--max-new-tokens", "23", "--stop", "—"}));
  EXPECT_EQ(made["tokens"][0].size(), 23u);
  EXPECT_EQ(made["texts"][0], "through the channel and turns the wheel ");
  EXPECT_EQ(made["finish_reasons"][0], "stop");
}

TEST_F(Text, AFileOfPromptsHasOneALine) {
  const Json prompts = referenceOf("qwen3-chat")["prompts"];
  const std::string first = prompts[0]["prompt"], second = prompts[1]["prompt"];
  const auto texts = [&](const std::string &name, const std::string &content) {
    writeText(path(name), content);
    return CommandLine::json(run("qwen3-chat", {"--prompts", path(name), "--max-new-tokens", "64"}))["texts"];
  };
  const Json expected = {prompts[0]["text"], prompts[1]["text"]};
  EXPECT_EQ(texts("lines.txt", first + "\n\n" + second + "\r\n"), expected);
  EXPECT_EQ(texts("lines", Json{{"prompt", first}}.dump() + "\n" + Json(second).dump()), expected);
  EXPECT_EQ(texts("lines.jsonl", Json(first).dump() + "\n" + Json{{"prompt", second}}.dump() + "\n"), expected);
  const auto bad = [&](const std::string &content, const std::string &message) {
    writeText(path("bad.jsonl"), content);
    refused(run("qwen3-chat", {"--prompts", path("bad.jsonl")}), 2, path("bad.jsonl") + message);
  };
  bad("\n{\"prompt\": \"a\"}\n[1]\n", ":3: [...]: expected {\"prompt\": \"a text\"}, or \"a text\"");
  bad("{\"prompt\": 5}", ":1: prompt = 5: expected a string");
  bad("{\"text\": \"a\"}", ":1: prompt is missing");
  bad("{\"prompt\": \"a\", \"max_tokens\": 3}", ":1: \"max_tokens\" is no key of a prompt: expected prompt alone");
  bad("\n \n", ": no prompts: expected one a line");
}

// Pipes are read to their end, by whatever name: /dev/stdin, <(...), -.
TEST_F(Text, PromptsAndMessagesComeFromPipesToo) {
  const Json reference = referenceOf("qwen3-chat");
  const std::string command =
      "$HEADRACE run " + golden(modelOf("qwen3-chat")) + " --hardware host --temperature 0 --max-new-tokens 64 -f ";
  const std::string expected = reference["prompts"][0]["text"].get<std::string>() + "\n";
  writeText(path("prompt.txt"), reference["prompts"][0]["prompt"].get<std::string>() + "\n");
  EXPECT_EQ(shell("cat " + path("prompt.txt") + " | " + command + "/dev/stdin").out, expected);
  EXPECT_EQ(shell("mkfifo " + path("pipe") + "; cat " + path("prompt.txt") + " >" + path("pipe") + " & " + command +
                  path("pipe"))
                .out,
            expected);
  const std::string tokenize = "$HEADRACE tokenize " + golden(modelOf("qwen3-chat")) + " --messages ";
  writeText(path("talk.json"), R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(shell(tokenize + path("talk.json")).out, shell("cat " + path("talk.json") + " | " + tokenize + "-").out);
  EXPECT_EQ(shell(tokenize + path("talk.json")).out,
            shell("cat " + path("talk.json") + " | " + tokenize + "/dev/stdin").out);
  refused(run("qwen3-chat", {"-f", "-", "--messages", "/dev/stdin"}), 2, "standard input, more than once");
  refused(run("qwen3-chat", {"-f", path("")}), 2, "a folder: expected a file");
}

// A stream that is closed is no file that is opened later, such as the weights.
TEST_F(Text, ClosedStreamsAreNobodysFiles) {
  const std::string model = golden(modelOf("qwen3-chat")) + " --hardware host --max-new-tokens 2 ";
  for (const char *from : {"-f -", "--prompts -", "--messages -", "--prompt-ids-file /dev/stdin"}) {
    const Outcome closed = shell("$HEADRACE run " + model + from + " <&-");
    EXPECT_EQ(closed.status, 2) << from;
    EXPECT_THAT(closed.err, HasSubstr(": cannot be read: Bad file descriptor")) << from;
  }
  const Outcome unheard = shell("$HEADRACE run " + model + "--prompt-ids 1 >&-");
  EXPECT_EQ(unheard.status, 1);
  EXPECT_THAT(unheard.err, HasSubstr("error: standard output: cannot write"));
}

TEST_F(Text, TheModelsOwnSamplingIsTakenUnlessAFlagSaysOtherwise) {
  const std::string model = golden(modelOf("qwen3-chat")); // do_sample, temperature 0.6, top-k 20, top-p 0.95
  const auto tokens = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"run", model, "--hardware", "host", "--prompt", "Where", "--max-new-tokens", "40"};
    all.insert(all.end(), more.begin(), more.end());
    return CommandLine::json(all)["tokens"];
  };
  EXPECT_EQ(tokens({"--seed", "3"}),
            tokens({"--seed", "3", "--temperature", "0.6", "--top-k", "20", "--top-p", "0.95"}));
  EXPECT_EQ(tokens({"--seed", "3", "--temperature", "0"}), tokens({"--seed", "4", "--temperature", "0"}));
  EXPECT_NE(tokens({"--seed", "3", "--temperature", "5", "--top-k", "0", "--top-p", "1"}), tokens({"--seed", "3"}));
  const Outcome said =
      headrace({"run", model, "--hardware", "host", "--prompt", "Where", "--top-k", "5", "--max-new-tokens", "2"});
  EXPECT_THAT(said.err, HasSubstr("headrace: temperature 0.6, top-p 0.95 (" + model + "/generation_config.json)"));
  const Outcome greedy = headrace(
      {"run", model, "--hardware", "host", "--prompt", "Where", "--temperature", "0", "--max-new-tokens", "2"});
  EXPECT_THAT(greedy.err, Not(HasSubstr("top-p")));
}

TEST_F(Text, EndIdsEndAReplyUnlessTheyAreIgnored) {
  const Json turn = referenceOf("qwen3-chat")["chats"][0]["turns"][0];
  writeText(path("messages.json"), Json::array({{{"role", "user"}, {"content", turn["question"]}}}).dump());
  const auto made = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--messages", path("messages.json"), "--max-new-tokens", "60"});
    return CommandLine::json(run("qwen3-chat", more));
  };
  EXPECT_EQ(made({})["tokens"][0].size(), turn["new_ids"].size());
  const Json on = made({"--ignore-eos"});
  EXPECT_EQ(on["tokens"][0].size(), 60u);
  EXPECT_EQ(on["finish_reasons"][0], "length");
}

TEST_F(Text, APlanFindsItsModelsTokenizer) {
  const Json reference = referenceOf("qwen3-chat")["prompts"][0];
  const std::string model = golden(modelOf("qwen3-chat"));
  ASSERT_EQ(
      headrace({"compile", model, "--hardware", "host", "--batch", "2", "--context", "128", "-o", path("out.plan")})
          .status,
      0);
  const std::vector<std::string> prompt = {"run", path("out.plan"),   "--prompt", reference["prompt"], "--temperature",
                                           "0",   "--max-new-tokens", "64"};
  EXPECT_EQ(CommandLine::json(prompt)["texts"], Json::array({reference["text"]}));
}

TEST_F(Text, MadeUpTokensAreNoText) {
  const Json made = CommandLine::json({"simulate", golden(modelOf("qwen3-chat")), "--hardware", "host", "--prompt",
                                       "The water flows", "--max-new-tokens", "5"});
  EXPECT_EQ(made["prompt_tokens"][0], 6);
  EXPECT_EQ(made["tokens"][0].size(), 5u);
  EXPECT_FALSE(made.contains("texts"));
}

TEST_F(Text, WhatIsNotUtf8IsRefusedWithItsOffsetOrReplaced) {
  refused(run("qwen3-chat", {"--prompt", "ab\xff"
                                         "c"}),
          2, "command line: --prompt: byte 255 at offset 2 is not UTF-8: expected UTF-8, or --lossy");
  EXPECT_EQ(CommandLine::json(run("qwen3-chat", {"--prompt",
                                                 "ab\xff"
                                                 "c",
                                                 "--lossy"}))["tokens"],
            CommandLine::json(run("qwen3-chat", {"--prompt", "ab\xef\xbf\xbd"
                                                             "c"}))["tokens"]);
  writeText(path("prompt.txt"), "\xc3\n");
  refused(run("qwen3-chat", {"--prompt-file", path("prompt.txt")}), 2, "prompt.txt: byte 195 at offset 0");
}

TEST_F(Text, RefusesByName) {
  const std::string text = golden("text") + "/";
  refused(run("qwen3-chat", {"--prompt", "a", "--prompt-ids", "1"}), 2,
          "--prompt beside --prompt-ids: expected one of them");
  refused(run("qwen3-chat", {"--prompt-ids", "1", "--stop", "a"}), 2, "--stop beside token ids");
  refused(run("qwen3-chat", {"--prompt", "a", "--chat-template", "t.jinja"}), 2, "--chat-template beside plain texts");
  refused(run("qwen3-chat", {"--prompt", "a", "--stop", ""}), 2, "--stop = \"\"");
  refused(run("qwen3-chat", {"--prompt", ""}), 2, "--prompt: no tokens");
  refused(run("qwen3-chat", {"--prompt", "a", "--tokenizer", path("none")}), 2, "--tokenizer");
  refused(run("qwen3-chat", {"--prompt", "a", "--tokenizer", text + "llama3"}), 2, ", the vocabulary of qwen3-chat");
  refused({"run", golden("qwen3-7-gqa-f32"), "--hardware", "host", "--prompt", "a"}, 2, "tokenizer.json");
  refused({"run", "tinyllama-1.1b", "--hardware", "host", "--synthetic-weights", "1", "--prompt", "a"}, 2,
          "or --tokenizer FOLDER");
  refused(run("qwen3-chat", {"--prompt", "a", "--max-new-tokens", "4000"}), 2, "expected at most the 512 positions");
}

TEST_F(Text, BrokenFilesAreRefusedByName) {
  const std::string model = copyOf("qwen3-chat");
  const std::vector<std::string> arguments = {"run", model, "--hardware", "host", "--prompt", "a"};
  edit(model + "/generation_config.json", {{"eos_token_id", 5000}});
  refused(arguments, 2, "generation_config.json: eos_token_id = 5000: expected ids below ");
  edit(model + "/generation_config.json", {{"eos_token_id", 2}, {"top_p", 3}});
  refused(arguments, 2, "generation_config.json: top_p = 3: expected more than 0 and at most 1");
  edit(model + "/generation_config.json", {{"top_p", 1}});
  writeText(model + "/tokenizer.json", "{");
  refused(arguments, 2, "tokenizer.json");
  std::filesystem::remove(model + "/tokenizer.json");
  refused(arguments, 2, "tokenizer.model"); // all that was looked for
}

TEST_F(Text, ConversationsAreRefusedByName) {
  const auto refusedMessages = [&](const std::string &json, const std::string &message,
                                   std::vector<std::string> more = {}) {
    writeText(path("messages.json"), json);
    more.insert(more.end(), {"--messages", path("messages.json")});
    refused(run("llama-byte-fallback", more), 2, message);
  };
  refusedMessages("[{", "messages.json");
  refusedMessages("3", "messages.json");
  refusedMessages(R"([{"role": 1, "content": "a"}])", "messages[0].role = 1: expected a string");
  refusedMessages(R"([{"role": "user"}])", "content");
  refusedMessages(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])",
                  "user and assistant must take turns"); // the template's own words
  refusedMessages(R"([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])",
                  "whose first message is one", {"--system", "c"});
  refusedMessages(R"([{"role": "user", "content": "a"}])", "--chat-template-kwargs", {"--chat-template-kwargs", "[1]"});
  refusedMessages(R"([{"role": "user", "content": "a"}])", "no-such.jinja", {"--chat-template", path("no-such.jinja")});
  refused(run("llama-byte-fallback", {"--messages", path("none.json")}), 2, "none.json");
}

TEST_F(Text, AnotherTemplateAndItsVariables) {
  writeText(path("t.jinja"), "{{ bos_token }}{{ messages[0].content }}{% if more %} flows{% endif %}");
  writeText(path("messages.json"), R"([{"role": "user", "content": "The water"}])");
  const std::vector<std::string> more = {
      "--messages", path("messages.json"),    "--chat-template",  path("t.jinja"), "--max-new-tokens",
      "64",         "--chat-template-kwargs", R"({"more": true})"};
  EXPECT_EQ(CommandLine::json(run("llama-byte-fallback", more))["texts"][0],
            referenceOf("llama-byte-fallback")["prompts"][0]["text"]);
}

TEST_F(Text, ThePromptOfAConversationCanBeSeen) {
  const Json turn = referenceOf("qwen3-chat")["chats"][0]["turns"][0];
  writeText(path("talk.json"), Json::array({{{"role", "user"}, {"content", turn["question"]}}}).dump());
  const std::string model = golden(modelOf("qwen3-chat"));
  EXPECT_EQ(CommandLine::json({"tokenize", model, "--messages", path("talk.json"), "--json"})["ids"], turn["ids"]);
  EXPECT_EQ(
      shell("$HEADRACE tokenize " + model + " --messages " + path("talk.json") + " | $HEADRACE detokenize " + model)
          .out,
      turn["prompt"].get<std::string>() + "\n");
  refused({"tokenize", model, "a", "--messages", path("talk.json")}, 2, "a text is given beside it");
}

TEST_F(Text, PartsAreOneTextWhereTheTemplateTakesTexts) {
  const Json turn = referenceOf("qwen3-chat")["chats"][0]["turns"][0];
  const Json part = {{"type", "text"}, {"text", turn["question"]}};
  writeText(path("talk.json"), Json::array({{{"role", "user"}, {"content", Json::array({part})}}}).dump());
  EXPECT_EQ(CommandLine::json(run("qwen3-chat", {"--messages", path("talk.json"), "--max-new-tokens", "64"}))["texts"],
            Json::array({turn["text"]}));
}

TEST_F(Text, TheTokenizersEndTokenEndsAMessage) {
  const std::string model = copyOf("qwen3-chat");
  edit(model + "/generation_config.json", {{"eos_token_id", 420}});
  edit(model + "/config.json", {{"eos_token_id", 420}});
  const Json turn = referenceOf("qwen3-chat")["chats"][0]["turns"][0];
  writeText(path("talk.json"), Json::array({{{"role", "user"}, {"content", turn["question"]}}}).dump());
  const std::vector<std::string> arguments = {
      "run", model, "--hardware", "host", "--messages", path("talk.json"), "--temperature", "0"};
  EXPECT_EQ(CommandLine::json(arguments)["texts"], Json::array({turn["text"]}));
  EXPECT_THAT(headrace(arguments).err, HasSubstr("ends at 420 <|endoftext|>, 422 <|im_end|> (" + model +
                                                 "/generation_config.json, tokenizer_config.json's eos_token)"));
}

TEST_F(Text, WeightsElsewhereBringTheirTokenizer) {
  const std::string model = copyOf("qwen3-chat");
  ASSERT_EQ(
      headrace({"compile", model, "--hardware", "host", "--batch", "1", "--context", "128", "-o", path("out.plan")})
          .status,
      0);
  std::filesystem::rename(model, path("moved"));
  const Json reference = referenceOf("qwen3-chat")["prompts"][0];
  EXPECT_EQ(CommandLine::json({"run", path("out.plan"), "--weights", path("moved"), "--prompt", reference["prompt"],
                               "--temperature", "0", "--max-new-tokens", "64"})["texts"],
            Json::array({reference["text"]}));
}

TEST_F(Text, QuietIsTheRepliesAlone) {
  const Outcome quiet = headrace(run("qwen3-chat", {"--prompt", "The water flows", "--quiet"}));
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(shell("printf 'The water flows' | $HEADRACE run " + golden(modelOf("qwen3-chat")) + " --hardware host" +
                  " --temperature 0 -q --prompt-file -")
                .out,
            quiet.out);
}

TEST_F(Text, TokenizeAndDetokenize) {
  const std::string model = golden(modelOf("llama-byte-fallback"));
  const Json reference = referenceOf("llama-byte-fallback")["prompts"][0];
  const Outcome ids = headrace({"tokenize", model, reference["prompt"]});
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(Json::parse("[" + ids.out + "]"), reference["ids"]);
  const Json both = CommandLine::json({"tokenize", model, "a \xe2\x82\xac", "--json"});
  EXPECT_EQ(both["tokens"].size(), both["ids"].size());
  EXPECT_EQ(both["tokens"][0], "<s>");
  EXPECT_EQ(CommandLine::json({"tokenize", model, "a", "--no-special", "--json"})["tokens"], Json::array({"▁a"}));
  EXPECT_THAT(headrace({"tokenize", model, "a", "--pieces"}).out, HasSubstr("1\t<s>\n"));
  const Outcome back = headrace({"detokenize", model, ids.out, "--no-special"});
  EXPECT_EQ(back.out, reference["prompt"].get<std::string>() + "\n");
  EXPECT_EQ(shell("printf 'The water flows' | $HEADRACE tokenize " + model + " | $HEADRACE detokenize " + model).out,
            "<s> The water flows\n");
  writeText(path("text"), "a\n");
  EXPECT_EQ(headrace({"tokenize", model, "--file", path("text")}).out, headrace({"tokenize", model, "a\n"}).out);
  EXPECT_EQ(
      shell("printf 'a\\0b' | $HEADRACE tokenize " + model + " | $HEADRACE detokenize " + model + " --no-special").out,
      std::string("a\0b\n", 4));
  refused({"tokenize", path("none"), "a"}, 2, "no such folder");
  refused({"tokenize", model, "\xff"}, 2, "offset 0");
  refused({"tokenize", model, "a", "--file", path("text")}, 2, "--file");
  refused({"detokenize", model, "1,x"}, 2, "expected a token id");
  EXPECT_EQ(headrace({"detokenize", model, ids.out + ",100000", "--no-special"}).out,
            reference["prompt"].get<std::string>() + "\n"); // as a model with more rows than tokens makes them
  EXPECT_THAT(headrace({"detokenize", model, "100000"}).err, HasSubstr("token id 100000 is none of the tokenizer's"));
  EXPECT_EQ(headrace({"detokenize", model, "[1, 378]"}).out, headrace({"detokenize", model, "1 378"}).out);
  refused({"tokenize", model + "/tokenizer.json", "a"}, 2, "a file: expected a folder with tokenizer.json");
}

} // namespace
} // namespace headrace::tools
