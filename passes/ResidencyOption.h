// SPDX-License-Identifier: Apache-2.0
//
// A Residency as the option of a pass: the value itself where the pipeline makes the pass, its text (Residency.h) where
// headrace-opt does: -headrace-choose-homes="residency={weights=4-7 start=paper}".
#pragma once

#include "passes/algorithms/Residency.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

namespace llvm::cl {

template <> class parser<::headrace::algorithms::Residency> : public basic_parser<::headrace::algorithms::Residency> {
  using Residency = ::headrace::algorithms::Residency;

public:
  explicit parser(Option &option) : basic_parser(option) {}

  bool parse(Option &option, StringRef, StringRef text, Residency &value) {
    std::string error;
    const std::optional<Residency> parsed =
        ::headrace::algorithms::residencyFromText(std::string_view(text.data(), text.size()), error);
    if (!parsed)
      return option.error("a residency " + error);
    value = *parsed;
    return false;
  }
  StringRef getValueName() const override { return "residency"; }
  static void print(raw_ostream &os, const Residency &value) {
    os << '{' << ::headrace::algorithms::toText(value) << '}';
  }
  void printOptionDiff(const Option &option, const Residency &value, const OptionValue<Residency> &,
                       size_t width) const {
    printOptionName(option, width);
    outs() << "= " << ::headrace::algorithms::toText(value) << '\n';
  }
};

} // namespace llvm::cl
