// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/Safetensors.h"

#include <gtest/gtest.h>

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

absl::StatusOr<SafetensorsHeader> parse(const std::string &file) {
  return parseSafetensors(asBytes(file), file.size(), "f");
}

// A header in words and that many bytes of data.
absl::StatusOr<SafetensorsHeader> parse(const std::string &header, size_t dataBytes) {
  return parse(safetensorsOf(header, std::string(dataBytes, '\0')));
}

void expectDamaged(const absl::StatusOr<SafetensorsHeader> &result, const std::string &message) {
  EXPECT_REFUSED(result, absl::StatusCode::kDataLoss, "f: " + message);
}

TEST(Safetensors, ReadsNamesTypesShapesAndOffsets) {
  const std::string file = SafetensorsWriter()
                               .add("b", "F16", {2, 3}, std::string(12, 'x'))
                               .add("a", "F32", {4}, std::string(16, 'y'))
                               .add("scalar", "I64", {}, std::string(8, 'z'))
                               .add("empty", "BF16", {0, 7}, "")
                               .file();
  const auto header = parse(file);
  ASSERT_TRUE(header.ok()) << messageOf(header);
  ASSERT_EQ(header->tensors.size(), 4u);
  EXPECT_EQ(header->tensors[0].name, "a"); // ascending
  const StoredTensor *b = header->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, "F16");
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b->begin, 0u);
  EXPECT_EQ(b->exclusiveEnd, 12u);
  EXPECT_EQ(header->find("a")->begin, 12u);
  EXPECT_EQ(header->find("c"), nullptr);
  EXPECT_EQ(header->dataOffset + 12 + 16 + 8, file.size());
}

TEST(Safetensors, AcceptsMetadataPaddingAndNoTensors) {
  EXPECT_TRUE(parse("{\"__metadata__\":{\"format\":\"pt\"}}   ", 0).ok());
  EXPECT_TRUE(parse("{\"__metadata__\":null}", 0).ok());
  EXPECT_TRUE(parse("{}", 0).ok());
}

TEST(Safetensors, KnowsElementSizes) {
  const std::pair<const char *, int> bytesOfEight[] = {
      {"BOOL", 8}, {"U8", 8},   {"I8", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"I16", 16},
      {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32},    {"U32", 32},    {"F32", 32},
      {"I64", 64}, {"U64", 64}, {"F64", 64},  {"C64", 64},    {"F4", 4},      {"F6_E2M3", 6}};
  for (const auto &[name, bytes] : bytesOfEight)
    EXPECT_TRUE(parse(SafetensorsWriter().add("t", name, {8}, std::string(static_cast<size_t>(bytes), 0)).file()).ok())
        << name;
}

TEST(Safetensors, ReadsPartsOfATensor) {
  const TempFolder folder;
  const std::string path =
      folder.write("m", SafetensorsWriter().add("a", "U8", {3}, "abc").add("b", "U8", {2}, "de").file());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << messageOf(file);
  EXPECT_EQ((*file)->path(), path);
  const StoredTensor &b = *(*file)->header().find("b");
  std::vector<std::byte> data(1);
  (*file)->willNeed(b);
  ASSERT_TRUE((*file)->read(b, 1, absl::MakeSpan(data)).ok());
  EXPECT_EQ(data[0], std::byte{'e'});
}

TEST(Safetensors, RefusesTruncatedFiles) {
  expectDamaged(parse(std::string()), "has 0 bytes: expected a safetensors file of at least 8");
  expectDamaged(parse(std::string(7, 'x')), "has 7 bytes: expected a safetensors file of at least 8");
  const std::string file = SafetensorsWriter().add("t", "F32", {4}, std::string(16, 'x')).file();
  expectDamaged(parse(file.substr(0, 8)),
                "header length = 55: expected at most 0, the bytes behind it (is the file truncated?)");
  expectDamaged(
      parse(file.substr(0, file.size() - 1)),
      "tensor \"t\": data_offsets = [0, 16]: expected at most 15, the file's bytes of data (is it truncated?)");
}

