// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/TraceFile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/TestFiles.h"

namespace headrace::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr int64_t kMs = 1'000'000;

Trace parsed(std::string_view text, int64_t most = 0) {
  auto trace = parseTrace(text, "trace", most);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() ? *std::move(trace) : Trace();
}

std::string refusal(std::string_view text) {
  const auto trace = parseTrace(text, "trace");
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(trace.status().message());
}

std::vector<int64_t> numbers(const Trace &trace) {
  std::vector<int64_t> out;
  for (const TrafficRequest &one : trace.requests)
    out.insert(out.end(), {one.arrivalNs, one.tokensOfPrompt(), one.outputTokens});
  return out;
}

TEST(TraceFile, ReadsOurs) {
  const Trace trace = parsed("{\"arrival_s\": 0.25, \"prompt_tokens\": 12, \"output_tokens\": 7, \"user\": \"x\"}\n"
                             "\r\n"
                             "{\"arrival_s\": 1, \"prompt_ids\": [5, 6, 0], \"output_tokens\": 1}\r\n");
  EXPECT_EQ(trace.format, TraceFormat::Headrace);
  EXPECT_THAT(numbers(trace), ElementsAre(0, 12, 7, 750 * kMs, 3, 1));
  EXPECT_EQ(trace.beginNs, 250 * kMs);
  EXPECT_THAT(trace.lines, ElementsAre(1, 3));
  EXPECT_THAT(trace.requests[0].prompt, IsEmpty());
  EXPECT_THAT(trace.requests[1].prompt, ElementsAre(5, 6, 0));
  EXPECT_THAT(trace.warnings, IsEmpty());
}

TEST(TraceFile, ReadsMooncakes) {
  const Trace trace =
      parsed("{\"timestamp\": 0, \"input_length\": 6755, \"output_length\": 500, \"hash_ids\": [0, 1, 2]}\n"
             "{\"timestamp\": 27482, \"input_length\": 1, \"output_length\": 2, \"hash_ids\": []}");
  EXPECT_EQ(trace.format, TraceFormat::Mooncake);
  EXPECT_THAT(numbers(trace), ElementsAre(0, 6755, 500, 27482 * kMs, 1, 2));
}

// Seconds, with fractions or without, told from Mooncake's by the keys beside them.
TEST(TraceFile, ReadsBailians) {
  const Trace trace = parsed(
      R"({"chat_id": 7, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 12, "output_length": 7, "turn": 1})"
      "\n"
      R"({"chat_id": 8, "parent_chat_id": 7, "timestamp": 14.05, "input_length": 3, "output_length": 1, "turn": 2})");
  EXPECT_EQ(trace.format, TraceFormat::Bailian);
  EXPECT_THAT(numbers(trace), ElementsAre(0, 12, 7, 13550 * kMs, 3, 1));
  EXPECT_EQ(trace.beginNs, 500 * kMs);
  for (const char *mark : {"chat_id", "parent_chat_id", "turn"})
    EXPECT_EQ(
        parsed(std::string("{\"") + mark + R"(": 1, "timestamp": 2, "input_length": 1, "output_length": 1})").beginNs,
        2000 * kMs)
        << mark;
  // Without them nobody knows of what they are fractions.
  EXPECT_EQ(parsed(R"({"timestamp": 27.0, "input_length": 1, "output_length": 1})").beginNs, 27 * kMs);
  EXPECT_EQ(refusal(R"({"timestamp": 27.5, "input_length": 1, "output_length": 1})"),
            "trace: line 1: timestamp = 27.5: expected whole milliseconds, as in Mooncake's traces: those of "
            "Qwen-Bailian, in seconds, have chat_id and turn beside them, and ours are arrival_s");
}

TEST(TraceFile, SaysWhatItsClockIs) {
  EXPECT_EQ(traceClockText(TraceFormat::Headrace), "arrival_s in seconds");
  EXPECT_EQ(traceClockText(TraceFormat::Mooncake), "timestamp in milliseconds");
  EXPECT_EQ(traceClockText(TraceFormat::Bailian), "timestamp in seconds");
  EXPECT_EQ(traceClockText(TraceFormat::Azure), "TIMESTAMP as dates");
}

