// The phase itself.
// RUN: headrace-opt %s -headrace-verify-phase
// RUN: headrace-opt %s -headrace-verify-phase=phase=model
// RUN: %not headrace-opt %s -headrace-verify-phase=phase=homes 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: %not headrace-opt %s -headrace-verify-phase=phase=home 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// OTHER: error: is in phase model, not in phase homes
// UNKNOWN: error: cannot be in phase 'home': there are model, homes, movement, lanes and offsets
headrace.iteration @decode decode phase(model) limits(8, 8, 2048) {
}
