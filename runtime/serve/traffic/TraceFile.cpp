// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/TraceFile.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/strings/numbers.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::serve {
namespace {

using model::cat;
using model::escaped;

constexpr size_t kLongestLine = size_t{16} << 20;
constexpr double kLatestS = 1e9; // 31 years
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr std::string_view kKnown =
    R"(expected {"arrival_s": ..., "prompt_tokens": ..., "output_tokens": ...} or {"timestamp": ..., "input_length": )"
    R"(..., "output_length": ...} a line, or CSV with the header TIMESTAMP,ContextTokens,GeneratedTokens)";

absl::Status refuse(const std::string &message) { return absl::InvalidArgumentError(message); }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The lines of a text, or of a file read as far as they are asked for, that are not blank, with their numbers.
class Lines {
public:
  explicit Lines(std::string_view text) : left_(text) { skipMark(); }
  explicit Lines(const model::InputFile &file) : file_(&file) {
    readOn();
    skipMark();
  }
  // Whether there is another; false, with a status, where the file cannot be read.
  bool next() {
    for (;;) {
      if (file_ != nullptr && left_.find('\n') == std::string_view::npos)
        readOn();
      if (left_.empty() || !status_.ok())
        return false;
      // A line that is too long is not looked at to its end, which may be far.
      const size_t end = std::min(left_.substr(0, kLongestLine + 1).find('\n'), left_.size());
      line_ = trimmed(left_.substr(0, end));
      left_.remove_prefix(std::min(end + 1, left_.size()));
      ++number_;
      if (!line_.empty())
        return true;
    }
  }
  std::string_view line() const { return line_; } // until the next
  int64_t number() const { return number_; }
  const absl::Status &status() const { return status_; }

private:
  // Until a line is whole, or too long anyway.
  void readOn() {
    constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
    buffer_ = std::string(left_);
    while (read_ < file_->size() && buffer_.size() <= kLongestLine && status_.ok()) {
      const size_t kept = buffer_.size();
      buffer_.resize(kept + std::min(kPieceBytes, file_->size() - read_));
      const absl::Span<std::byte> piece(reinterpret_cast<std::byte *>(buffer_.data()) + kept, buffer_.size() - kept);
      status_ = file_->read(read_, piece);
      read_ += piece.size();
      if (buffer_.find('\n', kept) != std::string::npos)
        break;
    }
    left_ = buffer_;
  }
  void skipMark() {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (left_.starts_with(kByteOrderMark))
      left_.remove_prefix(kByteOrderMark.size());
  }