TEST(Safetensors, NeverCrashesOnATruncatedFile) {
  const std::string file =
      SafetensorsWriter().add("t", "F32", {4}, std::string(16, 'x')).add("u", "U8", {1}, "y").file();
  for (size_t length = 0; length < file.size(); ++length)
    EXPECT_FALSE(parse(file.substr(0, length)).ok()) << length;
  EXPECT_TRUE(parse(file).ok());
}

TEST(Safetensors, RefusesHeaderLengthsThatLie) {
  std::string huge = safetensorsOf("{}", "");
  huge[7] = '\x7F'; // 0x7F00000000000002
  expectDamaged(parse(huge), "header length = 9151314442816847874: expected at most 100000000");
  std::string large = safetensorsOf("{}", "");
  large[1] = '\x01'; // 258
  expectDamaged(parse(large), "header length = 258: expected at most 2, the bytes behind it (is the file truncated?)");
  expectDamaged(parse(std::string("<!DOCTYPE html>")),
                "begins with the text \"<!DOCTYP\": expected a safetensors file");
  EXPECT_THAT(messageOf(parse(std::string(kLfsPointer))),
              testing::StartsWith("f: a Git LFS pointer in place of the file"));
  expectDamaged(parse(safetensorsOf("", "{}")), "header: expected a JSON object that begins with '{'");
  expectDamaged(parse(" {}", 0), "header: expected a JSON object that begins with '{'");
}

TEST(Safetensors, RefusesBrokenJson) {
  EXPECT_THAT(messageOf(parse("{\"a\":", 0)), testing::StartsWith("f: header: expected JSON: parse error"));
  EXPECT_EQ(parse("{\"a\":", 0).status().code(), absl::StatusCode::kDataLoss);
  expectDamaged(parse("{\"a\":{},\"a\":{}}", 0), "header: key \"a\" stands twice: expected each key once in an object");
  expectDamaged(parse("{\"__metadata__\":{\"a\":1}}", 0), "__metadata__: expected an object of strings");
  expectDamaged(parse("{\"__metadata__\":[]}", 0), "__metadata__: expected an object of strings");
}

TEST(Safetensors, RefusesTensorsThatAreNone) {
  expectDamaged(parse("{\"a\":1}", 0), "tensor \"a\": is 1: expected an object");
  expectDamaged(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0),
                "tensor \"a\": expected exactly the keys dtype, shape and data_offsets");
  expectDamaged(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"x\":1}}", 4),
                "tensor \"a\": expected exactly the keys dtype, shape and data_offsets");
  expectDamaged(parse("{\"a\":{\"dtype\":\"Q4_K\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
                "tensor \"a\": dtype = \"Q4_K\": expected a safetensors dtype");
  expectDamaged(parse("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
                "tensor \"a\": dtype = 7: expected a safetensors dtype");
  expectDamaged(parse("{\"a\\u0007\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", 4),
                "tensor \"a\\007\": shape = 4: expected a list");
}

TEST(Safetensors, RefusesImpossibleShapes) {
  const auto shape = [](const std::string &sizes) {
    return parse("{\"a\":{\"dtype\":\"F32\",\"shape\":" + sizes + ",\"data_offsets\":[0,4]}}", 4);
  };
  expectDamaged(shape("[-1]"), "tensor \"a\": shape has -1: expected sizes of 0 or more");
  expectDamaged(shape("[1.5]"), "tensor \"a\": shape has 1.5: expected sizes of 0 or more");
  expectDamaged(shape("[18446744073709551615]"),
                "tensor \"a\": shape has 18446744073709551615: expected sizes of 0 or more");
  const std::string overflow = "tensor \"a\": shape: expected a product of sizes that is a number of bytes below 2^61";
  expectDamaged(shape("[4294967296,4294967296,1]"), overflow);
  expectDamaged(shape("[4611686018427387905]"), overflow); // times 32 bits
  expectDamaged(shape("[4294967296,4294967296,0]"), overflow);
  expectDamaged(parse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1), overflow); // 12 bits
}

