// SPDX-License-Identifier: Apache-2.0
//
// How a model's linear operands are held, by the role of their unit: "q4" where all are alike, "qkv=q4,head=q8" where
// not. The embedding is never packed, nor is a head that is tied to it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/Encoding.h"

namespace headrace::model {

struct ModelSpec;
enum class UnitRole : uint8_t; // WeightLayout.h

// Of Qkv, Out, Up, Down and Head, whose operand is one matrix; none: as the checkpoint has it.
class WeightEncodings {
public:
  static constexpr int kRoles = 6; // of UnitRole

  const std::optional<Encoding> &operator[](UnitRole role) const { return of_[static_cast<size_t>(role)]; }
  std::optional<Encoding> &operator[](UnitRole role) { return of_[static_cast<size_t>(role)]; }
  bool any() const;
  bool operator==(const WeightEncodings &) const = default;

private:
  std::array<std::optional<Encoding>, kRoles> of_;
};

// All alike in codes of `bits`, or not packed where no group divides: of each role groups of 64 where these divide its
// input features, else of 128 or 32; of a head that is tied as of the others, though nothing is packed of it.
WeightEncodings packedIn(int bits, const ModelSpec &spec);

std::string_view unitRoleName(UnitRole role); // "embedding", "qkv", "out", "up", "down", "head"
// In features of the operand that units of this role have in the model; 0 of one that has none.
int64_t inFeatures(const ModelSpec &spec, UnitRole role);

// Whatever the model, and so with a head of its own: "q4" where all five are alike; empty where none is packed.
std::string weightEncodingText(const WeightEncodings &encodings);
std::optional<WeightEncodings> weightEncodingsFromText(std::string_view text, std::string &expected);
// What a model has of them: nothing of a head that is tied.
WeightEncodings ofModel(WeightEncodings encodings, const ModelSpec &spec);

// The spec's, empty where none is packed.
std::string weightEncodingText(const ModelSpec &spec);
// What a spec's would be; whether it can have them, validate() says. None, with what was expected in `expected`, where
// the text is no encoding.
std::optional<WeightEncodings> weightEncodingsFromText(std::string_view text, const ModelSpec &spec,
                                                       std::string &expected);
// Why the spec cannot have its encodings: what follows "weight_encoding = ...: expected "; empty where it can.
std::string weightEncodingRefusal(const ModelSpec &spec);

} // namespace headrace::model
