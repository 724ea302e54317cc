// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Parser.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {

using model::cat;

Expression *Parser::make(Expression::Kind kind, int line, std::vector<const Expression *> operands) {
  Expression &made = ast_.expressions.emplace_back();
  made.kind = kind;
  made.line = line;
  for (const Expression *operand : operands)
    if (operand)
      made.depth = std::max(made.depth, operand->depth + 1);
  if (made.depth > kDeepestSource)
    refuse(line, cat("the template nests deeper than ", kDeepestSource));
  made.operands = std::move(operands);
  return &made;
}

int Parser::nameId(const std::string &name) {
  const auto [found, isNew] = names_.emplace(name, static_cast<int>(ast_.names.size()));
  if (isNew)
    ast_.names.push_back(Value::constant(name));
  return found->second;
}

Expression *Parser::expression(Conditions conditions) {
  const Nested nested(*this);
  return conditions == Conditions::Allowed ? condition() : disjunction();
}

Expression *Parser::condition() {
  const int line = now().line;
  Expression *what = disjunction();
  while (skipName("if")) {
    const Expression *test = disjunction();
    const Expression *otherwise = nullptr;
    if (skipName("else")) {
      const Nested nested(*this);
      otherwise = condition();
    }
    what = make(Expression::Condition, line, {what, test, otherwise});
  }
  return what;
}

Expression *Parser::disjunction() {
  Expression *left = conjunction();
  while (skipName("or")) {
    const int line = now().line;
    left = make(Expression::Or, line, {left, conjunction()});
  }
  return left;
}

Expression *Parser::conjunction() {
  Expression *left = negation();
  while (skipName("and")) {
    const int line = now().line;
    left = make(Expression::And, line, {left, negation()});
  }
  return left;
}

Expression *Parser::negation() {
  if (!now().isName("not"))
    return comparison();
  const Nested nested(*this);
  const int line = take().line;
  return make(Expression::Not, line, {negation()});
}

Expression *Parser::comparison() {
  const int line = now().line;
  std::vector<const Expression *> operands{sum()};
  std::vector<std::string> operators;
  for (;;) {
    const Token &token = now();
    const bool isSymbol = token.isOperator("==") || token.isOperator("!=") || token.isOperator("<") ||
                          token.isOperator("<=") || token.isOperator(">") || token.isOperator(">=");
    if (isSymbol || token.isName("in")) {
      operators.push_back(take().text);
    } else if (token.isName("not") && ahead().isName("in")) {
      take();
      take();
      operators.push_back("not in");
    } else
      break;
    operands.push_back(sum());
  }
  if (operators.empty())
    return const_cast<Expression *>(operands[0]);
  Expression *made = make(Expression::Compare, line, std::move(operands));
  made->operators = std::move(operators);
  return made;
}

Expression *Parser::sum() {
  Expression *left = concatenation();
  while (now().isOperator("+") || now().isOperator("-")) {
    const Token &token = take();
    left = make(Expression::Arithmetic, token.line, {left, concatenation()});
    left->operators = {token.text};
  }
  return left;
}

Expression *Parser::concatenation() {
  const int line = now().line;
  Expression *first = product();
  if (!now().isOperator("~"))
    return first;
  std::vector<const Expression *> operands{first};
  while (skipOperator("~"))
    operands.push_back(product());
  return make(Expression::Concatenate, line, std::move(operands));
}

Expression *Parser::product() {
  Expression *left = power();
  while (now().isOperator("*") || now().isOperator("/") || now().isOperator("//") || now().isOperator("%")) {
    const Token &token = take();
    left = make(Expression::Arithmetic, token.line, {left, power()});
    left->operators = {token.text};
  }
  return left;
}

Expression *Parser::power() {
  Expression *left = unary();
  while (now().isOperator("**")) {
    const Token &token = take();
    left = make(Expression::Arithmetic, token.line, {left, unary()});
    left->operators = {token.text};
  }
  return left;
}

Expression *Parser::unary(bool withFilters) {
  const Nested nested(*this);
  const Token &token = now();
  Expression *made = nullptr;
  if (token.isOperator("-") || token.isOperator("+")) {
    take();
    const Expression *operand = unary(false);
    made = make(token.text == "-" ? Expression::Negate : Expression::Plus, token.line, {operand});
  } else
    made = primary();
  made = postfix(made);
  return withFilters ? filters(made) : made;
}