// As the Azure traces of 2024 have them. They are no requests: not the first, not of those that are asked for.
TEST(TraceFile, DropsRowsOfZeroTokensAndCountsThem) {
  const std::string text = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                           "2023-11-16 18:15:10.1,40,0\n"
                           "2023-11-16 18:15:11.1,40,8\n"
                           "2023-11-16 18:15:12.1,0,8\n"
                           "2023-11-16 18:15:13.1,1,1\n";
  for (const int64_t most : {0, 2}) {
    const Trace trace = parsed(text, most);
    EXPECT_THAT(numbers(trace), ElementsAre(0, 40, 8, 2000 * kMs, 1, 1));
    EXPECT_THAT(trace.lines, ElementsAre(3, 5));
    EXPECT_EQ(trace.dropped, 2);
    EXPECT_THAT(trace.warnings, ElementsAre("trace: 2 rows of zero tokens, the first on line 2: dropped"));
  }
  EXPECT_EQ(parsed(text, 1).dropped, 1);
  const Trace mooncake = parsed("{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 0}\n"
                                "{\"timestamp\": 3, \"input_length\": 5, \"output_length\": 1}\n");
  EXPECT_EQ(mooncake.dropped, 1);
  EXPECT_THAT(numbers(mooncake), ElementsAre(0, 5, 1));
  EXPECT_EQ(refusal("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:10.1,40,0\n"),
            "trace: no requests but 1 row of zero tokens, the first on line 2");
}

