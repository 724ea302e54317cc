// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/ChatTemplate.h"

#include <cstdlib>
#include <utility>

#include "tests/support/TestFiles.h"

namespace headrace::text {
namespace {

using model::messageOf;

Conversation hello() {
  Conversation conversation;
  conversation.add("user", "Hello");
  return conversation;
}

absl::StatusOr<std::string> render(const std::string &source, const TemplateLimits &limits = {},
                                   const Conversation &conversation = hello()) {
  auto chat = ChatTemplate::parse(source, "t.jinja");
  if (!chat.ok())
    return chat.status();
  RenderOptions options;
  options.unixSeconds = 86'400; // 2 January 1970
  return chat->render(conversation, options, limits);
}

TEST(ChatTemplate, WhatIsNotSupportedIsRefusedWhenItIsOpenedByNameAndLine) {
  const std::pair<const char *, const char *> cases[] = {
      {"a\n{% include 'x' %}", "t.jinja:2: the tag 'include' is not supported"},
      {"{% import 'x' as y %}", "t.jinja:1: the tag 'import' is not supported"},
      {"{% block a %}{% endblock %}", "t.jinja:1: the tag 'block' is not supported"},
      {"{% do x %}", "t.jinja:1: the tag 'do' is not supported"},
      {"{% nothing %}", "t.jinja:1: unknown tag 'nothing'"},
      {"\n\n{{ x | groupby('a') }}", "t.jinja:3: the filter 'groupby' is not supported"},
      {"{{ x | tojson(indnt=2) }}", "t.jinja:1: the argument 'indnt' of the filter 'tojson' is not supported"},
      {"{{ x | trim(1, 2) }}", "t.jinja:1: the filter 'trim' has 2 arguments: expected 0 to 1"},
      {"{{ x is nothing }}", "t.jinja:1: the test 'nothing' is not supported"},
      {"{{ x is divisibleby }}", "t.jinja:1: the test 'divisibleby' has 0 arguments: expected 1"},
      {"{{ x.format(1) }}", "t.jinja:1: the method 'format' is not supported"},
      {"{{ x.__class__ }}", "t.jinja:1: the attribute '__class__' is not supported"},
      {"{{ self.x }}", "t.jinja:1: 'self' is not supported"},
      {"{{ cycler('a') }}", "t.jinja:1: the function 'cycler' is not supported"},
      {"{{ f(*x) }}", "t.jinja:1: arguments from a list ('*') are not supported"},
      {"{% for x in y recursive %}{% endfor %}", "t.jinja:1: recursive loops are not supported"},
      {"{% set ns._x = 1 %}", "t.jinja:1: the attribute '_x' of a namespace is not supported"},
  };
  for (const auto &[source, message] : cases)
    EXPECT_REFUSED(ChatTemplate::parse(source, "t.jinja"), absl::StatusCode::kInvalidArgument, message);
}

TEST(ChatTemplate, BrokenSyntaxIsRefusedWithItsLine) {
  const std::pair<const char *, const char *> cases[] = {
      {"{{ 1 + }}", "t.jinja:1: unexpected '}}'"},
      {"{{ x", "t.jinja:1: expected '}}', found end of template"},
      {"\n{% if x %}\n", "t.jinja:2: unexpected end of template: expected 'endif'"},
      {"{% for a in b %}", "t.jinja:1: unexpected end of template: expected 'endfor'"},
      {"{% endif %}", "t.jinja:1: unknown tag 'endif'"},
      {"{% if %}{% endif %}", "t.jinja:1: expected an expression, found '%}'"},
      {"{% set 5 = 3 %}", "t.jinja:1: expected a name, found a number"},
      {"{% set loop = 3 %}", "t.jinja:1: 'loop' cannot be assigned to"},
      {"{% break %}", "t.jinja:1: 'break' stands outside a loop"},
      {"{% for a in b %}{% macro f() %}{% continue %}{% endmacro %}{% endfor %}",
       "t.jinja:1: 'continue' stands outside a loop"},
      {"{{ \"abc }}", "t.jinja:1: a string has no end"},
      {"{{ (x }}", "t.jinja:1: unexpected '}', expected ')'"},
      {"{{ x) }}", "t.jinja:1: unexpected ')'"},
      {"{{ $ }}", "t.jinja:1: unexpected character '$'"},
      {"{# a\n\n", "t.jinja:1: missing end of comment tag"},
      {"{% raw %} a", "t.jinja:1: missing end of raw directive"},
      {"{{ '\\ud800' }}", "t.jinja:1: '\\ud800' is no character"},
      {"{{ 12ab }}", "t.jinja:1: '12ab }}' is no number"},
      {"{% macro f(a, a) %}{% endmacro %}", "t.jinja:1: the parameter 'a' stands twice"},
      {"{% macro f(a=1, b) %}{% endmacro %}", "t.jinja:1: the parameter 'b' has no default behind one that has"},
      {"{{ f(a=1, a=2) }}", "t.jinja:1: the argument 'a' stands twice"},
      {"\n{% macro f(caller) %}{{ caller() }}{% endmacro %}",
       "t.jinja:2: the parameter 'caller' of a macro that uses it has no default"},
      {"{{ f(a=1, 2) }}", "t.jinja:1: expected arguments by position before those by name"},
  };
  for (const auto &[source, message] : cases)
    EXPECT_REFUSED(ChatTemplate::parse(source, "t.jinja"), absl::StatusCode::kInvalidArgument, message);
  EXPECT_REFUSED(ChatTemplate::parse("ab\xff", "t.jinja"), absl::StatusCode::kInvalidArgument,
                 "t.jinja: the template is not UTF-8 at byte 2");
}

TEST(ChatTemplate, SourceThatNestsTooDeepIsRefusedWithoutRecursionThatDeep) {
  const auto repeated = [](const std::string &text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i)
      all += text;
    return all;
  };
  for (const std::string &source :
       {"{{ " + repeated("(", 100'000), "{{ " + repeated("[", 100'000), "{{ " + repeated("not ", 100'000) + "x }}",
        "{{ " + repeated("-", 100'000) + "x }}", "{{ x" + repeated(".a", 100'000) + " }}",
        "{{ x" + repeated(" + x", 100'000) + " }}", "{{ x" + repeated("|trim", 100'000) + " }}",
        "{{ x" + repeated(" or x", 100'000) + " }}", repeated("{% if x %}", 100'000),
        "{{ x" + repeated(" if x else x", 100'000) + " }}", "{% set " + repeated("(", 100'000)})
    EXPECT_REFUSED(ChatTemplate::parse(source, "t.jinja"), absl::StatusCode::kInvalidArgument,
                   "t.jinja:1: the template nests deeper than 200");
  // Long is not deep.
  const auto text =
      render("{{ 'x'" + repeated(" ~ 'x'", 999) + " }}" + repeated("{% if y %}{% elif not y %}z{% endif %}", 999));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, std::string(1000, 'x') + std::string(999, 'z'));
}

TEST(ChatTemplate, EndlessLoopsAndRecursionEndWithAnError) {
  const std::string steps = "t.jinja:1: the template takes more than 10000000 steps";
  const std::string depth = "t.jinja:1: the template nests deeper than 200";
  const std::pair<const char *, std::string> cases[] = {
      {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", steps},
      {"{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(30) }}", steps},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", depth},
      {"{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}", depth},
      // 2^100 empty lists, of which 101 exist.
      {"{% set ns = namespace(x=[]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
       steps},
      {"{{ range(1000000000) }}",
       "t.jinja:1: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."},
  };
  for (const auto &[source, message] : cases)
    EXPECT_REFUSED(render(source), absl::StatusCode::kInvalidArgument, message);
}

TEST(ChatTemplate, WhatGrowsWithoutBoundEndsWithAnError) {
  for (const char *source :
       {"{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'x' * 1000000000000 }}", "{{ [1] * 1000000000000 }}", "{{ 'x'.center(1000000000000) }}",
        "{{ 'x' | indent(1000000000000) }}", "{{ [1] | batch(1000000000000, 1) | list }}",
        "{{ [1] | tojson(indent=1000000000000) }}", "{{ ('x' * 10000) | replace('', 'y' * 10000) }}",
        "{{ ('x' * 10000000) | list }}", "{% for i in range(100000) %}{{ 'abcdefghij' * 1000 }}{% endfor %}"})
    EXPECT_REFUSED(render(source), absl::StatusCode::kInvalidArgument,
                   "t.jinja:1: the template's text and values take more than 67108864 bytes");
}

TEST(ChatTemplate, LimitsAreThoseThatAreGiven) {
  TemplateLimits limits;
  limits.bytes = 4096;
  EXPECT_REFUSED(render("{% for i in range(9) %}{{ 'x' * 1000 }}{% endfor %}", limits),
                 absl::StatusCode::kInvalidArgument,
                 "t.jinja:1: the template's text and values take more than 4096 bytes");
  limits = {};
  limits.steps = 100;
  EXPECT_TRUE(render("{% for i in range(9) %}{% endfor %}", limits).ok());
  EXPECT_REFUSED(render("\n{% for i in range(99) %}{% endfor %}", limits), absl::StatusCode::kInvalidArgument,
                 "t.jinja:2: the template takes more than 100 steps");
  limits = {};
  limits.depth = 10;
  EXPECT_TRUE(render("{{ [[[1]]] }}", limits).ok());
  EXPECT_REFUSED(render("{{ [[[[[[[[[[[1]]]]]]]]]]] }}", limits), absl::StatusCode::kInvalidArgument,
                 "t.jinja:1: the template nests deeper than 10");
}

TEST(ChatTemplate, WhatRaisesNamesTheLineAndIsPrintable) {
  EXPECT_REFUSED(render("a\n{% if true %}\n{{ raise_exception('No\n\x1b[2Jroles \xc3\xa9') }}{% endif %}"),
                 absl::StatusCode::kInvalidArgument, "t.jinja:3: No\\n\\x1b[2Jroles \xc3\xa9");
  const std::string message = messageOf(render("{{ raise_exception('\xc3\xa9' * 10000) }}"));
  EXPECT_EQ(message.size(), std::string("t.jinja:1: ").size() + 1000 + 3); // cut, and "..." behind it
}

TEST(ChatTemplate, NamespacesHoldNoNamespaces) {
  EXPECT_REFUSED(render("{% set ns = namespace() %}{% set ns.x = [ns] %}"), absl::StatusCode::kInvalidArgument,
                 "t.jinja:1: a namespace within a namespace is not supported");
  EXPECT_REFUSED(render("{% set ns = namespace() %}{% for i in [ns] %}{% set ns.x = loop %}{% endfor %}"),
                 absl::StatusCode::kInvalidArgument, "t.jinja:1: a namespace within a namespace is not supported");
}

TEST(ChatTemplate, AMacroEndsWithTheBlockItStandsIn) {
  EXPECT_REFUSED(render("{% set ns = namespace() %}{% for i in [1] %}{% macro f() %}{{ i }}{% endmacro %}"
                        "{% set ns.f = f %}{% endfor %}{% set g = ns.f %}{{ g() }}"),
                 absl::StatusCode::kInvalidArgument,
                 "t.jinja:1: the macro 'f' is called outside the block that it stands in");
}

TEST(ChatTemplate, MessagesThatAreNotUtf8AreNamed) {
  Conversation conversation = hello();
  conversation.add("user", "ab\xff");
  EXPECT_REFUSED(render("{{ messages }}", {}, conversation), absl::StatusCode::kInvalidArgument,
                 "t.jinja:1: messages[1].content is not UTF-8 at byte 2");
}

TEST(ChatTemplate, VariablesOfTheConversationStandOverTheFiles) {
  auto chat = ChatTemplate::parse("{{ bos_token }}{{ add_generation_prompt }}{{ tools }}{{ documents }}{{ level }}",
                                  "t.jinja", R"({"bos_token": "<s>"})");
  ASSERT_TRUE(chat.ok());
  Conversation conversation = hello();
  EXPECT_EQ(*chat->render(conversation), "<s>TrueNoneNone");
  RenderOptions options;
  options.addGenerationPrompt = false;
  ASSERT_TRUE(conversation.set("bos_token", "\"B\"").ok());
  ASSERT_TRUE(conversation.setAll(R"({"level": [1.5, null], "other": true})").ok());
  EXPECT_EQ(*chat->render(conversation, options), "BFalseNoneNone[1.5, None]");
}

TEST(ChatTemplate, TheDateIsThatOfTheOptionsInLocalTime) {
  const char *const now = "{{ strftime_now('%Y-%m-%d %H:%M%z%Z') }}"; // without a zone, as datetime.now() has none
  ASSERT_EQ(::setenv("TZ", "UTC", 1), 0);
  EXPECT_EQ(*render(now), "1970-01-02 00:00");
  ASSERT_EQ(::setenv("TZ", "Etc/GMT+12", 1), 0); // twelve hours behind
  EXPECT_EQ(*render(now), "1970-01-01 12:00");
  ASSERT_EQ(::setenv("TZ", "UTC", 1), 0);
  EXPECT_REFUSED(render("{{ strftime_now('%Q') }}"), absl::StatusCode::kInvalidArgument,
                 "t.jinja:1: strftime_now: the directive '%Q' is not supported");
}

} // namespace
} // namespace headrace::text
