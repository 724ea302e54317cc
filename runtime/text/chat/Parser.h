// SPDX-License-Identifier: Apache-2.0
//
// jinja2's grammar, for Parser.cpp (statements), ParseExpressions.cpp and ParseCalls.cpp.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/Ast.h"
#include "runtime/text/chat/Lexer.h"

namespace headrace::text::jinja {

inline constexpr int kDeepestSource = 200; // expressions within expressions, and blocks within blocks

class Parser {
public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}
  Ast parse();

private:
  enum class Conditions : bool { Refused, Allowed }; // x if y else z
  class Nested;

  const Token &now() const { return tokens_[at_]; }
  const Token &ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token &take();
  bool skipName(std::string_view name);
  bool skipOperator(std::string_view symbol);
  void expectOperator(std::string_view symbol);
  void expectName(std::string_view name);
  std::string takeName();
  void expectBlockEnd();
  [[noreturn]] void refuse(int line, std::string message) const;
  [[noreturn]] void refuseToken() const; // what stands here

  Expression *make(Expression::Kind kind, int line, std::vector<const Expression *> operands = {});
  int nameId(const std::string &name);

  // ParseExpressions.cpp
  Expression *expression(Conditions conditions = Conditions::Allowed);
  Expression *condition();
  Expression *disjunction();
  Expression *conjunction();
  Expression *negation();
  Expression *comparison();
  Expression *sum();
  Expression *concatenation();
  Expression *product();
  Expression *power();
  Expression *unary(bool withFilters = true);
  Expression *primary();
  Expression *list();
  Expression *dict();
  // Perhaps several with commas between them: a tuple. Ends before `end`, where that is given.
  Expression *tuple(Conditions conditions, std::string_view end = "", bool inParentheses = false);
  Expression *postfix(Expression *of);
  Expression *filters(Expression *of);
  Expression *subscript(Expression *of);
  Expression *subscribed(Expression *of);

  // ParseCalls.cpp
  Expression *call(Expression *callee);
  Expression *filter(const Expression *of);
  Expression *test(Expression *of);
  void arguments(Expression *call);
  void checkArguments(const Expression &call, std::string_view what) const;
  void checkMethod(const Expression &call) const;

  // Parser.cpp
  Block statements(std::initializer_list<std::string_view> ends);
  Block body(std::initializer_list<std::string_view> ends); // the colon and the end of the tag before it
  Statement *statement();
  Statement *make(Statement::Kind kind, int line);
  Statement *ifStatement();
  Statement *forStatement();
  Statement *setStatement();
  Statement *macroStatement();
  Statement *callStatement();
  Statement *filterStatement();
  Statement *withStatement();
  Statement *loopControl();
  Expression *target(std::string_view end = "", bool namespaces = false);
  Expression *targetPart(bool namespaces);
  void signature(Statement *macro);
  Expression *blockFilter();
  Block bodyOutsideLoops(std::string_view end);
  void macroBody(Statement *macro, std::string_view end);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  Ast ast_;
  std::map<std::string, int> names_;

  struct OpenMacro {
    Statement *macro;
    bool setsCaller = false; // so that what reads it from here on reads that
  };
  std::vector<OpenMacro> macros_; // whose bodies are being read, each within the one before
};

// While one of these is alive, the source is one level deeper.
class Parser::Nested {
public:
  explicit Nested(Parser &parser) : parser_(parser) {
    if (++parser_.depth_ > kDeepestSource) {
      --parser_.depth_;
      parser_.refuse(parser_.now().line, "the template nests deeper than " + std::to_string(kDeepestSource));
    }
  }
  ~Nested() { --parser_.depth_; }
  Nested(const Nested &) = delete;
  Nested &operator=(const Nested &) = delete;

private:
  Parser &parser_;
};

} // namespace headrace::text::jinja
