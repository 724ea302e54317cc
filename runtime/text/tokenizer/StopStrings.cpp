// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/StopStrings.h"

#include <algorithm>
#include <utility>

namespace headrace::text {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::stable_sort(stops_.begin(), stops_.end(),
                   [](const std::string &a, const std::string &b) { return a.size() > b.size(); });
}

std::string StopStrings::push(std::string_view text) {
  if (stops_.empty())
    return std::string(text);
  if (stopped())
    return "";
  std::string shown = std::exchange(held_, "");
  size_t kept = shown.size(); // of `shown`, the longest end that begins a stop string
  for (const char c : text) {
    shown.push_back(c);
    kept = std::min(kept + 1, stops_.front().size());
    for (const std::string &stop : stops_)
      if (stop.size() <= kept && std::string_view(shown).ends_with(stop)) {
        reached_ = stop;
        shown.resize(shown.size() - stop.size());
        return shown;
      }
    const auto begins = [&](const std::string &stop) {
      return stop.size() > kept && std::string_view(shown).ends_with(std::string_view(stop).substr(0, kept));
    };
    while (kept > 0 && std::none_of(stops_.begin(), stops_.end(), begins))
      --kept;
  }
  held_ = shown.substr(shown.size() - kept);
  shown.resize(shown.size() - kept);
  return shown;
}

std::string StopStrings::finish() { return std::exchange(held_, ""); }

} // namespace headrace::text
