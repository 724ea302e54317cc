// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/Parser.h"

#include <algorithm>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Builtins.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {

using model::cat;

void Parser::refuse(int line, std::string message) const { throw SyntaxError{line, std::move(message)}; }
void Parser::refuseToken() const { refuse(now().line, cat("unexpected ", describe(now()))); }

const Token &Parser::take() {
  const Token &token = tokens_[at_];
  if (at_ + 1 < tokens_.size())
    ++at_;
  return token;
}

bool Parser::skipName(std::string_view name) {
  const bool is = now().isName(name);
  if (is)
    take();
  return is;
}

bool Parser::skipOperator(std::string_view symbol) {
  const bool is = now().isOperator(symbol);
  if (is)
    take();
  return is;
}

void Parser::expectOperator(std::string_view symbol) {
  if (!skipOperator(symbol))
    refuse(now().line, cat("expected '", symbol, "', found ", describe(now())));
}

void Parser::expectName(std::string_view name) {
  if (!skipName(name))
    refuse(now().line, cat("expected '", name, "', found ", describe(now())));
}

std::string Parser::takeName() {
  if (now().kind != Token::Name)
    refuse(now().line, cat("expected a name, found ", describe(now())));
  return take().text;
}

void Parser::expectBlockEnd() {
  if (now().kind != Token::BlockEnd)
    refuse(now().line, cat("expected '%}', found ", describe(now())));
  take();
}

Ast Parser::parse() {
  ast_.body = statements({});
  return std::move(ast_);
}

Statement *Parser::make(Statement::Kind kind, int line) {
  Statement &made = ast_.statements.emplace_back();
  made.kind = kind;
  made.line = line;
  return &made;
}

// Ends at the name of one of the ends, behind its "{%", or at the template's end where there are none.
Block Parser::statements(std::initializer_list<std::string_view> ends) {
  const Nested nested(*this);
  Block block;
  for (;;) {
    const Token &token = now();
    if (token.kind == Token::Data) {
      Statement *text = make(Statement::Text, token.line);
      text->value = Value::constant(take().text);
      block.push_back(text);
    } else if (token.kind == Token::VariableBegin) {
      take();
      Statement *print = make(Statement::Print, token.line);
      print->expressions.push_back(tuple(Conditions::Allowed));
      if (now().kind != Token::VariableEnd)
        refuse(now().line, cat("expected '}}', found ", describe(now())));
      take();
      block.push_back(print);
    } else if (token.kind == Token::BlockBegin) {
      take();
      for (const std::string_view end : ends)
        if (now().isName(end))
          return block;
      block.push_back(statement());
      expectBlockEnd();
    } else {
      if (token.kind == Token::End && ends.size() == 0)
        return block;
      refuse(token.line,
             cat("unexpected ", describe(token), ": expected '", ends.size() == 0 ? "text" : *(ends.end() - 1), "'"));
    }
  }
}

Block Parser::body(std::initializer_list<std::string_view> ends) {
  skipOperator(":");
  expectBlockEnd();
  return statements(ends);
}

Statement *Parser::statement() {
  const Token &tag = now();
  if (tag.kind != Token::Name)
    refuse(tag.line, cat("expected a tag's name, found ", describe(tag)));
  if (tag.text == "if")
    return ifStatement();
  if (tag.text == "for")
    return forStatement();
  if (tag.text == "set")
    return setStatement();
  if (tag.text == "macro")
    return macroStatement();
  if (tag.text == "call")
    return callStatement();
  if (tag.text == "filter")
    return filterStatement();
  if (tag.text == "with")
    return withStatement();
  if (tag.text == "break" || tag.text == "continue")
    return loopControl();
  if (tag.text == "generation") {
    Statement *scope = make(Statement::Scope, take().line);
    scope->blocks.push_back(bodyOutsideLoops("endgeneration"));
    return scope;
  }
  for (const std::string_view known :
       {"autoescape", "block", "do", "extends", "from", "import", "include", "print", "trans"})
    if (tag.text == known)
      refuse(tag.line, cat("the tag '", known, "' is not supported"));
  refuse(tag.line, cat("unknown tag ", describe(tag)));
}

Statement *Parser::ifStatement() {
  Statement *made = make(Statement::If, take().line);
  for (;;) {
    made->expressions.push_back(tuple(Conditions::Refused));
    made->blocks.push_back(body({"elif", "else", "endif"}));
    const std::string &name = take().text;
    if (name == "elif")
      continue;
    if (name == "else") {
      made->blocks.push_back(body({"endif"}));
      take();
    }
    return made;
  }
}

Statement *Parser::forStatement() {
  Statement *made = make(Statement::For, take().line);
  made->target = target("in");
  expectName("in");
  made->expressions.push_back(tuple(Conditions::Refused, "recursive"));
  made->expressions.push_back(skipName("if") ? expression() : nullptr);
  if (now().isName("recursive"))
    refuse(now().line, "recursive loops are not supported");
  ++loops_;
  made->blocks.push_back(body({"else", "endfor"}));
  --loops_;
  if (take().text == "else") {
    made->blocks.push_back(body({"endfor"}));
    take();
  } else
    made->blocks.emplace_back();
  return made;
}

Statement *Parser::loopControl() {
  const Token &tag = take();
  if (loops_ == 0)
    refuse(tag.line, cat("'", tag.text, "' stands outside a loop"));
  return make(tag.text == "break" ? Statement::Break : Statement::Continue, tag.line);
}

