// SPDX-License-Identifier: Apache-2.0
//
// Plain values as options of passes: the value itself where the pipeline makes the pass, its text (Residency.h,
// SlabAddresses.h) where headrace-opt does:
//
//   -headrace-choose-homes="residency={weights=4-7 start=paper}"
//   -headrace-place-on-host="at={weight:1@0 weight:2@4096}"
#pragma once

#include "passes/algorithms/SlabAddresses.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

namespace headrace::passes {

// `read`: none, with what is wrong, where a text is no value; `subject` begins that message.
template <class Value, std::optional<Value> (*read)(std::string_view, std::string &)>
class ValueParser : public llvm::cl::basic_parser<Value> {
public:
  ValueParser(llvm::cl::Option &option, llvm::StringRef name, llvm::StringRef subject)
      : llvm::cl::basic_parser<Value>(option), name_(name), subject_(subject) {}

  bool parse(llvm::cl::Option &option, llvm::StringRef, llvm::StringRef text, Value &value) {
    std::string error;
    std::optional<Value> parsed = read(std::string_view(text.data(), text.size()), error);
    if (!parsed)
      return option.error(subject_ + " " + error);
    value = *std::move(parsed);
    return false;
  }
  llvm::StringRef getValueName() const override { return name_; }
  static void print(llvm::raw_ostream &os, const Value &value) { os << '{' << algorithms::toText(value) << '}'; }
  void printOptionDiff(const llvm::cl::Option &option, const Value &value, const llvm::cl::OptionValue<Value> &,
                       size_t width) const {
    this->printOptionName(option, width);
    llvm::outs() << "= " << algorithms::toText(value) << '\n';
  }

private:
  llvm::StringRef name_, subject_;
};

} // namespace headrace::passes

namespace llvm::cl {

template <>
class parser<::headrace::algorithms::Residency>
    : public ::headrace::passes::ValueParser<::headrace::algorithms::Residency,
                                             ::headrace::algorithms::residencyFromText> {
public:
  explicit parser(Option &option) : ValueParser(option, "residency", "a residency") {}
};

template <>
class parser<::headrace::algorithms::SlabAddresses>
    : public ::headrace::passes::ValueParser<::headrace::algorithms::SlabAddresses,
                                             ::headrace::algorithms::slabAddressesFromText> {
public:
  explicit parser(Option &option) : ValueParser(option, "addresses", "addresses") {}
};

} // namespace llvm::cl
