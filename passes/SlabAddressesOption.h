// SPDX-License-Identifier: Apache-2.0
//
// Where the host slab has what (SlabAddresses.h) as the option of a pass: the value itself where the pipeline makes the
// pass, its text where headrace-opt does: -headrace-place-on-host="at={weight:1@0 weight:2@4096}".
#pragma once

#include "passes/algorithms/SlabAddresses.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

namespace llvm::cl {

template <>
class parser<::headrace::algorithms::SlabAddresses> : public basic_parser<::headrace::algorithms::SlabAddresses> {
  using Addresses = ::headrace::algorithms::SlabAddresses;

public:
  explicit parser(Option &option) : basic_parser(option) {}

  bool parse(Option &option, StringRef, StringRef text, Addresses &value) {
    std::string error;
    const std::optional<Addresses> parsed =
        ::headrace::algorithms::slabAddressesFromText(std::string_view(text.data(), text.size()), error);
    if (!parsed)
      return option.error("addresses " + error);
    value = *parsed;
    return false;
  }
  StringRef getValueName() const override { return "addresses"; }
  static void print(raw_ostream &os, const Addresses &value) {
    os << '{' << ::headrace::algorithms::toText(value) << '}';
  }
  void printOptionDiff(const Option &option, const Addresses &value, const OptionValue<Addresses> &,
                       size_t width) const {
    printOptionName(option, width);
    outs() << "= " << ::headrace::algorithms::toText(value) << '\n';
  }
};

} // namespace llvm::cl