Expression *Parser::targetPart(bool namespaces) {
  const Token &token = now();
  if (token.isOperator("(")) {
    const Nested nested(*this);
    take();
    Expression *made = make(Expression::Tuple, token.line);
    while (!now().isOperator(")")) {
      made->operands.push_back(targetPart(namespaces));
      if (!skipOperator(","))
        break;
    }
    expectOperator(")");
    return made;
  }
  const std::string name = takeName();
  for (const std::string_view reserved :
       {"true", "false", "none", "True", "False", "None", "loop", "self", "super", "varargs", "kwargs"})
    if (name == reserved)
      refuse(token.line, cat("'", name, "' cannot be assigned to"));
  if (name == "caller")
    for (OpenMacro &open : macros_)
      open.setsCaller = true;
  if (!namespaces || !skipOperator(".")) {
    Expression *made = make(Expression::Name, token.line);
    made->name = nameId(name);
    return made;
  }
  Expression *made = make(Expression::NamespaceAttribute, token.line);
  made->name = nameId(name);
  const std::string attribute = takeName();
  if (attribute[0] == '_')
    refuse(token.line, cat("the attribute '", printable(attribute, 60), "' of a namespace is not supported"));
  made->value = Value::constant(attribute);
  return made;
}

Expression *Parser::target(std::string_view end, bool namespaces) {
  const int line = now().line;
  Expression *first = targetPart(namespaces);
  if (!now().isOperator(","))
    return first;
  Expression *made = make(Expression::Tuple, line, {first});
  while (skipOperator(",")) {
    if (now().kind == Token::BlockEnd || now().isOperator("=") || (!end.empty() && now().isName(end)))
      break;
    made->operands.push_back(targetPart(namespaces));
  }
  return made;
}

Statement *Parser::setStatement() {
  const int line = take().line;
  const Expression *to = target("", true);
  if (skipOperator("=")) {
    Statement *made = make(Statement::Set, line);
    made->target = to;
    made->expressions.push_back(tuple(Conditions::Allowed));
    return made;
  }
  Statement *made = make(Statement::SetBlock, line);
  made->target = to;
  made->expressions.push_back(now().isOperator("|") ? blockFilter() : nullptr);
  made->blocks.push_back(body({"endset"}));
  take();
  return made;
}

// One or several filters of a block's text; the first may lack its '|'.
Expression *Parser::blockFilter() {
  skipOperator("|");
  Expression *made = filter(nullptr);
  while (now().isOperator("|"))
    made = filter(made);
  return made;
}

Statement *Parser::filterStatement() {
  Statement *made = make(Statement::FilterText, take().line);
  made->expressions.push_back(blockFilter());
  made->blocks.push_back(body({"endfilter"}));
  take();
  return made;
}

void Parser::signature(Statement *macro) {
  expectOperator("(");
  while (!now().isOperator(")")) {
    const Token &token = now();
    const Expression *parameter = targetPart(false);
    if (parameter->kind != Expression::Name)
      refuse(token.line, cat("expected a parameter's name, found ", describe(token)));
    if (std::find(macro->parameters.begin(), macro->parameters.end(), parameter->name) != macro->parameters.end())
      refuse(token.line, cat("the parameter ", describe(token), " stands twice"));
    macro->parameters.push_back(parameter->name);
    macro->parameterNames.push_back(ast_.names[static_cast<size_t>(parameter->name)]);
    if (skipOperator("="))
      macro->expressions.push_back(expression());
    else if (!macro->expressions.empty())
      refuse(token.line, cat("the parameter ", describe(token), " has no default behind one that has"));
    if (!skipOperator(","))
      break;
  }
  expectOperator(")");
}

// A block that runs elsewhere: break and continue within end no loop around it.
Block Parser::bodyOutsideLoops(std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  Block block = body({end});
  take();
  loops_ = loops;
  return block;
}

void Parser::macroBody(Statement *macro, std::string_view end) {
  macros_.push_back({macro});
  macro->blocks.push_back(bodyOutsideLoops(end));
  macros_.pop_back();
  const size_t required = macro->parameters.size() - macro->expressions.size();
  for (size_t i = 0; i < required; ++i)
    if (macro->usesCaller && macro->parameterNames[i].text() == "caller")
      refuse(macro->line, "the parameter 'caller' of a macro that uses it has no default");
}

Statement *Parser::macroStatement() {
  Statement *made = make(Statement::Macro, take().line);
  const Expression *name = targetPart(false);
  if (name->kind != Expression::Name)
    refuse(made->line, "expected a macro's name");
  made->name = name->name;
  made->value = ast_.names[static_cast<size_t>(name->name)];
  signature(made);
  macroBody(made, "endmacro");
  return made;
}

Statement *Parser::callStatement() {
  Statement *made = make(Statement::CallBlock, take().line);
  if (now().isOperator("("))
    signature(made);
  const Expression *called = expression();
  if (called->kind != Expression::Call)
    refuse(made->line, "expected a call behind 'call'");
  made->target = called;
  made->name = nameId("caller");
  macroBody(made, "endcall");
  return made;
}

Statement *Parser::withStatement() {
  Statement *made = make(Statement::With, take().line);
  while (now().kind != Token::BlockEnd) {
    const Token &token = now();
    const Expression *name = targetPart(false);
    if (name->kind != Expression::Name)
      refuse(token.line, cat("expected a variable's name, found ", describe(token)));
    made->parameters.push_back(name->name);
    expectOperator("=");
    made->expressions.push_back(expression());
    if (!skipOperator(","))
      break;
  }
  made->blocks.push_back(body({"endwith"}));
  take();
  return made;
}

Ast parse(std::string_view source) { return Parser(source).parse(); }

} // namespace headrace::text::jinja