  const model::InputFile *file_ = nullptr;
  std::string buffer_; // what left_ is of
  uint64_t read_ = 0;  // bytes of the file
  std::string_view left_, line_;
  int64_t number_ = 0;
  absl::Status status_;
};

// A time that was read, in ns.
absl::StatusOr<int64_t> timeIn(model::JsonReader &reader, std::string_view key, double perSecond) {
  const double value = reader.number(key, std::nullopt);
  if (reader.ok() && !(value >= 0 && value <= kLatestS * perSecond))
    reader.refuse(key, cat("0 to ", kLatestS * perSecond, perSecond == 1 ? " seconds" : " milliseconds"));
  RETURN_IF_ERROR(reader.status());
  return std::llround(value * (1e9 / perSecond));
}

absl::Status readIds(model::JsonReader &reader, std::vector<int32_t> &ids) {
  const nlohmann::json &found = *reader.find("prompt_ids");
  constexpr int64_t kMostId = std::numeric_limits<int32_t>::max();
  const auto isId = [](const nlohmann::json &id) {
    return id.is_number_unsigned() && id.get<uint64_t>() <= static_cast<uint64_t>(kMostId);
  };
  if (!found.is_array() || found.empty() || !std::all_of(found.begin(), found.end(), isId))
    reader.refuse("prompt_ids", cat("a list of one or more token ids from 0 to ", kMostId));
  RETURN_IF_ERROR(reader.status());
  for (const nlohmann::json &id : found)
    ids.push_back(id.get<int32_t>());
  return absl::OkStatus();
}

absl::StatusOr<TrafficRequest> readObject(TraceFormat format, model::JsonReader &reader) {
  const bool ours = format == TraceFormat::Headrace, mooncake = format == TraceFormat::Mooncake;
  TrafficRequest request;
  ASSIGN_OR_RETURN(arrivalNs, timeIn(reader, ours ? "arrival_s" : "timestamp", mooncake ? 1e3 : 1));
  if (mooncake && arrivalNs % 1'000'000 != 0)
    reader.refuse("timestamp", "whole milliseconds, as in Mooncake's traces: those of Qwen-Bailian, in seconds, have "
                               "chat_id and turn beside them, and ours are arrival_s");
  request.arrivalNs = arrivalNs;
  const int64_t fewest = ours ? 1 : 0;
  if (ours && reader.find("prompt_ids") != nullptr) {
    RETURN_IF_ERROR(readIds(reader, request.prompt));
    if (reader.raw("prompt_tokens") != nullptr)
      reader.refuse("prompt_tokens", "either it or prompt_ids");
  } else {
    request.promptTokens = reader.integer(ours ? "prompt_tokens" : "input_length", std::nullopt, fewest, kMostTokens);
  }
  request.outputTokens = reader.integer(ours ? "output_tokens" : "output_length", std::nullopt, fewest, kMostTokens);
  RETURN_IF_ERROR(reader.status());
  return request;
}

// All digits: their value; else none.
std::optional<int64_t> digits(std::string_view text) {
  int64_t value = 0;
  if (text.empty() || text.size() > 18 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  for (const char c : text)
    value = value * 10 + (c - '0');
  return value;
}

// "2023-11-16 18:15:46.6805900", to nine places, in ns since 1970; "+00:00" may follow.
std::optional<int64_t> dateNs(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-dd dd:dd:dd", kUtc = "+00:00";
  if (text.size() > kUtc.size() && text.substr(text.size() - kUtc.size()) == kUtc)
    text.remove_suffix(kUtc.size());
  if (text.size() < kForm.size())
    return std::nullopt;
  for (size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != kForm[i])
      return std::nullopt;
  const auto part = [&](size_t at, size_t size) { return *digits(text.substr(at, size)); };
  const std::chrono::year_month_day day{std::chrono::year(static_cast<int>(part(0, 4))),
                                        std::chrono::month(static_cast<unsigned>(part(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(part(8, 2)))};
  const int64_t hour = part(11, 2), minute = part(14, 2), second = part(17, 2);
  if (!day.ok() || part(0, 4) < 1970 || part(0, 4) > 2199 || hour > 23 || minute > 59 || second > 59)
    return std::nullopt;
  int64_t ns = 0;
  if (std::string_view fraction = text.substr(kForm.size()); !fraction.empty()) {
    fraction.remove_prefix(1);
    const std::optional<int64_t> value = digits(fraction);
    if (text[kForm.size()] != '.' || !value || fraction.size() > 9)
      return std::nullopt;
    ns = *value;
    for (size_t places = fraction.size(); places < 9; ++places)
      ns *= 10;
  }
  const int64_t days = std::chrono::sys_days(day).time_since_epoch().count();
  return ((days * 24 + hour) * 60 + minute) * 60'000'000'000 + second * 1'000'000'000 + ns;
}

absl::StatusOr<TrafficRequest> readAzure(std::string_view line, const std::string &where) {
  std::array<std::string_view, 3> fields;
  size_t count = 0;
  for (size_t begin = 0; begin <= line.size(); ++count) {
    const size_t end = std::min(line.find(',', begin), line.size());
    if (count < fields.size())
      fields[count] = trimmed(line.substr(begin, end - begin));
    begin = end + 1;
  }
  if (count != fields.size())
    return refuse(cat(where, ": ", count, " fields, expected 3: ", kAzureHeader));
  TrafficRequest request;
  const std::optional<int64_t> ns = dateNs(fields[0]);
  if (!ns)
    return refuse(cat(where, ": TIMESTAMP = \"", escaped(fields[0], 60),
                      "\": expected a date such as 2023-11-16 18:15:46.6805900"));
  request.arrivalNs = *ns;
  const auto tokens = [&](std::string_view key, std::string_view text, int64_t &out) {
    const std::optional<int64_t> value = digits(text);
    if (!value || *value > kMostTokens)
      return refuse(cat(where, ": ", key, " = \"", escaped(text, 60), "\": expected 0 to ", kMostTokens));
    out = *value;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(tokens("ContextTokens", fields[1], request.promptTokens));
  RETURN_IF_ERROR(tokens("GeneratedTokens", fields[2], request.outputTokens));
  return request;
}

// A line of JSON: where in it a fault is, its parser says as of a file with this line alone.
absl::StatusOr<nlohmann::json> parseLine(std::string_view line, const std::string &where) {
  absl::StatusOr<nlohmann::json> object = model::parseJson(line, where);
  if (object.ok())
    return object;
  constexpr std::string_view kLine = "parse error at line 1, ";
  std::string message(object.status().message());
  if (const size_t at = message.find(kLine); at != std::string::npos)
    message.replace(at, kLine.size(), "parse error at ");
  return refuse(message);
}

// What the first line that is not blank begins.
absl::StatusOr<TraceFormat> formatOf(std::string_view line, const std::string &where) {
  if (line.front() == '[')
    return refuse(cat(where,
                      ": a JSON list: the files of ShareGPT and Alpaca hold text, of which only a tokenizer knows "
                      "the lengths; ",
                      kKnown));
  RETURN_IF_ERROR(model::refuseLfsPointer(line, where));
  if (line.front() != '{')
    return line == kAzureHeader ? absl::StatusOr<TraceFormat>(TraceFormat::Azure)
                                : refuse(cat(where, ": \"", escaped(line, 60), "\": ", kKnown));
  ASSIGN_OR_RETURN(object, parseLine(line, where));
  if (object.contains("arrival_s"))
    return TraceFormat::Headrace;
  for (const char *key : {"chat_id", "parent_chat_id", "turn"})
    if (object.contains("timestamp") && object.contains(key))
      return TraceFormat::Bailian;
  if (object.contains("timestamp"))
    return TraceFormat::Mooncake;
  return refuse(cat(where, ": neither arrival_s nor timestamp: ", kKnown));
}

absl::StatusOr<TrafficRequest> readLine(TraceFormat format, std::string_view line, const std::string &where) {
  if (format == TraceFormat::Azure)
    return readAzure(line, where);
  ASSIGN_OR_RETURN(object, parseLine(line, where));
  model::JsonReader reader(object, where);
  RETURN_IF_ERROR(reader.status());
  return readObject(format, reader);
}

// Nobody was served anything: those who use such traces leave these rows out.
bool isNothing(const TrafficRequest &request) { return request.tokensOfPrompt() == 0 || request.outputTokens == 0; }

void sort(Trace &trace) {
  std::vector<size_t> order(trace.requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return trace.requests[a].arrivalNs < trace.requests[b].arrivalNs; });
  std::vector<TrafficRequest> requests(order.size());
  std::vector<int64_t> lines(order.size());
  for (size_t r = 0; r < order.size(); ++r) {
    requests[r] = std::move(trace.requests[order[r]]);
    lines[r] = trace.lines[order[r]];
  }
  trace.requests = std::move(requests);
  trace.lines = std::move(lines);
}

// Sorted, and said so; times from the earliest on.
void order(Trace &trace, std::string_view name, int64_t firstLine, int64_t unordered) {
  if (unordered > 0)
    trace.warnings.push_back(cat(name, ": ", unordered, unordered == 1 ? " request comes" : " requests come",
                                 " before the one above it, the first on line ", firstLine, ": sorted by arrival"));
  if (unordered > 0)
    sort(trace);
  const int64_t earliestNs = trace.requests.front().arrivalNs;
  for (TrafficRequest &request : trace.requests)
    request.arrivalNs -= earliestNs;
  if (trace.format != TraceFormat::Azure)
    trace.beginNs = earliestNs;
}

// Of a file that is not read to its end: whether one of the next requests comes before one that was taken.
void lookAhead(Trace &trace, std::string_view name, Lines &lines) {
  constexpr int kMostLines = 1000;
  const auto latest = std::max_element(trace.requests.begin(), trace.requests.end(),
                                       [](const auto &a, const auto &b) { return a.arrivalNs < b.arrivalNs; });
  for (int looked = 0; looked < kMostLines && lines.next() && lines.line().size() <= kLongestLine; ++looked) {
    const absl::StatusOr<TrafficRequest> request = readLine(trace.format, lines.line(), "");
    if (!request.ok())
      return; // it is not taken, so it is not refused
    if (request->arrivalNs >= latest->arrivalNs || isNothing(*request))
      continue;
    trace.warnings.push_back(cat(name, ": line ", lines.number(), " comes before requests above it: of a file that is ",
                                 "not in order the first ", trace.requests.size(), " are taken, not the earliest"));
    return;
  }
}

absl::StatusOr<Trace> parseLines(Lines &lines, std::string_view name, int64_t most) {
  if (most < 0)
    return refuse(cat(name, ": ", most, " requests asked for, expected 0 or more"));
  Trace trace;
  bool known = false;
  int64_t unorderedLine = 0, unordered = 0, droppedLine = 0;
  while ((most == 0 || static_cast<int64_t>(trace.requests.size()) < most) && lines.next()) {
    const std::string where = cat(name, ": line ", lines.number());
    if (lines.line().size() > kLongestLine)
      return refuse(cat(where, ": ", lines.line().size(), " bytes, expected at most ", kLongestLine));
    if (!known) {
      ASSIGN_OR_RETURN(format, formatOf(lines.line(), where));
      trace.format = format;
      known = true;
      if (format == TraceFormat::Azure)
        continue;
    }
    ASSIGN_OR_RETURN(request, readLine(trace.format, lines.line(), where));
    if (isNothing(request)) {
      if (++trace.dropped == 1)
        droppedLine = lines.number();
      continue;
    }
    if (!trace.requests.empty() && request.arrivalNs < trace.requests.back().arrivalNs && ++unordered == 1)
      unorderedLine = lines.number();
    trace.requests.push_back(std::move(request));
    trace.lines.push_back(lines.number());
  }
  RETURN_IF_ERROR(lines.status());
  const std::string dropped =
      cat(trace.dropped, trace.dropped == 1 ? " row" : " rows", " of zero tokens, the first on line ", droppedLine);
  if (trace.requests.empty() && trace.dropped > 0)
    return refuse(cat(name, ": no requests but ", dropped));
  if (trace.requests.empty())
    return refuse(cat(name, known ? ": no requests below the header" : ": empty: ", known ? "" : kKnown));
  if (trace.dropped > 0)
    trace.warnings.push_back(cat(name, ": ", dropped, ": dropped"));
  if (most > 0)
    lookAhead(trace, name, lines);
  order(trace, name, unorderedLine, unordered);
  return trace;
}

} // namespace

std::string_view traceClockText(TraceFormat format) {
  switch (format) {
  case TraceFormat::Mooncake:
    return "timestamp in milliseconds";
  case TraceFormat::Bailian:
    return "timestamp in seconds";
  case TraceFormat::Azure:
    return "TIMESTAMP as dates";
  case TraceFormat::Headrace:
    break;
  }
  return "arrival_s in seconds";
}

absl::StatusOr<Trace> parseTrace(std::string_view text, std::string_view name, int64_t most) {
  Lines lines(text);
  return parseLines(lines, name, most);
}

absl::StatusOr<Trace> readTrace(const std::string &path, int64_t most) {
  ASSIGN_OR_RETURN(file, model::InputFile::open(path));
  Lines lines(*file);
  return parseLines(lines, path, most);
}

} // namespace headrace::serve
