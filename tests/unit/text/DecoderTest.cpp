// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Decoder.h"

#include <gtest/gtest.h>

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Utf8.h"
#include "tests/unit/text/TokenizerFixture.h"

namespace headrace::text {
namespace {

json sequence(const std::vector<json> &decoders) { return {{"type", "Sequence"}, {"decoders", decoders}}; }

std::shared_ptr<const Tokenizer> withDecoder(const json &decoder, const std::vector<std::string> &tokens) {
  return mustRead({{"model", bpeModel(tokens, {})}, {"decoder", decoder}});
}

// What each push shows, and finish.
std::vector<std::string> streamed(const Tokenizer &tokenizer, const Ids &ids) {
  TextStream stream(tokenizer);
  std::vector<std::string> pieces;
  for (const int32_t id : ids)
    pieces.push_back(stream.push(id));
  pieces.push_back(stream.finish());
  return pieces;
}

const json kByteLevel = {{"type", "ByteLevel"}};
const json kFallback = {{"type", "ByteFallback"}};
const json kFuse = {{"type", "Fuse"}};
const json kStrip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
const json kUnderscores = {{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", " "}};

TEST(Decoder, NoneJoinsWithSpaces) {
  const auto tokenizer = withDecoder(nullptr, {"a", "b"});
  EXPECT_EQ(tokenizer->decode(Ids{0, 1, 7, -1, 0}), "a b a"); // ids of no tokens add nothing
}

TEST(Decoder, ByteLevelWaitsForTheCharactersEnd) {
  // é is C3 A9: 0 and 1. Ġ is a space. A token with a letter of no byte stands as it is.
  const auto tokenizer = withDecoder(kByteLevel, {"Ã", "©", "Ġa", "x y"});
  EXPECT_EQ(tokenizer->decode(Ids{0, 1, 2, 3}), "é ax y");
  EXPECT_THAT(streamed(*tokenizer, {0, 1, 2}), testing::ElementsAre("", "é", " a", ""));
  EXPECT_THAT(streamed(*tokenizer, {0, 2}), testing::ElementsAre("", "\uFFFD a", ""));
  EXPECT_THAT(streamed(*tokenizer, {2, 0}), testing::ElementsAre(" a", "", "\uFFFD"));
}

TEST(Decoder, ByteFallbackDecidesWithTheWholeRun) {
  const auto tokenizer = withDecoder(sequence({kFallback}), {"<0xC3>", "<0xA9>", "<0x61>", "a", "<0xZZ>"});
  EXPECT_EQ(tokenizer->decode(Ids{0, 1, 2, 3}), "éaa");
  EXPECT_EQ(tokenizer->decode(Ids{0, 1, 0, 3}), "\uFFFD\uFFFD\uFFFDa"); // one for each byte of the run
  EXPECT_EQ(tokenizer->decode(Ids{4}), "<0xZZ>");
  EXPECT_THAT(streamed(*tokenizer, {2, 0, 1, 3, 3}), testing::ElementsAre("", "", "", "aéa", "a", ""));
}

TEST(Decoder, StripTakesFromEachTokenAndBehindFuseFromTheText) {
  const std::vector<std::string> tokens = {"_a", "__b", "c"};
  EXPECT_EQ(withDecoder(sequence({kUnderscores, kStrip}), tokens)->decode(Ids{0, 1, 2}), "a bc");
  EXPECT_EQ(withDecoder(sequence({kUnderscores, kFuse, kStrip}), tokens)->decode(Ids{0, 1, 2}), "a  bc");
  EXPECT_EQ(withDecoder(sequence({kUnderscores, kFuse, kStrip}), tokens)->decode(Ids{1, 0}), " b a");
}

TEST(Decoder, ReplaceBehindFuseCrossesTokens) {
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "aab"}}}, {"content", "x"}};
  const auto tokenizer = withDecoder(sequence({kFuse, replace}), {"a", "b", "c"});
  EXPECT_EQ(tokenizer->decode(Ids{0, 0, 0, 1, 0, 2}), "axac");
  EXPECT_THAT(streamed(*tokenizer, {0, 0, 0, 1, 0, 2}), testing::ElementsAre("", "", "a", "x", "", "ac", ""));
  EXPECT_EQ(withDecoder(sequence({replace}), {"aab", "a", "ab"})->decode(Ids{0, 1, 2}), "xaab");
}

