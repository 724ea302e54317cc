// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"

#include "ir/HeadraceEnums.h.inc"
