// SPDX-License-Identifier: Apache-2.0
//
// Runs passes on IR text: for tests, and for reading what a pass does.
//
//   headrace-opt model.mlir --headrace-choose-homes="layers=1,3" --headrace-verify-phase
#include "ir/Headrace.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "passes/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<headrace::ir::HeadraceDialect>();
  headrace::passes::registerHeadracePasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Headrace's optimizer driver\n", registry));
}