TEST(Decoder, MetaspaceDropsTheFirstTokensSpaces) {
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
  const std::vector<std::string> tokens = {"_a", "_b_"};
  EXPECT_EQ(withDecoder(metaspace, tokens)->decode(Ids{0, 0, 1}), "a a b ");
  json never = metaspace;
  never["prepend_scheme"] = "never";
  EXPECT_EQ(withDecoder(never, tokens)->decode(Ids{0, 0}), " a a");
}

TEST(Decoder, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const json &decoder, const std::string &message) {
    expectRefused({{"model", bpeModel({"a"}, {})}, {"decoder", decoder}}, message);
  };
  refused({{"type", "CTC"}},
          "decoder.type = \"CTC\": expected ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace "
          "or Sequence");
  refused(sequence({kFuse, {{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}}}),
          "decoder.decoders[1].stop = 1: expected an integer from 0 to 0");
  refused({{"type", "Fuse"}, {"x", 1}}, "decoder.x = 1: this key is not supported");
  refused({{"type", "Replace"}, {"pattern", {{"String", std::string(257, 'a')}}}, {"content", ""}},
          "decoder.pattern = {...}: expected a string of at most 256 bytes");
  refused("Fuse", "decoder = \"Fuse\": expected an object");
  refused(sequence(std::vector<json>(33, kFuse)), "decoder.decoders = [...]: expected a list of at most 32");
}

using Tokens = std::vector<std::string>;

void replaceAll(std::string &text, const std::string &what, const std::string &with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

std::string joined(const Tokens &tokens) {
  std::string text;
  for (const std::string &token : tokens)
    text += token;
  return text;
}

Tokens fallenBack(const Tokens &tokens) {
  Tokens out;
  std::string run;
  const auto flush = [&] {
    if (run.empty())
      return;
    if (utf8Prefix(run) == run.size())
      out.push_back(run);
    else
      out.insert(out.end(), run.size(), "\uFFFD");
    run.clear();
  };
  for (const std::string &token : tokens) {
    if (const int byte = byteOfToken(token); byte >= 0) {
      run += static_cast<char>(byte);
      continue;
    }
    flush();
    out.push_back(token);
  }
  flush();
  return out;
}

// A step on all tokens at once, as the package defines it.
Tokens applied(const json &step, Tokens tokens) {
  const std::string type = step["type"];
  if (type == "Fuse")
    return {joined(tokens)};
  if (type == "ByteFallback")
    return fallenBack(tokens);
  if (type == "ByteLevel") {
    std::string bytes, text;
    for (const std::string &token : tokens)
      if (!appendBytesOfLetters(token, bytes))
        bytes += token;
    appendLossy(bytes, true, text);
    return {text};
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (type == "Strip" && tokens[i].starts_with(' '))
      tokens[i].erase(0, 1);
    else if (type == "Replace")
      replaceAll(tokens[i], step["pattern"]["String"], step["content"]);
    else if (type == "Metaspace")
      replaceAll(tokens[i], step["replacement"], i == 0 ? "" : " ");
  }
  return tokens;
}

RC_GTEST_PROP(Decoder, TextAsTokensComeIsThatOfAllAtOnce, ()) {
  const Tokens tokens = {"a", "b", "_", "_a", "Ã", "©", "Ġ", "<0xC3>", "<0xA9>", "<0xE4>", "é", "aab", "ab_", "x y"};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "aab"}}}, {"content", "_"}};
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}};
  auto steps = *rc::gen::container<std::vector<json>>(
      rc::gen::element(kByteLevel, kFallback, kFuse, kStrip, kUnderscores, replace, metaspace));
  steps.resize(std::min<size_t>(steps.size(), 32));
  const Ids ids = *rc::gen::container<Ids>(rc::gen::inRange<int32_t>(0, static_cast<int32_t>(tokens.size())));
  Tokens expected;
  for (const int32_t id : ids)
    expected.push_back(tokens[static_cast<size_t>(id)]);
  for (const json &step : steps)
    expected = applied(step, std::move(expected));
  RC_ASSERT(joined(streamed(*withDecoder(sequence(steps), tokens), ids)) == joined(expected));
}

} // namespace
} // namespace headrace::text
