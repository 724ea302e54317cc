// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/JsonReader.h"

#include <cmath>
#include <limits>

#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

using testing::ElementsAre;

// What Python's json.dumps writes of {"NaN": [nan, 1, -inf], "a": "NaN, Infinity \"", "b": {"c": inf}, "d": 0}.
constexpr const char *kPythons =
    R"({"NaN": [NaN, 1, -Infinity], "a": "NaN, Infinity \"", "b": {"c": Infinity}, "d": 0})";

TEST(ParseJson, TakesNumbersThatAreNotFiniteAsPythonWritesThem) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const nlohmann::json &json : {*parseJson(kPythons, "f"), nlohmann::json(*parseOrderedJson(kPythons, "f"))}) {
    EXPECT_TRUE(std::isnan(json["NaN"][0].get<double>()));
    EXPECT_EQ(json["NaN"][1], 1);
    EXPECT_EQ(json["NaN"][2], -infinity);
    EXPECT_EQ(json["a"], "NaN, Infinity \"");
    EXPECT_EQ(json["b"]["c"], infinity);
    EXPECT_TRUE(json["d"].is_number_integer());
  }
  EXPECT_EQ(jsonText((*parseJson("[-Infinity]", "f"))[0]), "-Infinity");
  EXPECT_EQ(jsonText((*parseJson("[NaN]", "f"))[0]), "NaN");
}

TEST(ParseJson, ANumberThatIsNotFiniteIsRefusedWhereOneIsRead) {
  const nlohmann::json json = *parseJson("{\"size\": Infinity}", "f");
  JsonReader size(json, "f"), number(json, "f");
  size.integer("size", std::nullopt, 1, 10);
  EXPECT_EQ(messageOf(size.status()), "f: size = Infinity: expected an integer from 1 to 10");
  number.number("size", std::nullopt);
  EXPECT_EQ(messageOf(number.status()), "f: size = Infinity: expected a finite number");
}

TEST(ParseJson, OtherWordsStayErrorsAtTheirPlace) {
  for (const char *text : {"[NaN, nan]", "[Infinity, +Infinity]", "[NaN, NaNs]", "[NaN, \"Infinity]"})
    EXPECT_FALSE(parseJson(text, "f").ok()) << text;
  EXPECT_THAT(messageOf(parseJson("{\"a\": Infinity, \"b\": inf}", "f")),
              testing::StartsWith("f: expected JSON: parse error at line 1, column 22: "));
}

TEST(ParseJson, SaysThatAFileIsALfsPointer) {
  EXPECT_THAT(messageOf(parseJson(kLfsPointer, "f")), testing::StartsWith("f: a Git LFS pointer in place of the file"));
}

} // namespace
} // namespace headrace::model
