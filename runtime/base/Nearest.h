// SPDX-License-Identifier: Apache-2.0
//
// What somebody may have meant by a name that is none.
//
//   didYouMean("selectn", {"none", "select-n", "pie"})    "; did you mean select-n?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace::model {

// To be put behind a refusal; empty where no name is like it. Like it are those of the fewest letters inserted, left
// out, changed or swapped with their neighbour, at most a third of it (one, if it is shorter than that), a sign between
// words counting for half of one; where there are none those that contain it. At most three, in their order. Upper and
// lower case are the same.
std::string didYouMean(std::string_view word, const std::vector<std::string> &names);

} // namespace headrace::model
