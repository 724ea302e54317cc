// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/JsonReader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/FileIo.h"
#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMostOrderedKeys = 10'000;

// Thrown by the parser's callback to stop it, and caught in parseJson.
struct Refused {
  std::string message;
};

// Python's json writes numbers that are not finite as bare words, which no JSON has. Each is found here by its place
// among all keys and values, and a 0 stands for it in what is parsed: lines and columns stay as they are.
struct NotFiniteWords {
  std::string text;
  std::map<size_t, double> values; // by the number of keys and values before them
};
std::optional<NotFiniteWords> takeNotFinite(std::string_view text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::pair<std::string_view, double> kWords[] = {
      {"NaN", std::numeric_limits<double>::quiet_NaN()}, {"Infinity", kInfinity}, {"-Infinity", -kInfinity}};
  if (text.find("NaN") == std::string_view::npos && text.find("Infinity") == std::string_view::npos)
    return std::nullopt;
  constexpr std::string_view kBetween = " \t\r\n,:[]{}\"";
  NotFiniteWords out{std::string(text), {}};
  size_t events = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at++;
    if (text[begin] == '"') {
      for (; at < text.size() && text[at] != '"'; ++at)
        at += text[at] == '\\';
      ++at;
    } else if (kBetween.find(text[begin]) != std::string_view::npos) {
      continue;
    } else {
      at = std::min(text.find_first_of(kBetween, begin), text.size());
      for (const auto &[word, value] : kWords)
        if (text.substr(begin, at - begin) == word) {
          out.text.replace(begin, word.size(), "0" + std::string(word.size() - 1, ' '));
          out.values[events] = value;
        }
    }
    ++events;
  }
  return out.values.empty() ? std::nullopt : std::optional(std::move(out));
}

template <class Json> absl::StatusOr<Json> parseAs(std::string_view text, std::string_view where, size_t mostKeys) {
  using Event = typename Json::parse_event_t;
  const std::optional<NotFiniteWords> words = takeNotFinite(text);
  if (words)
    text = words->text;
  const std::map<size_t, double> nothing;
  const std::map<size_t, double> &notFinite = words ? words->values : nothing;
  size_t events = 0;                       // keys and values so far
  std::vector<std::set<std::string>> keys; // of the objects that are open, outermost first
  const auto watch = [&](int depth, Event event, Json &parsed) {
    if (depth > kMaxDepth)
      throw Refused{cat("expected JSON nested at most ", kMaxDepth, " deep")};
    if (event == Event::object_start)
      keys.emplace_back();
    else if (event == Event::object_end)
      keys.pop_back();
    else if (event == Event::key) {
      if (!keys.back().insert(parsed.template get_ref<const std::string &>()).second)
        throw Refused{cat("key ", jsonText(parsed), " stands twice: expected each key once in an object")};
      if (keys.back().size() > mostKeys)
        throw Refused{cat("an object has more than ", mostKeys, " keys: expected fewer")};
    }
    if (event == Event::key || event == Event::value) {
      if (const auto word = notFinite.find(events++); word != notFinite.end())
        parsed = word->second;
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Refused &refused) {
    return absl::InvalidArgumentError(cat(where, ": ", refused.message));
  } catch (const nlohmann::json::exception &error) {
    if (absl::Status pointer = refuseLfsPointer(text, where); !pointer.ok())
      return pointer;
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...": without the library's prefix.
    const std::string_view what = error.what();
    const size_t bracket = what.find("] ");
    return absl::InvalidArgumentError(
        cat(where, ": expected JSON: ",
            escaped((bracket == std::string_view::npos ? what : what.substr(bracket + 2)).substr(0, 200))));
  }
}

} // namespace

absl::StatusOr<nlohmann::json> parseJson(std::string_view text, std::string_view where) {
  return parseAs<nlohmann::json>(text, where, std::numeric_limits<size_t>::max());
}

absl::StatusOr<nlohmann::ordered_json> parseOrderedJson(std::string_view text, std::string_view where) {
  return parseAs<nlohmann::ordered_json>(text, where, kMostOrderedKeys);
}

std::string jsonText(const nlohmann::json &value) {
  constexpr size_t kMost = 80;
  std::string text;
  if (value.is_object())
    text = value.empty() ? "{}" : "{...}";
  else if (value.is_array())
    text = value.empty() ? "[]" : "[...]";
  else if (value.is_number_float() && !std::isfinite(value.get<double>()))
    text = std::isnan(value.get<double>()) ? "NaN" : value.get<double>() > 0 ? "Infinity" : "-Infinity";
  else
    text = value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMost)
    text = text.substr(0, kMost - 3) + "...";
  return text;
}

JsonReader::JsonReader(const nlohmann::json &object, std::string_view where, std::string_view prefix)
    : object_(object), where_(where), prefix_(prefix) {
  if (!object.is_object())
    refuseWith(cat(prefix_.empty() ? "" : prefix_.substr(0, prefix_.size() - 1) + " = ", jsonText(object),
                   ": expected an object"));
}

const nlohmann::json *JsonReader::raw(std::string_view key) const {
  if (!object_.is_object())
    return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

const nlohmann::json *JsonReader::find(std::string_view key) const {
  const nlohmann::json *value = raw(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

int64_t JsonReader::integer(std::string_view key, std::optional<int64_t> missing, int64_t least, int64_t most) {
  const nlohmann::json *value = raw(key);
  if (value == nullptr && missing)
    return *missing;
  if (value != nullptr && value->is_number_integer()) {
    const bool fits = !value->is_number_unsigned() ||
                      value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (fits && value->get<int64_t>() >= least && value->get<int64_t>() <= most)
      return value->get<int64_t>();
  }
  refuse(key, cat("an integer from ", least, " to ", most));
  return missing.value_or(least);
}

double JsonReader::number(std::string_view key, std::optional<double> missing) {
  const nlohmann::json *value = raw(key);
  if (value == nullptr && missing)
    return *missing;
  if (value != nullptr && value->is_number() && std::isfinite(value->get<double>()))
    return value->get<double>();
  refuse(key, "a finite number");
  return missing.value_or(0);
}

bool JsonReader::boolean(std::string_view key, bool missing) {
  const nlohmann::json *value = raw(key);
  if (value == nullptr)
    return missing;
  if (value->is_boolean())
    return value->get<bool>();
  refuse(key, "true or false");
  return missing;
}

std::string JsonReader::text(std::string_view key, std::optional<std::string> missing) {
  const nlohmann::json *value = raw(key);
  if (value == nullptr && missing)
    return *missing;
  if (value != nullptr && value->is_string())
    return value->get<std::string>();
  refuse(key, "a string");
  return missing.value_or("");
}

void JsonReader::refuse(std::string_view key, std::string_view expected) {
  const nlohmann::json *value = raw(key);
  refuseWith(value == nullptr ? cat(prefix_, key, " is missing: expected ", expected)
                              : cat(prefix_, key, " = ", jsonText(*value), ": expected ", expected));
}

void JsonReader::refuseWith(std::string_view message) {
  if (status_.ok())
    status_ = absl::InvalidArgumentError(cat(where_, ": ", message));
}

} // namespace headrace::model