// From the earliest date on, over the end of a day and a year.
TEST(TraceFile, ReadsAzures) {
  const Trace trace = parsed("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                             "2023-12-31 23:59:59.9805900,4808,10\r\n"
                             "2024-01-01 00:00:00,110,27\r\n"
                             "2024-01-01 00:00:01.000000001+00:00, 3 ,4\r\n");
  EXPECT_EQ(trace.format, TraceFormat::Azure);
  EXPECT_EQ(trace.beginNs, 0);
  EXPECT_THAT(numbers(trace), ElementsAre(0, 4808, 10, 19'410'000, 110, 27, 1'019'410'001, 3, 4));
}

TEST(TraceFile, SortsWithAWarning) {
  const Trace trace = parsed("{\"timestamp\": 5, \"input_length\": 1, \"output_length\": 1}\n\n"
                             "{\"timestamp\": 3, \"input_length\": 2, \"output_length\": 1}\n"
                             "{\"timestamp\": 5, \"input_length\": 3, \"output_length\": 1}\n"
                             "{\"timestamp\": 1, \"input_length\": 4, \"output_length\": 1}\n");
  EXPECT_THAT(numbers(trace),
              ElementsAre(0, 4, 1, 2 * kMs, 2, 1, 4 * kMs, 1, 1, 4 * kMs, 3, 1)); // equal ones as in the file
  EXPECT_EQ(trace.beginNs, 1 * kMs);
  EXPECT_THAT(trace.lines, ElementsAre(5, 3, 1, 4));
  EXPECT_THAT(trace.warnings, ElementsAre("trace: 2 requests come before the one above it, the first on line 3: sorted "
                                          "by arrival"));
}

TEST(TraceFile, ReadsNoMoreThanAsked) {
  const std::string_view text = "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n"
                                "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\nbroken";
  EXPECT_EQ(parsed(text, 2).requests.size(), 2u);
  EXPECT_THAT(parsed(text, 1).warnings, IsEmpty());
  const std::string_view unordered = "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n"
                                     "{\"timestamp\": 2, \"input_length\": 1, \"output_length\": 1}\n"
                                     "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n";
  EXPECT_THAT(
      parsed(unordered, 1).warnings,
      ElementsAre("trace: line 3 comes before requests above it: of a file that is not in order the first 1 are "
                  "taken, not the earliest"));
  // A request at the moment of the latest comes behind it; one of zero tokens does not come at all.
  const std::string_view next = "{\"timestamp\": 5, \"input_length\": 1, \"output_length\": 1}\n"
                                "{\"timestamp\": 5, \"input_length\": 1, \"output_length\": 1}\n"
                                "{\"timestamp\": 4, \"input_length\": 0, \"output_length\": 1}\n";
  EXPECT_THAT(parsed(next, 1).warnings, IsEmpty());
  EXPECT_THAT(refusal(text), StartsWith("trace: line 3: expected JSON: parse error at column 1: "));
  EXPECT_THAT(std::string(parseTrace(text, "trace", -1).status().message()),
              HasSubstr("-1 requests asked for, expected 0 or more"));
}

TEST(TraceFile, RefusesOtherFilesByName) {
  EXPECT_THAT(refusal(""), StartsWith("trace: empty: expected {\"arrival_s\""));
  EXPECT_THAT(refusal(" \n\r\n"), StartsWith("trace: empty: "));
  EXPECT_EQ(refusal("TIMESTAMP,ContextTokens,GeneratedTokens\n"), "trace: no requests below the header");
  EXPECT_THAT(refusal("[{\"conversations\": []}]"), StartsWith("trace: line 1: a JSON list: the files of ShareGPT"));
  EXPECT_THAT(refusal("Timestamp,Model,Request tokens\n1,2,3"),
              HasSubstr("line 1: \"Timestamp,Model,Request tokens\": "));
  EXPECT_THAT(refusal("{\"prompt\": \"hello\"}"), StartsWith("trace: line 1: neither arrival_s nor timestamp"));
  EXPECT_THAT(refusal("{\"arrival_s\": 1,}"), StartsWith("trace: line 1: expected JSON: "));
}

TEST(TraceFile, RefusesObjectsByLineAndKey) {
  const auto ours = [](const std::string &rest) {
    return refusal("{\"arrival_s\": 0, \"prompt_tokens\": 1, \"output_tokens\": 1}\n{" + rest + "}");
  };
  EXPECT_EQ(ours(R"("arrival_s": -1, "prompt_tokens": 1, "output_tokens": 1)"),
            "trace: line 2: arrival_s = -1: expected 0 to 1e+09 seconds");
  EXPECT_THAT(ours(R"("arrival_s": 1e300, "prompt_tokens": 1, "output_tokens": 1)"), HasSubstr("arrival_s = 1e+300"));
  EXPECT_THAT(ours(R"("arrival_s": "1", "prompt_tokens": 1, "output_tokens": 1)"),
              HasSubstr("line 2: arrival_s = \"1\""));
  EXPECT_THAT(ours(R"("prompt_tokens": 1, "output_tokens": 1)"), HasSubstr("line 2: arrival_s"));
  EXPECT_THAT(ours(R"("arrival_s": 1, "output_tokens": 1)"), HasSubstr("line 2: prompt_tokens"));
  EXPECT_THAT(ours(R"("arrival_s": 1, "prompt_tokens": 0, "output_tokens": 1)"), HasSubstr("prompt_tokens = 0"));
  EXPECT_THAT(ours(R"("arrival_s": 1, "prompt_tokens": 1, "output_tokens": 0)"), HasSubstr("output_tokens = 0"));
  EXPECT_THAT(ours(R"("arrival_s": 1, "prompt_tokens": 1.5, "output_tokens": 1)"), HasSubstr("prompt_tokens = 1.5"));
  EXPECT_THAT(ours(R"("arrival_s": 1, "prompt_ids": [], "output_tokens": 1)"),
              HasSubstr("prompt_ids = []: expected a list of one or more token ids from 0 to 2147483647"));
  EXPECT_THAT(ours(R"("arrival_s": 1, "prompt_ids": [1, -1], "output_tokens": 1)"), HasSubstr("line 2: prompt_ids"));
  EXPECT_THAT(ours(R"("arrival_s": 1, "prompt_ids": [1], "prompt_tokens": 1, "output_tokens": 1)"),
              HasSubstr("prompt_tokens = 1: expected either it or prompt_ids"));
  EXPECT_THAT(refusal("{\"timestamp\": -5, \"input_length\": 1, \"output_length\": 1}"),
              HasSubstr("line 1: timestamp = -5: expected 0 to 1e+12 milliseconds"));
  EXPECT_THAT(refusal("{\"arrival_s\": 0, \"prompt_tokens\": 1, \"output_tokens\": 1}\n[]"), HasSubstr("line 2: "));
}

TEST(TraceFile, RefusesRowsByLineAndField) {
  const auto row = [](const std::string &text) { return refusal("TIMESTAMP,ContextTokens,GeneratedTokens\n" + text); };
  EXPECT_EQ(row("2023-11-16 18:15:46,1"),
            "trace: line 2: 2 fields, expected 3: TIMESTAMP,ContextTokens,GeneratedTokens");
  EXPECT_EQ(row("2023-11-16 18:15:46,1,-1"), "trace: line 2: GeneratedTokens = \"-1\": expected 0 to 2147483647");
  EXPECT_THAT(row("2023-11-16 18:15:46,1,99999999999"), HasSubstr("GeneratedTokens = \"99999999999\""));
  for (const char *const date : {"", "yesterday", "2023-02-29 00:00:00", "2023-11-16 24:00:00", "2023-11-16 18:60:46",
                                 "2023-11-16 18:15:46.", "2023-11-16 18:15:46.1234567890", "2023-11-16 18:15:46x5",
                                 "2023-11-16 18:15:46+01:00", "1969-12-31 23:59:59", "+00:00"})
    EXPECT_THAT(row(std::string(date) + ",1,1"), HasSubstr("line 2: TIMESTAMP = \"" + std::string(date) +
                                                           "\": expected a date such as 2023-11-16 18:15:46.6805900"));
}

TEST(TraceFile, ReadsFilesAndNamesThem) {
  const model::TempFolder folder;
  const std::string path =
      folder.write("a.jsonl", "\xEF\xBB\xBF{\"arrival_s\": 0, \"prompt_tokens\": 1, \"output_tokens\": 1}");
  const auto trace = readTrace(path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->requests.size(), 1u);
  EXPECT_THAT(std::string(readTrace(folder.write("empty", "")).status().message()),
              StartsWith(folder.file("empty") + ": empty: "));
  EXPECT_EQ(readTrace(folder.path()).status().message(), folder.path() + ": a folder: expected a regular file");
  const auto missing = readTrace(folder.file("none"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(), folder.file("none") + ": no such file");
}

// However long its lines are beside what is read of it at a time, and whatever comes behind the requests that are asked
// for.
TEST(TraceFile, ReadsAFileAsFarAsItIsAskedFor) {
  const model::TempFolder folder;
  std::string text;
  for (const size_t spaces : {0, 1'200'000, 0, 2'100'000, 0}) // beside 1 MiB
    text += "{" + std::string(spaces, ' ') + "\"arrival_s\": 1, \"prompt_tokens\": 3, \"output_tokens\": 2}\n";
  text += std::string(100, '\n') + "{\"arrival_s\": 2, \"prompt_tokens\": 4, \"output_tokens\": 2}\n";
  const auto whole = readTrace(folder.write("a.jsonl", text));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_THAT(whole->lines, ElementsAre(1, 2, 3, 4, 5, 106));
  EXPECT_EQ(whole->requests.back().promptTokens, 4);
  const auto two = readTrace(folder.write("b.jsonl", text.substr(0, text.size() - 10) + std::string(20 << 20, 'x')), 2);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->requests.size(), 2u);
  EXPECT_THAT(std::string(readTrace(folder.file("b.jsonl")).status().message()), HasSubstr("line 106: "));
  EXPECT_THAT(std::string(readTrace(folder.file("b.jsonl")).status().message()),
              HasSubstr(" bytes, expected at most 16777216")); // and not read to its end
}

// Bytes of three good files, changed here and there: read, or refused by name.
TEST(TraceFile, AnyBytesAreReadOrRefused) {
  const std::vector<std::string> seeds{
      "{\"arrival_s\": 0.25, \"prompt_ids\": [1, 2], \"output_tokens\": 7}\n{\"arrival_s\": 1e0, \"prompt_tokens\": 3, "
      "\"output_tokens\": 7}\n",
      "{\"timestamp\": 0, \"input_length\": 6755, \"output_length\": 500, \"hash_ids\": [0, 1]}\n",
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,4808,10\n2023-11-16 18:15:47,1,1\n"};
  std::mt19937_64 random(1);
  uint64_t good = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (uint64_t changes = random() % 4; changes-- > 0;) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 5);
      else if (random() % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.insert(at, 1, "0123456789,.-\"[]{}\n"[random() % 19]);
      if (text.empty())
        break;
    }
    const auto trace = parseTrace(text, "trace");
    if (!trace.ok()) {
      ASSERT_THAT(std::string(trace.status().message()), StartsWith("trace: "));
      continue;
    }
    ++good;
    int64_t before = 0;
    for (const TrafficRequest &one : trace->requests) {
      ASSERT_GE(one.arrivalNs, before);
      before = one.arrivalNs;
      ASSERT_TRUE(one.tokensOfPrompt() >= 1 && one.outputTokens >= 1);
    }
  }
  EXPECT_GT(good, 5000u);
}

} // namespace
} // namespace headrace::serve