Expression *Parser::primary() {
  const Token &token = now();
  const auto constant = [&](Value value) {
    Expression *made = make(Expression::Constant, token.line);
    made->value = std::move(value);
    return made;
  };
  if (token.kind == Token::Name) {
    take();
    if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False")
      return constant(Value::boolean(token.text == "true" || token.text == "True"));
    if (token.text == "none" || token.text == "None")
      return constant(Value::none());
    if (token.text == "self" || token.text == "super" || token.text == "varargs" || token.text == "kwargs")
      refuse(token.line, cat("'", token.text, "' is not supported"));
    if (token.text == "caller")
      for (const OpenMacro &open : macros_)
        open.macro->usesCaller |= !open.setsCaller;
    Expression *made = make(Expression::Name, token.line);
    made->name = nameId(token.text);
    return made;
  }
  if (token.kind == Token::String) {
    std::string text;
    while (now().kind == Token::String)
      text += take().text;
    return constant(Value::constant(std::move(text)));
  }
  if (token.kind == Token::Number) {
    take();
    return constant(token.number);
  }
  if (token.isOperator("(")) {
    take();
    Expression *made = tuple(Conditions::Allowed, "", true);
    expectOperator(")");
    return made;
  }
  if (token.isOperator("["))
    return list();
  if (token.isOperator("{"))
    return dict();
  refuseToken();
}

Expression *Parser::tuple(Conditions conditions, std::string_view end, bool inParentheses) {
  const int line = now().line;
  std::vector<const Expression *> items;
  bool isTuple = false;
  const auto atEnd = [&] {
    return now().kind == Token::VariableEnd || now().kind == Token::BlockEnd || now().isOperator(")") ||
           (!end.empty() && now().isName(end));
  };
  while (!atEnd()) {
    items.push_back(expression(conditions));
    if (!skipOperator(","))
      break;
    isTuple = true;
  }
  if (!isTuple && !items.empty())
    return const_cast<Expression *>(items[0]);
  if (items.empty() && !inParentheses)
    refuse(now().line, cat("expected an expression, found ", describe(now())));
  return make(Expression::Tuple, line, std::move(items));
}

Expression *Parser::list() {
  const int line = take().line;
  std::vector<const Expression *> items;
  while (!now().isOperator("]")) {
    items.push_back(expression());
    if (!skipOperator(","))
      break;
  }
  expectOperator("]");
  return make(Expression::List, line, std::move(items));
}

Expression *Parser::dict() {
  const int line = take().line;
  std::vector<const Expression *> items;
  while (!now().isOperator("}")) {
    items.push_back(expression());
    expectOperator(":");
    items.push_back(expression());
    if (!skipOperator(","))
      break;
  }
  expectOperator("}");
  return make(Expression::Dict, line, std::move(items));
}

Expression *Parser::postfix(Expression *of) {
  for (;;) {
    if (now().isOperator(".") || now().isOperator("["))
      of = subscript(of);
    else if (now().isOperator("("))
      of = call(of);
    else
      return of;
  }
}

Expression *Parser::filters(Expression *of) {
  for (;;) {
    if (now().isOperator("|"))
      of = filter(of);
    else if (now().isName("is"))
      of = test(of);
    else if (now().isOperator("("))
      of = call(of);
    else
      return of;
  }
}

Expression *Parser::subscript(Expression *of) {
  const int line = now().line;
  if (skipOperator(".")) {
    const Token &attribute = take();
    if (attribute.kind == Token::Number && attribute.number.is(Kind::Integer)) {
      Expression *index = make(Expression::Constant, line);
      index->value = attribute.number;
      return make(Expression::Element, line, {of, index});
    }
    if (attribute.kind != Token::Name)
      refuse(line, cat("expected a name or a number behind '.', found ", describe(attribute)));
    if (attribute.text.rfind("__", 0) == 0)
      refuse(line, cat("the attribute '", attribute.text, "' is not supported"));
    Expression *made = make(Expression::Attribute, line, {of});
    made->value = Value::constant(attribute.text);
    return made;
  }
  expectOperator("[");
  Expression *made = subscribed(of);
  if (now().isOperator(","))
    refuse(line, "several subscripts with commas between them are not supported");
  expectOperator("]");
  return made;
}

Expression *Parser::subscribed(Expression *of) {
  const int line = now().line;
  const Expression *bounds[3] = {};
  if (!now().isOperator(":")) {
    Expression *index = expression();
    if (!now().isOperator(":"))
      return make(Expression::Element, line, {of, index});
    bounds[0] = index;
  }
  for (int i = 1; i < 3 && skipOperator(":"); ++i)
    if (!now().isOperator(":") && !now().isOperator("]") && !now().isOperator(","))
      bounds[i] = expression();
  return make(Expression::Slice, line, {of, bounds[0], bounds[1], bounds[2]});
}

} // namespace headrace::text::jinja