TEST(Safetensors, RefusesOffsetsThatDoNotFitTheShape) {
  const auto offsets = [](const std::string &range) {
    return parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" + range + "}}", 8);
  };
  EXPECT_TRUE(offsets("[0,8]").ok());
  expectDamaged(offsets("[0,4]"), "tensor \"a\": data_offsets = [0, 4]: expected 8 bytes, as dtype and shape say");
  expectDamaged(offsets("[8,0]"), "tensor \"a\": data_offsets = [8, 0]: expected 8 bytes, as dtype and shape say");
  expectDamaged(offsets("[0]"), "tensor \"a\": data_offsets = [...]: expected [begin, end]");
  expectDamaged(offsets("[-8,0]"), "tensor \"a\": data_offsets = [...]: expected [begin, end]");
  expectDamaged(offsets("8"), "tensor \"a\": data_offsets = 8: expected [begin, end]");
  expectDamaged(offsets("[9223372036854775800,9223372036854775808]"),
                "tensor \"a\": data_offsets = [...]: expected [begin, end]");
  expectDamaged(offsets("[8,16]"), "tensor \"a\": data_offsets = [8, 16]: expected at most 8, the file's bytes of data "
                                   "(is it truncated?)");
}

TEST(Safetensors, RefusesOverlapsHolesAndLooseEnds) {
  const auto two = [](const std::string &a, const std::string &b, size_t bytes) {
    return parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + a +
                     "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + b + "}}",
                 bytes);
  };
  EXPECT_TRUE(two("[0,4]", "[4,8]", 8).ok());
  EXPECT_TRUE(two("[4,8]", "[0,4]", 8).ok());
  expectDamaged(two("[0,4]", "[2,6]", 6), "tensor \"b\": data_offsets = [2, 6]: overlaps the tensor that ends at 4");
  expectDamaged(two("[0,4]", "[0,4]", 4), "tensor \"b\": data_offsets = [0, 4]: overlaps the tensor that ends at 4");
  expectDamaged(two("[0,4]", "[5,9]", 9),
                "tensor \"b\": data_offsets = [5, 9]: leaves a hole behind the tensor that ends at 4");
  expectDamaged(two("[1,5]", "[5,9]", 9),
                "tensor \"a\": data_offsets = [1, 5]: leaves a hole behind the tensor that ends at 0");
  expectDamaged(two("[0,4]", "[4,8]", 9), "the tensors end at 8: expected 9, the file's bytes of data");
}

// Whatever the bytes, an accepted header's tensors lie inside the file, and cover its data once.
RC_GTEST_PROP(Safetensors, AcceptedFilesAreCoveredOnce, ()) {
  std::string file = SafetensorsWriter()
                         .add("first", "F32", {2, 2}, std::string(16, 'x'))
                         .add("second", "BF16", {3}, std::string(6, 'y'))
                         .file();
  const auto flips = *rc::gen::container<std::vector<std::pair<size_t, uint8_t>>>(
      rc::gen::pair(rc::gen::inRange<size_t>(0, file.size()), rc::gen::arbitrary<uint8_t>()));
  for (const auto &[at, value] : flips)
    file[at] = static_cast<char>(value);
  file.resize(*rc::gen::inRange<size_t>(0, file.size() + 1));
  const auto header = parse(file);
  if (!header.ok())
    return;
  uint64_t total = 0;
  for (const StoredTensor &tensor : header->tensors) {
    RC_ASSERT(tensor.begin <= tensor.exclusiveEnd);
    RC_ASSERT(header->dataOffset + tensor.exclusiveEnd <= file.size());
    total += tensor.exclusiveEnd - tensor.begin;
  }
  RC_ASSERT(header->dataOffset + total == file.size());
}

} // namespace
} // namespace headrace::model
