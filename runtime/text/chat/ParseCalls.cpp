// SPDX-License-Identifier: Apache-2.0
//
// Calls, filters and tests: what is not supported is refused here.
#include <algorithm>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Builtins.h"
#include "runtime/text/chat/Parser.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {

using model::cat;

// Appends what stands in parentheses to the operands and keywords.
void Parser::arguments(Expression *call) {
  expectOperator("(");
  while (!now().isOperator(")")) {
    if (now().isOperator("*") || now().isOperator("**"))
      refuse(now().line, cat("arguments from a list ('", now().text, "') are not supported"));
    if (now().kind == Token::Name && ahead().isOperator("=")) {
      const std::string keyword = take().text;
      take();
      if (std::find(call->keywords.begin(), call->keywords.end(), keyword) != call->keywords.end())
        refuse(now().line, cat("the argument '", printable(keyword, 60), "' stands twice"));
      call->keywords.push_back(keyword);
    } else if (!call->keywords.empty())
      refuse(now().line, "expected arguments by position before those by name");
    const Expression *argument = expression();
    call->operands.push_back(argument);
    call->depth = std::max(call->depth, argument->depth + 1);
    if (!skipOperator(","))
      break;
  }
  expectOperator(")");
  if (call->depth > kDeepestSource)
    refuse(call->line, cat("the template nests deeper than ", kDeepestSource));
}

Expression *Parser::call(Expression *callee) {
  Expression *made = make(Expression::Call, now().line, {callee});
  arguments(made);
  if (callee->kind == Expression::Attribute)
    checkMethod(*made);
  for (const std::string_view function : {"cycler", "joiner", "lipsum"})
    if (callee->kind == Expression::Name && ast_.names[static_cast<size_t>(callee->name)].text() == function)
      refuse(made->line, cat("the function '", function, "' is not supported"));
  return made;
}

void Parser::checkMethod(const Expression &call) const {
  const std::string &name = call.operands[0]->value.text();
  if (!isMethodName(name))
    refuse(call.line, cat("the method '", printable(name, 60), "' is not supported"));
}

// Of a filter or a test: as many arguments as it takes, by names that it knows.
void Parser::checkArguments(const Expression &call, std::string_view what) const {
  const Builtin &builtin = *call.builtin;
  if (builtin.takesAny())
    return;
  const size_t given = call.operands.size() - 1;
  if (given > builtin.most() || given < builtin.least)
    refuse(call.line, cat("the ", what, " '", builtin.name, "' has ", given, " arguments: expected ",
                          builtin.least == builtin.most() ? "" : cat(builtin.least, " to "), builtin.most()));
  for (const std::string &keyword : call.keywords)
    if (builtin.indexOf(keyword) == builtin.most())
      refuse(call.line, cat("the argument '", printable(keyword, 60), "' of the ", what, " '", builtin.name,
                            "' is not supported"));
}

Expression *Parser::filter(const Expression *of) {
  if (of)
    expectOperator("|");
  const int line = now().line;
  const std::string name = takeName();
  Expression *made = make(Expression::Filter, line, {of});
  made->builtin = findFilter(name);
  if (!made->builtin)
    refuse(line, cat("the filter '", printable(name, 60), "' is not supported"));
  if (now().isOperator("("))
    arguments(made);
  checkArguments(*made, "filter");
  return made;
}

Expression *Parser::test(Expression *of) {
  const int line = take().line;
  const bool negated = skipName("not");
  const std::string name = takeName();
  Expression *made = make(Expression::Test, line, {of});
  made->builtin = findTest(name);
  if (!made->builtin)
    refuse(line, cat("the test '", printable(name, 60), "' is not supported"));
  const Token &next = now();
  const bool isArgument = next.kind == Token::String || next.kind == Token::Number || next.isOperator("[") ||
                          next.isOperator("{") ||
                          (next.kind == Token::Name && next.text != "else" && next.text != "or" && next.text != "and");
  if (next.isOperator("(")) {
    arguments(made);
  } else if (isArgument) {
    if (next.isName("is"))
      refuse(next.line, "tests cannot be chained with 'is'");
    const Expression *argument = postfix(primary());
    made->operands.push_back(argument);
    made->depth = std::max(made->depth, argument->depth + 1);
  }
  checkArguments(*made, "test");
  return negated ? make(Expression::Not, line, {made}) : made;
}

} // namespace headrace::text::jinja
