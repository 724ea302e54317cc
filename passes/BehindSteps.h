// SPDX-License-Identifier: Apache-2.0
//
// Ops behind compute steps: what is inserted behind one step stays in the order of insertion. Step -1 is the start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "mlir/IR/Builders.h"

namespace headrace::passes {

class BehindSteps {
public:
  BehindSteps(mlir::Operation *beforeFirst, const std::vector<mlir::Operation *> &steps)
      : builder_(beforeFirst->getContext()), last_(steps.size() + 1) {
    last_[0] = beforeFirst;
    std::copy(steps.begin(), steps.end(), last_.begin() + 1);
  }
  template <typename Op, typename... Args> Op insert(int64_t step, mlir::Location loc, Args &&...args) {
    mlir::Operation *&last = last_[static_cast<size_t>(step + 1)];
    builder_.setInsertionPointAfter(last);
    Op op = Op::create(builder_, loc, std::forward<Args>(args)...);
    last = op;
    return op;
  }

private:
  mlir::OpBuilder builder_;
  std::vector<mlir::Operation *> last_;
};

} // namespace headrace::passes
