// SPDX-License-Identifier: Apache-2.0
//
// Every golden tokenizer answers as the packages did that made it: on its examples, on random strings, random ids
// and every character, of which a share is tried, all with HEADRACE_LONG. And text as tokens come is the text of all of
// them.
//
// HEADRACE_TEXT_PRINT="NAME KIND GROUP" prints our answers in a group instead, as make_tokenizers.py --print does.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/base/Xxh64.h"
#include "runtime/text/tokenizer/TextStream.h"
#include "tests/support/LongRun.h"
#include "tests/support/RandomText.h"
#include "tests/support/SourceDir.h"

namespace headrace::text {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

constexpr uint64_t kStringsOfAGroup = 50;

std::string folderOf(const std::string &name) { return absl::StrCat(sourceDir(), "/tests/golden/text/", name); }

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto &entry : std::filesystem::directory_iterator(folderOf("")))
    if (entry.is_directory())
      out.push_back(entry.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

std::string testName(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Ids encoded(const Tokenizer &tokenizer, const std::string &text, SpecialTokens specials) {
  const absl::StatusOr<Ids> ids = tokenizer.encode(text, specials);
  EXPECT_TRUE(ids.ok()) << ids.status() << " of " << Json(text);
  return ids.ok() ? *ids : Ids();
}

Json answersToIds(const Tokenizer &tokenizer, const Ids &ids) {
  return {{"ids", ids}, {"shown", tokenizer.decode(ids, true)}, {"hidden", tokenizer.decode(ids, false)}};
}

// sentencepiece itself knows no special tokens in a text: what holds one is not compared (make_tokenizers.py).
std::string comparable(const std::string &name, const std::string &text) {
  if (name == "sentencepiece")
    for (const char *piece : {"<s>", "</s>", "<unk>"})
      if (text.find(piece) != std::string::npos)
        return "";
  return text;
}

Json answersToString(const std::string &name, const Tokenizer &tokenizer, const std::string &text) {
  const std::string compared = comparable(name, text);
  const Ids ids = encoded(tokenizer, compared, SpecialTokens::Add);
  return {{"text", text},
          {"ids", ids},
          {"inner", encoded(tokenizer, compared, SpecialTokens::Leave)},
          {"shown", tokenizer.decode(ids, true)},
          {"hidden", tokenizer.decode(ids, false)}};
}

Json answerOf(const std::string &name, const Tokenizer &tokenizer, const RandomStrings &strings,
              const std::string &kind, uint64_t number) {
  if (kind == "ids")
    return answersToIds(tokenizer, randomIds(number, tokenizer.size()));
  return answersToString(name, tokenizer, kind == "characters" ? everyCharacter(number) : strings.string(number));
}

// Ids: their number and each in four bytes; a text: the number of its bytes in four, and these.
void appendPacked(const Json &value, std::string &bytes) {
  const auto number = [&](uint32_t n) {
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>(n >> shift & 0xFF);
  };
  if (value.is_string()) {
    number(static_cast<uint32_t>(value.get_ref<const std::string &>().size()));
    bytes += value.get_ref<const std::string &>();
    return;
  }
  number(static_cast<uint32_t>(value.size()));
  for (const Json &id : value)
    number(id.get<uint32_t>());
}

std::vector<std::string> linesOf(const std::string &path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  return lines;
}

std::string hex(const std::string &bytes) {
  return absl::StrCat(absl::Hex(model::xxh64(std::as_bytes(std::span(bytes)), 0), absl::kZeroPad16));
}

TEST(RandomText, IsDrawnAsThePackagesWereAsked) {
  const RandomStrings strings(folderOf("random-strings.json"));
  std::string texts, ids, characters;
  for (uint64_t n = 0; n < 5000; ++n) {
    appendPacked(strings.string(n), texts);
    appendPacked(randomIds(n, 1000), ids);
  }
  for (uint64_t n = 0; n < 17'408; ++n)
    appendPacked(everyCharacter(n), characters);
  EXPECT_THAT(linesOf(folderOf("drawn.digests")), testing::ElementsAre(hex(texts), hex(ids), hex(characters)));
}

class TextGolden : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::open(folderOf(GetParam()));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  Json answer(const std::string &kind, uint64_t number) const {
    return answerOf(GetParam(), *tokenizer_, strings_, kind, number);
  }

  // Compares every `step`th group, all with HEADRACE_LONG.
  void compare(const std::string &kind, size_t step) const {
    if (longRun())
      step = 1;
    const std::vector<std::string> expected = linesOf(absl::StrCat(folderOf(GetParam()), "/", kind, ".digests"));
    ASSERT_FALSE(expected.empty());
    size_t different = 0, first = 0;
    for (size_t group = 0; group < expected.size(); group += step)
      if (digest(kind, group) != expected[group] && different++ == 0)
        first = group;
    EXPECT_EQ(different, 0u) << "groups differ, the first from " << kind << " " << first * kStringsOfAGroup
                             << " on: HEADRACE_TEXT_PRINT=\"" << GetParam() << " " << kind << " " << first << '"';
  }

  std::string digest(const std::string &kind, size_t group) const {
    std::string bytes;
    for (uint64_t i = 0; i < kStringsOfAGroup; ++i)
      for (const Json &value : answer(kind, group * kStringsOfAGroup + i))
        appendPacked(value, bytes);
    return hex(bytes);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  const RandomStrings strings_{folderOf("random-strings.json")};
};

TEST_P(TextGolden, ExamplesAreThePackages) {
  std::ifstream file(folderOf(GetParam()) + "/examples.json");
  const Json examples = Json::parse(file);
  ASSERT_EQ(examples.size(), 30u);
  for (const Json &example : examples)
    EXPECT_EQ(answersToString(GetParam(), *tokenizer_, example["text"]).dump(), example.dump());
}

TEST_P(TextGolden, RandomStringsAreThePackages) { compare("strings", 25); }

TEST_P(TextGolden, TextOfRandomIdsIsThePackages) { compare("ids", 25); }

TEST_P(TextGolden, EveryCharacterIsThePackages) { compare("characters", 50); }

TEST_P(TextGolden, TextAsTokensComeIsTheWhole) {
  const uint64_t sequences = longRun() ? 20'000 : 2'000;
  for (const bool shown : {false, true}) {
    TextStream stream(*tokenizer_, shown);
    for (uint64_t number = 0; number < sequences; ++number) {
      const Ids ids = number % 2 == 0 ? randomIds(number, tokenizer_->size())
                                      : encoded(*tokenizer_, strings_.string(number), SpecialTokens::Add);
      std::string text;
      for (const int32_t id : ids)
        text += stream.push(id);
      text += stream.finish();
      ASSERT_EQ(Json(text), Json(tokenizer_->decode(ids, shown))) << "number " << number << ", ids " << Json(ids);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TextGolden, testing::ValuesIn(names()), testName);

bool printsAGroup(const char *what) {
  std::string name, kind;
  uint64_t group = 0;
  if (!(std::istringstream(what) >> name >> kind >> group))
    return false;
  const absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::open(folderOf(name));
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return false;
  }
  const RandomStrings strings(folderOf("random-strings.json"));
  for (uint64_t n = group * kStringsOfAGroup; n < (group + 1) * kStringsOfAGroup; ++n) {
    // As Python's json prints it.
    std::cout << answerOf(name, **tokenizer, strings, kind, n).dump(-1, ' ', true) << "\n";
  }
  return true;
}

} // namespace
} // namespace headrace::text

int main(int argc, char **argv) {
  if (const char *what = std::getenv("HEADRACE_TEXT_PRINT"))
    return headrace::text::printsAGroup(what) ? 0 : 1;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
