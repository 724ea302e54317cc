// SPDX-License-Identifier: Apache-2.0
//
// The figures of classes of ops (model::OpClasses) that measured steps come to.
#pragma once

#include <vector>

#include "bench/prices/KernelFigures.h"

namespace headrace::bench {

// Those by which the squares of log(measured / priced) of the figures to fit to are least in sum; shares to 0.01, the
// overhead to 0.5 us, the ramp to 1 us. Class by class: products; attention that decodes, with the overhead; of
// prompts; rows. All else is the profile's; plain attention is not fitted.
model::OpClasses fittedClasses(const std::vector<KernelFigure> &figures, model::Hardware hardware);

double middle(std::vector<double> values); // the median, the mean of the middle two of an even number; 0 of none

// The median of the sizes of errors of a class's fitted figures, or of those held out; 0 of none.
double medianError(const std::vector<KernelFigure> &figures, OpClass of, bool fitted, const model::Hardware &hardware);
// All of them measured / all of them priced - 1.
double sumError(const std::vector<KernelFigure> &figures, OpClass of, bool fitted, const model::Hardware &hardware);

} // namespace headrace::bench
