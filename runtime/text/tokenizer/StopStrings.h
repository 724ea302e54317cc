// SPDX-License-Identifier: Apache-2.0
//
// Texts that end a reply. None of one is ever shown: what may be the beginning of one is held back until it is not.
// The reply ends where the first stop string is complete, whatever the pieces that it came in.
//
//   StopStrings stops({"END"});
//   stops.push("the E");  // "the "
//   stops.push("ND of");  // "", and stopped()
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace::text {

class StopStrings {
public:
  // None of them is empty. Without any nothing is held back.
  explicit StopStrings(std::vector<std::string> stops = {});

  // What may be shown once `text` has come; nothing after stopped().
  std::string push(std::string_view text);
  std::string finish(); // what is held back: no more is to come

  bool stopped() const { return !reached_.empty(); }
  const std::string &reached() const { return reached_; } // the longest of those that end where the reply does

private:
  std::vector<std::string> stops_; // the longest first
  std::string held_;               // the beginning of a stop string
  std::string reached_;
};

} // namespace headrace::text
